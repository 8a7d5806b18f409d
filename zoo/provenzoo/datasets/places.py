"""Where data sets of files are looked for and downloaded to."""

import os
from pathlib import Path


def places(root: str | None) -> list[Path]:
    """The folders to look into, in order: `root`, `PROVENZOO_DATA` and the user's cache."""
    given = [Path(folder).expanduser() for folder in (root, os.environ.get("PROVENZOO_DATA")) if folder]
    return [*given, cache()]


def download_folder() -> Path:
    """Where a download goes: `PROVENZOO_DATA`, else the cache."""
    return Path(os.environ.get("PROVENZOO_DATA") or cache()).expanduser()


def cache() -> Path:
    """The user's folder of data sets."""
    return Path.home() / ".cache" / "provenzoo" / "data"
