"""A checkpoint by name, folder or Hub: found, read and checked.

A reference is the name of a registered checkpoint (`model.tag`), `hf:user/repo[@revision]`, or `local:DIR` or a plain
path of a checkpoint folder or a run. A checkpoint folder holds model.safetensors and config.json. Every tensor has a
leading replica dimension, unless config.json says `layout: single`: the tensors of one seed under their plain shapes.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provenzoo import registry, remote
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import did_you_mean, read_yaml, shortened
from provenzoo.untrusted import check_config, read_json, safe_name

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
WEIGHTS = "model.safetensors"
_NEEDED = {"format": int, "model": dict, "filled": dict, "data": dict, "seeds": list, "digest": str}


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds. Tensors are `[R, ...]`, one replica a seed of `config["seeds"]`."""

    reference: str
    config: dict[str, Any]
    tensors: "dict[str, Tensor]"
    revision: str | None = None
    """The full commit, of a checkpoint from the Hub."""

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


@dataclass(frozen=True)
class Place:
    """Where a checkpoint is: a folder, or a commit of a Hub repository, whose files are fetched when asked for."""

    reference: str
    path: Path | None = None
    hub: remote.Reference | None = None
    revision: str | None = None
    pinned: str | None = None
    """The digest of the tensors that a manifest states."""

    def file(self, name: str) -> Path:
        """One of its files, fetched if need be; one that is not there is an error."""
        return self.files(name)[0]

    def files(self, *names: str) -> list[Path]:
        """Some of its files, fetched together if need be."""
        if self.hub and self.revision:
            return remote.fetch(self.hub, self.revision, names)
        assert self.path is not None
        return [self.path / safe_name(name, self.reference) for name in names]

    @property
    def pinned_reference(self) -> str:
        """A reference that means the same tomorrow."""
        if self.hub and not self.pinned:
            inside = f"#{self.hub.inside}" if self.hub.inside else ""
            return f"hf:{self.hub.repo}@{self.revision}{inside}"
        return self.reference

    def within(self, folder: str) -> str:
        """The reference of a checkpoint in a folder of this one."""
        if self.hub:
            return f"hf:{self.hub.repo}@{self.revision}#{self.hub.path(folder)}"
        return f"local:{self.path}/{folder}"


# --- finding ------------------------------------------------------------------------------------------------------


def is_reference(reference: str) -> bool:
    """Whether a text names a checkpoint outside of a run."""
    return reference.startswith(("hf:", "local:")) or is_registered(reference)


def is_registered(reference: str) -> bool:
    """Whether a text is the name of a registered checkpoint."""
    return not reference.startswith(("hf:", "local:")) and reference in registry.list_names("checkpoints")


def place(reference: str) -> Place:
    """Where the checkpoint of a reference is. Of the Hub's, the revision is resolved and nothing else fetched."""
    if not isinstance(reference, str) or not reference.isprintable():
        raise UsageError(f"{reference!r} is no checkpoint's name; give model.tag, hf:user/repo or a folder")
    if reference.startswith("hf:"):
        hub = remote.Reference.parse(reference)
        return Place(reference, hub=hub, revision=remote.commit(hub))
    if is_registered(reference):
        return _registered(reference)
    path = Path(reference.removeprefix("local:"))
    try:
        if (path / WEIGHTS).is_file():
            return Place(reference, path)
        is_run = (path / "run.json").is_file() and (path / "config.yaml").is_file()
    except OSError as error:
        raise ZooError(f"{shortened(str(path))}: cannot be read ({error.strerror})") from None
    if is_run:
        return Place(reference, _published_stage(path))
    if reference.startswith("local:") or os.sep in reference:
        raise ZooError(f"{path}: no checkpoint there (no {WEIGHTS}) and no run (no run.json)")
    names = registry.list_names("checkpoints")
    raise UsageError(f"no checkpoint {reference!r}{did_you_mean(reference, names)}")


def _registered(name: str) -> Place:
    """A manifest's: the folder beside it, else the commit that it pins."""
    entry = registry.entry("checkpoints", name)
    manifest, digest = entry.args, entry.args.get("digest")
    if not isinstance(digest, str):
        raise ZooError(f"{entry.file}: `digest:` of the tensors is needed")
    folder = Path(str(entry.file)).parent / name
    if (folder / WEIGHTS).is_file():
        return Place(name, folder, pinned=digest)
    repo, revision = manifest.get("hub"), str(manifest.get("revision", ""))
    if not isinstance(repo, str) or len(revision) != 40 or set(revision) - set("0123456789abcdef"):
        raise ZooError(f"{entry.file}: `hub: user/repo` and `revision:` (a commit's 40 digits) are needed, or {folder}")
    return Place(name, hub=remote.Reference.parse(f"hf:{repo}@{revision}"), revision=revision, pinned=digest)


def folder(reference: str) -> Path:
    """The folder with a checkpoint's files, which are fetched if need be."""
    return place(reference).files(WEIGHTS, "config.json")[1].parent


def _published_stage(run: Path) -> Path:
    """The folder of the stage that the recipe's `publish` names, or of the only one with a checkpoint."""
    wanted = read_yaml(run / "config.yaml").get("publish")
    listed = read_json(run / "run.json")["stages"]
    stages = {stage["name"]: run / "stages" / safe_name(stage["folder"], str(run / "run.json")) for stage in listed}
    found = {name: folder for name, folder in stages.items() if (folder / WEIGHTS).is_file()}
    named = [folder for name, folder in found.items() if wanted in (name, name.partition("[")[0])]
    if len(named or found) != 1:
        names = ", ".join(found) or "none"
        raise ZooError(f"{run}: which stage? Name its folder, {run}/stages/STAGE; with a checkpoint: {names}")
    return named[0] if named else next(iter(found.values()))


def is_timms(found: Place) -> bool:
    """Whether a folder is one of timm's: it names an architecture, and no format of ours."""
    config = read_json(found.file("config.json"))
    return isinstance(config, dict) and "architecture" in config and "format" not in config


def pull(reference: str) -> dict[str, Any]:
    """Fetch all that a checkpoint consists of, weights checked, and say where it is and what names it for good.

    Of timm's repositories that is config.json and model.safetensors.
    """
    found = place(reference)
    if is_timms(found):
        return {"reference": found.pinned_reference, "folder": str(found.files("config.json", WEIGHTS)[0].parent)}
    read(found)
    if found.hub and found.revision:
        listed = remote.listing(found.hub, found.revision) if not remote.offline() else []
        wanted = read_config(found).get("files", [])
        names = [name for name in wanted if found.hub.path(name) in listed]
        folder = found.files("config.json", *names)[0].parent
        return {"reference": found.pinned_reference, "folder": str(folder)}
    return {"reference": reference, "folder": str(found.path)}


# --- reading ------------------------------------------------------------------------------------------------------


def config(reference: str) -> dict[str, Any]:
    """The config.json of a checkpoint, checked for what every reader needs."""
    return read_config(place(reference))


def read_config(found: Place) -> dict[str, Any]:
    """The config.json at a place. A teacher beside the checkpoint is named by a reference that holds anywhere."""
    file = found.file("config.json")
    data = read_json(file)
    if not isinstance(data, dict) or not all(isinstance(data.get(key), kind) for key, kind in _NEEDED.items()):
        raise ZooError(f"{file}: not a provenzoo checkpoint's config (needs {', '.join(_NEEDED)})")
    if data["format"] != FORMAT:
        raise ZooError(f"{file}: has format {data['format']}, this version reads {FORMAT}; upgrade provenzoo")
    if not data["seeds"] or not all(isinstance(seed, int) for seed in data["seeds"]):
        raise ZooError(f"{file}: seeds is {data['seeds']!r}; a list of whole numbers is needed")
    if not isinstance(files := data.get("files", []), list) or not all(isinstance(name, str) for name in files):
        raise ZooError(f"{file}: files is no list of names")
    check_config(data, str(file), found.hub.repo if found.hub else None)
    return _with_teacher(data, found, str(file))


def _with_teacher(data: Any, found: Place, where: str) -> Any:
    """The data with each `from: ./folder` made a reference. From the Hub, another place to fetch from is an error."""
    if isinstance(data, list):
        return [_with_teacher(item, found, where) for item in data]
    if not isinstance(data, dict):
        return data
    made = {key: _with_teacher(value, found, where) for key, value in data.items()}
    origin = data.get("from")
    if isinstance(origin, str) and origin.startswith("./"):
        made["from"] = found.within(safe_name(origin[2:], where))
    elif origin is not None and found.hub and origin not in registry.list_names("checkpoints"):
        raise ZooError(f"{where}: `from: {origin}` names another place to fetch from; refused")
    return made


def default_seed(found: Place, settings: dict[str, Any]) -> Any:
    """The seed to take where none is asked for: the manifest's, the config's, that of the run around, or the first."""
    manifest = registry.entry("checkpoints", found.reference).args if found.pinned else {}
    told = (manifest, settings, _of_the_run(found))
    return next((node["seed"] for node in told if node.get("seed") is not None), settings["seeds"][0])


def _of_the_run(found: Place) -> dict[str, Any]:
    """What the run.json around a stage's folder tells of it; nothing where there is none."""
    if found.hub or found.path is None:
        return {}
    here = found.path.resolve()
    record = read_json(file) if (file := here.parent.parent / "run.json").is_file() else None
    stages = record.get("stages") if isinstance(record, dict) else None
    stages = [stage for stage in stages if isinstance(stage, dict)] if isinstance(stages, list) else []
    return next((stage for stage in stages if stage.get("folder") == here.name), {})


def numbers(found: Place) -> dict[str, Any]:
    """What was measured of a checkpoint whose config does not tell it: the sets of the metrics.json beside it."""
    if found.hub or not (file := Path(str(found.path)) / "metrics.json").is_file():
        return {}
    return read_json(file)["sets"]


def fetch(reference: str) -> Checkpoint:
    """A checkpoint with its tensors' digest checked against its config and, for a registered one, its manifest.

    The digest of a file in the Hub's cache is not computed again as long as the file is untouched.
    """
    return read(place(reference))


def read(found: Place) -> Checkpoint:
    """The checkpoint at a place, its digest checked."""
    from provenzoo import checkpoint

    settings = read_config(found)
    file = found.file(WEIGHTS)
    tensors, _ = checkpoint.load(file)
    if settings.get("layout") == "single":
        tensors = {name: tensor.unsqueeze(0) for name, tensor in tensors.items()}
    if any(tensor.shape[:1] != (len(settings["seeds"]),) for tensor in tensors.values()):
        raise ZooError(f"{file}: not one replica of each tensor for each of {len(settings['seeds'])} seeds")
    _check_digest(found, file, settings["digest"], tensors)
    return Checkpoint(found.reference, settings, tensors, found.revision)


def _check_digest(found: Place, file: Path, stated: str, tensors: "dict[str, Tensor]") -> None:
    from provenzoo import checkpoint

    wanted = found.pinned or stated
    if wanted == stated and found.hub and remote.is_checked(file, wanted):
        return
    actual = checkpoint.digest(tensors)
    if not actual == wanted == stated:
        raise ZooError(f"{file}: not the tensors that were saved (digest {actual[:12]}, not {wanted[:12]})")
    if found.hub:
        remote.note_checked(file, actual)
