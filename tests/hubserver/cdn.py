"""The second port: where large files are sent and fetched by signed links, with no token of the Hub's."""

import hashlib
import hmac
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hubserver.store import Refused
from hubserver.wire import Answer, Request, Route

if TYPE_CHECKING:
    from hubserver import HubServer


def signed(hub: "HubServer", path: str) -> str:
    """The link of a path on this port, good for this server's life."""
    return f"{hub.cdn}{path}?X-Amz-Signature={signature(hub, path)}"


def signature(hub: "HubServer", path: str) -> str:
    return hmac.new(hub.secret, path.encode(), hashlib.sha256).hexdigest()


def _check(hub: "HubServer", request: Request) -> None:
    if request.headers.get("Authorization"):
        raise Refused(400, "Only one auth mechanism allowed: a signed link came with an Authorization header")
    if request.query.get("X-Amz-Signature") != [signature(hub, request.path)]:
        raise Refused(403, "SignatureDoesNotMatch")


def fetch(hub: "HubServer", request: Request, repo: str, oid: str) -> Answer:
    """An object or, with a Range, what is asked of it."""
    _check(hub, request)
    content = hub.repo(repo).object(oid).read_bytes()
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
    if not asked:
        return Answer(content, headers={"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})
    start, end = int(asked[1]), min(int(asked[2] or len(content) - 1), len(content) - 1)
    if start > end:
        raise Refused(416, "the range lies outside of the file")
    return Answer(content[start : end + 1], 206, {"Content-Range": f"bytes {start}-{end}/{len(content)}"})


def put(hub: "HubServer", request: Request, repo: str, oid: str) -> Answer:
    """A whole object."""
    _check(hub, request)
    with tempfile.TemporaryDirectory() as place:
        part = Path(place) / "0"
        part.write_bytes(request.body)
        hub.repo(repo).put_object(oid, [part])
    return Answer(headers={"ETag": f'"{oid}"'})


def put_part(hub: "HubServer", request: Request, repo: str, oid: str, number: str) -> Answer:
    """One part of an object; its ETag is asked for when the parts are put together."""
    _check(hub, request)
    part = hub.part(repo, oid, int(number))
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(request.body)
    return Answer(headers={"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})


OID = r"(?P<oid>[0-9a-f]{64})"
REPO = r"(?P<repo>[^/]+/[^/]+)"
ROUTES: list[Route] = [
    ("GET", rf"/{REPO}/{OID}", fetch),
    ("PUT", rf"/{REPO}/{OID}", put),
    ("PUT", rf"/{REPO}/{OID}/(?P<number>\d+)", put_part),
]
