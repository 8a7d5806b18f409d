"""The server's repositories: bare git repositories, and beside each the large files that its pointers name."""

import hashlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

POINTER = re.compile(rb"version https://git-lfs.github.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (\d+)\n")
LARGE = 10 * 2**20
"""Bytes from which a file goes to LFS whatever its name."""
ATTRIBUTES = "".join(
    f"*.{ending} filter=lfs diff=lfs merge=lfs -text\n"
    for ending in ("bin", "ckpt", "gz", "h5", "npy", "npz", "onnx", "pt", "pth", "safetensors", "tar", "zip")
)


class Refused(Exception):
    """What a client is told: an HTTP status, the Hub's own code of the error, and words."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True)
class File:
    """A file of a commit: the git blob, and of a large one the object that its pointer names."""

    path: str
    blob: str
    size: int
    oid: str | None = None
    pointer_size: int | None = None


@dataclass
class Repo:
    """One model repository."""

    name: str
    root: Path
    private: bool = False
    gated: bool = False
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    lock: threading.RLock = field(default_factory=threading.RLock)
    _files: dict[str, dict[str, "File"]] = field(default_factory=dict)
    """Of a commit, which never changes."""

    @cached_property
    def git_dir(self) -> Path:
        return self.root / "git" / f"{self.name}.git"

    @cached_property
    def objects(self) -> Path:
        return self.root / "lfs" / self.name

    def git(self, *words: str, given: bytes | None = None, **env: str) -> bytes:
        """What a git command prints; a failed one is a Refused."""
        named = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _PERSON.items()}
        bare = {"GIT_DIR": str(self.git_dir), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(["git", *words], input=given, capture_output=True, env=os.environ | named | bare | env)
        if done.returncode:
            raise Refused(500, f"git {words[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def create(self) -> None:
        """Make the repository as the Hub does, with a first commit that holds .gitattributes."""
        self.git_dir.mkdir(parents=True)
        self.objects.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main")
        self.commit("main", "initial commit", add={".gitattributes": ATTRIBUTES.encode()})

    # --- reading ------------------------------------------------------------------------------------------------

    def resolve(self, revision: str) -> str:
        """The commit of a branch, a tag or a (shortened) commit id."""
        shown = None if revision.startswith("-") or ".." in revision else revision
        for ref in (f"refs/heads/{shown}", f"refs/tags/{shown}", shown or ""):
            try:
                return self.git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()
            except Refused:
                continue
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def files(self, commit: str) -> dict[str, File]:
        """Every file of a commit by its path."""
        if commit not in self._files:
            self._files[commit] = self._list(commit)
        return self._files[commit]

    def _list(self, commit: str) -> dict[str, File]:
        listed = self.git("ls-tree", "-r", "-l", "-z", commit).decode()
        found = {}
        for line in filter(None, listed.split("\0")):
            about, _, path = line.partition("\t")
            _, _, blob, size = about.split()
            found[path] = self._file(path, blob, int(size))
        return found

    def _file(self, path: str, blob: str, size: int) -> File:
        match = POINTER.fullmatch(self.blob(blob)) if size < 200 else None
        return File(path, blob, int(match[2]), match[1].decode(), size) if match else File(path, blob, size)

    def file(self, commit: str, path: str) -> File:
        """One file of a commit."""
        if path not in (found := self.files(commit)):
            raise Refused(404, f"Entry not found: {path}", "EntryNotFound")
        return found[path]

    def blob(self, sha: str) -> bytes:
        return self.git("cat-file", "blob", sha)

    def refs(self, kind: str) -> dict[str, str]:
        """Branches (`heads`) or `tags` with their commits."""
        lines = self.git("for-each-ref", f"refs/{kind}", "--format=%(refname:lstrip=2) %(*objectname) %(objectname)")
        return {line.split()[0]: line.split()[1] for line in lines.decode().splitlines()}

    def history(self, commit: str) -> list[tuple[str, str, str]]:
        """(id, date, message) of a commit and those before it, newest first."""
        listed = self.git("log", "--date=format-local:%Y-%m-%dT%H:%M:%S.000Z", _LOG, commit, TZ="UTC").decode()
        return [tuple(entry.strip().split("\0")) for entry in listed.split("\x01") if entry.strip()]  # pyright: ignore[reportReturnType]

    # --- writing ------------------------------------------------------------------------------------------------

    def commit(
        self,
        branch: str,
        message: str,
        add: dict[str, bytes] | None = None,
        delete: Iterable[str] = (),
        parent: str | None = None,
    ) -> str:
        """One commit on a branch, whole or not at all; refused where `parent` is no longer its head."""
        with self.lock:
            head = self.refs("heads").get(branch)
            if parent is not None and parent != head:
                raise Refused(412, "A commit has happened since. Please refresh and try again.")
            with tempfile.TemporaryDirectory() as place:
                index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
                if head:
                    self.git("read-tree", head, **index)
                gone = "".join(f"0 {'0' * 40}\t{path}\0" for path in delete)
                blobs = {path: self._store(content) for path, content in (add or {}).items()}
                lines = gone + "".join(f"100644 {blob}\t{path}\0" for path, blob in blobs.items())
                self.git("update-index", "-z", "--add", "--index-info", given=lines.encode(), **index)
                tree = self.git("write-tree", **index).decode().strip()
            before = ["-p", head] if head else []
            made = self.git("commit-tree", tree, *before, "-F", "-", given=message.encode()).decode().strip()
            self.git("update-ref", f"refs/heads/{branch}", made, head or "0" * 40)
            return made

    def _store(self, content: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", given=content).decode().strip()

    def is_large(self, commit: str, path: str, size: int) -> bool:
        """Whether a file goes to LFS: by .gitattributes or by its size."""
        if size >= LARGE:
            return True
        attributes = self.files(commit).get(".gitattributes")
        lines = self.blob(attributes.blob).decode().splitlines() if attributes else []
        patterns = [line.split()[0] for line in lines if "filter=lfs" in line]
        return any(Path(path).match(pattern) for pattern in patterns)

    # --- large files --------------------------------------------------------------------------------------------

    def object(self, oid: str) -> Path:
        return self.objects / oid

    def put_object(self, oid: str, parts: Iterable[Path]) -> None:
        """Keep an object that was sent, if its bytes are those that it was announced with."""
        whole = self.objects / f".{oid}.{threading.get_ident()}"
        sha = hashlib.sha256()
        with open(whole, "wb") as file:
            for part in parts:
                content = part.read_bytes()
                sha.update(content)
                file.write(content)
        if sha.hexdigest() != oid:
            whole.unlink()
            raise Refused(400, f"The object's SHA-256 is {sha.hexdigest()}, not {oid}")
        os.replace(whole, self.object(oid))

    def fsck(self) -> str:
        """What `git fsck --strict` says; every pointer's object must be there and be itself."""
        said = self.git("fsck", "--strict", "--full").decode()
        for commit, _, _ in self.history("main"):
            for file in self.files(commit).values():
                if file.oid and hashlib.sha256(self.object(file.oid).read_bytes()).hexdigest() != file.oid:
                    said += f"damaged object {file.oid} of {file.path}\n"
        return said


_LOG = "--format=%H%x00%ad%x00%B%x01"
_PERSON = {"NAME": "hub", "EMAIL": "hub@example.org"}
