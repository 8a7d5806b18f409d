"""Trackers: what a run tells TensorBoard, trackio and Weights & Biases as it goes on, read back from what they keep."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_run import killed, recipe

import provenzoo
from provenzoo.errors import UsageError
from provenzoo.pipeline import trackers
from provenzoo.plain import dump_yaml, read_json

pytestmark = pytest.mark.usefixtures("no_report")


def tracked(folder: Path, tracker: str) -> Path:
    """The small recipe's file, its trainings followed by a tracker."""
    file = recipe(folder)
    file.write_text(file.read_text() + dump_yaml({"trackers": [tracker]}))
    return file


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and value of every scalar in a folder of TensorBoard events, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def series(run: Path, stage: str, metric: str, seed: int) -> list[tuple[int, Any]]:
    data = read_json(run / "stages" / stage / "metrics.json")["series"]
    return [(step, pytest.approx(row[seed])) for step, row in zip(data["steps"], data["values"][metric], strict=True)]


def test_tensorboard_has_what_the_run_folder_has(tmp_path: Path) -> None:
    run = provenzoo.run(tracked(tmp_path, "tensorboard"), out=tmp_path / "run").path
    for seed in (0, 1):
        seen = scalars(run / "tensorboard" / "train" / f"seed-{seed}")
        assert seen.keys() == {"loss", "accuracy", "train-loss", "learning-rate"}
        for metric in ("loss", "accuracy"):
            assert seen[metric] == series(run, "train", metric, seed)
        (_, warm), (_, half), (_, last) = seen["learning-rate"]
        assert 0 < last < warm < half < 0.01
        assert [step for step, _ in seen["train-loss"]] == [20, 40]
    assert scalars(run / "tensorboard" / "tune" / "seed-1")["accuracy"][-1][0] == 20
    provenzoo.run(tmp_path / "small.yaml", out=run, fresh=True)
    assert len(list((run / "tensorboard" / "train" / "seed-0").iterdir())) == 1, "the old events are gone"


def test_a_resumed_run_goes_on_and_shows_each_step_once(tmp_path: Path) -> None:
    file, run = tracked(tmp_path, "tensorboard"), tmp_path / "run"
    assert killed(file, run, 30, during=False) == -signal.SIGKILL
    time.sleep(1.1)  # TensorBoard reads files in the order of the second in their names
    provenzoo.run(file, out=run)
    seen = scalars(run / "tensorboard" / "train" / "seed-0")
    assert [step for step, _ in seen["accuracy"]] == [0, 20, 40]
    assert seen["accuracy"][-1] == series(run, "train", "accuracy", 0)[-1]


def test_a_tracker_changes_no_number_and_no_id(tmp_path: Path, reference: Path) -> None:
    run = provenzoo.run(tracked(tmp_path, "tensorboard"), out=tmp_path / "run").path
    assert read_json(run / "run.json")["id"] == read_json(reference / "run.json")["id"]
    for stage in ("train", "tune"):
        assert read_json(run / "stages" / stage / "metrics.json") == read_json(
            reference / "stages" / stage / "metrics.json"
        )


def apart(file: Path, run: Path, **environment: str) -> None:
    """Run a recipe in a process of its own, since trackers read the environment once."""
    command = [sys.executable, "-m", "provenzoo", "run", str(file), "--out", str(run)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_trackio_keeps_each_seed_under_the_recipes_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    apart(tracked(tmp_path, "trackio"), run, TRACKIO_DIR=str(tmp_path / "trackio"))
    [database] = (tmp_path / "trackio").glob("small*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select distinct run_name, step from metrics order by 1, 2").fetchall()
    assert ("train seed 0", 40) in rows and ("tune seed 1", 20) in rows


def test_wandb_keeps_a_run_a_seed_offline(tmp_path: Path) -> None:
    run = tmp_path / "run"
    apart(tracked(tmp_path, "wandb"), run, WANDB_MODE="offline", WANDB_SILENT="true")
    names = {path.name.rsplit("-", 1)[-1] for path in (run / "wandb").glob("offline-run-*")}
    assert len(list((run / "wandb").glob("offline-run-*"))) == 4 and names == {"0", "1"}
    assert all(list(path.glob("*.wandb")) for path in (run / "wandb").glob("offline-run-*"))


def test_a_tracker_that_is_not_installed_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"wandb needs accelerate and wandb, .* pip install 'provenzoo\[wandb\]'"):
        provenzoo.run(tracked(tmp_path, "wandb"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
