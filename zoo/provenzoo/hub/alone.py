"""A checkpoint that is published by itself: a shipped model or teacher, without the run that it is from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd

from provenzoo import checkpoint, fetch, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.bundle import Saved, as_json, laid_out, of_seed
from provenzoo.plain import did_you_mean, walk
from provenzoo.report.card import LICENSE

FILES = ("LICENSE", "README.md", "config.json", "model.safetensors")


@dataclass(frozen=True)
class Alone:
    """A checkpoint, ready to leave. `files` has all but the card, by path in the repository."""

    name: str
    summary: str
    config: dict[str, Any]
    files: dict[str, CommitOperationAdd]
    license_chosen: bool = True
    """Whether somebody named the licence: in the manifest, in the recipe or when publishing."""

    @property
    def about(self) -> str:
        """What it is, in a few words."""
        return self.name


def alone(name: str, seed: int | None = None, license: str | None = None) -> Alone:
    """Gather what is published of a registered checkpoint: all of its seeds, or the one that is asked for.

    The licence is its own; another one than the manifest's is an error.
    """
    place = fetch.place(name)
    found = fetch.read(place)
    entry = registry.entry("checkpoints", name)
    own = str(entry.args.get("license", LICENSE))
    if license not in (None, own):
        raise UsageError(f"{name}: has the licence {own}, and is published under no other; leave --license out")
    sets = found.config["sets"] if "sets" in found.config else fetch.numbers(place)
    _check_origins(name, {"data": found.config["data"], "sets": sets})
    config, tensors = of_seed((found.config, found.tensors), sets, seed, name, own)
    config |= _default(entry.args, config)
    return ready(name, entry.summary, (config, tensors))


def ready(name: str, summary: str, saved: Saved, license_chosen: bool = True) -> Alone:
    """A checkpoint's config and tensors as the files that are published."""
    config, tensors = laid_out(saved)
    sources: dict[str, bytes | Path] = {
        "config.json": as_json(config := {**config, "files": sorted(FILES)}),
        "LICENSE": registry.license_file(config["license"]),
        "model.safetensors": checkpoint.packed(tensors),
    }
    files = {file: CommitOperationAdd(file, source) for file, source in sources.items()}
    return Alone(name, summary, config, files, license_chosen)


def check_source(run: Path) -> None:
    """An error where neither a folder nor a registered checkpoint is what is to be published."""
    if not run.is_dir():
        near = did_you_mean(str(run), registry.list_names("checkpoints")) or "; see `provenzoo list checkpoints`"
        raise UsageError(f"{run}: no run's folder and no shipped checkpoint's name{near}")
    if (run / fetch.WEIGHTS).is_file() and not (run / "config.yaml").is_file():
        raise UsageError(f"{run}: is a checkpoint's folder; name the run that it is in, and the stage with --stage")


def _default(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The seed that is loaded where none is asked for, and why."""
    seeds, stated = config["seeds"], manifest.get("seed")
    if len(seeds) == 1:
        return {"seed": seeds[0], "seed_is": "the only one"}
    known = stated in seeds
    return {"seed": stated if known else seeds[0], "seed_is": "the manifest's" if known else "the first"}


def _check_origins(name: str, told: Mapping[str, Any]) -> None:
    """An error where a checkpoint was taught by one that a reader of the publication cannot fetch."""
    for path, origin in walk(told):
        if path.endswith(".from") and not (fetch.is_registered(str(origin)) or str(origin).startswith("hf:")):
            raise ZooError(f"{name}: was taught by {origin}, which cannot go along; publish the run that it is from")
