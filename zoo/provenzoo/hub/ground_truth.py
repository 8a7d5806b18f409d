"""The teacher that a stage learned from as a checkpoint of the model `bilinear`: its ground truth, a replica a seed."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from provenzoo import checkpoint, components
from provenzoo.components import create_model
from provenzoo.datasets.base import Dataset
from provenzoo.errors import UsageError
from provenzoo.hub.alone import Alone, ready
from provenzoo.hub.bundle import Saved, choose, chosen_license_of, complete, of_seed
from provenzoo.metrics.measure import Measure, Value, loss_function, metric_functions
from provenzoo.pipeline.seeds import default_seed
from provenzoo.plain import walk
from provenzoo.stages.work import Measured

MEASURED = ["loss", "cosine-to-truth", "value-distance", "score-distance"]
"""What is measured of a teacher on the data that it gives targets to."""
MODEL = {"name": "bilinear"}


def teacher_of(run: Path, stage: str | None = None, seed: int | None = None, license: str | None = None) -> Alone:
    """Gather what is published of the teacher that a stage of a run learned from."""
    view = complete(run)
    license, chosen = chosen_license_of(view, license)
    student = choose(view, stage)
    name = f"{view.record['recipe']}, the teacher of {student.name}"
    config, tensors = kept(student.config, name)
    config, tensors = of_seed((config, tensors), config.pop("sets"), seed, name, license)
    config["seed"], config["seed_is"] = default_seed(view.path, student.name, config["seeds"], student.diverged)
    return ready(name, f"what {student.config['model']['name']} learned from", (config, tensors), chosen)


def kept(student: dict[str, Any], where: str) -> Saved:
    """The config, with its `sets`, and the tensors of the teacher of a student's data, by the student's config."""
    if origins := [origin for path, origin in walk({"data": student["data"]}) if path.endswith(".from")]:
        raise UsageError(f"{where} was made from {origins[0]}, a checkpoint; publish that one (--stage, or its name)")
    seeds = student["seeds"]
    sets = [components.check("datasets", student["data"], "data").build(seed=seed) for seed in seeds]
    filled = components.check("models", MODEL, "model").fill(sets[0].shapes)
    models = [_filled_with_truth(data, filled, where, student["data"]["name"]) for data in sets]
    rows = [_measured(data, model) for data, model in zip(sets, models, strict=True)]
    entry = Measured(
        model=MODEL,
        data=student["data"],
        values={metric: [row[metric] for row in rows] for metric in MEASURED},
        n=len(sets[0].test),
        digests=[data.test.digest for data in sets],
        loss=sets[0].loss,
        dtype="float32",
        seeds=tuple(seeds),
    )
    tensors = checkpoint.stack([model.state_dict() for model in models])
    about = {"model": MODEL, "filled": filled, "digest": checkpoint.digest(tensors), "reset": [], "frozen": []}
    return student | about | {"sets": {"held-out": entry.plain()}}, tensors


def _filled_with_truth(data: Dataset, filled: dict[str, Any], where: str, name: str) -> nn.Module:
    truth = {key.removeprefix("true_"): tensor for key, tensor in data.structure.items()}
    if not {"value", "attention"} <= truth.keys():
        raise UsageError(f"{where}: no teacher with a ground truth; its data is {name}")
    model = create_model("bilinear", **filled)
    model.load_state_dict({key: truth[key] for key in ("value", "attention")})
    return model


def _measured(data: Dataset, model: nn.Module) -> dict[str, Value]:
    functions = metric_functions(MEASURED, loss_function(data.loss))
    return Measure(functions, data, data.test, torch.device("cpu"), torch.float32)(model)
