"""The module that a checkpoint holds: built from its config, filled strictly with its tensors."""

import operator
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from provenzoo import components, fetch, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.models.base import trait
from provenzoo.models.build import build_drawn, build_empty, build_filled
from provenzoo.models.refit import refit
from provenzoo.models.split import load_merged, merged_state
from provenzoo.settings import bind

_TOLD = ("recipe", "stage", "paper", "model", "data", "digest", "version")


def load(name: str | Path, *, seed: int | None = None, **adapt: Any) -> nn.Module:
    """The trained model of a checkpoint, in eval mode, on the CPU, with the types of number that it was saved with.

    `name` is a registered name, `hf:user/repo[@revision]`, `local:DIR` or a folder; of timm's repositories and folders
    too. `seed` picks the replica (default: the manifest's or config's `seed`, that of
    the complete run around the folder, else the first). `adapt` changes
    arguments that the model declares adaptable; `num_classes` draws a head anew, `image_size` resizes encodings.
    `.provenance` of the module tells where it comes from and, as `anew` and `resized`, what is not the checkpoint's.
    """
    place = fetch.place(str(name) if isinstance(name, Path) else name)
    if fetch.is_timms(place):
        from provenzoo.models.foreign import load_timm

        return load_timm(place, seed, adapt)
    found = fetch.read(place)
    seed = _seed(place, found.config, seed)
    model, told = _adapted(found, seed, adapt) if adapt else (restore(found, seed), {})
    pinned = {"revision": found.revision} if found.revision else {}
    told = {"reference": place.reference, **pinned, "seed": seed} | {k: found.config.get(k) for k in _TOLD} | told
    model.provenance = told  # pyright: ignore[reportArgumentType]
    return model.eval()


def _seed(place: fetch.Place, config: dict[str, Any], seed: int | None) -> int:
    """The seed to take: one that is there, or the default."""
    wanted = fetch.default_seed(place, config) if seed is None else seed
    whole = hasattr(wanted, "__index__") and not isinstance(wanted, bool)
    if not whole or wanted not in config["seeds"]:
        raise UsageError(f"{place.reference}: no seed {wanted}; it has {', '.join(map(str, config['seeds']))}")
    return operator.index(wanted)


def restore(found: fetch.Checkpoint, seed: int, node: dict[str, Any] | None = None) -> nn.Module:
    """The module of one seed, built from config.json (or `node`, an adaptation of its model) and filled strictly."""
    wanted: dict[str, Any] = node or found.config["model"]
    where = f"{found.reference}: model"
    bound = components.check("models", wanted, where)
    if node is not None:
        check_adaptable(found.config["model"], wanted, where)
    args = _arguments(bound, found.config["filled"], wanted, seed)
    try:
        return build_filled(bound.builder, args, found.state(seed), seed, where)
    except ZooError as error:
        raise _at(found, error) from None


def _arguments(
    bound: components.Bound, filled: Mapping[str, Any], wanted: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    given = bind(bound.builder, filled, bound.where, partial=True)
    return bound.arguments(seed=seed, **{key: value for key, value in given.items() if key not in wanted})


def _at(found: fetch.Checkpoint, error: ZooError) -> ZooError:
    """The error with the checkpoint's reference in front."""
    told = str(error)
    return ZooError(told if told.startswith(found.reference) else f"{found.reference}: {told}")


def _adapted(found: fetch.Checkpoint, seed: int, adapt: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """The module of one seed with some arguments changed, and what of it is not the checkpoint's."""
    saved = {**found.config["filled"], **found.config["model"]}
    wanted = {**found.config["model"], **adapt}
    where = f"{found.reference}: model"
    bound = components.check("models", wanted, where)
    refits = trait(bound.builder, "refits")
    check_adaptable(saved, {**saved, **adapt}, where, refits)
    changed = [key for key in adapt if key in refits and adapt[key] != saved.get(key)]
    state, args = found.state(seed), _arguments(bound, found.config["filled"], wanted, seed)
    try:
        if not changed:
            return build_filled(bound.builder, args, state, seed, where), {}
        return filled_anew(bound.builder, args, state, seed, changed, found.reference)
    except ZooError as error:
        raise _at(found, error) from None


def filled_anew(
    builder: Any, args: Mapping[str, Any], state: Mapping[str, Tensor], seed: int, changed: list[str], where: str
) -> tuple[nn.Module, dict[str, Any]]:
    """A module of other sizes with all of a state that fits it; what was drawn anew or resized is told."""
    empty = build_empty(builder, args, state, f"{where}: model")
    try:
        fitted = refit(empty, state, changed)
    except RuntimeError as error:  # no memory for what is asked for
        raise ZooError(f"{where}: cannot be resized ({str(error).partition(chr(10))[0][:160]})") from None
    model = build_drawn(builder, args, state, seed, f"{where}: model")
    own = {name: tensor for name, tensor in merged_state(model).items() if name in fitted.anew}
    load_merged(model, {**fitted.state, **own})
    parts = (("drawn anew", fitted.anew), ("resized", fitted.resized))
    words = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    print(f"{where}: {words}", file=sys.stderr)
    return model, {"anew": fitted.anew, "resized": fitted.resized}


def check_adaptable(
    saved: Mapping[str, Any], wanted: Mapping[str, Any], where: str, also: tuple[str, ...] = ()
) -> None:
    """An error unless the two nodes differ only in what the model declares adaptable (or `also` may change)."""
    if saved["name"] != wanted.get("name"):
        raise ZooError(f"{where}: the checkpoint holds {saved['name']!r}, not {wanted.get('name')!r}")
    found = registry.entry("models", saved["name"])
    saved, wanted = ({**found.args, **node} for node in (saved, wanted))
    changed = [key for key in {**saved, **wanted} if saved.get(key) != wanted.get(key)]
    if not changed:
        return
    adaptable = (*trait(found.load(), "adaptable"), *also)
    if fixed := [key for key in changed if key not in adaptable]:
        allowed = ", ".join(adaptable) or "nothing"
        raise ZooError(f"{where}: {fixed[0]!r} cannot change after training; {saved['name']} can adapt: {allowed}")
