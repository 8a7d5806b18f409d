"""Names to builders. One YAML file an entry, its stem is the name; a builder is imported only when it builds.

Content comes from this package, from packages with an entry point in the group `provenzoo.registry`, from the folders
in `PROVENZOO_PATH`, and from `register` in a running program. Listing reads no file and imports no torch. The table is
closed: recipes, cards and configs name entries and give them plain data; only registry files hold import paths.
"""

import fnmatch
import functools
import importlib
import importlib.util
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provenzoo.content import own_content
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import did_you_mean, kind_of, nearest

if TYPE_CHECKING:
    from torch import nn

    from provenzoo.datasets.base import Dataset

KINDS = ("models", "datasets", "teachers", "metrics", "checkpoints")
NAMESPACES = {
    "timm/": "provenzoo.models.external:timm_model",
    "torchvision/": "provenzoo.models.external:torchvision_model",
}
GROUP = "provenzoo.registry"
_NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


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
        """Import the builder."""
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


@functools.cache
def _plugins() -> tuple[list[Source], list[str]]:
    """The content folders of installed plug-ins, found without importing them, and what is wrong with the others."""
    from importlib.metadata import entry_points

    found, broken = [], []
    for point in entry_points(group=GROUP):
        top, *inner = point.value.split(".")
        spec = importlib.util.find_spec(top)
        places = [Path(p, *inner) for p in (spec.submodule_search_locations or [])] if spec else []
        folder = next((p for p in places if p.is_dir()), None)
        if folder:
            found.append(Source(f"the package {point.value}", folder))
        else:
            broken.append(f"the plug-in {point.name!r} names the package folder {point.value!r}, which is not there")
    return found, broken


def sources() -> list[Source]:
    """Every content folder, our own first."""
    own = [Source("provenzoo", own_content())]
    paths = [Path(p) for p in os.environ.get("PROVENZOO_PATH", "").split(os.pathsep) if p]
    found = own + _plugins()[0] + [Source(f"PROVENZOO_PATH ({p})", p) for p in paths]
    return list({source.folder.resolve(): source for source in reversed(found)}.values())[::-1]  # each folder once


_registered: dict[tuple[str, str], Entry] = {}


def _holders(kind: str) -> dict[str, list[tuple[str, Path | None]]]:
    """Each name of a kind with its holders: (origin, file)."""
    held: dict[str, list[tuple[str, Path | None]]] = {}
    for source in sources():
        folder = source.folder / ("pipelines" if kind == "recipes" else f"registry/{kind}")
        for file in _yaml_files(folder, deep=kind == "recipes"):
            name = file.relative_to(folder).with_suffix("").as_posix()
            held.setdefault(name, []).append((source.origin, file))
    for (held_kind, name), entry in _registered.items():
        if held_kind == kind:
            held.setdefault(name, []).append((entry.origin, None))
    return held


def _yaml_files(folder: Path, deep: bool) -> Iterator[Path]:
    if folder.is_dir():
        for file in sorted(folder.rglob("*.yaml") if deep else folder.glob("*.yaml")):
            if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts):
                yield file


def problems() -> list[str]:
    """What is wrong with the content that was found: broken plug-ins and names held twice."""
    twice = [
        f"the name {name!r} ({kind}) is held by {' and by '.join(origin for origin, _ in holders)}"
        for kind in (*KINDS, "recipes")
        for name, holders in _holders(kind).items()
        if len(holders) > 1
    ]
    absent = [f"{s.origin}: no such folder" for s in sources() if not s.folder.is_dir()]
    return _plugins()[1] + absent + twice


# --- names --------------------------------------------------------------------------------------------------------


def list_names(kind: str | None = None, pattern: str | None = None) -> list[str]:
    """The sorted names of a kind (or of all), those that a shell pattern matches.

    `timm/*` and `torchvision/*` list those libraries' models; no other pattern imports anything.
    """
    if kind is not None and kind not in (*KINDS, "recipes"):
        raise UsageError(f"no kind {kind!r}{did_you_mean(kind, (*KINDS, 'recipes'))}")
    kinds = [kind] if kind else [*KINDS, "recipes"]
    names = {name for k in kinds for name in _holders(k)}
    if pattern and "models" in kinds and pattern.startswith(tuple(NAMESPACES)):
        external = importlib.import_module("provenzoo.models.external")
        names.update(external.names(pattern.partition("/")[0]))
    return sorted(name for name in names if pattern is None or fnmatch.fnmatchcase(name, pattern))


def entry(kind: str, name: str) -> Entry:
    """The entry of a name; an unknown one is an error with the nearest names, across kinds and tags."""
    if not isinstance(name, str):
        raise UsageError(f"a name is text, not {kind_of(name)} ({name!r})")
    holders = _holders(kind).get(name, [])
    if len(holders) > 1:
        raise ZooError(f"the name {name!r} is held by {' and by '.join(origin for origin, _ in holders)}; rename one")
    if holders and holders[0][1] is None:
        return _registered[kind, name]
    if holders:
        origin, file = holders[0]
        return _read_entry(kind, name, origin, typing.cast(Path, file))
    for prefix, builder in NAMESPACES.items():
        if kind == "models" and name.startswith(prefix) and name != prefix:
            library = prefix.rstrip("/")
            return Entry(
                kind,
                name,
                builder,
                f"{name[len(prefix) :]} of {library}",
                args={"architecture": name[len(prefix) :]},
                origin=library,
            )
    raise UsageError(_unknown(kind, name))


def _unknown(kind: str, name: str) -> str:
    one = kind.removesuffix("s")
    for other in (*KINDS, "recipes"):
        if other != kind and name in _holders(other):
            return f"no {one} {name!r}: that is the name of a {other.removesuffix('s')}"
    others = {n: other for other in (*KINDS, "recipes") for n in _holders(other)}
    kinds = others | dict.fromkeys(_holders(kind), kind)
    if not (close := nearest(name, kinds)):
        return f"no {one} {name!r}; see `provenzoo list {kind}`"
    if kinds[close[0]] == kind:
        return f"no {one} {name!r}; did you mean {' or '.join(repr(n) for n in close if kinds[n] == kind)}?"
    near = ", ".join(f"{n!r} ({kinds[n].removesuffix('s')})" for n in close)
    return f"no {one} {name!r}; near it: {near}"


def _read_entry(kind: str, name: str, origin: str, file: Path) -> Entry:
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
    holders = _holders("recipes").get(name, [])
    if len(holders) > 1:
        raise ZooError(f"the recipe {name!r} is held by {' and by '.join(origin for origin, _ in holders)}; rename one")
    if not holders:
        raise UsageError(_unknown("recipes", name))
    return typing.cast(Path, holders[0][1])


def register(
    kind: str, name: str, *, summary: str = "", paper: str = "", **args: Any
) -> Callable[[Callable], Callable]:
    """Decorator that gives a builder a name in the running program, as a file in registry/ would."""
    if kind not in KINDS or kind == "checkpoints":
        raise UsageError(f"no kind {kind!r} to register in{did_you_mean(kind, KINDS)}")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: a name is lower case letters, digits and hyphens")
    if holders := _holders(kind).get(name):
        raise UsageError(f"the name {name!r} is taken by {holders[0][0]}")

    def remember(builder: Callable) -> Callable:
        origin = f"{builder.__module__}.{getattr(builder, '__qualname__', name)}"
        _registered[kind, name] = Entry(kind, name, builder, summary, paper, args, origin)
        return builder

    return remember


# --- building -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """A component of a recipe that was checked and can be built: its entry, its builder and its plain arguments."""

    entry: Entry
    builder: Callable
    args: dict[str, Any]
    where: str

    def build(self, **given: Any) -> Any:
        """Build it, with what only the running program knows: `seed` and what the data's shapes fill in."""
        from provenzoo.settings import bind, parameters

        plain = {k: v for k, v in self.args.items() if not isinstance(v, Bound)}
        seed = {k: v for k, v in given.items() if k == "seed"}
        inner = {k: v.build(**seed) for k, v in self.args.items() if isinstance(v, Bound)}
        given = {k: v for k, v in given.items() if k != "seed" or _takes_seed(self.builder)} | inner
        needed = [n for n, p in parameters(self.builder).items() if p.default is p.empty]
        if missing := [n for n in needed if n not in plain and n not in given]:
            raise ZooError(f"{self.where}: {self.entry.name} needs {', '.join(repr(n) for n in missing)}")
        return self.builder(**bind(self.builder, plain, self.where, partial=True), **given)

    @property
    def node(self) -> dict[str, Any]:
        """The component's node with the entry's own arguments written out, as a checkpoint keeps it."""
        inner = {k: v.node if isinstance(v, Bound) else v for k, v in self.args.items()}
        return {"name": self.entry.name, **inner}

    def fill(self, shapes: Mapping[str, int]) -> dict[str, int]:
        """Arguments written nowhere, as the data's shapes give them; a written one that disagrees is an error."""
        from provenzoo.settings import parameters

        known = [name for name in shapes if name in parameters(self.builder)]
        for name in known:
            if name in self.args and self.args[name] != shapes[name]:
                raise ZooError(
                    f"{self.where}: {name} is {self.args[name]}, but the data has {shapes[name]}; leave it out"
                )
        return {name: shapes[name] for name in known if name not in self.args}


def _takes_seed(builder: Callable) -> bool:
    import inspect

    return "seed" in inspect.signature(builder).parameters


def check(kind: str, node: Any, where: str) -> Bound:
    """Check a component's node `{name: ..., arg: ...}` against its builder's signature; nothing is built."""
    from provenzoo.settings import bind, parameters

    if not isinstance(node, Mapping) or "name" not in node:
        given = kind_of(node) if not isinstance(node, Mapping) else "no `name`"
        raise ZooError(f"{where}: {given} where a mapping with a `name` is needed")
    try:
        found = entry(kind, node["name"])
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    builder = found.load()
    args = {**found.args, **{key: value for key, value in node.items() if key != "name"}}
    nested = {name: inner for name, inner in _components(builder).items() if name in args}
    bound = {name: check(inner, args[name], f"{where}.{name}") for name, inner in nested.items()}
    plain = {name: value for name, value in args.items() if name not in nested}
    unknown = [name for name in plain if name not in parameters(builder)]
    if unknown:
        known = did_you_mean(unknown[0], parameters(builder))
        raise ZooError(f"{where}: {found.name} has no argument {unknown[0]!r}{known}")
    bind(builder, plain, where, partial=True)
    return Bound(found, builder, {**plain, **bound}, where)


def _components(builder: Callable) -> dict[str, str]:
    """The arguments of a builder that are components themselves, by the class in its signature: name -> kind."""
    target = builder.__init__ if isinstance(builder, type) else builder
    kinds = {"Dataset": "datasets", "Teacher": "teachers"}
    hints = typing.get_type_hints(target)
    return {
        name: kinds[hint.__name__]
        for name, hint in hints.items()
        if getattr(hint, "__name__", "") in kinds and name != "return"
    }


def create_model(name: str, *, seed: int = 0, **args: Any) -> "nn.Module":
    """A freshly initialised model by name; its draws are those of (seed, "init")."""
    from provenzoo.draws import seeded

    bound = check("models", {"name": name, **args}, name)
    with seeded(seed, "init"):
        return bound.build()


def create_dataset(name: str, *, seed: int = 0, **args: Any) -> "Dataset":
    """A data set by name, for one seed."""
    return check("datasets", {"name": name, **args}, name).build(seed=seed)


def create_teacher(name: str, *, seed: int = 0, **args: Any) -> Any:
    """A teacher by name, drawn for one seed."""
    from provenzoo.draws import seeded

    bound = check("teachers", {"name": name, **args}, name)
    with seeded(seed, "teacher"):
        return bound.build(seed=seed)


def info(name: str, kind: str | None = None) -> dict[str, Any]:
    """What is known of a name: kind, summary, paper, builder, arguments with types and defaults, groups, origin."""
    kinds = [k for k in (*KINDS, "recipes") if name in _holders(k) and kind in (None, k)]
    if not kinds and name.startswith(tuple(NAMESPACES)):
        kinds = ["models"]
    if not kinds:
        raise UsageError(_unknown(kind or "models", name).replace("no model ", "no name ", 1 if kind is None else 0))
    return _describe_recipe(name) if kinds[0] == "recipes" else _describe(entry(kinds[0], name))


def _describe_recipe(name: str) -> dict[str, Any]:
    from provenzoo.plain import read_yaml

    file = recipe_file(name)
    data = read_yaml(file)
    stages, claims = (found if isinstance(found := data.get(key), dict) else {} for key in ("stages", "claims"))
    return {
        "kind": "recipes",
        "name": name,
        "about": data.get("about", ""),
        "extends": data.get("extends"),
        "stages": list(stages),
        "claims": {key: claim.get("says", "") for key, claim in claims.items() if isinstance(claim, dict)},
        "file": str(file),
    }


def _describe(found: Entry) -> dict[str, Any]:
    from provenzoo.settings import parameters

    answer: dict[str, Any] = {
        "kind": found.kind,
        "name": found.name,
        "summary": found.summary,
        "paper": found.paper,
        "origin": found.origin,
    }
    if found.kind == "checkpoints":
        return answer | {"manifest": dict(found.args)}
    builder = found.load()
    arguments = {name: _describe_argument(found, name, p) for name, p in parameters(builder).items()}
    traits = {key: value for key in ("adaptable", "replicable") if (value := getattr(builder, key, None))}
    if found.kind == "models":
        from provenzoo.models.base import groups_of

        traits["groups"] = groups_of(builder, found.args)
    summary = found.summary or (builder.__doc__ or "").strip().partition("\n")[0]
    where = found.builder if isinstance(found.builder, str) else found.origin
    return answer | {"summary": summary, "builder": where, "arguments": arguments} | traits


def _describe_argument(found: Entry, name: str, parameter: Any) -> dict[str, Any]:
    """An argument's type, in the words of the signature, and its default; none where it must be given or is filled."""
    hint = parameter.annotation
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    kind = (
        hint.__name__
        if isinstance(hint, type)
        else re.sub(r"typing\.|Annotated\[(\w+), .*?\)\]\)?\]", r"\1", str(hint))
    )
    if name in found.args:
        return {"type": kind, "default": found.args[name]}
    return {"type": kind} | ({} if parameter.default is parameter.empty else {"default": parameter.default})
