"""Running a recipe: each point of its plan in order, into the run folder; then claims, report and card."""

import contextlib
import signal
import statistics
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from omegaconf import DictConfig

from provenzoo import __version__, fetch
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline import lengths, trackers
from provenzoo.pipeline.claims import Table, judge
from provenzoo.pipeline.folder import RunFolder
from provenzoo.pipeline.plan import Plan, prepare
from provenzoo.pipeline.points import Point
from provenzoo.pipeline.seeds import median_seed
from provenzoo.plain import canonical, write_json
from provenzoo.stages.work import Ground, Outcome, Rehearsed, State, Stopped, Work
from provenzoo.training import parallel, runtime

T = TypeVar("T")


class Interrupted(ZooError):
    """A signal stopped the run after its state was saved."""

    def __init__(self, number: int, path: Path):
        super().__init__(
            f"stopped by {runtime.signal_name(number)}; what was done is saved in {path}: run again to go on"
        )
        self.exit_code = 128 + number


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and the content of its run.json."""

    path: Path
    record: dict[str, Any]

    @property
    def metrics(self) -> dict[str, dict[str, dict[str, Any]]]:
        """`<stage[point].set>` -> metric -> mean, std, min, max, per_seed, n."""
        return self.record["metrics"]

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Every claim with its value and whether it holds."""
        return self.record["claims"]

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(claim["holds"] for claim in self.claims)


def run(
    recipe: str | Path | DictConfig | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    new_length: bool = False,
) -> Run:
    """Run a recipe (a name, a YAML file or a composed config) and judge its claims.

    What is complete and unchanged in the run folder is skipped, and an interrupted stage goes on from its last saved
    step. The folder is `runs/<recipe>/<id>` below the working directory, or `out`. Where it has an unfinished training
    of another number of steps or epochs, that is refused, and with `new_length` gone on from, as run.json then tells.

    Started by torchrun or accelerate, the processes are one run (training/parallel.py): each calls this and gets the
    same record; the first alone reads and writes the folder.
    """
    if fresh and new_length:
        raise UsageError("--fresh drops what --new-length goes on from; give one of them")
    data, plan = prepare(recipe, overrides)
    trackers.check(plan.recipe.trackers)
    device = runtime.resolve_device(plan.recipe.device)
    folder = RunFolder(Path(out) if out else Path("runs") / plan.recipe.recipe / plan.id)
    with parallel.joined(device):
        if parallel.leads():
            return _lead(data, plan, folder, device, fresh, new_length)
        with runtime.threads(plan.recipe.threads), runtime.deterministic(device):
            return Run(folder.path, _follow(plan, folder, device))


def _lead(
    data: dict[str, Any], plan: Plan, folder: RunFolder, device: torch.device, fresh: bool, new_length: bool
) -> Run:
    folder.check(plan.recipe.recipe)
    if not fresh:
        lengths.check(folder, plan.points, new_length)
    _rehearse(plan.points if fresh else _pending(plan, folder), plan, folder, device)
    with folder.locked(), runtime.threads(plan.recipe.threads), runtime.deterministic(device):
        folder.check(plan.recipe.recipe)
        if fresh:
            folder.drop()
        folder.write_config(data)
        with runtime.Stop() as stop:
            record = _Session(plan, folder, device, stop).run()
        folder.tidy()
        from provenzoo.report import report

        report(folder.path)
    parallel.share(_Turn((), record))
    return Run(folder.path, record)


@dataclass(frozen=True)
class _Turn:
    """What the first process tells the others: points to run with it, or none and the run's record."""

    points: tuple[str, ...]
    record: dict[str, Any]


def _follow(plan: Plan, folder: RunFolder, device: torch.device) -> dict[str, Any]:
    """Do with the first process what it does, and write nothing; the record at the end."""
    by_name = {point.name: point for point in plan.points}
    with runtime.Stop() as stop:  # the first process hears a signal, and tells
        while (turn := parallel.share(_Turn((), {}))).points:
            _outcomes([by_name[name] for name in turn.points], lambda point: _Work(plan, folder, device, stop, point))
    return turn.record


def _outcomes(points: list[Point], work: Callable[[Point], Work]) -> list[Outcome]:
    works = [(point.settings, work(point)) for point in points]
    kind = points[0].kind
    return kind.together.run(works) if kind.together and len(works) > 1 else [kind.run(*works[0])]


def _pending(plan: Plan, folder: RunFolder) -> tuple[Point, ...]:
    return tuple(point for point in plan.points if not folder.complete(point))


def _rehearse(points: Iterable[Point], plan: Plan, folder: RunFolder, device: torch.device) -> None:
    """Build what the points will build, so that what does not fit is found before any of them runs."""
    known: dict[str, Rehearsed | None] = {}
    same: dict[str, Rehearsed | None] = {}
    for point in points:
        reference = point.node.get("from")
        try:
            if reference and reference not in known:  # a complete point or a checkpoint elsewhere
                known[reference] = _as_rehearsed(fetch.fetch(_place(plan, folder, reference)))
            origin = known[reference] if reference else None
            node = canonical({**point.node, "from": id(origin)})
            if node not in same:
                same[node] = point.kind.rehearse(point.settings, Ground(point.seeds, device), origin)
        except ZooError as error:
            raise type(error)(f"{point.name}: {error}") from None
        known[point.name] = same[node]


def _as_rehearsed(found: fetch.Checkpoint) -> Rehearsed:
    state = {name: tensor.to("meta") for name, tensor in found.state(found.config["seeds"][0]).items()}
    return Rehearsed(found.config["filled"], state, found.config["data"])


def _place(plan: Plan, folder: RunFolder, reference: str) -> str:
    """A `from` as a reference that holds outside of the run."""
    inner = {point.name: point for point in plan.points}
    return f"local:{folder.stage(inner[reference])}" if reference in inner else reference


class _Session:
    """A run under way. `done` names the points whose results are there."""

    def __init__(self, plan: Plan, folder: RunFolder, device: torch.device, stop: runtime.Stop):
        self.plan, self.folder, self.device, self.stop = plan, folder, device, stop
        self.trackers = trackers.Trackers(plan.recipe.trackers, plan.recipe.recipe, plan.id, folder.path)
        self.pending = _pending(plan, folder)
        self.done = {point.name for point in plan.points} - {point.name for point in self.pending}

    def run(self) -> dict[str, Any]:
        """Run what is pending, with run.json as it stands after each point; the content of the last one."""
        if self.pending:
            self._write_record("running")
        for points in self._turns():
            if self.stop.requested:
                self._leave()
            self._run_points(points)
            self._write_record("running")
        return self._write_record("complete")

    def _turns(self) -> Iterator[list[Point]]:
        """The pending points in order: each alone, or with all that run at once with it."""
        waiting = list(self.pending)
        while waiting:
            points = self._at_once(waiting[0], waiting)
            waiting = [point for point in waiting if point not in points]
            yield points

    def _at_once(self, first: Point, waiting: list[Point]) -> list[Point]:
        if (together := first.kind.together) is None or (shared := together.alike(first.settings)) is None:
            return [first]
        same = [p for p in waiting if p.stage == first.stage and together.alike(p.settings) == shared]
        return same if len(same) > 1 and together.pays(first.settings, self._work(first, alone=True)) else [first]

    def _run_points(self, points: list[Point]) -> None:
        """Run one point, or several at once; one whose every seed diverged fails, after the others are kept."""
        for point in points:
            self.folder.start(point)
        began = time.monotonic()
        try:
            parallel.share(_Turn(tuple(point.name for point in points), {}))
            outcomes = _outcomes(points, self._work)
            seconds = (time.monotonic() - began) / len(points)
            for point, outcome in zip(points, outcomes, strict=True):
                if len(outcome.diverged) < len(point.seeds):
                    self.folder.finish(point, outcome, seconds, _origin(self.plan, point))
                    self.done.add(point.name)
                    runtime.say(f"{point.name}: done in {seconds:.1f} s{_told(outcome)}")
            if lost := [o for point, o in zip(points, outcomes, strict=True) if point.name not in self.done]:
                raise ZooError(f"every seed diverged: {_lost(lost[0])} is not finite; lower optim.lr or set optim.clip")
        except (Stopped, KeyboardInterrupt):
            for point in points:
                self.folder.fail(point, "interrupted")
            self._leave()
        except Exception as error:
            failed = [point for point in points if point.name not in self.done]
            with contextlib.suppress(ZooError):  # a full disk, of which `error` tells
                for point in failed:
                    self.folder.fail(point, "failed")
                self._write_record("failed")
            if isinstance(error, ZooError):
                raise ZooError(f"{', '.join(point.name for point in failed)}: {error}") from error
            raise
        finally:
            self.trackers.finish()

    def _work(self, point: Point, alone: bool = False) -> "_Work":
        return _Work(self.plan, self.folder, self.device, self.stop, point, self.trackers, alone)

    def _leave(self) -> NoReturn:
        self._write_record("interrupted")
        raise Interrupted(self.stop.signal or signal.SIGINT, self.folder.path) from None

    def _write_record(self, status: str) -> dict[str, Any]:
        return _write_record(self.plan, self.folder, status, self.device, self.done)


def _told(outcome: Outcome) -> str:
    return "".join(
        f"; seed {seed} diverged at step {at['step']} ({at['parameter']})" for seed, at in outcome.diverged.items()
    )


def _lost(outcome: Outcome) -> str:
    return "; ".join(f"seed {seed} at step {at['step']} ({at['parameter']})" for seed, at in outcome.diverged.items())


def _origin(plan: Plan, point: Point) -> dict[str, Any]:
    return {
        "recipe": plan.recipe.recipe,
        "stage": point.name,
        "paper": plan.recipe.paper,
        "inputs_digest": point.digest,
        "version": __version__,
    }


class _Work:
    """The surroundings that the pipeline gives to a stage.

    Of several processes the first reads and tells, the others hear; `alone` it does not tell.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        device: torch.device,
        stop: runtime.Stop,
        point: Point,
        trackers: trackers.Trackers | None = None,
        alone: bool = False,
    ):
        self.name, self.seeds, self.device = point.name, point.seeds, device
        self._plan, self._folder, self._stop, self._point = plan, folder, stop, point
        self._trackers, self._alone = trackers, alone
        self._fetched: dict[str, fetch.Checkpoint] = {}

    def fetch(self, reference: str) -> fetch.Checkpoint:
        if reference not in self._fetched:
            self._fetched[reference] = self._told(lambda: fetch.fetch(_place(self._plan, self._folder, reference)))
        return self._fetched[reference]

    def _told(self, read: Callable[[], T]) -> T:
        if self._alone:
            return read()
        return parallel.share(read() if parallel.leads() else None)  # pyright: ignore[reportReturnType]

    def save(self, key: str, state: State) -> None:
        self._folder.save_state(self._point, key, state)

    def load(self, key: str) -> State | None:
        return self._told(lambda: self._folder.load_state(self._point, key))

    def track(self, seed: int, step: int, values: Mapping[str, Any]) -> None:
        if self._trackers:
            self._trackers.log(self._point, seed, step, values)

    def stopping(self) -> bool:
        return self._stop.requested and parallel.leads()

    def progress(self, label: str, steps: int) -> Any:
        return runtime.Progress(f"{self.name} {label}".strip(), steps) if parallel.leads() else None


# --- run.json -----------------------------------------------------------------------------------------------------


def _write_record(
    plan: Plan, folder: RunFolder, status: str, device: torch.device, done: Container[str]
) -> dict[str, Any]:
    whole = status == "complete"
    table = folder.table(plan.points) if whole else None
    record = {
        "recipe": plan.recipe.recipe,
        "about": plan.recipe.about,
        "note": plan.recipe.note,
        "status": status,
        "version": __version__,
        "id": plan.id,
        "seeds": plan.recipe.seeds,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) if whole else None,
        "environment": {**runtime.environment(), "device": str(device)},
        "stages": [_stage_entry(plan, folder, point, table) for point in plan.points],
        "metrics": metrics_of(folder, [point for point in plan.points if point.name in done]),
        "claims": claims_of(plan, folder) if whole else [],
    }
    write_json(folder.path / "run.json", record)
    return record


def metrics_of(folder: RunFolder, points: Iterable[Point]) -> dict[str, dict[str, Any]]:
    """What run.json tells of the numbers of complete points."""
    return {key: value for point in points for key, value in _summaries(folder, point)}


def claims_of(plan: Plan, folder: RunFolder) -> list[dict[str, Any]]:
    """What run.json tells of the claims of a complete run."""
    return [verdict.plain() for verdict in judge(plan.recipe.claims, folder.table(plan.points))]


def _stage_entry(plan: Plan, folder: RunFolder, point: Point, table: Table | None) -> dict[str, Any]:
    """What run.json tells of a stage; in a complete run (its `table`), also which of several seeds is the default."""
    record = folder.record(point) if folder.record(point).get("inputs_digest") == point.digest else {}
    entry = {
        "name": point.name,
        "folder": point.folder,
        "status": record.get("status", "waiting"),
        "seconds": record.get("seconds"),
        "inputs_digest": point.digest,
        "precision": getattr(point.settings, "precision", None),
        "lengths": record.get("lengths", {}),
        "frozen_unchanged": record.get("frozen_unchanged"),
        "diverged": record.get("diverged", {}),
        "processes": record.get("processes", [1]),
    }
    if table is not None and point.kind.trains and len(point.seeds) > 1:
        lost = set(map(int, entry["diverged"]))
        entry["seed"], entry["seed_is"] = median_seed(plan, table, point.name, list(point.seeds), lost)
    return entry


def _summaries(folder: RunFolder, point: Point) -> Iterable[tuple[str, dict[str, Any]]]:
    data = folder.metrics(point)
    for label, measured in data["sets"].items():
        values = dict(measured["values"])
        if not label and data["frozen_unchanged"] is not None:
            values["frozen-unchanged"] = [float(data["frozen_unchanged"])] * len(point.seeds)
        summary = {metric: summarise(per_seed) | {"n": measured["n"]} for metric, per_seed in values.items()}
        yield f"{point.name}.{label}" if label else point.name, summary


def summarise(per_seed: list[Any]) -> dict[str, Any]:
    """Mean, standard deviation (n - 1), minimum and maximum over seeds; null if any is, or where values are lists."""
    plain = all(isinstance(value, int | float) for value in per_seed)
    if not plain:
        return {"mean": None, "std": None, "min": None, "max": None, "per_seed": per_seed}
    std = statistics.stdev(per_seed) if len(per_seed) > 1 else 0.0
    return {
        "mean": statistics.fmean(per_seed),
        "std": std,
        "min": min(per_seed),
        "max": max(per_seed),
        "per_seed": per_seed,
    }
