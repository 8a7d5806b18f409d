"""Serve until standard input ends; the first line printed is JSON: the endpoint, and a token of the user `someone`."""

import json
import sys

from hubserver import HubServer

with HubServer() as hub:
    print(json.dumps({"endpoint": hub.endpoint, "token": hub.token("someone")}), flush=True)
    sys.stdin.read()
