"""Names to builders. One YAML file an entry, its stem is the name; a builder is imported only when it builds.

Content comes from this package, from packages with an entry point in the group `provenzoo.registry`, from the folders
in `PROVENZOO_PATH`, and from `register` in a running program. Listing reads no file and imports no torch. The table is
closed: recipes, cards and configs name entries and give them plain data; only registry files hold import paths.
"""

import fnmatch
import functools
import importlib
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provenzoo import plugins
from provenzoo.content import own_content
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import did_you_mean, kind_of, nearest

KINDS = ("models", "datasets", "teachers", "metrics", "checkpoints")
NAMESPACES = {
    "timm/": "provenzoo.models.external:timm_model",
    "torchvision/": "provenzoo.models.external:torchvision_model",
}
NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


@dataclass(frozen=True)
class Entry:
    """What is known of a name before anything is imported."""

    kind: str
    name: str
    builder: str | Callable
    summary: str = ""
    paper: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    file: Path | None = None
    vector: bool = False
    """Of a metric: it gives several numbers a replica, so that no claim can name it."""

    def load(self) -> Callable:
        """Import the builder. Of a namespace it is told the library's own name of the model."""
        library, slash, name = self.name.partition("/")
        builder = self._imported()
        return functools.partial(builder, name) if f"{library}{slash}" in NAMESPACES else builder

    def _imported(self) -> Callable:
        if callable(self.builder):
            return self.builder
        module, _, attribute = self.builder.partition(":")
        where = f"{self.origin}: the builder {self.builder!r} of {self.name!r}"
        try:
            builder = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # a plug-in's module may fail in any way
            raise ZooError(f"{where} does not import: {error}") from error
        if not callable(builder):
            raise ZooError(f"{where} is {type(builder).__name__}; a class or function is needed")
        return builder


# --- where names come from ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A folder with registry/, pipelines/ and cards/, and who brings it."""

    origin: str
    folder: Path
    plugged: bool = False
    """Whether a plug-in brings it, which cannot take a name of ours."""


def sources() -> list[Source]:
    """Every content folder, our own first."""
    own = [Source("provenzoo", own_content())]
    plugged = [Source(found.origin, found.folder, plugged=True) for found in plugins.installed() if found.folder]
    paths = [Path(p) for p in os.environ.get("PROVENZOO_PATH", "").split(os.pathsep) if p]
    found = own + plugged + [Source(f"PROVENZOO_PATH ({p})", p) for p in paths]
    return list({source.folder.resolve(): source for source in reversed(found)}.values())[::-1]  # each folder once


_registered: dict[tuple[str, str], Entry] = {}


def names_held(kind: str) -> dict[str, list[tuple[str, Path | None]]]:
    """Each name of a kind with its holders: (origin, file). A plug-in holds none that is ours."""
    held: dict[str, list[tuple[str, Path | None]]] = {}
    own: set[str] = set()
    for source in sources():
        for name, file in _files(source, kind):
            if not (source.plugged and name in own):
                held.setdefault(name, []).append((source.origin, file))
        own = set(held) if source.origin == "provenzoo" else own
    for (held_kind, name), entry in _registered.items():
        if held_kind == kind:
            held.setdefault(name, []).append((entry.origin, None))
    return held


def _files(source: Source, kind: str) -> Iterator[tuple[str, Path]]:
    if kind != "recipes":
        folder = source.folder / "registry" / kind
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        yield from ((name[:-5], folder / name) for name in names if name.endswith(".yaml") and name[0] not in "._")
        return
    folder = source.folder / "pipelines"
    for file in sorted(folder.rglob("*.yaml")) if folder.is_dir() else ():
        if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts):
            yield file.relative_to(folder).with_suffix("").as_posix(), file


def problems() -> list[str]:
    """What is wrong with the content that was found: broken plug-ins and names held twice. Nothing is imported."""
    broken = [problem for plugin in plugins.installed() for problem in plugin.problems]
    held = {kind: names_held(kind) for kind in (*KINDS, "recipes")}
    refused = [
        f"{source.origin} claims the name {name!r} ({kind}), which provenzoo holds; it is left out"
        for source in sources()
        for kind, names in held.items()
        for name, file in (_files(source, kind) if source.plugged else ())
        if file not in [found for _, found in names[name]]
    ]
    twice = [
        f"the name {name!r} ({kind}) is held by {' and by '.join(origin for origin, _ in holders)}"
        for kind, names in held.items()
        for name, holders in names.items()
        if len(holders) > 1
    ]
    absent = [f"{s.origin}: no such folder" for s in sources() if not s.folder.is_dir()]
    return broken + absent + refused + twice


def broken_entries() -> list[str]:
    """What is wrong with the entries that plug-ins and PROVENZOO_PATH bring; their builders are imported."""
    found = []
    for source in [source for source in sources() if source.origin != "provenzoo"]:
        for kind in KINDS:
            for name, file in _files(source, kind):
                try:
                    read = _read_entry(kind, name, source.origin, file, file.stat().st_mtime_ns)
                    _ = read.load() if kind != "checkpoints" else None
                except ZooError as error:
                    text = str(error)
                    found.append(text if text.startswith(source.origin) else f"{source.origin}: {text}")
    return found


# --- names --------------------------------------------------------------------------------------------------------


def list_names(kind: str | None = None, pattern: str | None = None) -> list[str]:
    """The sorted names of a kind (or of all), those that a shell pattern matches.

    `timm/*` and `torchvision/*` list those libraries' models; no other pattern imports anything.
    """
    if kind is not None and kind not in (*KINDS, "recipes"):
        raise UsageError(f"no kind {kind!r}{did_you_mean(kind, (*KINDS, 'recipes'))}")
    kinds = [kind] if kind else [*KINDS, "recipes"]
    names = {name for k in kinds for name in names_held(k)}
    if pattern and "models" in kinds and pattern.startswith(tuple(NAMESPACES)):
        external = importlib.import_module("provenzoo.models.external")
        names.update(external.names(pattern.partition("/")[0]))
    return sorted(name for name in names if pattern is None or fnmatch.fnmatchcase(name, pattern))


def entry(kind: str, name: str) -> Entry:
    """The entry of a name; an unknown one is an error with the nearest names, across kinds and tags."""
    if not isinstance(name, str):
        raise UsageError(f"a name is text, not {kind_of(name)} ({name!r})")
    holders = names_held(kind).get(name, [])
    if len(holders) > 1:
        raise ZooError(f"the name {name!r} is held by {' and by '.join(origin for origin, _ in holders)}; rename one")
    if holders and holders[0][1] is None:
        return _registered[kind, name]
    if holders:
        origin, file = holders[0]
        file = typing.cast(Path, file)
        return _read_entry(kind, name, origin, file, file.stat().st_mtime_ns)
    library, slash, rest = name.partition("/")
    if kind == "models" and rest and f"{library}{slash}" in NAMESPACES:
        return Entry(kind, name, NAMESPACES[f"{library}{slash}"], f"{rest} of {library}", origin=library)
    raise UsageError(unknown(kind, name))


def unknown(kind: str, name: str) -> str:
    one = kind.removesuffix("s")
    for other in (*KINDS, "recipes"):
        if other != kind and name in names_held(other):
            return f"no {one} {name!r}: that is the name of a {other.removesuffix('s')}"
    others = {n: other for other in (*KINDS, "recipes") for n in names_held(other)}
    kinds = others | dict.fromkeys(names_held(kind), kind)
    if not (close := nearest(name, kinds)):
        return f"no {one} {name!r}; see `provenzoo list {kind}`"
    if kinds[close[0]] == kind:
        return f"no {one} {name!r}; did you mean {' or '.join(repr(n) for n in close if kinds[n] == kind)}?"
    near = ", ".join(f"{n!r} ({kinds[n].removesuffix('s')})" for n in close)
    return f"no {one} {name!r}; near it: {near}"


@functools.lru_cache(maxsize=256)
def _read_entry(kind: str, name: str, origin: str, file: Path, changed: int) -> Entry:
    from provenzoo.plain import read_yaml

    data = read_yaml(file)
    if kind == "checkpoints":
        return Entry(kind, name, "", str(data.get("summary", "")), str(data.get("paper", "")), data, origin, file)
    known = {"builder", "summary", "paper", "args", "vector"}
    for key in data:
        if key not in known:
            raise ZooError(f"{file}: unknown key {key!r}{did_you_mean(key, known)}")
    builder = data.get("builder")
    if not isinstance(builder, str) or builder.count(":") != 1:
        raise ZooError(f"{file}: `builder: module:attribute` is needed (it is {builder!r})")
    args = data.get("args", {})
    if not isinstance(args, dict):
        raise ZooError(f"{file}: args is {kind_of(args)}; a mapping is needed")
    return Entry(
        kind,
        name,
        builder,
        str(data.get("summary", "")),
        str(data.get("paper", "")),
        args,
        origin,
        file,
        data.get("vector") is True,
    )


def recipe_file(name: str) -> Path:
    """The file of a recipe by name."""
    holders = names_held("recipes").get(name, [])
    if len(holders) > 1:
        raise ZooError(f"the recipe {name!r} is held by {' and by '.join(origin for origin, _ in holders)}; rename one")
    if not holders:
        raise UsageError(unknown("recipes", name))
    return typing.cast(Path, holders[0][1])


def card_file(name: str | None = None) -> Path:
    """The template of a model card, `cards/<name>.md.jinja` of any content folder; ours without a name."""
    found = _cards("", ".md.jinja")
    if (wanted := name or "card") not in found:
        raise ZooError(f"card: no template {name!r}{did_you_mean(wanted, found)}")
    return found[wanted]


def license_file(name: str) -> Path:
    """The text of a licence, `cards/licenses/<name>.txt` of any content folder."""
    found = _cards("licenses/", ".txt")
    if name not in found:
        raise ZooError(f"license: no text {name!r} in cards/licenses/ of a content folder{did_you_mean(name, found)}")
    return found[name]


def _cards(folder: str, ending: str) -> dict[str, Path]:
    """The files in `cards/` of every content folder by the name before their ending; of two, the first source's."""
    files = [file for source in sources() for file in sorted(source.folder.glob(f"cards/{folder}*{ending}"))]
    return {file.name.removesuffix(ending): file for file in reversed(files)}


def register(
    kind: str, name: str, *, summary: str = "", paper: str = "", **args: Any
) -> Callable[[Callable], Callable]:
    """Decorator that gives a builder a name in the running program, as a file in registry/ would."""
    if kind not in KINDS or kind == "checkpoints":
        raise UsageError(f"no kind {kind!r} to register in{did_you_mean(kind, KINDS)}")
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r}: a name is lower case letters, digits and hyphens")
    if holders := names_held(kind).get(name):
        raise UsageError(f"the name {name!r} is taken by {holders[0][0]}")

    def remember(builder: Callable) -> Callable:
        origin = f"{builder.__module__}.{getattr(builder, '__qualname__', name)}"
        _registered[kind, name] = Entry(kind, name, builder, summary, paper, args, origin)
        return builder

    return remember
