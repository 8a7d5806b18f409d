"""Interrupted and damaged runs, and a teacher that an earlier stage trained: what is run again is the same to the bit."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import (
    IMAGES,
    RECIPE,
    SHORT,
    assert_same_run,
    copied,
    execute,
    in_child,
    killed,
    recipe,
    touched,
    weights,
)

import provenzoo
from provenzoo import registry
from provenzoo.datasets.base import Split, SplitName
from provenzoo.datasets.gaussian_clusters import GaussianClusters
from provenzoo.errors import ZooError
from provenzoo.fetch import Checkpoint
from provenzoo.plain import dump_yaml, read_json

pytestmark = pytest.mark.usefixtures("no_report")

# --- interrupted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "during"), [(2, False), (11, False), (24, True), (44, False), (50, True), (63, False), (70, True)]
)
def test_killed_at_any_moment_and_run_again_the_run_is_that_of_an_uninterrupted_one(
    reference: Path, tmp_path: Path, count: int, during: bool
) -> None:
    file, run = recipe(tmp_path), tmp_path / "run"
    assert killed(file, run, count, during=during) == -signal.SIGKILL
    assert provenzoo.run(file, out=run).holds
    assert_same_run(run, reference)


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "vanilla ViT, attention frozen, paths dropped": {
        "train": SHORT | {"model": {"name": "vit-mini", "drop_path": 0.3}, "data": IMAGES},
        "tune": SHORT | {"freeze": ["attention"], "optim": {"name": "sgd", "momentum": 0.9, "weight_decay": 0.1}},
        "judge": {"sets": {"in": {}}},
    },
    "BatchNorm, augmented": {
        "train": SHORT | {"model": {"name": "small-cnn"}, "data": IMAGES | {"augment": {"flip": True, "crop": 2}}},
        "tune": SHORT | {"freeze": ["features"]},
        "judge": {"sets": {"in": {}}},
    },
    "seeds one after another": {
        "train": {"model": {"name": "mlp", "hidden": 700}, "batch": 2000, "steps": 5},
        "tune": {"batch": 2000, "steps": 5},
    },
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_draws_or_keeps_statistics_as_it_trains_resumes_exactly_too(
    tmp_path: Path, changes: dict[str, dict[str, Any]]
) -> None:
    file, run = recipe(tmp_path, **changes), tmp_path / "run"
    whole = provenzoo.run(file, out=tmp_path / "whole")
    for count in (11, 19):  # in `train`, then in `tune`
        assert killed(file, run, count) == -signal.SIGKILL
    assert provenzoo.run(file, out=run).record["claims"] == whole.claims
    assert_same_run(run, whole.path)


def test_while_it_runs_run_json_does_not_tell_of_an_earlier_run(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    assert killed(recipe(tmp_path, tune={"steps": 21}), run, 6) == -signal.SIGKILL
    record = read_json(run / "run.json")
    assert record["status"] == "running" and record["claims"] == []
    assert [stage["status"] for stage in record["stages"]] == ["complete", "waiting", "waiting"]
    assert record["finished"] is None


def test_killed_in_its_last_stage_run_json_tells_of_those_before(reference: Path, tmp_path: Path) -> None:
    from provenzoo.pipeline.folder import RunFolder

    file, run, start = recipe(tmp_path), tmp_path / "run", RunFolder.start

    def killed_at_judge(self: RunFolder, point: Any) -> None:
        start(self, point)
        if point.name == "judge":
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        RunFolder.start = killed_at_judge
        provenzoo.run(file, out=run)

    assert in_child(work) == -signal.SIGKILL
    record, whole = read_json(run / "run.json"), read_json(reference / "run.json")
    assert record["status"] == "running" and record["finished"] is None and whole["finished"]
    assert [stage["status"] for stage in record["stages"]] == ["complete", "complete", "waiting"]
    assert record["metrics"] == {where: whole["metrics"][where] for where in ("train", "tune")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    file, run = recipe(tmp_path, train={"steps": 300_000, "log_every": 300_000}), tmp_path / "run"
    code, errors = signalled(file, run, number, run / "stages/train/stage.json")
    assert code == 128 + number and "Traceback" not in errors and "run again to go on" in errors
    assert read_json(run / "run.json")["status"] == "interrupted"
    assert list((run / "stages/train").glob(".*.state")), "the state was saved"


def test_an_evaluation_stops_too(tmp_path: Path) -> None:
    sets = {f"set-{i}": {"data": {"test": 100_000, "noise": 1 + i / 100}} for i in range(100)}
    file, run = recipe(tmp_path, judge={"sets": sets}), tmp_path / "run"
    code, _ = signalled(file, run, signal.SIGTERM, run / "stages/judge/stage.json")
    assert code == 128 + signal.SIGTERM
    statuses = [stage["status"] for stage in read_json(run / "run.json")["stages"]]
    assert statuses == ["complete", "complete", "interrupted"]


def signalled(file: Path, out: Path, number: int, awaited: Path) -> tuple[int, str]:
    """Exit code and messages of a run that gets a signal a moment after a file is there."""
    errors = out.with_name("errors")
    if (child := os.fork()) == 0:
        os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        os._exit(execute("run", file, "--out", out))
    deadline = time.monotonic() + 60
    while not awaited.is_file() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errors.read_text()


# --- damage -------------------------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train/stage.json", cut),
        ("train/stage.json", lambda file: file.write_text("[]")),
        ("train/model.safetensors", cut),
        ("train/model.safetensors", flip),
        ("tune/config.json", Path.unlink),
        ("tune/series.safetensors", Path.unlink),
        ("judge/metrics.json", lambda file: file.write_text(file.read_text().replace("0.", "0.9"))),
    ],
)
def test_a_stage_with_a_damaged_file_is_done_again(
    reference: Path, tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    run = copied(reference, tmp_path)
    damage(run / "stages" / name)
    before = touched(run)
    provenzoo.run(recipe(tmp_path), out=run)
    assert [stage for stage, time in touched(run).items() if time != before[stage]] == [name.partition("/")[0]]
    assert_same_run(run, reference)


@pytest.mark.parametrize("damage", [cut, flip, lambda file: file.write_bytes(b"")])
def test_a_damaged_state_is_told_and_the_stage_starts_anew(
    reference: Path, tmp_path: Path, damage: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = recipe(tmp_path), tmp_path / "run"
    assert killed(file, run, 20) == -signal.SIGKILL
    [state] = (run / "stages/train").glob(".*.state")
    damage(state)
    provenzoo.run(file, out=run)
    assert f"{state}: damaged, so this part of train starts anew" in capsys.readouterr().err
    assert_same_run(run, reference)


# --- a checkpoint inside a component ------------------------------------------------------------------------------


class Teacher:
    """The first layer of a trained mlp."""

    def __init__(self, *, checkpoint: Checkpoint, seed: int = 0, layer: str = "body.0") -> None:
        self.weight = checkpoint.state(seed)[f"{layer}.weight"]


class Taught(GaussianClusters):
    """Clusters whose labels are a teacher's."""

    def __init__(self, *, teacher: Teacher, seed: int = 0, noise: float = 2.0) -> None:
        super().__init__(seed=seed, train=100, test=50, noise=noise)
        self.teacher = teacher

    def prepare(self, split: SplitName) -> Split:
        made = super().prepare(split)
        return Split(made.inputs, (made.inputs @ self.teacher.weight.T).argmax(-1) % 10)


TAUGHT: dict[str, Any] = {
    "recipe": "taught",
    "seeds": 2,
    "device": "cpu",
    "stages": {
        "teacher": RECIPE["stages"]["train"] | SHORT,
        "student": RECIPE["stages"]["train"]
        | SHORT
        | {"data": {"name": "toy-taught", "teacher": {"name": "toy-layer", "from": "teacher", "layer": "body.0"}}},
        "judge": {
            "stage": "evaluate",
            "from": "student",
            "metrics": ["accuracy"],
            "sets": {"in": {}, "noisy": {"data": {"noise": 5.0}}},
        },
    },
}


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    provenzoo.register("teachers", "toy-layer")(Teacher)
    provenzoo.register("datasets", "toy-taught")(Taught)


@pytest.mark.usefixtures("taught")
def test_data_with_a_trained_teacher_runs_resumes_and_verifies(tmp_path: Path) -> None:
    file, run = tmp_path / "taught.yaml", tmp_path / "run"
    file.write_text(dump_yaml(TAUGHT))
    whole = provenzoo.run(file, out=tmp_path / "whole").path
    assert killed(file, run, 20) == -signal.SIGKILL
    assert list((run / "stages/student").glob(".*.state")), "killed as the student trained"
    provenzoo.run(file, out=run)
    assert_same_run(run, whole)
    teacher = read_json(run / "stages/student/config.json")["data"]["teacher"]
    assert teacher == {"name": "toy-layer", "from": "teacher", "layer": "body.0"}
    assert provenzoo.verify(run).holds and provenzoo.verify(run / "stages/judge").holds

    abroad = {"judge": TAUGHT["stages"]["judge"] | {"from": f"local:{run / 'stages' / 'student'}"}}
    with pytest.raises(ZooError, match=r"data\.teacher\.from: 'teacher' is a stage of the run that local:"):
        provenzoo.run(TAUGHT | {"stages": abroad}, out=tmp_path / "abroad")
    abroad["judge"] |= {"data": {"teacher": {"from": f"local:{run / 'stages' / 'teacher'}"}}}
    judged = provenzoo.run(TAUGHT | {"stages": abroad}, out=tmp_path / "abroad")
    assert judged.metrics["judge.in"] == read_json(run / "run.json")["metrics"]["judge.in"]


@pytest.mark.usefixtures("taught")
def test_outside_of_a_run_a_teacher_comes_from_a_folder(reference: Path) -> None:
    teacher = {"name": "toy-layer", "from": f"local:{reference / 'stages' / 'train'}"}
    data: Any = provenzoo.create_dataset("toy-taught", seed=1, teacher=teacher)
    assert torch.equal(data.teacher.weight, weights(reference)["body.0.weight"][1])
