"""Verify: every number of a run or of a checkpoint, computed again from what is saved and compared."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from provenzoo import fetch
from provenzoo.checkpoint import bits
from provenzoo.errors import ZooError
from provenzoo.models.base import members
from provenzoo.models.load import restore
from provenzoo.models.split import split_fused
from provenzoo.pipeline.folder import RunFolder
from provenzoo.pipeline.plan import Plan
from provenzoo.pipeline.recipe import compose, plain_recipe
from provenzoo.pipeline.run import claims_of, metrics_of
from provenzoo.pipeline.told import check_record, check_sets
from provenzoo.plain import read_json
from provenzoo.report import RunView
from provenzoo.settings import read
from provenzoo.stages.evaluate import Evaluate, SeedRow, measure_seed
from provenzoo.training import runtime
from provenzoo.untrusted import read_json as read_untrusted

COUNTED = ("accuracy", "class-accuracy")
ERRORS = ("labelling-error", "sign-error", "sign-accuracy")
"""Other shares of a set's examples."""

TOLERANCE = 1e-4
ROUNDING = {"float32": 1e-6, "float64": 1e-12}
"""What differences of numbers near 1 owe to the order of a sum, which is another on another kind of CPU."""

A_FLIP_IN = 10_000
"""Examples of which one may fall on the other side of a boundary on another kind of CPU."""

DIGEST = "data-digest"
"""The row that says whether a set is the one that was measured; where it is not, numbers are not compared."""


@dataclass(frozen=True)
class Row:
    """One number: as saved, as recomputed, and whether they agree within the tolerance.

    It is relative, beside rounding; for shares of examples it is absolute: one example in every 10,000.
    `seed` is None for what all seeds give together.
    """

    where: str
    metric: str
    seed: int | None
    saved: Any
    recomputed: Any
    tolerance: float
    agrees: bool


@dataclass(frozen=True)
class Verification:
    """The table of a verification."""

    target: str
    rows: list[Row]
    left: list[str] = field(default_factory=list)
    """Claims on the card that are about more than the checkpoint, so that only the run can tell."""

    @property
    def holds(self) -> bool:
        """Whether every number agrees."""
        return all(row.agrees for row in self.rows)

    def plain(self) -> dict[str, Any]:
        """The table as plain data."""
        rows = [asdict(row) for row in self.rows]
        return {"target": self.target, "holds": self.holds, "rows": rows, "left": self.left}


def verify(target: str | Path, device: str = "auto") -> Verification:
    """Recompute every number of a run folder, of a stage's folder in it, or of a checkpoint by name or folder.

    Models are built from config.json and the saved tensors (their digest is checked), sets from the saved data nodes
    (their digest is compared too), frozen parts are compared with the checkpoint that they came from. Of a complete
    run, all that run.json tells is computed again from the stages' numbers. A number that has no saved model, such as
    an early step's, is not among them.
    """
    place = Path(target)
    if (place / "run.json").is_file() and not (place / fetch.WEIGHTS).is_file():
        source = _Source(device, _folders(place))
        rows = [row for stage in source.folders.items() for row in _stage_rows(*stage, source)]
        rows += _run_rows(place)
    elif (place / "stage.json").is_file():
        rows = list(_stage_rows(place.name, place, _Source(device, _folders(place.resolve().parents[1]))))
    else:
        return _checkpoint(str(target), _Source(device, {}))
    return _verification(str(target), rows)


def _verification(target: str, rows: list[Row], left: list[str] | None = None) -> Verification:
    if not rows:
        raise ZooError(f"{target}: holds no number to verify")
    return Verification(target, rows, left or [])


def _checkpoint(target: str, source: "_Source") -> Verification:
    """A checkpoint by itself: the numbers that its config (or the metrics.json beside it) tells, then its card's."""
    from provenzoo.pipeline.verify_card import card_rows, claim_rows, told_rows

    place = fetch.place(target)
    config = fetch.read_config(place)
    if "sets" not in config:
        sets = check_sets(fetch.numbers(place), f"{target}: metrics.json")
        return _verification(target, list(_set_rows(sets, target, target, source)))
    sets = check_sets(config["sets"], f"{target}: config.json")
    rows = list(_set_rows(sets, place.pinned_reference, "", source))
    files = config.get("files", [])
    again = recomputed(rows)
    if "README.md" in files and not (place.hub and place.hub.inside):
        rows += card_rows(place.file("README.md"), config["sets"], again)
        if "run.json" not in files:
            return _verification(target, rows)
        record = check_record(read_untrusted(file := place.file("run.json")), str(file))
        rows += told_rows(place.file("README.md"), record)
        claims, left = claim_rows(record, config, again)
        return _verification(target, rows + claims, left)
    return _verification(target, rows)


def recomputed(rows: list[Row]) -> dict[str, dict[str, list[Any]]]:
    """Where -> metric -> the recomputed numbers, a seed each."""
    found: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        if row.metric != DIGEST:
            found.setdefault(row.where, {}).setdefault(row.metric, []).append(row.recomputed)
    return found


class _Source:
    """What `measure_seed` needs of a stage's surroundings; a checkpoint, or a stage by its name, is read once."""

    def __init__(self, device: str, folders: dict[str, Path]):
        self.device = runtime.resolve_device(device)
        self.folders = folders
        self._read = cache(fetch.fetch)

    def fetch(self, reference: str) -> fetch.Checkpoint:
        return self._read(self.place(reference))

    def place(self, reference: str) -> str:
        """A reference as one that holds outside of the run."""
        return f"local:{self.folders[reference]}" if reference in self.folders else reference

    def stopping(self) -> bool:
        return False


def _folders(run: Path) -> dict[str, Path]:
    """The folder of each complete stage."""
    return {stage.name: stage.path for stage in RunView.read(run).stages if stage.complete}


# --- a run --------------------------------------------------------------------------------------------------------


def _run_rows(run: Path) -> Iterator[Row]:
    """Every summary and claim of run.json, computed again from the stages' metrics.json."""
    record = RunView.read(run).record
    if record["status"] != "complete":
        return
    plan, folder = Plan.of(plain_recipe(compose(run / "config.yaml"))), RunFolder(run)
    for where, metrics in metrics_of(folder, plan.points).items():
        for metric, again in metrics.items():
            saved = record["metrics"].get(where, {}).get(metric, {})
            for key in again:
                if saved.get(key) != again[key]:
                    yield Row(where, f"{metric} ({key})", None, saved.get(key), again[key], 0.0, False)
    listed = {stage["name"] for stage in record["stages"]}
    for point in plan.points:
        if point.name not in listed:
            yield Row(point.name, "its place in run.json", None, None, "a stage", 0.0, False)
    told = {claim["id"]: claim for claim in record["claims"]}
    for again in claims_of(plan, folder):
        saved = told.get(again["id"], {})
        yield Row("claims", again["id"], None, saved.get("value"), again["value"], 0.0, saved == again)


# --- a stage ------------------------------------------------------------------------------------------------------


def _stage_rows(name: str, folder: Path, source: _Source) -> Iterator[Row]:
    record = read_json(folder / "stage.json")
    origin = record.get("origin") if isinstance(record, dict) else None
    parent = source.place(origin) if origin else None
    trains = (folder / "config.json").is_file() or (folder / "model.safetensors").is_file()
    yield from _set_rows(_sets(folder), f"local:{folder}" if trains else parent, name, source)
    if trains and parent:
        yield from _frozen_rows(source.fetch(f"local:{folder}"), source.fetch(parent), name)


def _frozen_rows(trained: fetch.Checkpoint, parent: fetch.Checkpoint, where: str) -> Iterator[Row]:
    """Whether each seed's frozen parameters are, to the bit, those of the checkpoint that it started from."""
    frozen, reset = trained.config["frozen"], trained.config["reset"]
    saved = read_json(fetch.folder(trained.reference) / "metrics.json")["frozen_unchanged"]
    for seed in trained.config["seeds"] if frozen else []:
        after, before = (restore(found, seed) for found in (trained, parent))
        split_fused(after)
        split_fused(before)
        names = {name for group in frozen for name in members(after, group)}
        names -= {name for group in reset for name in members(after, group)}
        old, new = dict(before.named_parameters()), dict(after.named_parameters())
        same = all(torch.equal(bits(old[name].to(new[name].dtype)), bits(new[name])) for name in names)
        yield Row(where, "frozen-unchanged", seed, saved, same, 0.0, saved is same)


def _sets(folder: Path) -> dict[str, Any]:
    """What metrics.json tells of each set."""
    data = read_json(file := folder / "metrics.json")
    return check_sets(data.get("sets") if isinstance(data, dict) else None, str(file), own=True)


def _set_rows(sets: dict[str, Any], reference: str | None, where: str, source: _Source) -> Iterator[Row]:
    for label, node in sets.items():
        at = ".".join(part for part in (where, label) if part)
        settings = _settings(label, node, reference, at)
        for index, seed in enumerate(node["seeds"]):
            row = _measured(settings, label, seed, source, at)
            digest = node["digests"][index]
            yield Row(at, DIGEST, seed, digest[:12], row.digest[:12], 0.0, row.digest == digest)
            for metric, value in row.values.items() if row.digest == digest else ():
                yield _row(at, metric, seed, node["values"][metric][index], value, slack(metric, node))


def _measured(settings: Evaluate, label: str, seed: int, source: _Source, where: str) -> SeedRow:
    """One seed's numbers, computed again; whatever stands in the way of that is one line."""
    try:
        return measure_seed(settings, label, seed, source)  # pyright: ignore[reportArgumentType]  # the part of Work that it uses
    except ZooError:
        raise
    except Exception as error:  # a model and data that do not go together, in whatever way
        words = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise ZooError(f"{where}: cannot be computed again ({words[:200]})") from error


def _settings(label: str, node: dict[str, Any], reference: str | None, where: str) -> Evaluate:
    """The evaluation that gave a set's numbers."""
    written = {
        "stage": "evaluate",
        "model": node["model"],
        "sets": {label: {"data": node["data"], "model": node["model"]}},
        "metrics": node["metrics"],
        **({"from": reference} if reference else {}),
        **{key: node[key] for key in ("loss", "dtype")},
    }
    return read(Evaluate, written, where)


def _row(where: str, metric: str, seed: int, saved: Any, again: Any, absolute: float) -> Row:
    share = metric in (*COUNTED, *ERRORS)
    told, relative = (absolute, 0.0) if share else (TOLERANCE, TOLERANCE)
    return Row(where, metric, seed, saved, again, told, agree(saved, again, relative, absolute))


def slack(metric: str, node: dict[str, Any]) -> float:
    """What a metric of a set in metrics.json may differ by on another kind of CPU, beside the relative tolerance."""
    if metric == "class-accuracy":
        return 0.0
    if metric in (*COUNTED, *ERRORS):
        return node["n"] // A_FLIP_IN / node["n"]
    return ROUNDING[node["dtype"]]


def agree(saved: Any, again: Any, tolerance: float, absolute: float = 0.0) -> bool:
    """Whether two values agree, entry by entry where they are lists; null agrees with null alone."""
    if isinstance(saved, list) and isinstance(again, list):
        return len(saved) == len(again) and all(
            agree(a, b, tolerance, absolute) for a, b in zip(saved, again, strict=True)
        )
    if isinstance(saved, int | float) and isinstance(again, int | float):
        return abs(saved - again) <= tolerance * abs(saved) + absolute + 1e-12
    return saved is again is None
