"""What others wrote: file names, JSON and configs, refused in one line where they ask for more than plain data.

Nothing here imports, calls or fetches what a file names. Sizes are looked at before content.
"""

import json
import re
from collections.abc import Iterator, Mapping
from mmap import mmap
from pathlib import Path, PureWindowsPath
from typing import Any

from provenzoo.errors import ZooError
from provenzoo.plain import plain_data, shortened

LARGEST = {"config.json": 2**20, "run.json": 2**24, "README.md": 2**22}
"""Bytes that a file of this name may have."""
FETCHING = ("url", "file", "source", "custom_load", "hf_hub_filename", "hf_hub_id", "checkpoint_path", "auto_map")
"""Keys by which a config names a place to fetch from or code to run."""


def safe_name(name: Any, where: str) -> str:
    """A relative path that stays in its folder on every system; anything else is an error."""
    parts = name.split("/") if isinstance(name, str) else []
    odd = not parts or any(part in ("", ".", "..") or part.endswith((" ", ".")) for part in parts)
    if odd or "\\" in name or not name.isprintable() or PureWindowsPath(name).drive or name.startswith("~"):
        raise ZooError(f"{where}: the file name {shortened(repr(name))} could leave its folder; refused")
    return name


def check_size(name: str, size: int | None, where: str) -> None:
    """An error where a file is larger than one of its name can be."""
    most = LARGEST.get(name.rpartition("/")[2])
    if most is not None and (size is None or size > most):
        raise ZooError(f"{where}: {name} has {size} bytes; at most {most} can be read")


def read_json(file: Path) -> Any:
    """The plain data of a JSON file; one that is too large, too deep or not finite is an error."""
    try:
        if file.exists() and not file.is_file():
            raise ZooError(f"{file}: is no regular file")
        check_size(file.name, file.stat().st_size, str(file.parent))
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ZooError(f"{file}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise ZooError(f"{file}: nested too deeply") from None
    except ValueError as error:
        raise ZooError(f"{file}: not valid JSON ({shortened(str(error))})") from None
    return plain_data(data, str(file))


def check_config(config: Mapping[str, Any], where: str, repo: str | None = None) -> None:
    """An error where a config names code, a resolver or a place to fetch from; `repo` is its own.

    Text that only informs (`origin_url`, `paper_ids`) is ignored, and never followed.
    """
    for path, value in _leaves(config):
        key = path.rpartition(".")[2]
        if key.startswith("_"):
            raise ZooError(f"{where}: {path} would name code to call; refused")
        names_a_place = key in FETCHING and value and not isinstance(value, Mapping)
        if names_a_place and not (key == "hf_hub_id" and value == repo):
            raise ZooError(f"{where}: {path} names a place to fetch from or code to load with; refused")
        if isinstance(value, str) and "${" in value:
            raise ZooError(f"{where}: {path} holds a resolver, {shortened(repr(value))}; refused")


def _leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of everything in nested mappings and lists, the mappings and lists among them."""
    pairs = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        here = f"{path}.{key}" if path else str(key)
        yield here, value
        yield from _leaves(value, here)


def integers(data: Any) -> Iterator[tuple[str, int]]:
    """(dotted path, value) of every whole number in nested data."""
    for path, value in _leaves(data):
        if isinstance(value, int) and not isinstance(value, bool):
            yield path, value


SHORTEST = 16
"""Letters of what can be told from other text as a token."""
_TOKEN = re.compile(rb"hf_(?:[A-Za-z0-9]{20,}|oauth_[A-Za-z0-9._-]{20,})")


def check_no_token(name: str, content: bytes | mmap, where: str, token: str | None = None) -> None:
    """An error where a file that is about to leave holds an access token of the Hub's. The token is not shown.

    One is known by its form; `token`, that of this account, whatever its form is.
    """
    if token and len(token) >= SHORTEST and content.find(token.encode()) >= 0:
        raise ZooError(f"{where}: {name} holds the access token of this account; nothing was sent. Take it out")
    place = content.find(b"hf_")
    while place >= 0:
        if _TOKEN.match(content, place):
            line = content[:place].count(b"\n") + 1
            raise ZooError(
                f"{where}: {name}, line {line}, holds an access token (hf_...); nothing was sent. Take it out"
            )
        place = content.find(b"hf_", place + 1)
