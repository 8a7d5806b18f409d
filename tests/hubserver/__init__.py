"""A Hub server for tests: git for storage, one port for the API, another for large files, faults on demand.

It answers as the Hub does to huggingface_hub, and is driven by that client alone. Only models; no pull requests, no Xet.
"""

import secrets
import shutil
import socket
import tempfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hubserver import api, cdn
from hubserver.faults import Faults
from hubserver.store import Refused, Repo
from hubserver.wire import Handler, Request, Route

__all__ = ["HubServer", "listening"]


def listening(port: int = 0) -> socket.socket:
    """A socket on this machine alone, whose port is known before anything is served."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    return made


class HubServer:
    """The server. `seen` has every request: its port (`hub` or `cdn`), method, path and headers."""

    def __init__(self, sockets: tuple[socket.socket, socket.socket] | None = None) -> None:
        self.sockets = sockets or (listening(), listening())
        self.endpoint, self.cdn = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in self.sockets)
        self.root = Path(tempfile.mkdtemp(prefix="hubserver-"))
        self.secret = secrets.token_bytes(16)
        self.repos: dict[str, Repo] = {}
        self.tokens: dict[str, tuple[str, str]] = {}
        self.faults = Faults()
        self.seen: list[tuple[str, str, str, dict[str, str]]] = []
        self.page = 1000
        self.part_size: int | None = None
        self._servers: list[ThreadingHTTPServer] = []

    def __enter__(self) -> "HubServer":
        for name, sock, routes in (("hub", self.sockets[0], api.ROUTES), ("cdn", self.sockets[1], cdn.ROUTES)):
            server = _Server(sock, self._handler(name, routes))
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self._servers.append(server)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _handler(self, place: str, routes: list[Route]) -> type[Handler]:
        return type(f"{place.title()}Handler", (Handler,), {"hub": self, "routes": routes, "place": place})

    # --- who may do what ------------------------------------------------------------------------------------------

    def token(self, user: str, role: str = "write") -> str:
        """A new token of a user's."""
        made = f"hf_{secrets.token_hex(17)}"
        self.tokens[made] = (user, role)
        return made

    def user(self, request: Request) -> tuple[str | None, str | None]:
        """Who asks, and what the token is good for; (None, None) without one."""
        if request.token is None:
            return None, None
        if request.token not in self.tokens:
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.tokens[request.token]

    def create(self, name: str, private: bool = False) -> Repo:
        made = Repo(name, self.root, private=private)
        made.create()
        self.repos[name] = made
        return made

    def repo(self, name: str, request: Request | None = None, write: bool = False, files: bool = False) -> Repo:
        """A repository, if who asks (None: the server itself) may see it, write it, or fetch its files."""
        found = self.repos.get(name)
        if request is None:
            return _there(found)
        user, role = self.user(request)
        owner = name.partition("/")[0] == user
        if found is None or (found.private and not owner):
            raise Refused(404 if user else 401, "Repository not found", "RepoNotFound")
        if files and found.gated and not owner:
            words = f"Access to model {name} is restricted and you are not in the authorized list."
            raise Refused(403 if user else 401, words, "GatedRepo")
        if write and (not owner or role != "write"):
            raise Refused(403 if user else 401, "you must use a write token to upload to a repository.")
        return found

    def part(self, repo: str, oid: str, number: int) -> Path:
        """Where a part of an object waits for the others."""
        return self.root / "parts" / repo / oid / str(number)

    # --- for tests ------------------------------------------------------------------------------------------------

    def head(self, name: str) -> str:
        """The commit that main is at."""
        return self.repos[name].resolve("main")

    def files(self, name: str) -> dict[str, bytes]:
        """Every file of main with its content."""
        repo = self.repos[name]
        found = repo.files(self.head(name)).values()
        return {f.path: repo.object(f.oid).read_bytes() if f.oid else repo.blob(f.blob) for f in found}

    def flip(self, name: str, path: str, position: int, bit: int = 1) -> None:
        """Change one bit of a stored large file behind everybody's back."""
        repo = self.repos[name]
        thing = repo.object(repo.file(self.head(name), path).oid or "")
        content = bytearray(thing.read_bytes())
        content[position] ^= bit
        thing.write_bytes(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, sock: socket.socket, handler: Any) -> None:
        super().__init__(sock.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock

    def handle_error(self, *_: object) -> None:
        """A client that went away is no error of the server's."""


def _there(found: Repo | None) -> Repo:
    if found is None:
        raise Refused(404, "Repository not found", "RepoNotFound")
    return found
