"""What is known of a name: its kind, what it is, its arguments, where it comes from; of a checkpoint its numbers."""

import inspect
import re
import statistics
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provenzoo import fetch, remote
from provenzoo.errors import UsageError
from provenzoo.models.base import groups_of
from provenzoo.pipeline.told import check_sets
from provenzoo.plain import read_yaml
from provenzoo.registry import KINDS, Entry, entry, list_names, names_held, recipe_file, unknown
from provenzoo.settings import parameters


def info(name: str, kind: str | None = None) -> dict[str, Any]:
    """What is known of a name: kind, summary, paper, builder, arguments with types and defaults, groups, origin.

    Of a checkpoint, by name, folder or `hf:user/repo[@revision]`: paper, licence, size, digest and numbers.
    """
    if name.startswith(("hf:", "local:")):
        return {"kind": "checkpoints", "name": name, **_describe_checkpoint(name, {})}
    kinds = [k for k in (*KINDS, "recipes") if name in names_held(k) and kind in (None, k)]
    if not kinds and kind in (None, "models") and name in list_names("models", name):
        kinds = ["models"]  # of timm or torchvision, which listing imports
    if not kinds:
        raise UsageError(unknown(kind or "models", name).replace("no model ", "no name ", 1 if kind is None else 0))
    return _describe_recipe(name) if kinds[0] == "recipes" else _describe(entry(kinds[0], name))


def _describe_recipe(name: str) -> dict[str, Any]:
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
    answer: dict[str, Any] = {
        "kind": found.kind,
        "name": found.name,
        "summary": found.summary,
        "paper": found.paper,
        "origin": found.origin,
    }
    if found.kind == "checkpoints":
        return answer | _describe_checkpoint(found.name, found.args) | {"manifest": dict(found.args)}
    builder = found.load()
    arguments = {name: _describe_argument(found, name, p) for name, p in parameters(builder).items()}
    traits = {key: value for key in ("adaptable", "refits", "replicable") if (value := getattr(builder, key, None))}
    if found.kind == "models":
        traits["groups"] = groups_of(builder, found.args)
    about = inspect.getdoc(getattr(builder, "func", builder)) or ""
    summary = found.summary or about.partition("\n")[0]
    where = found.builder if isinstance(found.builder, str) else found.origin
    return answer | {"summary": summary, "about": about, "builder": where, "arguments": arguments} | traits


def _describe_checkpoint(reference: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint's config tells; its weights are not fetched for it."""
    place = fetch.place(reference)
    config = fetch.read_config(place)
    sets = check_sets(config["sets"] if "sets" in config else fetch.numbers(place), reference, own=True)
    keys = ("recipe", "stage", "model", "filled", "data", "seeds", "frozen", "precision", "ema")
    return {
        "paper": str(config.get("paper", "")),
        "license": manifest.get("license", config.get("license", "")),
        "revision": place.revision or "",
        "bytes": _bytes(place),
        "digest": config["digest"],
        "seed": manifest.get("seed", config.get("seed", config["seeds"][0])),
        **{key: config[key] for key in keys if key in config},
        "numbers": {label: _means(entry["values"]) for label, entry in sets.items()},
    }


def _bytes(place: fetch.Place) -> int | None:
    """The size of the weights."""
    if place.hub and place.revision:
        return remote.size(place.hub, place.revision, fetch.WEIGHTS)
    return Path(str(place.path), fetch.WEIGHTS).stat().st_size


def _means(values: Mapping[str, list[Any]]) -> dict[str, float | None]:
    """Metric -> its mean over seeds with six digits; null where a seed was not finite."""
    scalars = {name: every for name, every in values.items() if not any(isinstance(value, list) for value in every)}
    return {name: None if None in every else float(f"{statistics.fmean(every):.6g}") for name, every in scalars.items()}


def _describe_argument(found: Entry, name: str, parameter: Any) -> dict[str, Any]:
    """An argument's type, in the words of the signature, and its default; none where it must be given or is filled."""
    hint = parameter.annotation
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    kind = hint.__name__ if isinstance(hint, type) else _type_text(str(hint))
    if name in found.args:
        return {"type": kind, "default": found.args[name]}
    return {"type": kind} | ({} if parameter.default is parameter.empty else {"default": parameter.default})


def _type_text(text: str) -> str:
    """`int | None` of `Optional[Annotated[int, ...]]` and the like."""
    plain = re.sub(r"typing\.|Annotated\[(\w+), .*?\)\]\)?\]", r"\1", text)
    return re.sub(r"Optional\[(.*)\]", r"\1 | None", plain)
