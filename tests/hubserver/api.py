"""The Hub's own port: accounts, repositories and their files; what is written is in writing.py."""

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from hubserver import cdn, writing
from hubserver.metadata import front_matter
from hubserver.store import File, Refused, Repo
from hubserver.wire import Answer, Request, Route

if TYPE_CHECKING:
    from hubserver import HubServer

# --- accounts and repositories ------------------------------------------------------------------------------------


def whoami(hub: "HubServer", request: Request) -> Answer:
    user, role = hub.user(request)
    if user is None:
        raise Refused(401, "Invalid username or password.")
    auth = {"type": "access_token", "accessToken": {"displayName": "test", "role": role}}
    return Answer({"type": "user", "id": user, "name": user, "fullname": user, "orgs": [], "auth": auth})


def create(hub: "HubServer", request: Request) -> Answer:
    asked, (user, role) = request.json(), hub.user(request)
    name = f"{asked.get('organization') or user}/{asked['name']}"
    if user is None:
        raise Refused(401, "Invalid username or password.")
    if role != "write" or name.partition("/")[0] != user:
        raise Refused(403, "You don't have the rights to create a model under this namespace")
    url = {"url": f"{hub.endpoint}/{name}"}
    if name in hub.repos:
        return Answer(url | {"error": "You already created this model repo"}, 409)
    hub.create(name, private=asked.get("visibility") == "private" or bool(asked.get("private")))
    return Answer(url)


def delete(hub: "HubServer", request: Request) -> Answer:
    asked, (user, _) = request.json(), hub.user(request)
    repo = hub.repo(f"{asked.get('organization') or user}/{asked['name']}", request, write=True)
    del hub.repos[repo.name]
    return Answer()


def settings(hub: "HubServer", request: Request, repo: str) -> Answer:
    found, asked = hub.repo(repo, request, write=True), request.json()
    found.private = asked.get("visibility", "private" if asked.get("private", found.private) else "") == "private"
    found.gated = bool(asked.get("gated", found.gated))
    return Answer({"private": found.private, "gated": found.gated})


def auth_check(hub: "HubServer", request: Request, repo: str) -> Answer:
    hub.repo(repo, request, files=True)
    return Answer("OK")


def auth_check_write(hub: "HubServer", request: Request, repo: str) -> Answer:
    hub.repo(repo, request, write=True)
    return Answer("OK")


def info(hub: "HubServer", request: Request, repo: str, revision: str = "main") -> Answer:
    found = hub.repo(repo, request)
    commit = found.resolve(revision)
    told = described(found, commit)
    blobs = "blobs" in request.query
    files = found.files(commit).values()
    told["siblings"] = [{"rfilename": f.path} | (_blob(f) if blobs else {}) for f in files]
    if wanted := request.query.get("expand"):
        told = {key: told[key] for key in ("_id", "id", *wanted) if key in told}
    return Answer(told)


def described(repo: Repo, commit: str) -> dict[str, Any]:
    """What a repository is known by, from the front matter of its card."""
    readme = repo.files(commit).get("README.md")
    data = front_matter(repo.blob(readme.blob).decode(errors="replace"))[0] if readme else {}
    tags = [data.get("library_name"), *data.get("tags", []), *(f"license:{x}" for x in [data.get("license")] if x)]
    return {
        "_id": repo.name,
        "id": repo.name,
        "modelId": repo.name,
        "author": repo.name.partition("/")[0],
        "sha": commit,
        "private": repo.private,
        "gated": "manual" if repo.gated else False,
        "disabled": False,
        "createdAt": repo.created.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "lastModified": repo.history(commit)[0][1],
        "downloads": 0,
        "likes": 0,
        "library_name": data.get("library_name"),
        "pipeline_tag": data.get("pipeline_tag"),
        "cardData": data,
        "tags": list(dict.fromkeys(tag for tag in tags if tag)),
    }


def _blob(file: File) -> dict[str, Any]:
    large = {"lfs": {"sha256": file.oid, "size": file.size, "pointerSize": file.pointer_size}} if file.oid else {}
    return {"blobId": file.blob, "size": file.size, **large}


def models(hub: "HubServer", request: Request) -> Answer:
    """The models that are public or the caller's, by tag and by a part of their name, a page at a time."""
    user, _ = hub.user(request)
    query = request.query
    found = []
    for name in sorted(hub.repos):
        repo = hub.repos[name]
        if repo.private and name.partition("/")[0] != user:
            continue
        told = described(repo, repo.resolve("main"))
        if set(query.get("filter", [])) <= {*told["tags"]} and query.get("search", [""])[0].lower() in name.lower():
            found.append(told if "full" in query or "cardData" in query else _without(told, "cardData"))
    return page(hub, request, found, int(query.get("limit", [hub.page])[0]))


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != key}


def page(hub: "HubServer", request: Request, items: list[Any], size: int) -> Answer:
    """One page of a list; the Link header leads to the next."""
    size, start = min(size, hub.page), int(request.query.get("cursor", ["0"])[0])
    more = {**request.query, "cursor": [str(start + size)]}
    link = f'<{hub.endpoint}{request.path}?{urlencode(more, doseq=True)}>; rel="next"'
    return Answer(items[start : start + size], headers={"Link": link} if start + size < len(items) else {})


# --- reading ------------------------------------------------------------------------------------------------------


def tree(hub: "HubServer", request: Request, repo: str, revision: str, path: str = "") -> Answer:
    found = hub.repo(repo, request)
    commit = found.resolve(revision)
    recursive = request.query.get("recursive", ["false"])[0].lower() in ("true", "1")
    listed = _entries(found, commit, path, recursive)
    if path and not listed:
        raise Refused(404, f"{path} does not exist", "EntryNotFound")
    if request.query.get("expand", ["false"])[0].lower() in ("true", "1"):
        listed = [entry | {"lastCommit": _last_commit(found, commit)} for entry in listed]
    return page(hub, request, listed, hub.page)


def _entries(repo: Repo, commit: str, within: str, recursive: bool) -> list[dict[str, Any]]:
    listed: dict[str, dict[str, Any]] = {}
    for file in repo.files(commit).values():
        inside = PurePosixPath(file.path)
        if within and PurePosixPath(within) not in inside.parents:
            continue
        for folder in reversed(inside.parents[:-1]):
            depth = len(folder.parts) - len(PurePosixPath(within).parts)
            if depth > 0 and (recursive or depth == 1):
                listed.setdefault(str(folder), {"type": "directory", "oid": commit, "size": 0, "path": str(folder)})
        if recursive or len(inside.parts) == len(PurePosixPath(within).parts) + 1:
            listed[file.path] = _entry(file)
    return [listed[path] for path in sorted(listed)]


def _entry(file: File) -> dict[str, Any]:
    large = {"lfs": {"oid": file.oid, "size": file.size, "pointerSize": file.pointer_size}} if file.oid else {}
    return {"type": "file", "oid": file.blob, "size": file.size, "path": file.path, **large}


def _last_commit(repo: Repo, commit: str) -> dict[str, str]:
    sha, date, message = repo.history(commit)[0]
    return {"id": sha, "title": message.partition("\n")[0], "date": date}


def paths_info(hub: "HubServer", request: Request, repo: str, revision: str) -> Answer:
    found = hub.repo(repo, request)
    commit, asked = found.resolve(revision), parse_qs(request.body.decode()).get("paths", [])
    files = found.files(commit)
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    listed = [_entry(files[path]) for path in asked if path in files]
    return Answer(
        listed + [{"type": "directory", "oid": commit, "size": 0, "path": p} for p in asked if p in folders - {"."}]
    )


def refs(hub: "HubServer", request: Request, repo: str) -> Answer:
    found = hub.repo(repo, request)
    told = {
        name: [{"name": ref, "ref": f"refs/{kind}/{ref}", "targetCommit": sha} for ref, sha in found.refs(kind).items()]
        for name, kind in (("branches", "heads"), ("tags", "tags"))
    }
    return Answer(told | {"converts": [], "pullRequests": []})


def commits(hub: "HubServer", request: Request, repo: str, revision: str) -> Answer:
    found = hub.repo(repo, request)
    listed = [
        {"id": sha, "date": date, "title": text.partition("\n")[0], "message": text.partition("\n")[2], "authors": []}
        for sha, date, text in found.history(found.resolve(revision))
    ]
    return page(hub, request, listed, hub.page)


def resolve(hub: "HubServer", request: Request, repo: str, revision: str, path: str) -> Answer:
    """A file; a large one is elsewhere, at a signed link."""
    found = hub.repo(repo, request, files=True)
    commit = found.resolve(revision)
    told = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
    try:
        file = found.file(commit, path)
    except Refused as refused:
        return Answer(refused.message.encode(), 404, told | {"X-Error-Code": "EntryNotFound"})
    if file.oid:
        linked = {"X-Linked-Etag": f'"{file.oid}"', "X-Linked-Size": str(file.size)}
        link = cdn.signed(hub, f"/{repo}/{file.oid}")
        return Answer(b"", 302, told | linked | {"Location": link})
    return Answer(found.blob(file.blob), headers=told | {"ETag": f'"{file.blob}"'})


_REPO, _REV = r"/api/models/(?P<repo>[^/]+/[^/]+)", r"(?P<revision>[^/]+)"
_NAME, _GIT = r"(?P<name>[^/]+)", r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects"
ROUTES: list[Route] = [
    ("GET", "/api/whoami-v2", whoami),
    ("POST", "/api/repos/create", create),
    ("DELETE", "/api/repos/delete", delete),
    ("POST", "/api/validate-yaml", writing.validate_yaml),
    ("GET", "/api/models", models),
    ("PUT", rf"{_REPO}/settings", settings),
    ("GET", _REPO, info),
    ("GET", rf"{_REPO}/revision/{_REV}", info),
    ("GET", rf"{_REPO}/auth-check", auth_check),
    ("GET", rf"{_REPO}/auth-check/write", auth_check_write),
    ("GET", rf"{_REPO}/tree/{_REV}(?:/(?P<path>.*))?", tree),
    ("POST", rf"{_REPO}/paths-info/{_REV}", paths_info),
    ("GET", rf"{_REPO}/refs", refs),
    ("GET", rf"{_REPO}/commits/{_REV}", commits),
    ("POST", rf"{_REPO}/preupload/{_REV}", writing.preupload),
    ("POST", rf"{_REPO}/commit/{_REV}", writing.commit),
    ("POST", rf"{_REPO}/branch/{_NAME}", writing.branch),
    ("DELETE", rf"{_REPO}/branch/{_NAME}", writing.drop_ref("heads")),
    ("DELETE", rf"{_REPO}/tag/{_NAME}", writing.drop_ref("tags")),
    ("POST", rf"{_REPO}/tag/{_REV}", writing.tag),
    ("POST", rf"{_GIT}/batch", writing.batch),
    ("POST", rf"{_GIT}/verify", writing.verify),
    ("POST", rf"/api/complete_multipart/(?P<repo>[^/]+/[^/]+)/{cdn.OID}", writing.complete),
    ("GET", r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)", resolve),
]
