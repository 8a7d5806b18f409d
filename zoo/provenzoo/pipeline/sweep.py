"""A sweep: one recipe at every combination of some keys' values, each a run folder of its own below the sweep's.

sweeps/<recipe>/<id>/  sweep.json  figure.png  points/<key=value,...>/ (a run folder)
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from provenzoo import __version__
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.axes import Axis, combinations, read_axes, short_names
from provenzoo.pipeline.folder import RunFolder
from provenzoo.pipeline.jobs import Ended, Engine, Job, cores, in_processes
from provenzoo.pipeline.plan import Plan, prepare
from provenzoo.pipeline.points import folder_name
from provenzoo.pipeline.run import Interrupted
from provenzoo.plain import did_you_mean, digest, read_json, read_yaml, write_json
from provenzoo.training import parallel, runtime

SHOWN = 6
"""The metrics that table and figure show where none is asked for."""


@dataclass(frozen=True)
class Trial:
    """A point of a sweep: the text that each key gets, and the run that it makes."""

    name: str
    texts: dict[str, str]
    recipe: dict[str, Any]
    plan: Plan
    folder: RunFolder

    def record(self) -> dict[str, Any]:
        """The run's run.json; empty where there is none of these settings."""
        try:
            held = read_yaml(self.folder.path / "config.yaml")
            record = read_json(self.folder.path / "run.json")
        except ZooError:
            return {}
        return record if held == self.recipe and record.get("id") == self.plan.id else {}

    @property
    def done(self) -> bool:
        """Whether the run is complete and nothing of it is missing or changed."""
        return self.record().get("status") == "complete" and all(map(self.folder.complete, self.plan.points))


@dataclass(frozen=True)
class Sweep:
    """A finished sweep: its folder and the content of its sweep.json."""

    path: Path
    record: dict[str, Any]

    @property
    def points(self) -> list[dict[str, Any]]:
        """Each point: name, folder, values by key, status, error, claims (held, judged) and metrics."""
        return self.record["points"]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The points that did not become complete."""
        return [point for point in self.points if point["status"] != "complete"]

    @property
    def holds(self) -> bool:
        """Whether every point is complete and every claim of each holds."""
        return not self.failed and all(point["claims"][0] == point["claims"][1] for point in self.points)


def sweep(
    recipe: str | Path | DictConfig | Mapping[str, Any],
    words: Iterable[str],
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    metrics: Iterable[str] = (),
) -> Sweep:
    """Run a recipe at every combination of values; `words` are overrides, some with several values (axes.py).

    The points run in `jobs` local processes (as many as there are cores, or one on a GPU), or on the Ray cluster at
    the address `ray`. One that fails is told of in the result and the others go on. What is complete is skipped. The
    folder is `sweeps/<recipe>/<id>` below the working directory, or `out`. `metrics` are those of table and figure,
    named as in run.json (`stage.accuracy`); without, the first ones of the last stage.
    """
    parallel.only_one("a sweep")
    fixed, axes = read_axes(words)
    trials = _trials(recipe, fixed, axes, out)
    path = trials[0].folder.path.parents[1]
    shown = _shown(trials, list(metrics))
    _check(path, trials[0].plan.recipe.recipe, axes)
    with _engine(trials, jobs, ray) as engine, RunFolder(path).locked(), runtime.Stop() as stop:
        _check(path, trials[0].plan.recipe.recipe, axes)
        session = _Session(path, fixed, axes, trials, shown)
        session.run(engine, stop)
        record = session.write("complete")
        from provenzoo.report.sweep import write_figure

        write_figure(path)
    return Sweep(path, record)


# --- before anything runs -----------------------------------------------------------------------------------------


def _trials(recipe: Any, fixed: list[str], axes: list[Axis], out: str | Path | None) -> list[Trial]:
    """Every point, composed and checked as `run` would."""
    short = short_names(axis.path.removesuffix("+") for axis in axes)
    found = []
    for texts in combinations(axes):
        name = ",".join(f"{short[path.removesuffix('+')]}={text}" for path, text in texts.items())
        data, plan = prepare(recipe, [*fixed, *(f"{path}={text}" for path, text in texts.items())])
        found.append((name, texts, data, plan))
    name = found[0][3].recipe.recipe
    where = Path(out) if out else Path("sweeps", name, digest([[n, plan.id] for n, _, _, plan in found])[:12])
    return [
        Trial(name, texts, data, plan, RunFolder(where / "points" / folder_name(name)))
        for name, texts, data, plan in found
    ]


def _shown(trials: list[Trial], asked: list[str]) -> list[str]:
    """The metrics of table and figure."""
    plan = trials[0].plan
    if not asked:
        return plan.numbers(plan.points[-1].stage)[:SHOWN]
    known = plan.numbers()
    if unknown := [metric for metric in asked if metric not in known]:
        raise UsageError(f"--metric: no metric {unknown[0]!r} in the recipe{did_you_mean(unknown[0], known)}")
    return asked


def _check(path: Path, recipe: str, axes: list[Axis]) -> None:
    """Refuse a folder of another sweep or of other things. Nothing is written."""
    if (path / "sweep.json").is_file():
        held = read_json(path / "sweep.json")
        if held["recipe"] != recipe or {*held["axes"]} != {axis.path for axis in axes}:
            what = f"of {held['recipe']!r} over {', '.join(held['axes'])}"
            raise ZooError(f"{path}: holds another sweep, {what}; name another folder with --out")
    elif path.is_dir() and (others := [file.name for file in path.iterdir() if not file.name.startswith(".")]):
        raise ZooError(f"{path}: is no folder of a sweep (it holds {others[0]!r}); name another folder with --out")


@contextlib.contextmanager
def _engine(trials: list[Trial], jobs: int | None, ray: str | None) -> Iterator[Engine]:
    if ray is not None:
        from provenzoo.pipeline.on_ray import on_ray

        with on_ray(ray, jobs) as engine:
            yield engine
        return
    on_cpu = all(runtime.resolve_device(trial.plan.recipe.device).type == "cpu" for trial in trials)
    yield partial(in_processes, count=jobs or (cores() if on_cpu else 1))


# --- while it runs ------------------------------------------------------------------------------------------------


class _Session:
    """A sweep under way: what became of each point."""

    def __init__(self, path: Path, fixed: list[str], axes: list[Axis], trials: list[Trial], shown: list[str]):
        self.path, self.fixed, self.axes, self.trials, self.shown = path, fixed, axes, trials, shown
        self.ended = {trial.name: Ended(trial.name, "complete") for trial in trials if trial.done}
        self._told: dict[str, dict[str, Any]] = {}

    def run(self, engine: Engine, stop: runtime.Stop) -> None:
        """Run what is not done, with sweep.json as it stands after each point."""
        todo = [trial for trial in self.trials if trial.name not in self.ended]
        if skipped := len(self.trials) - len(todo):
            runtime.say(f"{skipped} of {len(self.trials)} points are complete already")
        self.write("running")
        for ended in engine([Job(t.name, t.recipe, str(t.folder.path)) for t in todo], stop):
            self.ended[ended.name] = ended
            runtime.say(f"{ended.name}: {ended.error or ended.status} ({len(self.ended)} of {len(self.trials)})")
            self.write("running")
        if stop.signal is not None and any(self._status(trial) != "complete" for trial in self.trials):
            self.write("interrupted")
            raise Interrupted(stop.signal, self.path)

    def write(self, status: str) -> dict[str, Any]:
        """Write sweep.json and give its content."""
        for trial in self.trials:
            if trial.name not in self._told or self._told[trial.name]["status"] != self._status(trial):
                self._told[trial.name] = self._point(trial)
        points = list(self._told.values())
        if status == "complete" and any(point["status"] != "complete" for point in points):
            status = "failed"
        record = {
            "recipe": self.trials[0].plan.recipe.recipe,
            "status": status,
            "version": __version__,
            "overrides": self.fixed,
            "axes": {axis.path: axis.values for axis in self.axes},
            "metrics": self.shown,
            "points": points,
        }
        write_json(self.path / "sweep.json", record)
        return record

    def _status(self, trial: Trial) -> str:
        return self.ended[trial.name].status if trial.name in self.ended else "waiting"

    def _point(self, trial: Trial) -> dict[str, Any]:
        complete = self._status(trial) == "complete"
        record = trial.record() if complete else {}
        claims = record.get("claims", [])
        numbers = {
            f"{at}.{name}": value for at, found in record.get("metrics", {}).items() for name, value in found.items()
        }
        return {
            "name": trial.name,
            "folder": f"points/{trial.folder.path.name}",
            "values": {axis.path: axis.values[axis.texts.index(trial.texts[axis.path])] for axis in self.axes},
            "status": self._status(trial),
            "error": self.ended[trial.name].error if trial.name in self.ended else None,
            "claims": [sum(claim["holds"] for claim in claims), len(claims)],
            "metrics": {name: numbers[name] for name in self.shown if name in numbers},
        }
