"""The folder of a run: who may write it, what is complete in it, and its files, which appear whole or not at all."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provenzoo import checkpoint
from provenzoo.errors import ZooError
from provenzoo.pipeline import lengths
from provenzoo.pipeline.claims import Key, Table
from provenzoo.pipeline.points import Point
from provenzoo.plain import digest, dump_yaml, read_json, read_yaml, write_json, write_whole
from provenzoo.stages.work import Outcome, State
from provenzoo.training import runtime

STAGE_FILES = ("metrics.json", "series.safetensors")
MODEL_FILES = ("model.safetensors", "config.json")


class Busy(ZooError):
    """Another process is writing the folder."""


class RunFolder:
    """One run's files. Reading needs no lock; writing happens inside `locked()`."""

    def __init__(self, path: Path):
        self.path = Path(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, so that no other process writes it. The lock ends with its process."""
        handle = self._lock()
        try:
            yield
        finally:
            os.close(handle)

    def _lock(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ZooError(
                f"{self.path}: cannot be written ({error.strerror}); name another folder with --out"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise Busy(f"{self.path}: another run (process {holder}) is writing this folder") from None
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its holder's number
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return handle

    def check(self, recipe: str) -> None:
        """Refuse a folder of another recipe or of other things. Nothing is written."""
        config = self.path / "config.yaml"
        if config.exists():
            held = read_yaml(config).get("recipe")
            if held != recipe:
                raise ZooError(
                    f"{self.path}: holds a run of {held!r}, not of {recipe!r}; name another folder with --out"
                )
        elif self.path.is_dir() and (others := [p.name for p in self.path.iterdir() if not p.name.startswith(".")]):
            raise ZooError(f"{self.path}: is no run folder (it holds {others[0]!r}); name another folder with --out")

    def drop(self) -> None:
        """Remove what an earlier run left."""
        for name in ("run.json", "report.html", "README.md", "figures", "stages", "tensorboard"):
            target = self.path / name
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what killed processes left of a run that is complete: states, and files that were being written."""
        for pattern in (".*.part", ".*.state"):
            for left in self.path.rglob(pattern):
                left.unlink()

    def write_config(self, recipe: dict[str, Any]) -> None:
        """The composed recipe in its written order; running it gives the same run."""
        write_whole(self.path / "config.yaml", dump_yaml({"recipe": recipe["recipe"], **recipe}))

    # --- stages ---------------------------------------------------------------------------------------------------

    def stage(self, point: Point) -> Path:
        """The folder of a point."""
        return self.path / "stages" / point.folder

    def complete(self, point: Point) -> bool:
        """Whether a point's results are there, of these very inputs, and every file as it was written."""
        return self._says_complete(point) and not self._damaged(point)

    def _says_complete(self, point: Point) -> bool:
        record = self.record(point)
        return record.get("status") == "complete" and record.get("inputs_digest") == point.digest

    def _damaged(self, point: Point) -> list[str]:
        """The files of a complete point that are missing or changed."""
        written = self.record(point).get("files", {})
        names = STAGE_FILES + (MODEL_FILES if point.kind.trains else ())
        return [name for name in names if _file_digest(self.stage(point) / name) != written.get(name, "")]

    def record(self, point: Point) -> dict[str, Any]:
        """The stage.json of a point; empty where there is none or a damaged one."""
        try:
            data = read_json(self.stage(point) / "stage.json")
        except ZooError:
            return {}
        return data if isinstance(data, dict) else {}

    def start(self, point: Point) -> None:
        """Make a point's folder ready: what other inputs left there goes.

        A state of these inputs stays, and one of inputs that differ in the training's length alone (`lengths.check`).
        """
        folder = self.stage(point)
        damaged = self._damaged(point) if self._says_complete(point) else []
        if damaged:
            runtime.say(f"{point.name}: {damaged[0]} is missing or was changed since it was written; done again")
        record, states = self.record(point), self.states(point)
        other = record.get("inputs_digest") != point.digest and not (states and lengths.differ(record, point))
        if other and (states or record.get("status") == "complete"):
            runtime.say(f"{point.name}: its settings are not those of what is there, which goes")
        if folder.is_dir() and (damaged or other):
            shutil.rmtree(folder)
        self._note(point, "running")

    def fail(self, point: Point, status: str) -> None:
        """Note that a point failed or was interrupted."""
        self._note(point, status)

    def _write_record(self, point: Point, status: str, **more: Any) -> None:
        write_json(
            self.stage(point) / "stage.json",
            {"name": point.name, "status": status, "inputs_digest": point.digest, **lengths.of(point), **more},
        )

    def _note(self, point: Point, status: str) -> None:
        """Note a status. Until there is a state of the recipe's length, what is there stays one of another."""
        record = self.record(point)
        if self.states(point) and lengths.differ(record, point):
            write_json(self.stage(point) / "stage.json", record | {"status": status})
        else:
            self._write_record(point, status)

    def save_state(self, point: Point, key: str, state: State) -> None:
        """Keep the state of a part of a stage."""
        tensors, text = state[0], json.dumps(state[1])
        notes = {"state": text, "digest": _state_digest(tensors, text)}
        checkpoint.save(self.stage(point) / f".{key}.state", tensors, notes)
        if lengths.differ(self.record(point), point):
            self._write_record(point, "running")

    def states(self, point: Point) -> list[Path]:
        """The states that are kept for a point."""
        return list(self.stage(point).glob(".*.state"))

    def load_state(self, point: Point, key: str) -> State | None:
        """The state that was kept last; none, with a word of it, where its file is damaged."""
        file = self.stage(point) / f".{key}.state"
        if not file.is_file():
            return None
        try:
            tensors, notes = checkpoint.load(file)
            if notes["digest"] != _state_digest(tensors, notes["state"]):
                raise ZooError(f"{file}: damaged")
        except (ZooError, KeyError):
            runtime.say(f"{file}: damaged, so this part of {point.name} starts anew")
            return None
        return tensors, json.loads(notes["state"])

    def finish(self, point: Point, outcome: Outcome, seconds: float, origin: dict[str, Any]) -> None:
        """Write all that a stage gave; stage.json comes last and says that the rest is there."""
        folder = self.stage(point)
        if outcome.tensors is not None:
            checkpoint.save(folder / "model.safetensors", outcome.tensors)
            config = {"format": 1, **origin, **outcome.config, "digest": checkpoint.digest(outcome.tensors)}
            write_json(folder / "config.json", config)
        write_json(folder / "metrics.json", _metrics(outcome))
        checkpoint.save(folder / "series.safetensors", outcome.series)
        self._write_record(
            point,
            "complete",
            files={name: _file_digest(folder / name) for name in (*STAGE_FILES, *MODEL_FILES)},
            stage=point.stage,
            labels=dict(point.labels),
            kind=point.node["stage"],
            origin=point.node.get("from"),
            lengths=outcome.config.get("lengths", {}),
            seconds=round(seconds, 3),
            frozen_unchanged=outcome.frozen_unchanged,
            diverged={str(seed): where for seed, where in outcome.diverged.items()},
            processes=list(outcome.processes),
        )
        for state in self.states(point):
            state.unlink()

    def metrics(self, point: Point) -> dict[str, Any]:
        """The metrics.json of a point."""
        return read_json(self.stage(point) / "metrics.json")

    def table(self, points: tuple[Point, ...]) -> Table:
        """Every scalar of the complete points, as claims see them."""
        table: Table = {}
        for point in points:
            data = self.metrics(point)
            for set_label, measured in data["sets"].items():
                for metric, values in measured["values"].items():
                    _add(table, Key(point.stage, point.labels, set_label, metric, None), values)
            for metric, rows in data["series"]["values"].items():
                set_label, _, name = metric.rpartition(".")
                for step, values in zip(data["series"]["steps"], rows, strict=True):
                    _add(table, Key(point.stage, point.labels, set_label, name, step), values)
            if data["frozen_unchanged"] is not None:
                values = [float(data["frozen_unchanged"])] * len(point.seeds)
                table[Key(point.stage, point.labels, "", "frozen-unchanged", None)] = list(values)
        return table


def _file_digest(file: Path) -> str | None:
    if not file.is_file():
        return None
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _state_digest(tensors: dict[str, Any], text: str) -> str:
    return digest([checkpoint.digest(tensors), text])


def _add(table: Table, key: Key, values: list[Any]) -> None:
    if not any(isinstance(value, list) for value in values):
        table[key] = values


def _metrics(outcome: Outcome) -> dict[str, Any]:
    return {
        "sets": {label: measured.plain() for label, measured in outcome.sets.items()},
        "series": {"steps": outcome.steps, "values": outcome.logged},
        "frozen_unchanged": outcome.frozen_unchanged,
        "diverged": {str(seed): where for seed, where in outcome.diverged.items()},
    }
