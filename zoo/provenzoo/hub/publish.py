"""Publish a stage of a run, or a shipped checkpoint: one commit on the Hub, or the same layout in a folder."""

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, get_token
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils.sha import git_hash

from provenzoo import fetch, remote
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.alone import Alone, alone, check_source
from provenzoo.hub.bundle import Bundle, bundle
from provenzoo.hub.card import card, check_card
from provenzoo.hub.ground_truth import teacher_of
from provenzoo.hub.timm_fields import timm_note
from provenzoo.plain import shortened, write_whole
from provenzoo.untrusted import check_no_token, check_size, read_json, safe_name

Files = Mapping[str, CommitOperationAdd]
"""What is published, by path in the repository."""


@dataclass(frozen=True)
class Changes:
    """What a publication does to each file."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.deleted)

    @classmethod
    def between(cls, wanted: Files, same: Mapping[str, bool], stale: list[str]) -> "Changes":
        """By what is wanted, what of it is there already (and whether it is the same), and what is to go."""
        return cls(
            sorted(name for name in wanted if name not in same),
            sorted(name for name in wanted if same.get(name) is False),
            sorted(stale),
            sorted(name for name in wanted if same.get(name)),
        )


@dataclass(frozen=True)
class Published:
    """What was published, or with `dry_run` would be."""

    target: str
    reference: str
    """What `provenzoo.load` takes; of the Hub's with the full commit, once there is one."""
    changes: Changes
    dry_run: bool
    note: str = ""
    """What whoever publishes may want to know."""

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        about = {"target": self.target, "reference": self.reference, "dry_run": self.dry_run, "note": self.note}
        return about | {key: getattr(self.changes, key) for key in ("added", "changed", "deleted", "unchanged")}


def publish(
    run: str | Path,
    target: str,
    *,
    stage: str | None = None,
    seed: int | None = None,
    teacher: bool = False,
    private: bool | None = None,
    tag: str | None = None,
    license: str | None = None,
    dry_run: bool = False,
) -> Published:
    """Publish a stage of a run as `user/repo` on the Hub, or in a folder as `local:DIR`.

    `run` is a run's folder, or the name of a registered checkpoint, such as a shipped teacher. With `teacher`, what the
    stage learned from goes in its place: the ground truth, as a checkpoint of the model `bilinear`.
    All files go in one commit on the state of the repository that they were compared with; if it moves meanwhile, or
    anything breaks, nothing of it is changed. What a person wrote in the card outside of our marks is kept. Nothing is
    sent before the card was validated and every file searched for access tokens.
    """
    if not target.isprintable() or target == "local:":
        raise UsageError(f"{target!r}: name a repository, user/repo, or a folder, local:DIR")
    if target.startswith("local:"):
        if private is not None or tag:
            raise UsageError(f"{target}: a folder has no --private and no --tag")
        place: _Folder | _Repository = _Folder(Path(target.removeprefix("local:")), Path(run))
    else:
        place = _Repository(target.removeprefix("hf:"), bool(private), tag)
    ready = _gathered(run, stage, seed, teacher, license)
    readme = card(ready, place.load, place.card())
    check_card(readme, place.online)
    files = {**ready.files, "README.md": CommitOperationAdd("README.md", readme.encode())}
    for name, file in files.items():
        _check(safe_name(name, target), file, str(run))
    changes = place.compare(files)
    if not dry_run and (changes or tag):
        place.write(files, changes, ready.about)
    return Published(target, place.reference, changes, dry_run, timm_note(ready.config))


def _gathered(
    run: str | Path, stage: str | None, seed: int | None, teacher: bool, license: str | None
) -> Bundle | Alone:
    if fetch.is_registered(str(run)):
        if stage is not None or teacher:
            raise UsageError(f"{run}: a shipped checkpoint has no stages; leave --stage and --teacher out")
        return alone(str(run), seed, license)
    check_source(Path(run))
    return teacher_of(Path(run), stage, seed, license) if teacher else bundle(Path(run), stage, seed, license)


def _check(name: str, file: CommitOperationAdd, where: str) -> None:
    """An error where a file that is about to leave holds an access token."""
    token = get_token()
    if isinstance(file.path_or_fileobj, bytes) or not file.upload_info.size:
        check_no_token(name, _content(file), where, token)
        return
    with file.as_file() as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        check_no_token(name, content, where, token)


def _content(file: CommitOperationAdd) -> bytes:
    with file.as_file() as handle:
        return handle.read()


def _stale(old: Any, there: set[str], wanted: Files) -> list[str]:
    """The files that an earlier publication wrote, by the list in its config, and that this one does not have."""
    listed = old.get("files") if isinstance(old, dict) else None
    ours = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    return [name for name in ours & there if name not in wanted]


# --- a folder -----------------------------------------------------------------------------------------------------


class _Folder:
    """A folder as the target."""

    online = False

    def __init__(self, path: Path, run: Path) -> None:
        self.path = path
        try:
            here = path.resolve()
            runs = [place for place in (here, *here.parents) if (place / "config.yaml").exists()]
            held = here in runs or any((place / "run.json").exists() for place in runs)
        except OSError as error:
            raise UsageError(f"local:{shortened(str(path))}: cannot be a folder ({error.strerror})") from None
        if held or here.is_relative_to(run.resolve()):
            raise UsageError(f"local:{path}: is a run folder, or in one; name another one to publish in")
        self.load = f"local:{path.name}"
        self.reference = f"local:{path}"

    def card(self) -> str | None:
        return _text(self.path / "README.md") if (self.path / "README.md").is_file() else None

    def compare(self, files: Files) -> Changes:
        there = {str(p.relative_to(self.path).as_posix()) for p in self.path.rglob("*") if p.is_file()}
        same = {name: (self.path / name).read_bytes() == _content(files[name]) for name in files if name in there}
        old = read_json(self.path / "config.json") if "config.json" in there else None
        return Changes.between(files, same, _stale(old, there, files))

    def write(self, files: Files, changes: Changes, summary: str) -> None:
        """The weights last but for the config that names their digest, so that a broken-off write cannot be loaded."""
        order = sorted([*changes.added, *changes.changed], key=lambda name: name == "config.json")
        for name in order:
            write_whole(self.path / name, _content(files[name]))
        for name in changes.deleted:
            (self.path / safe_name(name, self.reference)).unlink(missing_ok=True)
        for name in files:  # of a write that was killed
            for left in (self.path / name).parent.glob(f".{Path(name).name}.*.part"):
                left.unlink()


def _text(card: Path) -> str:
    """The text of a card that is there; an error where it is none."""
    try:
        return card.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ZooError(f"{card}: the card that is there is no text in UTF-8; mend it or take it away first") from None


# --- the Hub ------------------------------------------------------------------------------------------------------


class _Repository:
    """A repository of the Hub as the target, at the commit that it has when it is first looked at."""

    online = True

    def __init__(self, name: str, private: bool, tag: str | None) -> None:
        self.hub = remote.Reference.parse(f"hf:{name}")
        self.private, self.tag = private, tag
        if self.hub.revision or self.hub.inside:
            raise UsageError(f"{name}: write user/repo; `--tag` names what is published")
        if tag and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", tag):
            raise UsageError(f"--tag {tag!r}: letters, digits, dots and hyphens are allowed")
        if remote.offline():
            raise ZooError(
                f"{name}: the Hub is not to be asked (HF_HUB_OFFLINE); `publish RUN local:DIR` needs no network"
            )
        self.load = f"hf:{name}@{tag}" if tag else f"hf:{name}"
        self.parent, self.there = self._look()
        self.reference = f"hf:{name}@{self.parent}" if self.parent else f"hf:{name}"

    def _look(self) -> tuple[str | None, dict[str, Any]]:
        """The commit of main and its files; (None, {}) where there is no repository yet."""
        with remote.told(f"hf:{self.hub.repo}", self.hub):
            try:
                info = remote.api().model_info(self.hub.repo, files_metadata=True)
            except GatedRepoError:
                raise
            except RepositoryNotFoundError:
                return None, {}
            if self.tag and self.tag in {ref.name for ref in remote.api().list_repo_refs(self.hub.repo).tags}:
                raise ZooError(f"hf:{self.hub.repo}: the tag {self.tag} is there already; give another --tag")
        return info.sha, {sibling.rfilename: sibling for sibling in info.siblings or []}

    def _read(self, name: str) -> Path | None:
        """A file as it is in the repository now."""
        if name not in self.there or self.parent is None:
            return None
        check_size(name, self.there[name].size, f"hf:{self.hub.repo}")
        return remote.fetch(self.hub, self.parent, [name])[0]

    def card(self) -> str | None:
        file = self._read("README.md")
        return _text(file) if file else None

    def compare(self, files: Files) -> Changes:
        same = {name: _is_same(files[name], self.there[name]) for name in files if name in self.there}
        file = self._read("config.json")
        return Changes.between(files, same, _stale(read_json(file) if file else None, set(self.there), files))

    def write(self, files: Files, changes: Changes, summary: str) -> None:
        """All changes in one commit, then the tag."""
        api, repo = remote.api(), self.hub.repo
        with remote.told(f"hf:{repo}", self.hub):
            if self.parent is None:
                api.create_repo(repo, private=self.private or None, exist_ok=True)
                self.parent = api.model_info(repo).sha
            api.auth_check(repo, write=True)
            if changes:
                self.parent = self._commit(files, changes, f"Publish {summary}")
            if self.tag:
                api.create_tag(repo, tag=self.tag, revision=self.parent)
        self.reference = f"hf:{repo}@{self.parent}"

    def _commit(self, files: Files, changes: Changes, message: str) -> str:
        add = [files[name] for name in (*changes.added, *changes.changed)]
        gone = [CommitOperationDelete(name, is_folder=False) for name in changes.deleted]
        where = f"hf:{self.hub.repo}"
        try:
            made = remote.api().create_commit(
                self.hub.repo, [*add, *gone], commit_message=message, parent_commit=self.parent
            )
        except HfHubHTTPError as error:
            if error.response.status_code != 412:
                raise
            raise ZooError(
                f"{where}: somebody changed it meanwhile; nothing was published. Look, and run again"
            ) from None
        except (RuntimeError, ValueError) as error:
            raise ZooError(f"{where}: the upload broke off ({_cause(error)}) and changed nothing; run again") from None
        return made.oid


def _cause(error: BaseException) -> str:
    """The first words of what is behind an error of the client's."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())[:120]}"


def _is_same(file: CommitOperationAdd, there: Any) -> bool:
    """Whether the Hub has this very content in a file."""
    if there.lfs:
        return file.upload_info.sha256.hex() == there.lfs.sha256
    return git_hash(_content(file)) == there.blob_id
