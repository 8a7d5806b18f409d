"""Run folders written by hand: a grid of transfer, a map of association, the three scalars; and what is drawn of them."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib
import numpy as np
import torch

from provenzoo import checkpoint
from provenzoo.plain import dump_yaml, write_json, write_whole
from provenzoo.report import RunView
from provenzoo.report.figure import Figure
from provenzoo.report.figures import OF_THE_RUN
from provenzoo.report.style import STYLE
from provenzoo.settings import read

SAMPLES = (1, 4, 16, 64, 256, 1024)
SEEDS = 3


def write_run(
    path: Path, recipe: dict[str, Any], points: list[dict[str, Any]], claims: list[dict[str, Any]] | None = None
) -> Path:
    """A finished run of a recipe; a point has a name and, as it needs them, sets, steps, logged and tensors."""
    write_whole(path / "config.yaml", dump_yaml(recipe))
    for point in points:
        _write_point(path / "stages" / point["name"], point)
    record = {
        "recipe": recipe["recipe"],
        "about": recipe.get("about", ""),
        "note": "",
        "status": "complete",
        "version": "0.1.0",
        "id": path.name,
        "seeds": SEEDS,
        "finished": "2026-01-02T03:04:05Z",
        "environment": {"device": "cpu"},
        "stages": [_entry(point) for point in points],
        "metrics": {key: value for point in points for key, value in _summaries(point)},
        "claims": claims or [],
    }
    write_json(path / "run.json", record)
    return path


def _entry(point: dict[str, Any]) -> dict[str, Any]:
    more = {"status": "complete", "seconds": 0.5, "inputs_digest": "05" * 32, "frozen_unchanged": point.get("frozen")}
    return {"name": point["name"], "folder": point["name"], "diverged": point.get("diverged", {}), **more}


def _write_point(folder: Path, point: dict[str, Any]) -> None:
    sets = {label: _measured(values) for label, values in point["sets"].items()}
    series = {"steps": point.get("steps", []), "values": point.get("logged", {})}
    write_json(folder / "metrics.json", {"sets": sets, "series": series, "frozen_unchanged": None, "diverged": {}})
    write_json(folder / "stage.json", {"name": point["name"], "status": "complete", "origin": None})
    write_json(
        folder / "config.json",
        {
            "filled": {},
            "data": {"name": "made"},
            "seeds": [0, 1, 2],
            "digest": "1e" * 32,
            "model": {"name": "made"},
            "reset": [],
            "frozen": [],
        },
    )
    checkpoint.save(folder / "series.safetensors", point.get("tensors", {"train-loss": torch.ones(SEEDS, 3)}))


def _measured(values: dict[str, list[Any]]) -> dict[str, Any]:
    return {"values": values, "loss": "logistic", "n": 1000, "digests": ["ab12"], "data": {"name": "made"}}


def _summaries(point: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{point['name']}.{label}" if label else point["name"], {m: _summary(v) for m, v in values.items()})
        for label, values in point["sets"].items()
    ]


def _summary(values: list[Any]) -> dict[str, Any]:
    if None in values:
        return {"mean": None, "std": None, "min": None, "max": None, "per_seed": values, "n": 1000}
    spread = {"mean": fmean(values), "std": stdev(values), "min": min(values), "max": max(values)}
    return {**spread, "per_seed": values, "n": 1000}


# --- a grid of transfer -------------------------------------------------------------------------------------------

ARMS = {"pretrained": 1.0, "scratch": 100.0, "initial": 1e9}
"""Arm -> the samples at which half of what is to learn is learned."""


def accuracy(half: float, samples: int) -> list[float]:
    """Of each seed."""
    mean = 0.88 + 0.11 * samples / (samples + half)
    return [round(mean + shift, 4) for shift in (-0.006, 0.001, 0.005)]


def transfer(dims: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Points of `transfer` on the axes arm, data.samples and, with `dims`, model.dim."""
    return [
        {
            "name": f"transfer[{f'model.dim={dim},' if dim else ''}arm={arm},data.samples={samples}]",
            "sets": {"": {"sign-accuracy": accuracy(half * (dim or 16) / 16, samples), "loss": [0.1, 0.2, 0.3]}},
        }
        for dim in dims or (0,)
        for arm, half in ARMS.items()
        for samples in SAMPLES
    ]


TRANSFER: dict[str, Any] = {
    "recipe": "mine/transfer",
    "about": "What a pretrained attention saves.",
    "paper": "arXiv:2210.09221",
    "seeds": SEEDS,
    "stages": {"transfer": {"stage": "finetune", "from": "elsewhere", "metrics": ["sign-accuracy", "loss"]}},
}
LINES = {"kind": "lines", "stage": "transfer", "metric": "sign-accuracy", "axis": "data.samples"}


# --- a map of association -----------------------------------------------------------------------------------------


def association(random: bool = False) -> dict[str, Any]:
    """A pretrain point of D = 36 patches in sets of C = 4 whose A is high within a set."""
    draw = np.random.default_rng(0)
    order = draw.permutation(36) if random else np.arange(36)
    sets = order.reshape(9, 4)
    learned = draw.normal(0, 0.15, (SEEDS, 36, 36))
    for members in sets:
        learned[:, members[:, None], members] += 3
    learned[:, range(36), range(36)] = 3.5
    steps = list(range(0, 401, 20))
    falls = [[0.5 * np.exp(-step / (60 + 10 * seed)) + 0.004 for seed in range(SEEDS)] for step in steps]
    rises = [[1 - np.exp(-step / (50 + 9 * seed)) for seed in range(SEEDS)] for step in steps]
    tensors = {
        "tensors/attention_matrix": torch.tensor(learned, dtype=torch.float32),
        "structure/partition": torch.tensor(np.stack([sets] * SEEDS)),
        "train-loss": torch.ones(SEEDS, 400),
    }
    logged = {"loss": falls, "test-error": falls, "cosine-to-feature": rises}
    ends = {name: rows[-1] for name, rows in logged.items()}
    return {"name": "pretrain", "sets": {"": ends}, "steps": steps, "logged": logged, "tensors": tensors}


REALISTIC: dict[str, Any] = {
    "recipe": "mine/realistic",
    "paper": "arXiv:2210.09221",
    "seeds": SEEDS,
    "stages": {"pretrain": {"stage": "pretrain", "metrics": ["loss", "test-error", "cosine-to-feature"]}},
}


# --- the three scalars --------------------------------------------------------------------------------------------


def scalars(name: str, shift: float = 0.0) -> dict[str, Any]:
    """A point whose alpha rises, rests at 0.9 from step 200 to 400 and rises again; gamma rises from 300 on."""
    steps = np.arange(0, 1001, 20)
    alpha = 0.3 + 0.6 * np.clip(steps / 200, 0, 1) + np.clip((steps - 400) / 600, 0, 1)
    gamma = 3.5 * np.clip((steps - 300) / 500, 0, 1)
    rho = -0.35 * np.clip((steps - 300) / 500, 0, 1)
    logged = {
        metric: [[value + shift + 0.01 * seed for seed in range(SEEDS)] for value in row.tolist()]
        for metric, row in {"alpha": alpha, "gamma": gamma, "rho": rho}.items()
    }
    ends = {metric: rows[-1] for metric, rows in logged.items()}
    return {"name": name, "sets": {"": ends}, "steps": steps.tolist(), "logged": logged}


IDEALIZED: dict[str, Any] = {
    "recipe": "mine/idealized",
    "paper": "arXiv:2210.09221",
    "seeds": SEEDS,
    "stages": {name: {"stage": "pretrain", "metrics": ["alpha", "gamma", "rho"]} for name in ("full", "scalars")},
    "figures": {"dynamics": {"kind": "dynamics", "stage": "full", "beside": "scalars"}},
}


# --- what is drawn ------------------------------------------------------------------------------------------------


def drawn(run: Path, draw: Any, **spec: Any) -> tuple[Any, str]:
    """The figure of some stages, as matplotlib has it, and its caption."""
    view = RunView.read(run)
    checked = read(Figure, spec, "figures.it")
    stages = [stage for name in checked.stages for stage in view.named(name)]
    with matplotlib.rc_context(STYLE):
        figure, caption = draw(stages if spec["kind"] in OF_THE_RUN else stages[0], view, checked, "figures.it")
        figure.draw_without_rendering()
    return figure, caption
