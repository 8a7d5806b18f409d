"""The loop and its feed: exact resume, frozen parts, divergence, batches as functions of the step."""

import os
import signal

import pytest
import torch
from torch import nn

from provenzoo.datasets.base import Split, Stream
from provenzoo.datasets.gaussian_clusters import GaussianClusters
from provenzoo.draws import derive, generator, seeded
from provenzoo.errors import UsageError, ZooError
from provenzoo.metrics.classification import accuracy, cross_entropy
from provenzoo.models.base import members
from provenzoo.models.mlp import MLP
from provenzoo.models.split import merged_state, split_fused
from provenzoo.models.vit import ViT
from provenzoo.training import feed as feeds
from provenzoo.training import runtime
from provenzoo.training.feed import Feed, make_feed
from provenzoo.training.loop import Result, train
from provenzoo.training.optim import read_optim
from provenzoo.training.replicas import Replicas
from provenzoo.training.state import Divergence, State

SIZES = {"features": 8, "num_classes": 3}


def mlp() -> nn.Module:
    return MLP(**SIZES, hidden=16)


def dropout_net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 3))


def batch_norm_net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def built(make, seed: int = 0) -> nn.Module:
    with seeded(seed, "init"):
        return make()


def clusters(seed: int = 0, **args) -> Split:
    return GaussianClusters(seed=seed, train=100, **SIZES, **args).train


def run(model: nn.Module, steps: int, optim=None, batch: int = 32, **options) -> Result:
    feed = Feed([clusters()], [0], batch)
    return train(Replicas([model], [0]), feed, cross_entropy, read_optim(optim or {}, "optim"), steps, **options)


def stop_after(steps: int):
    """A `stop` that is asked once a step."""
    asked = iter(range(1, steps + 1))
    return lambda: next(asked, steps) == steps


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- resume -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped_at", [1, 17, 20, 39])
@pytest.mark.parametrize(
    ("make", "optim"),
    [
        (mlp, {"schedule": {"name": "cosine", "warmup": 0.1}, "clip": 0.5}),
        (mlp, {"name": "sgd", "lr": 0.05, "momentum": 0.9, "groups": {"head": {"lr": 0.5}}}),
        (dropout_net, {"lr": 0.01}),
        (batch_norm_net, {"name": "adam", "lr": 0.01}),
    ],
)
def test_a_resumed_training_gives_the_bits_of_an_uninterrupted_one(make, optim, stopped_at, tmp_path):
    whole = built(make)
    result = run(whole, 40, optim, log_every=10)

    def keep(state: State) -> None:
        state.to_file(tmp_path / "state")

    first = run(built(make), 40, optim, log_every=10, save=keep, stop=stop_after(stopped_at))
    assert first.stopped
    torch.rand(3)  # whatever else draws in between
    saved = State.from_file(tmp_path / "state")
    assert saved.step == stopped_at
    again = built(make, seed=1)
    resumed = run(again, 40, optim, log_every=10, save=keep, resume=saved)
    assert same(merged_state(again), merged_state(whole))
    assert torch.equal(resumed.train_loss, result.train_loss) and not resumed.stopped
    assert State.from_file(tmp_path / "state").step == 40


def test_saving_often_changes_nothing():
    plain, saved = built(dropout_net), built(dropout_net)
    states: list[State] = []
    run(plain, 30)
    run(saved, 30, save=states.append, save_seconds=0.0)
    assert [state.step for state in states] == list(range(1, 31))
    assert same(merged_state(plain), merged_state(saved))


def test_a_finished_state_trains_and_measures_nothing_more():
    states: list[State] = []
    model = built(mlp)
    run(model, 5, save=states.append)
    measured: list[int] = []
    run(built(mlp, seed=1), 5, resume=states[-1], measure=measured.append)
    assert measured == []


def test_a_split_vit_resumes_under_its_unsplit_names():
    def split_vit() -> nn.Module:
        model = ViT(image_size=8, channels=1, num_classes=3, dim=8, depth=1, heads=2)
        split_fused(model)
        return model

    def vit_run(model: nn.Module, **options) -> Result:
        images = Split(torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3)
        settings = read_optim({"groups": {"attention": {"lr": 0.1}}}, "optim")
        frozen = members(model, "value")
        replicas = Replicas([model], [0])
        return train(replicas, Feed([images], [0], 8), cross_entropy, settings, 8, frozen=frozen, **options)

    whole, again, states = built(split_vit), built(split_vit), []
    vit_run(whole)
    vit_run(built(split_vit), save=states.append, stop=stop_after(5))
    assert "blocks.0.attn.qkv.weight" in states[0].model
    vit_run(again, resume=states[0])
    assert same(merged_state(again), merged_state(whole))


# --- what is measured ---------------------------------------------------------------------------------------


def test_measuring_is_at_the_start_every_so_many_steps_and_the_end_in_eval_mode_without_gradients():
    model, seen = built(dropout_net), []

    def measure(step: int) -> None:
        assert not model.training and not torch.is_grad_enabled()
        seen.append(step)

    run(model, 25, log_every=10, measure=measure)
    assert seen == [0, 10, 20, 25] and model.training


def test_training_learns_the_clusters_and_gives_the_loss_of_every_step():
    model, held_out = built(mlp), GaussianClusters(seed=0, noise=0.5, **SIZES).test
    feed = Feed([clusters(noise=0.5)], [0], 32)
    result = train(Replicas([model], [0]), feed, cross_entropy, read_optim({"lr": 0.02}, "optim"), 100)
    assert result.train_loss.shape == (1, 100) and result.train_loss[0, -10:].mean() < 0.1
    assert accuracy(model(held_out.inputs), held_out.targets) > 0.95


def test_torchs_global_generator_is_left_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(built(dropout_net), 3)
    assert torch.equal(torch.rand(3), expected)


def test_a_model_that_draws_cannot_train_its_seeds_at_once():
    class Noisy(MLP):
        def forward(self, x):
            return super().forward(x + torch.randn_like(x))

    replicas = Replicas([Noisy(**SIZES), Noisy(**SIZES)], [0, 1])
    with pytest.raises(ZooError, match="at once"):
        train(replicas, Feed([clusters()] * 2, [0, 1], 10), cross_entropy, read_optim({}, "optim"), 2)


# --- frozen parts -------------------------------------------------------------------------------------------


def test_frozen_parameters_and_buffers_keep_their_bits_under_momentum_and_decay():
    model = built(batch_norm_net)
    run(model, 5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = [name for name, _ in model.named_parameters() if not name.startswith("3.")]
    run(model, 10, {"name": "sgd", "momentum": 0.9, "weight_decay": 0.1}, frozen=frozen)
    after = model.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"3.weight", "3.bias"}


def test_everything_frozen_is_an_error_before_training():
    model = built(mlp)
    with pytest.raises(ZooError, match="everything is frozen"):
        run(model, 5, frozen=[name for name, _ in model.named_parameters()])


# --- divergence ---------------------------------------------------------------------------------------------


def test_a_replica_that_diverges_is_noted_with_its_step_and_a_parameter_and_stops():
    model, seen = built(mlp), []
    result = run(model, 300, {"name": "sgd", "lr": 1e30}, log_every=100, measure=seen.append)
    [losses] = result.train_loss
    [where] = result.diverged.values()
    assert losses[: where.step].isfinite().all() and not losses[where.step].isfinite()
    assert where.parameter in dict(model.named_parameters())
    assert losses[50:].isnan().all(), "at most 50 steps after"
    assert seen == [0, 100, 200, 300]


def test_an_update_that_breaks_the_parameters_at_the_very_end_is_noted():
    def infinite_slope(outputs, targets):
        return (outputs - outputs.detach()).abs().sqrt().mean()

    replicas = Replicas([built(mlp)], [0])
    result = train(replicas, Feed([clusters()], [0], 32), infinite_slope, read_optim({}, "optim"), 1)
    assert result.train_loss.isfinite().all()
    assert result.diverged == {0: Divergence(1, "body.0.weight")}


def test_a_diverging_replica_leaves_the_others_beside_it_unharmed():
    def beside(*, poisoned: bool) -> tuple[Replicas, Result]:
        splits = [clusters(seed) for seed in range(3)]
        if poisoned:
            inputs = splits[1].inputs.clone()
            inputs[7] = torch.inf
            splits[1] = Split(inputs, splits[1].targets)
        replicas = Replicas([built(mlp, seed) for seed in range(3)], range(3))
        settings = read_optim({"clip": 1.0, "lr": 0.01}, "optim")
        return replicas, train(replicas, Feed(splits, range(3), 32), cross_entropy, settings, 60)

    healthy, _ = beside(poisoned=False)
    partly, result = beside(poisoned=True)
    assert list(result.diverged) == [1] and result.diverged[1].step < 4
    for r in (0, 2):
        assert same(healthy.states()[r], partly.states()[r]) and result.train_loss[r].isfinite().all()


def test_divergence_is_kept_in_the_state(tmp_path):
    state = State(3, {}, {}, torch.zeros(2, 3), {1: Divergence(2, "head.weight")})
    state.to_file(tmp_path / "state")
    assert State.from_file(tmp_path / "state").diverged == state.diverged


# --- the feed -----------------------------------------------------------------------------------------------


def numbered(n: int, **options) -> Split:
    return Split(torch.arange(n, dtype=torch.float32).view(n, 1), torch.arange(n), **options)


def test_an_epoch_goes_through_the_set_once_in_an_order_of_its_own_and_ends_with_what_is_left():
    feed = Feed([numbered(10)], [0], 4)
    epochs = [[feed.batch(3 * epoch + i)[1].clone() for i in range(3)] for epoch in range(2)]
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2] and feed.steps(5) == 15
    orders = [torch.cat(epoch).tolist() for epoch in epochs]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10)) and orders[0] != orders[1]


def test_the_batch_of_a_step_does_not_depend_on_what_was_asked_before(monkeypatch):
    whole = Feed([numbered(50)], [3], 8)
    monkeypatch.setattr(feeds, "CHUNK_BYTES", 100)  # three batches at a time
    chunked = Feed([numbered(50)], [3], 8)
    for step in (20, 3, 4, 0, 13, 6):
        for a, b in zip(whole.batch(step), chunked.batch(step), strict=True):
            assert torch.equal(a, b)


def test_a_batch_as_large_as_the_set_is_the_set():
    feed = Feed([numbered(5)], [0], 64)
    assert feed.steps_per_epoch == 1 and feed.batch(7)[1].tolist() == [0, 1, 2, 3, 4]


def test_inputs_and_targets_keep_together_and_seeds_have_their_own_orders():
    feed = Feed([numbered(12), numbered(12)], [0, 1], 5)
    inputs, targets = feed.batch(1)
    assert inputs.shape == (2, 5, 1) and torch.equal(inputs[..., 0].long(), targets)
    for r in (0, 1):
        assert torch.equal(Feed([numbered(12)], [r], 5).batch(1)[1], targets[r])
    assert not torch.equal(targets[0], targets[1])


def test_augmentation_is_drawn_by_seed_and_step():
    def jitter(inputs: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
        return inputs + torch.rand(inputs.shape, generator=draws)

    feed = Feed([numbered(10, augment=jitter)], [4], 5)
    inputs, targets = feed.batch(3)
    expected = torch.rand(5, 1, generator=torch.Generator().manual_seed(derive(4, "augment", 3)))
    assert torch.equal(inputs, targets.view(5, 1) + expected)
    pair = Feed([numbered(10, augment=jitter)] * 2, [2, 4], 5)
    assert torch.equal(pair.batch(3)[0][1], inputs)


# --- the machine --------------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runtime.resolve_device("auto") == torch.device("cpu")
    with pytest.raises(UsageError, match=r"no cuda.*device=cpu"):
        runtime.resolve_device("cuda")
    with pytest.raises(UsageError, match="'cpu'"):
        runtime.resolve_device("cpuu")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_a_flag_and_the_handlers_come_back(number):
    before = signal.getsignal(number)
    with runtime.Stop() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested and stop() and stop.signal == number
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_ends_at_once():
    with pytest.raises(KeyboardInterrupt), runtime.Stop():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_every_is_true_once_in_so_many_seconds():
    times = iter([0, 5, 10, 10, 15, 20, 20, 21])  # the time is read again when counting starts anew
    every = runtime.Every(10, clock=lambda: next(times))
    assert [every() for _ in range(5)] == [False, True, False, True, False]


def test_the_bar_says_nothing_where_standard_error_is_no_terminal(capsys):
    run(built(mlp), 5, progress=runtime.Progress("pretrain", 5))
    assert capsys.readouterr().err == ""


def drawn(seed: int) -> Stream:
    def draw(step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(size, 3, generator=generator(seed, "fresh", step))
        return inputs, inputs.sum(-1)

    return Stream(draw)


def test_a_stream_gives_each_step_its_own_batch_and_any_step_again() -> None:
    feed = make_feed([drawn(0), drawn(1)], [0, 1], 5, dtype=torch.float64)
    inputs, targets = feed.batch(7)
    assert inputs.shape == (2, 5, 3) and targets.shape == (2, 5)
    assert inputs.dtype == targets.dtype == torch.float64
    assert not torch.equal(inputs, feed.batch(8)[0]) and torch.equal(inputs, feed.batch(7)[0])
    alone, _ = make_feed([drawn(1)], [1], 5, dtype=torch.float64).batch(7)
    assert torch.equal(inputs[1], alone)


def test_a_stream_has_no_epochs() -> None:
    with pytest.raises(ZooError, match="write `steps`"):
        make_feed([drawn(0)], [0], 5).steps(2)
