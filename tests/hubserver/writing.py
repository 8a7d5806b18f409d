"""What a client writes: uploads of large files, commits, branches and tags."""

import base64
import json
from math import ceil
from typing import TYPE_CHECKING, Any

from hubserver import cdn
from hubserver.metadata import front_matter
from hubserver.store import File, Refused, Repo
from hubserver.wire import Answer, Request

if TYPE_CHECKING:
    from hubserver import HubServer


def validate_yaml(hub: "HubServer", request: Request) -> Answer:
    _, errors, warnings = front_matter(request.json()["content"])
    told = {"errors": [{"message": m} for m in errors], "warnings": [{"message": m} for m in warnings]}
    return Answer(told, 400 if errors else 200)


def preupload(hub: "HubServer", request: Request, repo: str, revision: str) -> Answer:
    found = hub.repo(repo, request, write=True)
    commit = found.resolve(revision)
    there = found.files(commit)
    told = []
    for asked in request.json()["files"]:
        base64.b64decode(asked["sample"], validate=True)
        large = found.is_large(commit, asked["path"], asked["size"])
        old = there.get(asked["path"])
        oid = (old.oid if large else old.blob) if old else None
        mode = "lfs" if large else "regular"
        told.append({"path": asked["path"], "uploadMode": mode, "shouldIgnore": False} | ({"oid": oid} if oid else {}))
    return Answer({"files": told})


def batch(hub: "HubServer", request: Request, repo: str) -> Answer:
    """Where each large object is to be sent; nowhere, if it is there."""
    found, asked = hub.repo(repo, request, write=True), request.json()
    return Answer({"transfer": "basic", "objects": [_actions(hub, found, thing) for thing in asked["objects"]]})


def _actions(hub: "HubServer", repo: Repo, thing: dict[str, Any]) -> dict[str, Any]:
    oid, size = thing["oid"], thing["size"]
    if repo.object(oid).is_file():
        return {"oid": oid, "size": size}
    upload: dict[str, Any] = {"href": cdn.signed(hub, f"/{repo.name}/{oid}")}
    if hub.part_size and size > hub.part_size:
        numbers = range(1, ceil(size / hub.part_size) + 1)
        links = {f"{n:05d}": cdn.signed(hub, f"/{repo.name}/{oid}/{n}") for n in numbers}
        path = f"/api/complete_multipart/{repo.name}/{oid}"
        upload["href"] = f"{hub.endpoint}{path}?signature={cdn.signature(hub, path)}"
        upload["header"] = {"chunk_size": str(hub.part_size), **links}
    verify = {"href": f"{hub.endpoint}/{repo.name}.git/info/lfs/objects/verify"}
    return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}}


def complete(hub: "HubServer", request: Request, repo: str, oid: str) -> Answer:
    if request.query.get("signature") != [cdn.signature(hub, request.path)]:
        raise Refused(403, "SignatureDoesNotMatch")
    listed = [part["partNumber"] for part in request.json()["parts"]]
    if listed != list(range(1, len(listed) + 1)) or not all(part["etag"] for part in request.json()["parts"]):
        raise Refused(400, "InvalidPart")
    hub.repo(repo).put_object(oid, [hub.part(repo, oid, number) for number in listed])
    return Answer({})


def verify(hub: "HubServer", request: Request, repo: str) -> Answer:
    thing = hub.repo(repo, request, write=True).object(request.json()["oid"])
    if not thing.is_file() or thing.stat().st_size != request.json()["size"]:
        raise Refused(400, "the object was not uploaded")
    return Answer({})


def commit(hub: "HubServer", request: Request, repo: str, revision: str) -> Answer:
    """All files of a commit at once, or none."""
    found = hub.repo(repo, request, write=True)
    if "create_pr" in request.query:
        raise Refused(501, "no pull requests here")
    if revision not in found.refs("heads"):
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
    header, *lines = [json.loads(line) for line in request.body.splitlines() if line.strip()]
    told = header["value"]
    with found.lock:
        add, gone = _changes(found, found.resolve(revision), lines)
        if "README.md" in add and (errors := front_matter(add["README.md"].decode(errors="replace"))[1]):
            raise Refused(400, f"Invalid metadata in README.md. {errors[0]}")
        message = f"{told['summary']}\n\n{told.get('description') or ''}".strip()
        made = found.commit(revision, message, add, gone, told.get("parentCommit"))
    return Answer({"success": True, "commitOid": made, "commitUrl": f"{hub.endpoint}/{repo}/commit/{made}"})


def _changes(repo: Repo, head: str, lines: list[dict[str, Any]]) -> tuple[dict[str, bytes], list[str]]:
    there = repo.files(head)
    add: dict[str, bytes] = {}
    gone: list[str] = []
    for line in lines:
        value, path = line["value"], line["value"]["path"]
        if path.startswith("/") or ".." in path.split("/") or ".git" in path.split("/"):
            raise Refused(400, f"Invalid path: {path}")
        match line["key"]:
            case "file":
                add[path] = base64.b64decode(value["content"], validate=True)
            case "lfsFile":
                add[path] = _pointer(repo, value["oid"], there)
            case "deletedFile":
                if path not in there:
                    raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
                gone.append(path)
            case "deletedFolder":
                gone += [name for name in there if name.startswith(f"{path.rstrip('/')}/")]
            case key:
                raise Refused(400, f"unknown operation {key}")
    return add, gone


def _pointer(repo: Repo, oid: str, there: dict[str, File]) -> bytes:
    if not (thing := repo.object(oid)).is_file():
        raise Refused(400, f"LFS pointer pointed to a file that does not exist: {oid}")
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {thing.stat().st_size}\n".encode()


def branch(hub: "HubServer", request: Request, repo: str, name: str) -> Answer:
    found = hub.repo(repo, request, write=True)
    if name in found.refs("heads"):
        raise Refused(409, f"Reference already exists: {name}")
    start = found.resolve(request.json().get("startingPoint", "main"))
    found.git("update-ref", f"refs/heads/{name}", start)
    return Answer({})


def tag(hub: "HubServer", request: Request, repo: str, revision: str) -> Answer:
    found, asked = hub.repo(repo, request, write=True), request.json()
    if asked["tag"] in found.refs("tags"):
        raise Refused(409, f"Reference already exists: {asked['tag']}")
    found.git("update-ref", f"refs/tags/{asked['tag']}", found.resolve(revision))
    return Answer({})


def drop_ref(kind: str) -> Any:
    def drop(hub: "HubServer", request: Request, repo: str, name: str) -> Answer:
        found = hub.repo(repo, request, write=True)
        if name not in found.refs(kind):
            raise Refused(404, f"Invalid rev id: {name}", "RevisionNotFound")
        found.git("update-ref", "-d", f"refs/{kind}/{name}")
        return Answer({})

    return drop
