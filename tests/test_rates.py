"""Learning rates of a grid that train at once: each is what it is alone, killed, or beside one that diverges."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import RECIPE, assert_same_run, killed, recipe, weights

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.plain import dump_yaml, read_json
from provenzoo.stages import train
from provenzoo.training.optim import read_optim

pytestmark = pytest.mark.usefixtures("no_report")

SGD = {"name": "sgd", "momentum": 0.9, "clip": 1.0, "schedule": {"name": "cosine", "warmup": 0.1}}


def sweep(folder: Path, rates: list[float], optim: dict[str, Any] = SGD) -> Path:
    """The small recipe's first stage at several learning rates, as a file."""
    stage = RECIPE["stages"]["train"] | {"optim": optim, "grid": {"optim.lr": rates}}
    file = folder / "rates.yaml"
    file.write_text(dump_yaml({"recipe": "rates", "seeds": 2, "device": "cpu", "stages": {"train": stage}}))
    return file


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of replicas of every training loop that a test runs."""
    seen: list[int] = []
    original = train.train_loop

    def counted(replicas: Any, *rest: Any, **more: Any) -> Any:
        seen.append(len(replicas))
        return original(replicas, *rest, **more)

    monkeypatch.setattr(train, "train_loop", counted)
    return seen


def test_rates_train_at_once_and_each_is_as_it_is_alone(tmp_path: Path, loops: list[int]) -> None:
    run = provenzoo.run(sweep(tmp_path, [0.3, 0.01]), out=tmp_path / "run")
    assert loops == [4]
    for rate in (0.3, 0.01):
        alone = provenzoo.run(recipe(tmp_path, train={"optim": SGD | {"lr": rate}}), out=tmp_path / str(rate))
        mine, theirs = weights(run.path, f"train[optim.lr={rate}]"), weights(alone.path)
        for name, tensor in theirs.items():
            torch.testing.assert_close(mine[name], tensor, rtol=1e-4, atol=1e-6)
        numbers = [
            found.metrics[name]["accuracy"] for found, name in ((run, f"train[optim.lr={rate}]"), (alone, "train"))
        ]
        assert numbers[0] == numbers[1]
    assert provenzoo.verify(run.path).holds


@pytest.mark.parametrize("count", [5, 20, 47])
def test_killed_and_run_again_they_go_on_as_if_nothing_had_been(tmp_path: Path, count: int) -> None:
    file = sweep(tmp_path, [0.3, 0.01])
    whole = provenzoo.run(file, out=tmp_path / "whole")
    assert killed(file, tmp_path / "run", count) == -signal.SIGKILL
    provenzoo.run(file, out=tmp_path / "run")
    assert_same_run(tmp_path / "run", whole.path)


def test_a_rate_that_diverges_leaves_the_others_as_they_are_and_is_named(tmp_path: Path) -> None:
    file = sweep(tmp_path, [0.1, 1e30, 0.01], {"name": "sgd"})
    with pytest.raises(ZooError, match=r"^train\[optim.lr=1e\+30\]: every seed diverged: seed 0 at step \d+"):
        provenzoo.run(file, out=tmp_path / "run")
    entries = {entry["name"]: entry["status"] for entry in read_json(tmp_path / "run/run.json")["stages"]}
    assert list(entries.values()) == ["complete", "failed", "complete"]
    alone = provenzoo.run(sweep(tmp_path, [0.1, 0.01], {"name": "sgd"}), out=tmp_path / "alone")
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run", "train[optim.lr=0.01]").values())
    for name, tensor in weights(alone.path, "train[optim.lr=0.01]").items():
        torch.testing.assert_close(weights(tmp_path / "run", "train[optim.lr=0.01]")[name], tensor)


@pytest.mark.parametrize(
    "optim",
    [{"name": "adamw"}, {"name": "sgd", "weight_decay": 0.1}, {"name": "sgd", "groups": {"head": {"lr": 0.5}}}],
    ids=["adaptive", "decay", "a group's own rate"],
)
def test_rates_that_are_no_factor_of_a_step_train_in_turn(tmp_path: Path, loops: list[int], optim: Any) -> None:
    assert not read_optim(optim, "optim").rate_is_a_factor
    provenzoo.run(sweep(tmp_path, [0.01, 0.001], optim), out=tmp_path / "run")
    assert loops == [2, 2]
