"""Files of a Hub repository by `hf:user/repo[@revision][#folder]`: fetched at one commit, checked, kept in its cache.

The client checks sizes alone, so every file's hash is compared here with the one that the Hub lists. Offline
(`HF_HUB_OFFLINE=1`) no socket is opened: a full commit is found in the cache as it is, a branch or tag by what it
stood for when it was last seen.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provenzoo import __version__
from provenzoo.errors import UsageError, ZooError
from provenzoo.untrusted import check_size, safe_name

if TYPE_CHECKING:
    from huggingface_hub import HfApi


@dataclass(frozen=True)
class Reference:
    """A parsed `hf:user/repo@revision#folder`; the revision is None for the head of main."""

    text: str
    repo: str
    revision: str | None = None
    inside: str = ""

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Read a reference; what the Hub could not hold is an error that says why."""
        rest, _, inside = text.removeprefix("hf:").partition("#")
        repo, at, revision = rest.partition("@")
        check_repo(repo, text)
        if inside:
            safe_name(inside, text)
        if at and (not revision or ".." in revision or revision.startswith("-") or not revision.isprintable()):
            raise UsageError(f"{text}: {revision!r} is no revision; give a branch, a tag or a commit")
        return cls(text, repo, revision or None, inside)

    def path(self, name: str) -> str:
        """The path in the repository of a file that the reference's folder holds."""
        return f"{self.inside}/{name}" if self.inside else name


def check_repo(repo: str, where: str) -> None:
    """An error unless the Hub could have a repository of this name."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if repo.count("/") != 1:
        raise UsageError(f"{where}: {repo!r} is no repository; write user/repo")
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        words = str(error).partition(":")[0].split(".")[0]
        raise UsageError(f"{where}: {repo!r} cannot be a repository's name ({words})") from None


def api() -> "HfApi":
    """The client, as this library. It takes the token from where huggingface_hub keeps it."""
    from huggingface_hub import HfApi

    return HfApi(library_name="provenzoo", library_version=__version__)


def offline() -> bool:
    """Whether the Hub is not to be asked."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


# --- fetching -----------------------------------------------------------------------------------------------------


def commit(reference: Reference) -> str:
    """The full commit that a reference stands for now or, offline, stood for when it was last seen."""
    with told(reference.text, reference):
        return api().resolve_revision(reference.repo, revision=reference.revision).resolved


def fetch(reference: Reference, sha: str, names: Sequence[str]) -> list[Path]:
    """Files of the reference's folder at a commit, from the cache or the Hub, each checked once it was downloaded."""
    paths = [reference.path(safe_name(name, reference.text)) for name in names]
    absent = [path for path in paths if cached(reference, sha, path) is None]
    if absent:
        _download(reference, sha, absent)
    return [_there(reference, sha, path) for path in paths]


def cached(reference: Reference, sha: str, path: str) -> Path | None:
    """The place of a repository's file in the cache; None where it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(reference.repo, path, revision=sha)
    return Path(found) if isinstance(found, str) else None


def _there(reference: Reference, sha: str, path: str) -> Path:
    found = cached(reference, sha, path)
    assert found is not None
    return found


def _download(reference: Reference, sha: str, paths: list[str]) -> None:
    from huggingface_hub import RepoFile

    where = f"hf:{reference.repo}@{sha}"
    if offline():
        raise _missing(reference, sha, paths[0], "the Hub is not to be asked (HF_HUB_OFFLINE)")
    with told(reference.text, reference, paths[0]):
        listed = api().get_paths_info(reference.repo, paths, revision=sha)
        files = {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}
        for path in paths:
            if path not in files:
                raise ZooError(f"{where}: no {path} there")
            check_size(path, files[path].size, where)
        for path in paths:
            file = Path(api().hf_hub_download(reference.repo, path, revision=sha))
            _check_hash(file, files[path], where)


def _check_hash(file: Path, listed: Any, where: str) -> None:
    """Refuse, and take out of the cache, a download that is not what the Hub lists."""
    from huggingface_hub.utils.sha import git_hash, sha_fileobj

    if listed.lfs:
        with open(file, "rb") as handle:
            same = sha_fileobj(handle).hex() == listed.lfs.sha256
    else:
        same = git_hash(file.read_bytes()) == listed.blob_id
    if not same:
        for place in (file.resolve(), file):
            place.unlink(missing_ok=True)
        raise ZooError(
            f"{where}: {listed.path} was damaged on its way or in store (another hash); refused, fetch it again"
        )


def size(reference: Reference, sha: str, name: str) -> int | None:
    """The bytes of a file, which is not fetched for it; None where only the Hub could tell and is not to be asked."""
    path = reference.path(name)
    if file := cached(reference, sha, path):
        return file.stat().st_size
    if offline():
        return None
    with told(reference.text, reference, path):
        return next((found.size for found in api().get_paths_info(reference.repo, [path], revision=sha)), None)  # pyright: ignore[reportAttributeAccessIssue]  # of a file


def listing(reference: Reference, sha: str) -> list[str]:
    """Every file that a repository lists at a commit."""
    with told(reference.text, reference):
        return [s.rfilename for s in api().model_info(reference.repo, revision=sha).siblings or []]


# --- what was checked ---------------------------------------------------------------------------------------------


def _stamp(file: Path) -> list[int]:
    """What changes whenever a file's content does."""
    about = file.stat()
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]


def _note(file: Path) -> Path:
    """Where it is noted that a cached file was checked: beside the blobs, under the blob's name."""
    blob = file.resolve()
    return blob.parents[1] / ".provenzoo" / f"{blob.name}.json"


def is_checked(file: Path, digest: str) -> bool:
    """Whether a cached file's tensors were found to have a digest, and the file was not touched since."""
    try:
        return json.loads(_note(file).read_text()) == {"digest": digest, "stamp": _stamp(file)}
    except (OSError, ValueError):
        return False


def note_checked(file: Path, digest: str) -> None:
    """Remember that a cached file's tensors have a digest; a cache that cannot be written is checked each time."""
    note = _note(file)
    with contextlib.suppress(OSError):
        note.parent.mkdir(exist_ok=True)
        beside = note.with_suffix(f".{os.getpid()}.part")
        beside.write_text(json.dumps({"digest": digest, "stamp": _stamp(file)}))
        os.replace(beside, note)


# --- what went wrong ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def told(where: str, reference: Reference, name: str = "it") -> Iterator[None]:
    """Errors of the Hub's client inside become one line each, with no trace of a request or token."""
    from huggingface_hub import errors

    repo = reference.repo
    try:
        yield
    except errors.GatedRepoError:
        raise ZooError(f"{where}: {repo} is gated; ask for access on its page, then log in (hf auth login)") from None
    except errors.RepositoryNotFoundError:
        raise ZooError(
            f"{where}: no repository {repo}, or this account may not see it; check the name, or log in (hf auth login)"
        ) from None
    except errors.RevisionNotFoundError:
        raise ZooError(f"{where}: {repo} has no revision {reference.revision!r}") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.RevisionResolutionError):
        why = "the Hub is not to be asked (HF_HUB_OFFLINE)" if offline() else "the Hub does not answer"
        raise _missing(reference, reference.revision or "main", name, why) from None
    except errors.HfHubHTTPError as error:
        raise ZooError(f"{where}: the Hub says {_status(error)}") from None
    except (errors.HTTPError, OSError) as error:  # pyright: ignore[reportPrivateImportUsage]
        raise ZooError(f"{where}: the transfer broke off ({type(error).__name__}); run it again") from None


def _status(error: Any) -> str:
    """The status of an answer and the Hub's words for it, on one line."""
    words = error.response.headers.get("X-Error-Message") or error.server_message or ""
    hints = {401: "; log in (hf auth login)", 403: "; the token needs the right to write (hf auth login)"}
    code = error.response.status_code
    return f"{code} {' '.join(words.split())[:160]}{hints.get(code, '')}".strip()


def _missing(reference: Reference, revision: str, name: str, why: str) -> ZooError:
    from huggingface_hub import constants

    what = "" if name == "it" else f" ({name})"
    return ZooError(
        f"hf:{reference.repo}@{revision}{what} is not in the cache {constants.HF_HUB_CACHE}, and {why}; "
        f"`provenzoo pull hf:{reference.repo}@{revision}` fetches it ahead"
    )
