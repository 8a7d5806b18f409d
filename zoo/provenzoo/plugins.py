"""The plug-ins that are installed: packages with an entry point in the group `provenzoo.registry`; none is imported."""

import functools
import importlib.util
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path

from provenzoo import __version__

GROUP = "provenzoo.registry"


@dataclass(frozen=True)
class Plugin:
    """A plug-in: its name, the package folder that its entry point names, and what is wrong with it.

    `folder` is None where that folder is not there; the plug-in then brings nothing.
    """

    name: str
    value: str
    folder: Path | None
    problems: tuple[str, ...]

    @property
    def origin(self) -> str:
        """Who brings its names."""
        return f"the plug-in {self.name!r} ({self.value})"


@functools.cache
def installed() -> list[Plugin]:
    """Every plug-in, by name."""
    return [_read(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)]


def _read(point: EntryPoint) -> Plugin:
    folder = _folder(point.value)
    wrong = [f"needs {need}" for need in _unmet(point.dist)]
    if folder is None:
        wrong.insert(0, f"names the package folder {point.value!r}, which is not there")
    return Plugin(point.name, point.value, folder, tuple(f"the plug-in {point.name!r} {what}" for what in wrong))


def _folder(value: str) -> Path | None:
    top, *inner = value.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):  # no name of a package
        return None
    places = [Path(place, *inner) for place in (spec.submodule_search_locations or [])] if spec else []
    return next((place for place in places if place.is_dir()), None)


def _unmet(package: Distribution | None) -> list[str]:
    """What a package requires and is not installed, or in another version, as its metadata tell."""
    if not (texts := (package and package.requires) or []):
        return []
    from packaging.requirements import InvalidRequirement, Requirement

    unmet = []
    for text in texts:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            unmet.append(f"{text!r}, which is not read")
            continue
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            there = __version__ if need.name == "provenzoo" else version(need.name)  # ours may lie in a checkout
            if not need.specifier.contains(there, prereleases=True):
                unmet.append(f"{need.name}{need.specifier}, and {there} is installed")
        except PackageNotFoundError:
            unmet.append(f"{need.name}, which is not installed")
    return unmet
