"""Components of a recipe: a name and arguments, checked against the builder's signature and then built."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from provenzoo.draws import seeded
from provenzoo.errors import UsageError, ZooError
from provenzoo.fetch import Checkpoint, fetch
from provenzoo.plain import did_you_mean, kind_of
from provenzoo.registry import Entry, entry
from provenzoo.settings import annotations, bind, parameters

if TYPE_CHECKING:
    from provenzoo.datasets.base import Dataset


@dataclass(frozen=True)
class Bound:
    """A component of a recipe that was checked and can be built: its entry, its builder and its plain arguments."""

    entry: Entry
    builder: Callable
    args: dict[str, Any]
    where: str
    origin: str | None = None
    """The `from` of its node: what its builder is given as `checkpoint`."""

    def build(self, fetch: Callable[[str], Checkpoint] = fetch, /, **given: Any) -> Any:
        """Build it, with what only the running program knows: `seed` and what the data's shapes fill in.

        `fetch` gives the checkpoint that a `from` names; a stage's knows the stages of its run.
        """
        return self.builder(**self.arguments(fetch, **given))

    def arguments(self, fetch: Callable[[str], Checkpoint] = fetch, /, **given: Any) -> dict[str, Any]:
        """All that the builder is called with; components among them are built."""
        plain = {k: v for k, v in self.args.items() if not isinstance(v, Bound)}
        seed = {k: v for k, v in given.items() if k == "seed"}
        inner = {k: v.build(fetch, **seed) for k, v in self.args.items() if isinstance(v, Bound)}
        given = {k: v for k, v in given.items() if k != "seed" or _takes_seed(self.builder)} | inner
        if self.origin is not None:
            given["checkpoint"] = fetch(self.origin)
        needed = [n for n, p in parameters(self.builder).items() if p.default is p.empty]
        if missing := [n for n in needed if n not in plain and n not in given]:
            raise ZooError(
                f"{self.where}: {self.entry.name} needs {', '.join(repr(n) for n in missing)}; write it there"
            )
        return {**bind(self.builder, plain, self.where, partial=True), **given}

    @property
    def node(self) -> dict[str, Any]:
        """The component's node with the entry's own arguments written out, as a checkpoint keeps it."""
        inner = {k: v.node if isinstance(v, Bound) else v for k, v in self.args.items()}
        origin = {} if self.origin is None else {"from": self.origin}
        return {"name": self.entry.name, **origin, **inner}

    def fill(self, shapes: Mapping[str, int]) -> dict[str, int]:
        """Arguments written nowhere, as the data's shapes give them; a written one that disagrees is an error."""
        known = [name for name in shapes if name in parameters(self.builder)]
        for name in known:
            if name in self.args and self.args[name] != shapes[name]:
                raise ZooError(
                    f"{self.where}: {name} is {self.args[name]}, but the data has {shapes[name]}; leave it out"
                )
        return {name: shapes[name] for name in known if name not in self.args}


def _takes_seed(builder: Callable) -> bool:
    return "seed" in inspect.signature(builder).parameters


def check(kind: str, node: Any, where: str) -> Bound:
    """Check a component's node `{name: ..., arg: ...}` against its builder's signature; nothing is built."""
    if not isinstance(node, Mapping) or "name" not in node:
        given = kind_of(node) if not isinstance(node, Mapping) else "no `name`"
        raise ZooError(f"{where}: {given} where a mapping with a `name` is needed")
    try:
        found = entry(kind, node["name"])
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    builder = found.load()
    args = {**found.args, **{key: value for key, value in node.items() if key not in ("name", "from")}}
    origin = node.get("from")
    if "from" in node and (kind == "models" or "checkpoint" not in parameters(builder)):
        raise ZooError(f"{where}: {found.name} takes no `from`")
    if "from" in node and not isinstance(origin, str):
        raise ZooError(f"{where}.from: {kind_of(origin)} where the name of a stage or checkpoint is needed")
    nested = {name: inner for name, inner in _components(builder).items() if name in args}
    bound = {name: check(inner, args[name], f"{where}.{name}") for name, inner in nested.items()}
    plain = {name: value for name, value in args.items() if name not in nested}
    unknown = [name for name in plain if name not in parameters(builder)]
    if unknown:
        known = did_you_mean(unknown[0], parameters(builder))
        raise ZooError(f"{where}: {found.name} has no argument {unknown[0]!r}{known}")
    bind(builder, plain, where, partial=True)
    return Bound(found, builder, {**plain, **bound}, where, origin)


def _components(builder: Callable) -> dict[str, str]:
    """The arguments of a builder that are components themselves, by the class in its signature: name -> kind."""
    kinds = {"Dataset": "datasets", "Teacher": "teachers"}
    hints = annotations(builder)
    return {name: kinds[hint.__name__] for name, hint in hints.items() if getattr(hint, "__name__", "") in kinds}


def create_model(name: str, *, seed: int = 0, **args: Any) -> nn.Module:
    """A freshly initialised model by name; its draws are those of (seed, "init")."""
    bound = check("models", {"name": name, **args}, name)
    with seeded(seed, "init"):
        return bound.build(seed=seed)


def create_dataset(name: str, *, seed: int = 0, **args: Any) -> "Dataset":
    """A data set by name, for one seed."""
    return check("datasets", {"name": name, **args}, name).build(seed=seed)


def create_teacher(name: str, *, seed: int = 0, **args: Any) -> Any:
    """A teacher by name, drawn for one seed."""
    bound = check("teachers", {"name": name, **args}, name)
    with seeded(seed, "teacher"):
        return bound.build(seed=seed)
