"""What provenzoo finds on this machine. Nothing is downloaded or asked of a server."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_token

from provenzoo import __version__, registry
from provenzoo.datasets import mnist, places
from provenzoo.errors import ZooError
from provenzoo.pipeline.recipe import compose
from provenzoo.training.runtime import environment


def examine() -> dict[str, Any]:
    """Versions, devices, memory and free disk, data, content and what is wrong with it, and the Hub's settings.

    Memory and disk are in bytes. A data set that is at hand is null, of another it tells what is missing.
    """
    return {
        "versions": {"provenzoo": __version__, **environment()},
        "devices": _devices(),
        "memory": _memory(),
        "disk": {"folder": str(Path.cwd()), "free": shutil.disk_usage(Path.cwd()).free},
        "data-roots": {str(place): place.is_dir() for place in _data_roots()},
        "datasets": {name: _missing(name) for name in registry.list_names("datasets")},
        "content": {str(source.folder): source.origin for source in registry.sources()},
        "problems": [*registry.problems(), *registry.broken_entries(), *_broken_recipes()],
        "hub": {"token": get_token() is not None, "endpoint": os.environ.get("HF_ENDPOINT")},
    }


def _broken_recipes() -> Iterator[str]:
    """What is wrong with the recipes that plug-ins and PROVENZOO_PATH bring."""
    for name, holders in registry.names_held("recipes").items():
        if holders[0][0] != "provenzoo":
            try:
                compose(name)
            except ZooError as error:
                yield f"{holders[0][0]}: {error}"


def lines(found: dict[str, Any]) -> list[str]:
    """What `examine` found, a line each: its name, a tab, and what it is."""
    hub = found["hub"]
    pairs = [
        *found["versions"].items(),
        *(("device", name) for name in found["devices"]),
        ("memory", _gigabytes(found["memory"])),
        ("disk", f"{_gigabytes(found['disk']['free'])} free in {found['disk']['folder']}"),
        *(("data-root", place if there else f"{place} (not there)") for place, there in found["data-roots"].items()),
        *((name, why.removeprefix(f"{name}: ") if why else "at hand") for name, why in found["datasets"].items()),
        *(("content", f"{folder} ({origin})") for folder, origin in found["content"].items()),
        *(("problem", problem) for problem in found["problems"]),
        ("hub-token", "set" if hub["token"] else "not set"),
        *([("hub-endpoint", hub["endpoint"])] if hub["endpoint"] else []),
    ]
    return [f"{name}\t{value}" for name, value in pairs]


def _devices() -> list[str]:
    gpus = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    return [f"cpu ({os.cpu_count()} cores)", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def _memory() -> int | None:
    """The machine's memory in bytes; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _data_roots() -> list[Path]:
    given = os.environ.get("PROVENZOO_DATA")
    return [*([Path(given).expanduser()] if given else []), mnist.SYSTEM, places.cache()]


def _gigabytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1e9:.1f} GB"


def _missing(name: str) -> str | None:
    try:
        found = registry.entry("datasets", name)
        missing = getattr(found.load(), "missing", None)
        return missing(**found.args) if missing else None
    except ZooError as error:
        return str(error)
