"""The points of a recipe's stages: grids, parents, order, and each point's resolved node.

A point is one stage at one label of each of its axes. The axes of a stage are its parents' and then its own `grid`.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

from provenzoo import fetch, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.models.load import check_adaptable
from provenzoo.pipeline.recipe import Recipe, is_overlay
from provenzoo.plain import did_you_mean, digest, kind_of, merge, nested, split_path, walk
from provenzoo.settings import read
from provenzoo.stages import STAGES, Stage

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Point:
    """One stage at one label of each axis, with all that it needs resolved."""

    stage: str
    labels: Labels
    node: dict[str, Any]
    seeds: tuple[int, ...]
    parents: dict[str, str]
    """Path of a `from` in the node -> digest of what it names."""

    @property
    def name(self) -> str:
        """`stage` or `stage[axis=label,...]`."""
        return self.stage + _brackets(self.labels)

    @property
    def folder(self) -> str:
        """The name as a folder's."""
        return folder_name(self.name)

    @cached_property
    def kind(self) -> Stage:
        """The function, settings and checks of the stage's kind."""
        return STAGES[self.node["stage"]]

    @cached_property
    def settings(self) -> Any:
        """The stage's settings object."""
        return self.read_settings()

    def read_settings(self) -> Any:
        """Read the node as the settings of its kind; what does not fit is an error."""
        return read(self.kind.settings, self.node, f"stages.{self.name}")

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the resolved node, the seeds and the parents' digests."""
        node = json.loads(json.dumps(self.node))
        for path in self.parents:
            _set(node, path, None)
        return digest({"node": node, "seeds": list(self.seeds), "parents": self.parents})


def folder_name(name: str) -> str:
    """A name as a folder's: what a file system may refuse is percent-encoded, and a long name is cut."""
    quoted = quote(name, safe="[]=,.-_+ ")
    return quoted if len(quoted) <= 200 else f"{quoted[:180]}~{digest(name)[:12]}"


def _brackets(labels: Labels) -> str:
    return f"[{','.join(f'{axis}={label}' for axis, label in labels)}]" if labels else ""


# --- order --------------------------------------------------------------------------------------------------------


def _references(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every (path, name) that a `from` key at any depth holds."""
    for at, value in walk(node, path):
        if at.rpartition(".")[2] == "from" and isinstance(value, str):
            yield at, value


def _stage_of(reference: str) -> str:
    return reference.partition("[")[0]


def order(stages: Mapping[str, Any]) -> list[str]:
    """Parents first, else as written; only a cycle is an error."""
    found: list[str] = []

    def visit(name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            raise ZooError(f"stages.{name}: comes from itself: {' -> '.join([*chain[chain.index(name) :], name])}")
        if name not in found:
            for parent in _parents(stages[name]):
                if parent in stages:
                    visit(parent, (*chain, name))
            found.append(name)

    for name in stages:
        visit(name, ())
    return found


def _parents(node: Mapping[str, Any]) -> list[str]:
    grid = node.get("grid", {})
    on_axes = [value for value in grid.get("from", []) if isinstance(value, str)] if isinstance(grid, Mapping) else []
    return [_stage_of(reference) for reference in [*(r for _, r in _references(node)), *on_axes]]


# --- grids --------------------------------------------------------------------------------------------------------


def expand(name: str, recipe: Recipe, done: Mapping[str, list[Point]]) -> list[Point]:
    """The points of a stage: for each choice of its own labels, every combination of parents that agrees."""
    where = f"stages.{name}"
    node = dict(recipe.stages[name])
    axes = _own_axes(node.pop("grid", {}), node, f"{where}.grid")
    found: list[tuple[tuple[int, ...], int, Point]] = []
    for index, chosen in enumerate(itertools.product(*axes.values())):
        own = tuple(zip(axes, (label for label, _ in chosen), strict=True))
        at = where + _brackets(own)
        overlaid = node
        for _, overlay in chosen:
            overlaid = _merge(overlaid, overlay, at, lambda path: is_overlay(("stages", name, *path)))
        _check_kind(overlaid, at)
        choices = list(_parent_choices(overlaid, done, recipe, at))
        if not choices:
            raise ZooError(f"{at}: its parents have no labels in common on the axes that they share")
        for place, parents, inherited in choices:
            if twice := [axis for axis in axes if axis in dict(inherited)]:
                raise ZooError(f"{where}.grid: the axis {twice[0]!r} is inherited from a parent; name it otherwise")
            found.append((place, index, _point(name, inherited + own, overlaid, parents, recipe, at)))
    return [point for *_, point in sorted(found, key=lambda item: item[:2])]


def _check_kind(node: Mapping[str, Any], where: str) -> None:
    kind = node.get("stage")
    if not isinstance(kind, str) or kind not in STAGES:
        wanted = did_you_mean(str(kind), STAGES) if kind is not None else f"; there are: {', '.join(STAGES)}"
        raise ZooError(f"{where}: no stage {kind!r}{wanted}")
    origin = STAGES[kind].settings.model_fields.get("from_")
    if origin and origin.is_required() and not isinstance(node.get("from"), str):
        raise ZooError(f"{where}.from: {kind_of(node.get('from'))} where the name of a stage or checkpoint is needed")


def _own_axes(grid: Any, node: dict[str, Any], where: str) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Axis name -> its (label, overlay) pairs."""
    if not isinstance(grid, Mapping):
        raise ZooError(f"{where}: {kind_of(grid)} where a mapping of axes is needed")
    for axis in grid:
        _check_nameable("axis", axis, where)
    return {axis: _labels(axis, values, node, f"{where}.{axis}") for axis, values in grid.items()}


def _labels(axis: str, values: Any, node: dict[str, Any], where: str) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(values, str) and (span := re.fullmatch(r"(-?\d+)\.\.(-?\d+)", values)):
        values = list(range(int(span[1]), int(span[2]) + 1))
    if isinstance(values, Mapping):
        pairs = [(str(label), overlay) for label, overlay in values.items()]
        if wrong := [label for label, overlay in pairs if not isinstance(overlay, Mapping)]:
            raise ZooError(f"{where}.{wrong[0]}: a label holds an overlay on the stage (a mapping)")
    elif isinstance(values, list):
        keys = split_path(node, axis)
        pairs = [(_label(value), nested(keys, value)) for value in values]
    else:
        raise ZooError(f"{where}: {kind_of(values)} where a list, a range a..b or a mapping of labels is needed")
    names = [label for label, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ZooError(f"{where}: {'no labels' if not names else 'a label is there twice'}")
    for label in names:
        _check_nameable("label", label, where)
    return pairs


def _check_nameable(what: str, name: str, where: str) -> None:
    """Refuse what no path could name: `*` means all, and brackets, commas and `=` part axes and labels."""
    if name in ("", "*") or name != name.strip() or re.search(r"[\[\],=\x00-\x1f]", name):
        hint = "; give labels as a mapping" if what == "label" else ""
        raise ZooError(f"{where}: the {what} {name!r} cannot be named in a path{hint}")


def _label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _merge(base: Any, overlay: Any, where: str, later: Callable[[tuple[str, ...]], bool] = lambda _: False) -> Any:
    try:
        return merge(base, overlay, later=later)
    except ZooError as error:
        raise ZooError(f"{where}: {error}") from None


# --- parents ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parent:
    """What a `from` names: a point of this run or a checkpoint elsewhere."""

    reference: str
    digest: str
    seeds: tuple[int, ...]
    model: dict[str, Any]
    data: dict[str, Any]


def _parent_choices(
    node: dict[str, Any], done: Mapping[str, list[Point]], recipe: Recipe, where: str
) -> Iterator[tuple[tuple[int, ...], dict[str, Parent], Labels]]:
    """Every combination of parents whose shared axes have the same label: (order, parent by path, labels)."""
    references = list(_references(node))
    candidates = [_candidates(reference, done, recipe, f"{where}.{path}") for path, reference in references]
    for chosen in itertools.product(*(list(enumerate(options)) for options in candidates)):
        labels: dict[str, str] = {}
        if all(labels.setdefault(axis, label) == label for _, (_, held) in chosen for axis, label in held):
            parents = {path: parent for (path, _), (_, (parent, _)) in zip(references, chosen, strict=True)}
            yield tuple(index for index, _ in chosen), parents, tuple(labels.items())


def _candidates(
    reference: str, done: Mapping[str, list[Point]], recipe: Recipe, where: str
) -> list[tuple[Parent, Labels]]:
    """The points that a reference names, each with the axes that are still open."""
    stage = _stage_of(reference)
    if stage not in done:
        return [(_external(reference, recipe, where), ())]
    picks = _picks(reference, where)
    points = done[stage]
    for axis, label in picks.items():
        known = [dict(p.labels)[axis] for p in points if axis in dict(p.labels)]
        if not known:
            raise ZooError(
                f"{where}: {stage} has no axis {axis!r}{did_you_mean(axis, [a for p in points for a, _ in p.labels])}"
            )
        points = [p for p in points if dict(p.labels).get(axis) == label]
        if not points:
            raise ZooError(f"{where}: {stage} has no label {label!r} on {axis}{did_you_mean(label, known)}")
    if not points[0].kind.trains:
        raise ZooError(f"{where}: the stage {stage!r} leaves no checkpoint to start from")
    return [
        (
            Parent(p.name, p.digest, p.seeds, p.node["model"], p.node["data"]),
            tuple(x for x in p.labels if x[0] not in picks),
        )
        for p in points
    ]


def _picks(reference: str, where: str) -> dict[str, str]:
    match = re.fullmatch(r"[^\[\]]+(?:\[([^\[\]]+)\])?", reference)
    pairs = [part.partition("=") for part in match[1].split(",")] if match and match[1] else []
    if match is None or any(not equals for _, equals, _ in pairs):
        raise ZooError(f"{where}: {reference!r} is not read; write stage[axis=label,...]")
    return {axis.strip(): label.strip() for axis, _, label in pairs}


def _external(reference: str, recipe: Recipe, where: str) -> Parent:
    if not fetch.is_reference(reference):
        names = [*recipe.stages, *registry.list_names("checkpoints")]
        known = "; a folder is local:DIR" if "/" in reference else did_you_mean(reference, names)
        raise UsageError(f"{where}: no stage and no checkpoint {reference!r}{known}")
    config = fetch.config(reference)
    return Parent(reference, config["digest"], tuple(config["seeds"]), config["model"], config["data"])


# --- points -------------------------------------------------------------------------------------------------------


def _point(
    stage: str, labels: Labels, node: dict[str, Any], parents: dict[str, Parent], recipe: Recipe, where: str
) -> Point:
    count = node.get("seeds", recipe.seeds)
    seeds = tuple(range(count)) if isinstance(count, int) and not isinstance(count, bool) else ()
    node = json.loads(json.dumps(node))
    for path, parent in parents.items():
        if len(parent.seeds) != 1 and parent.seeds != seeds:
            raise ZooError(
                f"{where}.{path}: {parent.reference} has {len(parent.seeds)} seeds and this stage {len(seeds)}; "
                "give them the same `seeds`, or the parent one"
            )
        _set(node, path, parent.reference)
    origin = parents.get("from")
    for part in ("model", "data"):
        base = getattr(origin, part) if origin else {}
        if origin or part in node:
            node[part] = _merge(base, node.get(part, {}), f"{where}.{part}")
    if origin and _stage_of(origin.reference) not in recipe.stages:
        for path, reference in _references(node["data"], "data"):
            if path not in parents and not fetch.is_reference(reference):
                there = f"{reference!r} is a stage of the run that {origin.reference} comes from"
                raise ZooError(f"{where}.{path}: {there}; name its folder, local:DIR")
    if isinstance(node.get("sets"), Mapping):
        for label in node["sets"]:
            _check_nameable("set", label, f"{where}.sets")
        node["sets"] = {label: _set_node(node, label, f"{where}.sets.{label}") for label in node["sets"]}
    if origin and not STAGES[node["stage"]].trains:
        check_adaptable(origin.model, node["model"], f"{where}.model")
    point = Point(stage, labels, node, seeds, {path: parent.digest for path, parent in parents.items()})
    point.read_settings()
    return point


def _set_node(node: dict[str, Any], label: str, where: str) -> dict[str, Any]:
    """A set's whole data and model: its overlays on the stage's."""
    overlay = node["sets"][label]
    if not isinstance(overlay, Mapping):
        raise ZooError(f"{where}: {kind_of(overlay)} where overlays of `data` and `model` are needed")
    for key in overlay:
        if key not in ("data", "model"):
            raise ZooError(f"{where}: unknown key {key!r}{did_you_mean(key, ['data', 'model'])}")
    return {part: _merge(node.get(part, {}), overlay.get(part, {}), f"{where}.{part}") for part in ("data", "model")}


def _set(node: dict[str, Any], path: str, value: Any) -> None:
    *inner, last = split_path(node, path)
    for key in inner:
        node = node[key]
    node[last] = value
