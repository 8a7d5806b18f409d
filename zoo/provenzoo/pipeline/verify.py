"""Verify: every number of a run or of a checkpoint, computed again from what is saved and compared."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from provenzoo import fetch
from provenzoo.errors import ZooError
from provenzoo.plain import read_json
from provenzoo.settings import read
from provenzoo.stages.evaluate import Evaluate, SetNode, measure_seed
from provenzoo.training import runtime

COUNTED = ("accuracy", "class-accuracy")
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Row:
    """One number: as saved, as recomputed, and whether they agree within the tolerance (relative; 0 for counts)."""

    where: str
    metric: str
    seed: int
    saved: Any
    recomputed: Any
    tolerance: float
    agrees: bool


@dataclass(frozen=True)
class Verification:
    """The table of a verification."""

    target: str
    rows: list[Row]

    @property
    def holds(self) -> bool:
        """Whether every number agrees."""
        return all(row.agrees for row in self.rows)

    def plain(self) -> dict[str, Any]:
        """The table as plain data."""
        return {"target": self.target, "holds": self.holds, "rows": [asdict(row) for row in self.rows]}


def verify(target: str | Path, device: str = "auto") -> Verification:
    """Recompute every number of a run folder, or of a checkpoint by name or folder.

    Models are built from config.json and the saved tensors (their digest is checked), sets from the saved data nodes
    (their digest is compared too). A number that has no saved model, such as an early step's, is not among them.
    """
    place = Path(target)
    if (place / "run.json").is_file():
        rows = list(_run_rows(place, device))
    else:
        rows = list(_stage_rows(fetch.folder(str(target)), str(target), str(target), device))
    if not rows:
        raise ZooError(f"{target}: holds no number to verify")
    return Verification(str(target), rows)


def _run_rows(run: Path, device: str) -> Iterator[Row]:
    stages = read_json(run / "run.json")["stages"]
    folders = {stage["name"]: run / "stages" / stage["folder"] for stage in stages if stage["status"] == "complete"}
    for name, folder in folders.items():
        record = read_json(folder / "stage.json")
        origin = record.get("origin")
        holder = f"local:{folder}" if (folder / "model.safetensors").is_file() else origin
        reference = f"local:{folders[holder]}" if holder in folders else holder
        yield from _stage_rows(folder, reference, name, device)


class _Source:
    """What `measure_seed` needs of a stage's surroundings; a checkpoint is read once."""

    def __init__(self, device: str):
        self.device = runtime.resolve_device(device)
        self._held: dict[str, fetch.Checkpoint] = {}

    def fetch(self, reference: str) -> fetch.Checkpoint:
        return (
            self._held.setdefault(reference, fetch.fetch(reference))
            if reference not in self._held
            else self._held[reference]
        )


def _stage_rows(folder: Path, reference: str | None, where: str, device: str) -> Iterator[Row]:
    saved = read_json(folder / "metrics.json")
    source = _Source(device)
    for label, node in saved["sets"].items():
        settings = read(
            Evaluate,
            {
                "stage": "evaluate",
                "model": node["model"],
                "sets": {label: {"data": node["data"], "model": node["model"]}},
                "metrics": node["metrics"],
                **({"from": reference} if reference else {}),
                **{key: node[key] for key in ("loss", "dtype") if node.get(key)},
            },
            f"{folder / 'metrics.json'}: sets.{label}",
        )
        at = f"{where}.{label}" if label else where
        for index, seed in enumerate(_seeds(folder, node)):
            row = measure_seed(settings, SetNode(data=node["data"], model=node["model"]), seed, source)  # pyright: ignore[reportArgumentType]  # the part of Work that it uses
            yield Row(
                at,
                "data-digest",
                seed,
                node["digests"][index][:12],
                row.digest[:12],
                0.0,
                row.digest == node["digests"][index],
            )
            for metric, value in row.values.items():
                yield _row(at, metric, seed, node["values"][metric][index], value)


def _seeds(folder: Path, node: dict[str, Any]) -> list[int]:
    return node.get("seeds") or list(range(len(node["digests"])))


def _row(where: str, metric: str, seed: int, saved: Any, again: Any) -> Row:
    tolerance = 0.0 if metric in COUNTED else TOLERANCE
    if saved is None or again is None:
        return Row(where, metric, seed, saved, again, tolerance, saved is again)
    a, b = torch.tensor(saved, dtype=torch.float64), torch.tensor(again, dtype=torch.float64)
    agrees = a.shape == b.shape and bool(((a - b).abs() <= tolerance * a.abs() + 1e-12).all())
    return Row(where, metric, seed, saved, again, tolerance, agrees)
