"""The report of a run: figures, one page and the draft of a card, all from the run folder alone; a page a paper."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from provenzoo.errors import ZooError
from provenzoo.plain import plain_data, read_json, read_yaml
from provenzoo.report.figure import covers, parts
from provenzoo.untrusted import safe_name

__all__ = ["ARXIV", "RunView", "StageView", "metric_text", "number", "report"]


ARXIV = re.compile(r"arxiv[:/ ]\s*(?:abs/)?(\d{4}\.\d{4,5})", re.IGNORECASE)


def report(run: Path) -> list[Path]:
    """Draw the figures, then write README.md and report.html; the files that were written, the page last.

    Of a folder that holds runs, such as runs/jelassi2022, the paper's page is written.
    """
    from provenzoo.report.card import write_card
    from provenzoo.report.figures import write_figures
    from provenzoo.report.page import write_report
    from provenzoo.report.paper import runs_below, write_paper

    if not (run / "config.yaml").is_file() and runs_below(run):
        return [write_paper(run)]
    return [*write_figures(run), write_card(run), write_report(run)]


@dataclass(frozen=True)
class StageView:
    """A stage (one point of it, where there is a grid) as its folder tells it."""

    name: str
    path: Path
    node: dict[str, Any]
    """The stage as the recipe writes it."""
    entry: dict[str, Any]
    """The stage's entry in run.json."""

    @property
    def base(self) -> str:
        """The stage's name without the point's labels."""
        return self.name.partition("[")[0]

    @property
    def labels(self) -> dict[str, str]:
        """The point's label on each axis."""
        return parts(self.name)[1]

    @property
    def trains(self) -> bool:
        """Whether the stage leaves a checkpoint."""
        return self.node["stage"] != "evaluate"

    @property
    def complete(self) -> bool:
        """Whether the stage's results are all there."""
        return self.entry["status"] == "complete"

    @property
    def diverged(self) -> dict[int, dict[str, Any]]:
        """Seed -> the step and the parameter at which it stopped being finite."""
        return {int(seed): at for seed, at in self.entry.get("diverged", {}).items()}

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json; no sets and no series where the stage is not complete."""
        if not self.complete:
            return {"sets": {}, "series": {"steps": [], "values": {}}}
        return read_json(self.path / "metrics.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of the checkpoint's config.json; empty where there is no checkpoint."""
        return read_json(self.path / "config.json") if self.complete and self.trains else {}

    @cached_property
    def origin(self) -> str | None:
        """The point or checkpoint that the stage started from."""
        file = self.path / "stage.json"
        return read_json(file).get("origin") if file.is_file() else None

    @cached_property
    def series(self) -> dict[str, Any]:
        """The arrays of series.safetensors by name, each `[R, ...]`; empty where the stage is not complete."""
        if not self.complete:
            return {}
        from provenzoo import checkpoint

        tensors, _ = checkpoint.load(self.path / "series.safetensors")
        return {name: tensor.numpy() for name, tensor in tensors.items()}


@dataclass(frozen=True)
class RunView:
    """A run folder, read: the composed recipe, run.json and the stages in their order."""

    path: Path
    recipe: dict[str, Any]
    record: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "RunView":
        """The view of a folder; one that holds no run is a ZooError."""
        path = Path(path)
        if not (path / "config.yaml").is_file():
            raise ZooError(f"{path}: no run there (no config.yaml); name a folder such as runs/quickstart/0123456789ab")
        recipe = read_yaml(path / "config.yaml")
        if (file := path / "run.json").is_file():
            record = read_json(file)
            _check_record(record, recipe.get("stages"), str(file))
            return cls(path, recipe, record)
        return cls(path, recipe, {**_UNWRITTEN, "recipe": recipe["recipe"], "about": recipe.get("about", "")})

    @cached_property
    def stages(self) -> list[StageView]:
        """Every stage that run.json lists."""
        nodes = self.recipe["stages"]
        return [
            StageView(e["name"], self.path / "stages" / e["folder"], nodes[e["name"].partition("[")[0]], e)
            for e in self.record["stages"]
        ]

    def named(self, name: str) -> list[StageView]:
        """The points that `stage` or `stage[axis=label]` names."""
        return [stage for stage in self.stages if covers(name, stage.name)]

    def source(self, stage: StageView) -> dict[str, Any]:
        """The config.json of the checkpoint that a stage leaves or, where it leaves none, judges; may be empty."""
        if stage.trains:
            return stage.config
        return next((other.config for other in self.stages if other.name == stage.origin), {})

    def chance(self, stage: StageView, metric: str) -> float | None:
        """The value of a metric that guessing would give, where it is known."""
        classes = self.source(stage).get("filled", {}).get("num_classes")
        return 1 / classes if metric == "accuracy" and classes else None


_UNWRITTEN: dict[str, Any] = {  # what run.json says before the first stage has ended
    "note": "",
    "seeds": None,
    "finished": None,
    "status": "incomplete",
    "version": "",
    "id": "",
    "environment": {},
    "stages": [],
    "metrics": {},
    "claims": [],
}


_CLAIM = {"id", "says", "source", "metric", "over", "value", "at", "matches", "holds_if", "holds"}


def _check_record(record: Any, stages: Any, where: str) -> None:
    """An error where run.json does not tell of a run of these stages, each in a folder of the run's own."""
    known = record.keys() >= _UNWRITTEN.keys() if isinstance(record, dict) else False
    kinds = ((key, type(_UNWRITTEN[key])) for key in ("status", "environment", "stages", "metrics", "claims"))
    if not known or not isinstance(stages, dict) or not all(isinstance(record[key], kind) for key, kind in kinds):
        raise ZooError(f"{where}: is no record of a run; `provenzoo run` writes it again")
    if not all(isinstance(claim, dict) and claim.keys() >= _CLAIM for claim in record["claims"]) or not all(
        isinstance(about, dict) and all(isinstance(summary, dict) for summary in about.values())
        for about in record["metrics"].values()
    ):
        raise ZooError(f"{where}: its claims or metrics are not those of a run; `provenzoo run` writes it again")
    plain_data(record, where)
    for entry in record["stages"]:
        lost = entry.get("diverged", {}) if isinstance(entry, dict) else None
        if not isinstance(lost, dict) or not all(seed.isdecimal() for seed in lost) or "status" not in entry:
            raise ZooError(f"{where}: stages: is no list of a run's stages; `provenzoo run` writes it again")
        if str(entry.get("name")).partition("[")[0] not in stages:
            raise ZooError(f"{where}: the recipe beside it has no stage {entry.get('name')!r}")
        safe_name(entry.get("folder"), where)


def number(value: float | int | None) -> str:
    """A number with four significant digits; a null is a replica that was not finite."""
    if value is None:
        return "not finite"
    text = f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def metric_text(metric: str | dict[str, list[Any]]) -> str:
    """A claim's metric on one line."""
    match metric:
        case {"difference": [a, b]}:
            return f"{a} \N{MINUS SIGN} {b}"
        case {"ratio": [a, b]}:
            return f"{a} / {b}"
        case {"steps": [path, axis]}:
            return f"steps of {path} along {axis}"
        case {"slope": [str(path), tail]}:
            start = f"step {tail}" if isinstance(tail, int) else f"{tail:g} of the steps"
            return f"slope of log {path.removesuffix('@*')} over log step, from {start} on"
        case _:
            return str(metric)
