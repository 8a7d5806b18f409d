"""A recipe: composed from files and overrides into plain data, and checked.

`compose` gives an OmegaConf `DictConfig`; everything below works on the plain data in it.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import Field, field_validator

from provenzoo import registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.claims import Claim
from provenzoo.pipeline.trackers import Name as Tracker
from provenzoo.plain import (
    did_you_mean,
    kind_of,
    merge,
    nearest,
    nested,
    parse_yaml,
    plain_data,
    read_yaml,
    scalar,
    split_path,
    walk,
)
from provenzoo.report.figure import Figure
from provenzoo.settings import Settings, read

STAGE_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_REFERENCE = re.compile(r"\$\{([^${}]+)\}")


class Recipe(Settings):
    """The top level of a recipe. Stages are checked by their own settings once the plan has resolved them."""

    recipe: str
    about: str = ""
    note: str = ""
    paper: str = ""
    scale: Literal["cpu", "gpu"] = "cpu"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads of torch; small models are several times faster with one, and a result's last bits depend on it."""
    seeds: Annotated[int, Field(ge=1, le=10_000)] = 1
    stages: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    figures: dict[str, Figure] = {}
    publish: str | None = None
    license: str | None = None
    """Of what is published: its text is `cards/licenses/<license>.txt` of a content folder; apache-2.0 without one."""
    trackers: list[Tracker] = []
    """Where a training's numbers go as it goes on, beside the run folder."""
    card: str | None = None
    """The model card's template, `cards/<card>.md.jinja` of a content folder; ours if none is named."""
    claims: dict[str, Claim] = {}

    @field_validator("recipe")
    @classmethod
    def _is_a_path_below_runs(cls, name: str) -> str:
        if not all(re.fullmatch(r"[^\\\x00-\x1f]{1,200}", part) and part.strip(". ") for part in name.split("/")):
            raise ValueError("a recipe's name is words with / between them; it names a folder below runs/")
        return name


# --- composition --------------------------------------------------------------------------------------------------


def compose(recipe: str | Path | DictConfig | Mapping[str, Any], overrides: Iterable[str] = ()) -> DictConfig:
    """A recipe with all that it extends and the overrides laid over it, its references resolved and its keys checked.

    `recipe` is a name, a YAML file (a run's config.yaml among them) or a config from an earlier call; an override is
    `path=value` or `path+=[more]`.
    """
    data, where = _read(recipe)
    data = _extended(data, where, (str(recipe),))
    data = _overridden(data, list(overrides))
    data = _resolved(data)
    for name in read(Recipe, data, where).stages:
        if not STAGE_NAME.fullmatch(name):
            raise ZooError(f"{where}: stages.{name}: a stage's name is lower case letters, digits and hyphens")
    config = OmegaConf.create(_escaped(data))
    OmegaConf.set_struct(config, True)
    return config


def plain_recipe(config: DictConfig) -> dict[str, Any]:
    """The plain data of a composed recipe."""
    return OmegaConf.to_container(config, resolve=True)  # pyright: ignore[reportReturnType]  # a mapping by construction


def _read(recipe: str | Path | DictConfig | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if isinstance(recipe, DictConfig):
        recipe = plain_recipe(recipe)
    if isinstance(recipe, Mapping):
        where = str(recipe.get("recipe", "recipe"))
        return {"recipe": "notebook", **plain_data(recipe, where)}, where
    text = str(recipe)
    is_file = isinstance(recipe, Path) or text.endswith((".yaml", ".yml"))
    file = Path(text) if is_file else registry.recipe_file(text)
    data = plain_data(read_yaml(file), text)
    return {"recipe": file.stem if is_file else text, **data}, text if is_file else f"recipe {text}"


def _extended(data: dict[str, Any], where: str, chain: tuple[str, ...]) -> dict[str, Any]:
    """The data laid over the recipe that it extends. `chain` holds the names that led here, its own last."""
    base: dict[str, Any] = {}
    if (parent := data.pop("extends", None)) is not None:
        if not isinstance(parent, str):
            raise ZooError(f"{where}: extends is {kind_of(parent)}; the name of one recipe is needed")
        if parent in chain:
            raise ZooError(f"{where}: extends goes in a circle: {' -> '.join([*chain, parent])}")
        try:
            inherited, parent_where = _read(parent)
        except UsageError as error:
            raise ZooError(f"{where}: extends: {error}") from None
        base = _extended(inherited, parent_where, (*chain, parent))
    try:
        return merge(base, data, later=is_overlay)
    except ZooError as error:
        raise ZooError(f"{where}: {error}") from None


def is_overlay(path: tuple[str, ...]) -> bool:
    """Whether a path lies in an overlay that the plan lays over something else: there null and `key+` wait."""
    if path[0] != "stages" or len(path) < 4:
        return False
    depth = {"model": 4, "data": 4, "sets": 5, "grid": 6}.get(path[2])
    return depth is not None and len(path) >= depth


def _resolved(data: dict[str, Any]) -> dict[str, Any]:
    """Copies in the place of values that are wholly `${path}`."""

    def copy(value: Any, at: str, chain: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: copy(item, f"{at}.{key}" if at else key, chain) for key, item in value.items()}
        if isinstance(value, list):
            return [copy(item, f"{at}[{i}]", chain) for i, item in enumerate(value)]
        if (path := referred(value)) is None:
            return value
        return copy(*target(path, at, chain))

    def referred(value: Any) -> str | None:
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        return match and match[1]

    def target(path: str, at: str, chain: tuple[str, ...]) -> tuple[Any, str, tuple[str, ...]]:
        """What a path names, also where the path leads through another copy."""
        if path in chain:
            raise ZooError(f"{at}: the reference ${{{path}}} goes in a circle")
        value: Any = data
        keys = split_path(data, path)
        for i, key in enumerate(keys):
            if (through := referred(value)) is not None:
                return target(".".join([through, *keys[i:]]), at, (*chain, path))
            if not isinstance(value, dict) or key not in value:
                raise ZooError(f"{at}: ${{{path}}} names nothing{did_you_mean(path, [p for p, _ in walk(data)])}")
            value = value[key]
        return value, at, (*chain, path)

    return copy(data, "", ())


def _escaped(data: Any) -> Any:
    """Text that holds `${` is text: nothing else interpolates. Before it, OmegaConf takes a backslash for an escape."""
    if isinstance(data, dict):
        return {key: _escaped(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_escaped(value) for value in data]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", data) if isinstance(data, str) else data


# --- overrides ----------------------------------------------------------------------------------------------------


def _overridden(data: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """All overrides as one overlay."""
    overlay: dict[str, Any] = {}
    seen: set[str] = set()
    for path, value in sorted(map(parse_override, overrides), key=lambda pair: pair[0]):
        if path.removesuffix("+") in seen:
            raise UsageError(f"{path.removesuffix('+')!r} is given twice")
        seen.add(path.removesuffix("+"))
        keys = _locate(data, path)
        overlay = _overlay(overlay, nested(keys, value), path)
    try:
        return merge(data, plain_data(overlay, "overrides"), later=is_overlay)
    except ZooError as error:
        raise UsageError(str(error)) from None


def _overlay(base: dict[str, Any], more: dict[str, Any], path: str) -> dict[str, Any]:
    result = dict(base)
    for key, value in more.items():
        if key in result and not (isinstance(result[key], dict) and isinstance(value, dict)):
            raise UsageError(f"{path!r}: another override sets what this one lies in")
        result[key] = _overlay(result[key], value, path) if key in result else value
    return result


def parse_override(text: str) -> tuple[str, Any]:
    """The path and the value of `path=value`. A path of `a.b+=[x]` keeps its `+`.

    A value wholly in double quotes is text; one in brackets or braces is read as YAML; `true`, `null` and numbers are
    what they look like; everything else is text as it stands.
    """
    path, equals, value = text.partition("=")
    if not equals or not path.removesuffix("+") or path != path.strip():
        raise UsageError(f"{text!r}: an override is path=value")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return path, value[1:-1]
    if value[:1] in ("[", "{"):
        try:
            return path, parse_yaml(value, path)
        except ZooError as error:
            raise UsageError(f"{error}; to give it as text, put it in double quotes") from None
    return path, scalar(value) if value else ""


def _holds(data: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _locate(data: dict[str, Any], path: str) -> list[str]:
    """The keys of an override's path. It adds no stage and no claim, so a misspelt one is an error with the nearest."""
    extend = path.endswith("+")
    keys = split_path(data, path.removesuffix("+"))
    known = [name for name in Recipe.model_fields if name != "recipe"]
    if keys[0] not in known:
        paths = [p for p, _ in walk(data) if p != "recipe"]
        same_end = [p for p in paths if p.endswith(f".{path}")]
        close = " or ".join(repr(p) for p in same_end[:3] or nearest(path, [*known, *paths]))
        raise UsageError(f"no key {keys[0]!r} in a recipe" + (f"; did you mean {close}?" if close else ""))
    if keys[0] in ("stages", "claims") and len(keys) > 1 and keys[1] not in (data.get(keys[0]) or {}):
        one = keys[0].removesuffix("s")
        raise UsageError(f"{path}: no {one} {keys[1]!r}{did_you_mean(keys[1], data.get(keys[0]) or {})}")
    if keys[0] == "stages" and keys[2:3] == ["grid"] and len(keys) > 4 and not _holds(data, keys[:4]):
        keys[3:] = [".".join(keys[3:])]  # a new axis: the rest is the path that it sets
    return [*keys[:-1], keys[-1] + "+"] if extend else keys
