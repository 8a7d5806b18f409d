"""`accumulate`: micro-batches add up to the batch that they are split from, or are refused."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import IMAGES, RECIPE, assert_same_run, killed

import provenzoo
from provenzoo.datasets.base import Split
from provenzoo.errors import ZooError
from provenzoo.metrics.measure import loss_function
from provenzoo.models.mlp import MLP
from provenzoo.plain import dump_yaml, merge, read_json
from provenzoo.training.feed import AnyFeed, Feed, Repeated
from provenzoo.training.loop import Result, train
from provenzoo.training.optim import read_optim
from provenzoo.training.replicas import Replicas


def split(seed: int) -> Split:
    """46 examples, so that batches of 16 leave one of 14."""
    draws = torch.Generator().manual_seed(seed)
    return Split(torch.randn(46, 5, generator=draws, dtype=torch.float64), torch.randint(3, (46,), generator=draws))


def trained(seeds: list[int], accumulate: int, times: int = 1, loss: str = "cross-entropy") -> tuple[Replicas, Result]:
    """Small networks after two epochs of clipped SGD, in float64."""
    models = []
    for seed in seeds * times:
        torch.manual_seed(seed)
        models.append(MLP(features=5, num_classes=3, hidden=8).double())
    replicas = Replicas(models, seeds * times)
    feed: AnyFeed = Feed([split(seed) for seed in seeds], seeds, 16, dtype=torch.float64)
    if times > 1:
        feed = Repeated(feed, times)
    optim = read_optim({"name": "sgd", "lr": 0.5, "momentum": 0.9, "clip": 0.5}, "optim")
    return replicas, train(replicas, feed, loss_function(loss), optim, 6, accumulate=accumulate)


def assert_alike(mine: tuple[Replicas, Result], theirs: tuple[Replicas, Result]) -> None:
    torch.testing.assert_close(mine[1].train_loss, theirs[1].train_loss, rtol=1e-6, atol=0)
    for a, b in zip(mine[0].module.parameters(), theirs[0].module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("k", [2, 3, 5, 16])
def test_a_training_in_micro_batches_is_that_of_whole_batches(k: int) -> None:
    assert_alike(trained([0], k), trained([0], 1))


@pytest.mark.parametrize(("seeds", "times"), [([0, 1], 1), ([0, 1], 2)])
def test_so_it_is_of_replicas_that_train_at_once(seeds: list[int], times: int) -> None:
    assert_alike(trained(seeds, 3, times), trained(seeds, 1, times))


def test_a_loss_that_is_no_mean_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def median(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.square().sum(-1).quantile(0.5, -1)

    monkeypatch.setitem(globals(), "loss_function", lambda name: median)
    trained([0], 1)
    with pytest.raises(ZooError, match="no mean over a batch"):
        trained([0], 4)


def recipe(folder: Path, **train: Any) -> Path:
    """The small recipe with other settings of its first stage, as a file."""
    file = folder / "small.yaml"
    file.write_text(dump_yaml(merge(RECIPE, {"stages": {"train": train}})))
    return file


@pytest.mark.usefixtures("no_report")
def test_a_killed_training_with_dropped_paths_and_augmented_images_goes_on_to_the_bit(tmp_path: Path) -> None:
    model = {"name": "vit-mini", "drop_path": 0.3}
    images = IMAGES | {"augment": {"flip": True, "crop": 2}}
    base = {key: value for key, value in RECIPE.items() if key != "claims"}
    base["stages"] = {
        "train": RECIPE["stages"]["train"]
        | {"model": model, "data": images, "steps": 5, "batch": 10, "log_every": 2, "accumulate": 3}
    }
    file = tmp_path / "small.yaml"
    file.write_text(dump_yaml(base))
    whole = provenzoo.run(file, out=tmp_path / "whole")
    assert killed(file, tmp_path / "run", 7) == -signal.SIGKILL
    provenzoo.run(file, out=tmp_path / "run")
    assert_same_run(tmp_path / "run", whole.path)


@pytest.mark.usefixtures("no_report")
def test_without_it_a_run_has_the_id_that_it_had(tmp_path: Path, reference: Path) -> None:
    run = provenzoo.run(recipe(tmp_path, accumulate=2), out=tmp_path / "run").path
    ours, theirs = (read_json(each / "run.json") for each in (run, reference))
    assert ours["id"] != theirs["id"]
    assert ours["metrics"]["train"]["loss"]["mean"] == pytest.approx(
        theirs["metrics"]["train"]["loss"]["mean"], rel=1e-4
    )


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({"accumulate": 33}, r"`accumulate` \(33\) is more than `batch` \(32\)"),
        ({"accumulate": 0}, r"stages\.train\.accumulate"),
        (
            {"accumulate": 2, "population": True, "batch": 64},
            r"stages\.train\.accumulate: `population: true` has no batches",
        ),
    ],
)
def test_what_cannot_be_split_is_told_before_training(tmp_path: Path, train: dict[str, Any], says: str) -> None:
    with pytest.raises(ZooError, match=says):
        provenzoo.run(recipe(tmp_path, **train), out=tmp_path / "run")
