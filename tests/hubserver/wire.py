"""Requests and answers: what both of the server's ports have in common."""

import contextlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from hubserver.store import Refused

if TYPE_CHECKING:
    from hubserver import HubServer


@dataclass
class Request:
    """What a client asks for."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Any
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None


@dataclass
class Answer:
    """What the client gets. `body` is JSON unless it is bytes."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def whole(self) -> tuple[bytes, dict[str, str]]:
        if isinstance(self.body, bytes):
            return self.body, {"Content-Type": "application/octet-stream", **self.headers}
        return json.dumps(self.body).encode(), {"Content-Type": "application/json; charset=utf-8", **self.headers}


Route = tuple[str, str, Callable[..., Answer]]


class Handler(BaseHTTPRequestHandler):
    """One connection. `routes` are the port's, each a method, a pattern of the quoted path, and a function."""

    protocol_version = "HTTP/1.1"
    hub: "HubServer"
    routes: list[Route]
    place: str

    def setup(self) -> None:
        super().setup()
        self.request.settimeout(60)

    def log_message(self, *_: object) -> None: ...

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        request = Request(self.command, parts.path, parse_qs(parts.query), self.headers, self._body())
        self.hub.seen.append((self.place, self.command, parts.path, dict(self.headers)))
        fault = self.hub.faults.next(self.command, parts.path)
        if fault and fault.before:
            fault.before()
        if fault and fault.wait:
            threading.Event().wait(fault.wait)
        try:
            if fault and fault.status:
                raise Refused(fault.status, "on demand")
            answer = self._route(request)
        except Refused as refused:
            answer = refusal(refused)
        except (KeyError, ValueError, TypeError) as error:
            answer = refusal(Refused(400, f"{type(error).__name__}: {error}"))
        self._send(answer, fault.cut if fault else None)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _route(self, request: Request) -> Answer:
        for method, pattern, function in self.routes:
            wanted = "GET" if request.method == "HEAD" else request.method
            if method == wanted and (match := re.fullmatch(pattern, request.path)):
                return function(self.hub, request, **{k: unquote(v) for k, v in match.groupdict().items() if v})
        raise Refused(404, f"no such page: {request.method} {request.path}")

    def _send(self, answer: Answer, cut: int | None) -> None:
        body, headers = answer.whole()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(answer.status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.close_connection = True


def refusal(refused: Refused) -> Answer:
    """An error as the Hub tells it: in headers and in the body."""
    headers = {"X-Error-Message": refused.message.replace("\n", " ")}
    if refused.code:
        headers["X-Error-Code"] = refused.code
    return Answer({"error": refused.message}, refused.status, headers)
