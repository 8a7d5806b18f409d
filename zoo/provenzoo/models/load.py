"""The module that a checkpoint holds: built from its config, filled strictly with its tensors."""

from typing import Any

from torch import nn

from provenzoo import components, fetch, registry
from provenzoo.draws import seeded
from provenzoo.errors import UsageError, ZooError
from provenzoo.models.split import load_merged


def load(name: str, *, seed: int | None = None, **adapt: Any) -> nn.Module:
    """The trained model of a checkpoint's name or folder, in eval mode, on the CPU.

    `seed` picks the replica (default: the manifest's or config's `seed`, else the first); `adapt` changes arguments
    that the model declares adaptable. `.provenance` of the module tells where it comes from.
    """
    found = fetch.fetch(name)
    manifest = registry.entry("checkpoints", name).args if name in registry.list_names("checkpoints") else {}
    if seed is None:
        seed = int(manifest.get("seed", found.config.get("seed", found.config["seeds"][0])))
    elif seed not in found.config["seeds"]:
        raise UsageError(f"{name}: no seed {seed}; it has {', '.join(map(str, found.config['seeds']))}")
    model = restore(found, seed, {**found.config["model"], **adapt}).eval()
    keys = ("recipe", "stage", "model", "data", "digest", "version")
    model.provenance = {"reference": name, "seed": seed} | {k: found.config.get(k) for k in keys}  # pyright: ignore[reportArgumentType]
    return model


def restore(found: fetch.Checkpoint, seed: int, node: dict[str, Any] | None = None) -> nn.Module:
    """The module of one seed, built from config.json (or `node`, an adaptation of its model) and filled strictly.

    It has the precision in which it was trained.
    """
    wanted: dict[str, Any] = node or found.config["model"]
    bound = components.check("models", wanted, f"{found.reference}: model")
    check_adaptable(found.config["model"], wanted, f"{found.reference}: model")
    with seeded(seed, "init"):
        filled = {key: value for key, value in found.config["filled"].items() if key not in wanted}
        model = bound.build(seed=seed, **filled)
    state = found.state(seed)
    if kinds := {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}:
        model.to(max(kinds, key=lambda kind: kind.itemsize))
    try:
        load_merged(model, state)
    except ZooError as error:
        raise ZooError(f"{found.reference}: {error}") from None
    return model


def check_adaptable(saved: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    """An error unless the two nodes differ only in what the model declares adaptable."""
    if saved["name"] != wanted.get("name"):
        raise ZooError(f"{where}: the checkpoint holds {saved['name']!r}, not {wanted.get('name')!r}")
    found = registry.entry("models", saved["name"])
    saved, wanted = ({**found.args, **node} for node in (saved, wanted))
    changed = [key for key in {**saved, **wanted} if saved.get(key) != wanted.get(key)]
    if not changed:
        return
    adaptable = getattr(found.load(), "adaptable", ())
    if fixed := [key for key in changed if key not in adaptable]:
        allowed = ", ".join(adaptable) or "nothing"
        raise ZooError(f"{where}: {fixed[0]!r} cannot change after training; {saved['name']} can adapt: {allowed}")
