"""`ema`: the average of the weights after each step is what is measured and saved, and goes on to the bit."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import IMAGES, RECIPE, SHORT, assert_same_run, killed, weights
from torch import Tensor, nn

import provenzoo
from provenzoo.datasets.base import Split
from provenzoo.errors import ZooError
from provenzoo.metrics.classification import cross_entropy
from provenzoo.models.base import members
from provenzoo.models.mlp import MLP
from provenzoo.models.split import merged_state, split_fused
from provenzoo.models.vit import ViT
from provenzoo.plain import dump_yaml, merge, read_json
from provenzoo.training.execution import Execution
from provenzoo.training.feed import AnyFeed, Feed
from provenzoo.training.loop import Result, train
from provenzoo.training.optim import read_optim
from provenzoo.training.replicas import Replicas
from provenzoo.training.state import State

DECAY, STEPS = 0.8, 12


def split(seed: int = 0) -> Split:
    draws = torch.Generator().manual_seed(seed)
    targets = torch.randint(3, (40,), generator=draws)
    return Split(torch.randn(40, 8, generator=draws) + nn.functional.one_hot(targets, 8), targets)


def photos() -> Split:
    return Split(torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3)


def mlp(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MLP(features=8, num_classes=3, hidden=8)


def batch_norm_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def split_vit(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = ViT(image_size=8, channels=1, num_classes=3, dim=8, depth=1, heads=2)
    split_fused(model)
    return model


def run(model: nn.Module, ema: float | None, data: Split | None = None, **options: Any) -> Result:
    return run_all(Replicas([model], [0]), Feed([data or split()], [0], 16), ema, **options)


def run_all(replicas: Replicas, feed: AnyFeed, ema: float | None, steps: int = STEPS, **options: Any) -> Result:
    optim = read_optim({"lr": 0.02, "schedule": "cosine", "clip": 0.5}, "optim")
    return train(replicas, feed, cross_entropy, optim, steps, execution=Execution(ema=ema), **options)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in merged_state(model).items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def by_hand(trace: list[dict[str, Tensor]], names: set[str]) -> list[dict[str, Tensor]]:
    """The averages of a trace of states, in float64; what is not among `names` is as in the trace."""
    found = [trace[0]]
    for after in trace[1:]:
        average = {name: DECAY * found[-1][name].double() + (1 - DECAY) * after[name].double() for name in names}
        found.append({**after, **average})
    return found


MODELS = {"mlp": (mlp, split), "BatchNorm and dropout": (batch_norm_net, split), "a split ViT": (split_vit, photos)}


# --- what it is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS)
def test_what_is_measured_and_left_is_the_average_of_the_weights_that_train_without_it(make: Any, data: Any) -> None:
    plain, trace, averaged, seen = make(), [], make(), []
    result = run(plain, None, data(), log_every=1, measure=lambda _: trace.append(state(plain)))
    same_losses = run(averaged, DECAY, data(), log_every=1, measure=lambda _: seen.append(state(averaged)))
    assert torch.equal(same_losses.train_loss, result.train_loss), "what trains is not touched"
    learnt = set(merged_state(plain)) - {name for name, _ in plain.named_buffers()}
    expected = by_hand(trace, learnt)
    assert len(seen) == STEPS + 1 and not same(seen[-1], trace[-1])
    for mine, theirs in zip([*seen, state(averaged)], [*expected, expected[-1]], strict=True):
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor.double(), theirs[name].double(), rtol=0, atol=1e-6)


def test_frozen_parts_have_no_average_and_stay_to_the_bit() -> None:
    model = split_vit()
    frozen = members(model, "value")
    before = {name: dict(model.named_parameters())[name].clone() for name in frozen}
    run(model, DECAY, photos(), frozen=frozen)
    after = dict(model.named_parameters())
    assert frozen and all(torch.equal(after[name], before[name]) for name in frozen)


def test_replicas_that_train_at_once_are_averaged_each_as_alone() -> None:
    replicas = Replicas([mlp(0), mlp(1)], [0, 1])
    run_all(replicas, Feed([split(0), split(1)], [0, 1], 16), DECAY)
    for seed, stacked in enumerate(replicas.states()):
        alone = mlp(seed)
        run_all(Replicas([alone], [seed]), Feed([split(seed)], [seed], 16), DECAY)
        for name, tensor in merged_state(alone).items():
            torch.testing.assert_close(stacked[name], tensor, rtol=1e-4, atol=1e-6)


def test_of_a_replica_that_diverges_the_others_are_unharmed() -> None:
    data = [split(0), Split(split(1).inputs * torch.nan, split(1).targets)]
    replicas = Replicas([mlp(0), mlp(1)], [0, 1])
    result = run_all(replicas, Feed(data, [0, 1], 16), DECAY)
    healthy, broken = replicas.states()
    assert set(result.diverged) == {1}
    assert all(tensor.isfinite().all() for tensor in healthy.values())
    assert not all(tensor.isfinite().all() for tensor in broken.values())


# --- resumed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped_at", [1, 6, 11])
@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS)
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(
    make: Any, data: Any, stopped_at: int, tmp_path: Path
) -> None:
    whole, again = make(), make(1)
    frozen = members(whole, "value") if make is split_vit else []
    ends: list[State] = []
    run(whole, DECAY, data(), save=ends.append, frozen=frozen)
    asked = iter(range(1, stopped_at + 1))
    stop = {"save": lambda s: s.to_file(tmp_path / "state"), "stop": lambda: next(asked) == stopped_at}
    run(make(), DECAY, data(), frozen=frozen, **stop)
    run(again, DECAY, data(), resume=State.from_file(tmp_path / "state"), save=ends.append, frozen=frozen)
    assert same(merged_state(again), merged_state(whole))
    assert same(ends[1].model, ends[0].model) and same(ends[1].average, ends[0].average)
    assert same(ends[0].average, merged_state(whole)) and not same(ends[0].model, ends[0].average)


def test_a_finished_state_leaves_the_averages() -> None:
    whole, again, ends = mlp(), mlp(1), []
    run(whole, DECAY, save=ends.append)
    run(again, DECAY, resume=ends[-1])
    assert same(merged_state(again), merged_state(whole))


def test_saving_often_changes_nothing() -> None:
    plain, saved, states = batch_norm_net(), batch_norm_net(), []
    run(plain, DECAY)
    run(saved, DECAY, save=states.append, save_seconds=0.0)
    assert len(states) == STEPS and same(merged_state(plain), merged_state(saved))


# --- runs ---------------------------------------------------------------------------------------------------------


def recipe(folder: Path, **stages: dict[str, Any]) -> Path:
    file = folder / "small.yaml"
    file.write_text(dump_yaml(merge(RECIPE, {"stages": stages})))
    return file


VIT = {"model": {"name": "vit-mini"}, "data": IMAGES, **SHORT}
VARIANTS = {
    "seeds at once": {"train": {"ema": 0.9}, "tune": {"ema": 0.5}},
    "a ViT whose attention is frozen": {
        "train": VIT | {"ema": 0.9, "precision": "bf16"},
        "tune": SHORT | {"ema": 0.5, "freeze": ["attention"]},
        "judge": {"sets": {"in": {}}},
    },
}


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("stages", VARIANTS.values(), ids=VARIANTS)
def test_a_killed_run_goes_on_to_the_bit_and_verifies(tmp_path: Path, stages: dict[str, Any]) -> None:
    data = {key: value for key, value in RECIPE.items() if key != "claims"}
    data["stages"] = {name: RECIPE["stages"][name] | stages.get(name, {}) for name in RECIPE["stages"]}
    file, run = tmp_path / "small.yaml", tmp_path / "run"
    file.write_text(dump_yaml(data))
    whole = provenzoo.run(file, out=tmp_path / "whole")
    for count in (11, 19):
        assert killed(file, run, count) == -signal.SIGKILL
    provenzoo.run(file, out=run)
    assert_same_run(run, whole.path)
    assert provenzoo.verify(run).holds
    assert read_json(run / "stages/train/config.json")["ema"] == 0.9


def test_the_checkpoint_is_the_average_and_the_losses_are_the_weights_own(tmp_path: Path, reference: Path) -> None:
    run = provenzoo.run(recipe(tmp_path, train={"ema": 0.99996}), ["publish=train"], out=tmp_path / "run").path
    mine, theirs = weights(run), weights(reference)
    assert mine.keys() == theirs.keys() and not same(mine, theirs)
    losses = [provenzoo.checkpoint.load(each / "stages/train/series.safetensors")[0] for each in (run, reference)]
    assert torch.equal(losses[0]["train-loss"], losses[1]["train-loss"])
    assert "| weights are | a moving average with decay 0.99996 |" in (run / "README.md").read_text()


@pytest.mark.parametrize("decay", [0, 1, 1.5, -0.1, True, "0.9"])
def test_a_decay_that_is_none_is_told(tmp_path: Path, decay: Any) -> None:
    with pytest.raises(ZooError, match=r"stages\.train\.ema"):
        provenzoo.run(recipe(tmp_path, train={"ema": decay}), out=tmp_path / "run")
