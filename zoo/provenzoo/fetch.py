"""A checkpoint by name or folder: found, read and checked.

A reference is the name of a registered checkpoint (`model.tag`), or `local:DIR` or a plain path of a checkpoint folder
or a run. A checkpoint folder holds model.safetensors, every tensor with a leading replica dimension, and config.json.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provenzoo import registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import did_you_mean, read_json, read_yaml

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
_NEEDED = {"format": int, "model": dict, "filled": dict, "data": dict, "seeds": list, "digest": str}


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds. Tensors are `[R, ...]`, one replica a seed of `config["seeds"]`."""

    reference: str
    config: dict[str, Any]
    tensors: "dict[str, Tensor]"

    def replica(self, seed: int) -> int:
        """The index of a seed's replica; a checkpoint of one seed serves all."""
        seeds = self.config["seeds"]
        if len(seeds) == 1:
            return 0
        if seed not in seeds:
            raise ZooError(f"{self.reference}: no seed {seed}; it has {', '.join(map(str, seeds))}")
        return seeds.index(seed)

    def state(self, seed: int) -> "dict[str, Tensor]":
        """One seed's tensors, without the replica dimension."""
        index = self.replica(seed)
        return {name: tensor[index] for name, tensor in self.tensors.items()}


# --- finding ------------------------------------------------------------------------------------------------------


def is_reference(reference: str) -> bool:
    """Whether a text names a checkpoint outside of a run."""
    return reference.startswith(("hf:", "local:")) or reference in registry.list_names("checkpoints")


def folder(reference: str) -> Path:
    """The checkpoint folder of a reference."""
    if reference.startswith("hf:"):
        raise ZooError(f"{reference}: this version does not fetch from the Hub; download it and use local:DIR")
    if reference in registry.list_names("checkpoints"):
        found = registry.entry("checkpoints", reference)
        return Path(str(found.file)).parent / reference
    path = Path(reference.removeprefix("local:"))
    if (path / "model.safetensors").is_file():
        return path
    if (path / "run.json").is_file():
        return _published_stage(path)
    if reference.startswith("local:") or os.sep in reference:
        raise ZooError(f"{path}: no checkpoint there (no model.safetensors) and no run (no run.json)")
    names = registry.list_names("checkpoints")
    raise UsageError(f"no checkpoint {reference!r}{did_you_mean(reference, names)}")


def _published_stage(run: Path) -> Path:
    """The folder of the stage that the recipe's `publish` names, or of the only one with a checkpoint."""
    wanted = read_yaml(run / "config.yaml").get("publish")
    stages = {stage["name"]: run / "stages" / stage["folder"] for stage in read_json(run / "run.json")["stages"]}
    found = {name: folder for name, folder in stages.items() if (folder / "model.safetensors").is_file()}
    named = [folder for name, folder in found.items() if wanted in (name, name.partition("[")[0])]
    if len(named or found) != 1:
        names = ", ".join(found) or "none"
        raise ZooError(f"{run}: which stage? Name its folder, {run}/stages/STAGE; with a checkpoint: {names}")
    return named[0] if named else next(iter(found.values()))


def config(reference: str) -> dict[str, Any]:
    """The config.json of a checkpoint, checked for what every reader needs."""
    file = folder(reference) / "config.json"
    data = read_json(file)
    if not isinstance(data, dict) or not all(isinstance(data.get(key), kind) for key, kind in _NEEDED.items()):
        raise ZooError(f"{file}: not a provenzoo checkpoint's config (needs {', '.join(_NEEDED)})")
    if not data["seeds"] or not all(isinstance(seed, int) for seed in data["seeds"]):
        raise ZooError(f"{file}: seeds is {data['seeds']!r}; a list of whole numbers is needed")
    if data["format"] != FORMAT:
        raise ZooError(f"{file}: has format {data['format']}, this version reads {FORMAT}; upgrade provenzoo")
    return data


def _manifest_digest(reference: str) -> str:
    found = registry.entry("checkpoints", reference)
    if not isinstance(digest := found.args.get("digest"), str):
        raise ZooError(f"{found.file}: `digest:` of the tensors is needed")
    return digest


def fetch(reference: str) -> Checkpoint:
    """A checkpoint with its tensors' digest checked against its config and, for a registered one, its manifest."""
    from provenzoo import checkpoint

    place, settings = folder(reference), config(reference)
    tensors, _ = checkpoint.load(place / "model.safetensors")
    expected = [settings["digest"]]
    if reference in registry.list_names("checkpoints"):
        expected.append(_manifest_digest(reference))
    actual = checkpoint.digest(tensors)
    if any(actual != digest for digest in expected):
        raise ZooError(f"{place / 'model.safetensors'}: not the tensors that were saved (digest {actual[:12]})")
    return Checkpoint(reference, settings, tensors)
