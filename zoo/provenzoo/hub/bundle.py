"""What of a run is published: weights, config, card, record, figures and licence, and nothing else."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd

from provenzoo import checkpoint, fetch, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.timm_fields import timm_fields
from provenzoo.pipeline.seeds import default_seed, one_of
from provenzoo.plain import did_you_mean, read_json, walk
from provenzoo.report import RunView, StageView
from provenzoo.report.card import license_of
from provenzoo.report.figures import drawn

Saved = tuple[dict[str, Any], checkpoint.State]
"""A checkpoint's config and tensors."""


@dataclass(frozen=True)
class Bundle:
    """A stage of a run, ready to leave. `files` has all but the card, by path in the repository."""

    view: RunView
    stage: StageView
    config: dict[str, Any]
    files: dict[str, CommitOperationAdd]
    figures: dict[Path, str] = field(default_factory=dict)
    """A figure's file -> its path in the repository."""
    license_chosen: bool = False
    """Whether somebody named the licence, in the recipe or when publishing."""

    @property
    def about(self) -> str:
        """What it is, in a few words."""
        return f"{self.view.record['recipe']}, stage {self.stage.name}"


def bundle(run: Path, stage: str | None = None, seed: int | None = None, license: str | None = None) -> Bundle:
    """Gather what is published of a run: the stage that is named or that its recipe's `publish` names.

    The licence is the one that is named, else the recipe's.
    """
    view = complete(run)
    license, chosen_license = chosen_license_of(view, license)
    license_text = registry.license_file(license)
    chosen = choose(view, stage)
    figures = {figure.path: _figure_name(view, figure.path) for figure in drawn(view)}
    for file in (view.path / "run.json", *figures):
        if not file.resolve().is_relative_to(view.path.resolve()):
            raise ZooError(f"{file}: is a link out of the run; nothing was sent. Put the file itself there")
    names = ["config.json", "model.safetensors", "README.md", "run.json", "LICENSE", *sorted(figures.values())]
    weights, _ = _as_written(chosen, "model.safetensors"), _as_written(chosen, "config.json")
    config, tensors = _checkpoint(view, chosen, seed, license)
    whole = config["digest"] == chosen.config["digest"] and config.get("layout") != "single"
    teachers, config = _teachers(view, config, license)
    names += [f"{folder}/{name}" for folder in teachers for name in ("config.json", "model.safetensors")]
    config["files"] = sorted(names)
    sources: dict[str, bytes | Path] = {
        "config.json": as_json(config),
        "run.json": view.path / "run.json",
        "LICENSE": license_text,
        **{name: path for path, name in figures.items()},
        **({} if whole else {"model.safetensors": checkpoint.packed(tensors)}),
    }
    for folder, (theirs, taught) in teachers.items():
        sources |= {f"{folder}/config.json": as_json(theirs), f"{folder}/model.safetensors": checkpoint.packed(taught)}
    files = {name: CommitOperationAdd(name, source) for name, source in sources.items()}
    return Bundle(view, chosen, config, {"model.safetensors": weights, **files}, figures, chosen_license)


def complete(run: Path) -> RunView:
    """The view of a run that is complete; of another, nothing is published."""
    view = RunView.read(run)
    if view.record["status"] != "complete":
        raise ZooError(f"{run}: the run is {view.record['status']}; finish it with `provenzoo run` first")
    return view


def chosen_license_of(view: RunView, named: str | None) -> tuple[str, bool]:
    """The licence of what is published of a run, and whether somebody chose it: by name, or in the recipe."""
    return named or license_of(view.recipe), bool(named or view.recipe.get("license"))


def choose(view: RunView, wanted: str | None) -> StageView:
    """The stage to publish; several candidates and none named is an error that lists them."""
    trained = [stage for stage in view.stages if stage.trains and stage.complete]
    names = [stage.name for stage in trained]
    asked = wanted or view.recipe.get("publish")
    found = [stage for stage in trained if asked in (stage.name, stage.base)] if asked else trained
    if not found:
        raise UsageError(f"{view.path}: no stage {asked!r} with a checkpoint{did_you_mean(str(asked), names)}")
    if len(found) > 1:
        raise UsageError(f"{view.path}: which stage? Name one with --stage: {', '.join(stage.name for stage in found)}")
    return found[0]


def _figure_name(view: RunView, path: Path) -> str:
    parts = [part for part in path.relative_to(view.path).parts if part not in ("stages", "figures")]
    return "figures/" + "-".join(parts).replace(" ", "-").replace("%", "-")


# --- the checkpoint -----------------------------------------------------------------------------------------------


def _checkpoint(view: RunView, stage: StageView, seed: int | None, license: str) -> Saved:
    """The published config and tensors of a stage: of all seeds, or of the one that is asked for."""
    tensors, _ = checkpoint.load(stage.path / "model.safetensors")
    config, tensors = of_seed((stage.config, tensors), dict(_sets(view, stage)), seed, stage.name, license)
    config["seed"], config["seed_is"] = default_seed(view.path, stage.name, config["seeds"], stage.diverged)
    return laid_out((config, tensors))


def of_seed(saved: Saved, sets: dict[str, Any], seed: int | None, where: str, license: str) -> Saved:
    """A checkpoint with what was measured of it: of all seeds, or of the one that is asked for."""
    config, tensors = dict(saved[0]), saved[1]
    if seed is not None and (isinstance(seed, bool) or seed not in config["seeds"]):
        raise UsageError(f"{where}: no seed {seed}; it has {', '.join(map(str, config['seeds']))}")
    if seed is not None and len(config["seeds"]) > 1:
        index = config["seeds"].index(seed)
        tensors = {name: tensor[index : index + 1] for name, tensor in tensors.items()}
        config["seeds"], sets = [seed], {where: one_of(entry, seed) for where, entry in sets.items()}
        config["digest"] = checkpoint.digest(tensors)
        for told in config.keys() & {"lengths", "skipped_steps"}:
            config[told] = {name: what for name, what in config[told].items() if name == str(seed)}
    return config | {"license": license, "sets": sets}, tensors


def laid_out(saved: Saved) -> Saved:
    """One seed of a model that timm can build without the replica dimension, so that timm can load it."""
    config, tensors = saved
    if len(config["seeds"]) > 1 or not (fields := timm_fields(config)):
        return saved
    return config | {"layout": "single", **fields}, {name: tensor[0] for name, tensor in tensors.items()}


def _as_written(stage: StageView, name: str) -> CommitOperationAdd:
    """A file of a stage; an error where it is not, byte for byte, the one that the run wrote."""
    written = read_json(stage.path / "stage.json")
    known = written.get("files") if isinstance(written, dict) else None
    path = stage.path / name
    if not isinstance(known, dict) or not path.is_file():
        raise ZooError(f"{path}: is not there as the run left it; `provenzoo run` makes the stage again")
    file = CommitOperationAdd(name, path)
    if file.upload_info.sha256.hex() != known.get(name):
        raise ZooError(f"{path}: is not what the run wrote; `provenzoo run` makes the stage again")
    return file


def _sets(view: RunView, stage: StageView) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured of a stage's checkpoint, by itself and by the stages that judge it: where -> entry."""
    judges = [other for other in view.stages if not other.trains and other.complete and other.origin == stage.name]
    for judge in (stage, *judges):
        _as_written(judge, "metrics.json")
        for label, entry in judge.metrics["sets"].items():
            yield f"{judge.name}.{label}" if label else judge.name, entry


def as_json(data: Mapping[str, Any]) -> bytes:
    """A file of plain data."""
    return (json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


# --- teachers -----------------------------------------------------------------------------------------------------


def _teachers(view: RunView, config: dict[str, Any], license: str) -> tuple[dict[str, Saved], dict[str, Any]]:
    """The checkpoints that a config's data is drawn from, each in a folder of its own, and the config that says so.

    They are stages of the run, or checkpoints from elsewhere; a registered one is where its name is known.
    """
    stages = {stage.name: stage for stage in view.stages if stage.trains and stage.complete}
    asked = [value for path, value in walk({"data": config["data"], "sets": config["sets"]}) if path.endswith(".from")]
    folders: dict[str, str] = {}
    for name in dict.fromkeys(str(value) for value in asked):
        if not fetch.is_registered(name):
            folders[name] = f"teacher-{len(folders) + 1}" if folders else "teacher"
    found = {
        folder: _checkpoint(view, stages[name], None, license) if name in stages else _from_elsewhere(name)
        for name, folder in folders.items()
    }
    for folder, (theirs, _) in found.items():
        theirs["sets"] = {where: entry for where, entry in theirs["sets"].items() if not _has_teacher(entry)}
        if _has_teacher(theirs):
            raise ZooError(f"{folder}: a teacher that was itself taught cannot go along; publish it by itself")
    return found, _pointing(config, folders)


def _from_elsewhere(reference: str) -> Saved:
    """A checkpoint that is no stage of the run, as it goes along: under the licence that it has."""
    found = fetch.fetch(reference)
    config = {key: value for key, value in found.config.items() if key not in ("files", "layout")}
    return {"sets": {}} | config, found.tensors


def _has_teacher(node: Mapping[str, Any]) -> bool:
    return any(path.endswith(".from") for path, _ in walk({"data": node["data"]}))


def _pointing(data: Any, folders: Mapping[str, str]) -> Any:
    """The data with each `from: stage` as the folder that holds its checkpoint."""
    if isinstance(data, list):
        return [_pointing(item, folders) for item in data]
    if not isinstance(data, dict):
        return data
    made = {key: _pointing(value, folders) for key, value in data.items()}
    if data.get("from") in folders:
        made["from"] = f"./{folders[data['from']]}"
    return made
