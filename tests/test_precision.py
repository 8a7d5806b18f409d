"""`precision`: lower in the passes alone, resumed to the bit, and refused where it cannot be had."""

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import IMAGES, RECIPE, assert_same_run, killed
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import provenzoo
from provenzoo.datasets.base import Split
from provenzoo.errors import UsageError, ZooError
from provenzoo.metrics.classification import cross_entropy
from provenzoo.models.mlp import MLP
from provenzoo.models.split import merged_state
from provenzoo.plain import dump_yaml, merge, read_json
from provenzoo.training import precision
from provenzoo.training.execution import Execution
from provenzoo.training.feed import Feed
from provenzoo.training.loop import Result, train
from provenzoo.training.optim import read_optim
from provenzoo.training.precision import PrecisionName
from provenzoo.training.replicas import Replicas
from provenzoo.training.state import State

ADAM = {"lr": 0.02, "schedule": {"name": "cosine", "warmup": 0.1}, "clip": 0.5}
SGD = {"name": "sgd", "lr": 0.2, "momentum": 0.9}


def clusters() -> Split:
    draws = torch.Generator().manual_seed(0)
    targets = torch.randint(3, (50,), generator=draws)
    return Split(torch.randn(50, 8, generator=draws) + 2 * nn.functional.one_hot(targets, 8), targets)


def built(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def run(model: nn.Module, name: PrecisionName, optim: dict[str, Any] = ADAM, loss: Any = cross_entropy, **options: Any):
    """Four epochs of four batches, the last of them short."""
    feed = Feed([clusters()], [0], 16)
    execution = Execution(precision=name)
    return train(Replicas([model], [0]), feed, loss, read_optim(optim, "optim"), 16, execution=execution, **options)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def rates() -> Iterator[list[float]]:
    """The learning rate of every step that an optimiser takes."""
    seen: list[float] = []
    hook = register_optimizer_step_pre_hook(lambda optimiser, *_: seen.append(optimiser.param_groups[0]["lr"]))
    yield seen
    hook.remove()


# --- what is lower, and what is not -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_products_of_a_step_are_lower_and_its_outputs_weights_and_measurements_are_not(
    name: PrecisionName, dtype: torch.dtype
) -> None:
    model, seen = built(), []
    model[0].register_forward_hook(lambda module, _, out: seen.append((module.training, out.dtype)))
    outputs: list[torch.dtype] = []

    def loss(out: Tensor, targets: Tensor) -> Tensor:
        outputs.append(out.dtype)
        return cross_entropy(out, targets)

    result = run(model, name, loss=loss, measure=lambda _: model(torch.ones(1, 8)))
    assert set(seen) == {(True, dtype), (False, torch.float32)}
    assert set(outputs) == {result.train_loss.dtype, torch.float32} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_its_training_is_near_that_of_float32_and_another(name: PrecisionName) -> None:
    models = {each: built() for each in ("float32", name)}
    losses = {each: run(model, each).train_loss for each, model in models.items()}  # pyright: ignore[reportArgumentType]
    assert not torch.equal(losses["float32"], losses[name])
    torch.testing.assert_close(losses[name], losses["float32"], rtol=0.05, atol=0.02)


def test_float32_is_the_training_that_it_was() -> None:
    named, plain = built(), built()
    run(named, "float32")
    optim = read_optim(ADAM, "optim")
    train(Replicas([plain], [0]), Feed([clusters()], [0], 16), cross_entropy, optim, 16)
    assert same(merged_state(named), merged_state(plain))


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_micro_batches_add_up_in_it_too(name: PrecisionName) -> None:
    torch.manual_seed(0)
    start = MLP(features=8, num_classes=3, hidden=16).state_dict()

    def losses(**options: Any) -> Tensor:
        model = MLP(features=8, num_classes=3, hidden=16)
        model.load_state_dict(start)
        return run(model, name, **options).train_loss

    torch.testing.assert_close(losses(accumulate=3), losses(), rtol=0.02, atol=0.005)


# --- resumed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optim", [ADAM, SGD], ids=["adamw", "sgd"])
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_two_epochs_and_two_more_are_four_to_the_bit(
    name: PrecisionName, optim: dict[str, Any], rates: list[float], tmp_path: Path
) -> None:
    whole, again = built(), built(seed=1)
    result = run(whole, name, optim)
    expected = [*rates]
    rates.clear()
    asked = iter(range(1, 9))
    run(built(), name, optim, save=lambda state: state.to_file(tmp_path / "state"), stop=lambda: next(asked, 8) == 8)
    saved = State.from_file(tmp_path / "state")
    assert saved.step == 8
    resumed = run(again, name, optim, resume=saved)
    assert same(merged_state(again), merged_state(whole)) and torch.equal(resumed.train_loss, result.train_loss)
    assert rates == expected and len(rates) == 16 - result.skipped
    assert len(set(rates)) == (len(rates) if "schedule" in optim else 1)


def recipe(folder: Path, **train: Any) -> Path:
    """The small recipe with other settings of its first stage, as a file."""
    file = folder / "small.yaml"
    file.write_text(dump_yaml(merge(RECIPE, {"stages": {"train": train}})))
    return file


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_killed_run_goes_on_to_the_bit_and_says_its_precision(tmp_path: Path, name: str) -> None:
    data = {key: value for key, value in RECIPE.items() if key != "claims"} | {"seeds": 1}
    node = {"model": {"name": "vit-mini"}, "data": IMAGES, "epochs": 4, "steps": None, "batch": 8, "precision": name}
    data["stages"] = {"train": {k: v for k, v in (RECIPE["stages"]["train"] | node).items() if v is not None}}
    file, run = tmp_path / "small.yaml", tmp_path / "run"
    file.write_text(dump_yaml(data))
    whole = provenzoo.run(file, out=tmp_path / "whole")
    assert killed(file, run, 9) == -signal.SIGKILL
    assert list((run / "stages/train").glob(".*.state")), "killed as it trained"
    provenzoo.run(file, out=run)
    assert_same_run(run, whole.path)
    assert [stage["precision"] for stage in whole.record["stages"]] == [name]
    assert read_json(run / "stages/train/config.json")["precision"] == name
    assert provenzoo.verify(run).holds


# --- steps that fp16 leaves out -----------------------------------------------------------------------------------


def steep(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that is finite and whose gradient, times the first scale of 65,536, is not in float16."""
    return 30 * cross_entropy(outputs, targets)


@pytest.mark.parametrize("optim", [ADAM, SGD], ids=["adamw", "sgd"])
@pytest.mark.parametrize("stopped_at", [1, 3, 8])
def test_a_step_without_finite_gradients_changes_nothing_and_is_resumed(
    optim: dict[str, Any], stopped_at: int, tmp_path: Path
) -> None:
    whole, again = built(), built(seed=1)
    weights: list[Tensor] = []
    watched = {"log_every": 1, "measure": lambda _: weights.append(nn.utils.parameters_to_vector(whole.parameters()))}
    result = run(whole, "fp16", optim, loss=steep, **watched)
    still = [torch.equal(before, after) for before, after in itertools.pairwise(weights)]
    assert still[:2] == [True, True] and still.count(True) == result.skipped < 16
    assert result.train_loss.isfinite().all()

    asked = iter(range(1, stopped_at + 1))
    stop = {"save": lambda state: state.to_file(tmp_path / "state"), "stop": lambda: next(asked) == stopped_at}
    run(built(), "fp16", optim, loss=steep, **stop)
    resumed = run(again, "fp16", optim, loss=steep, resume=State.from_file(tmp_path / "state"))
    assert same(merged_state(again), merged_state(whole))
    assert torch.equal(resumed.train_loss, result.train_loss) and resumed.skipped == result.skipped


def test_a_training_that_skips_every_step_is_an_error() -> None:
    model, optim = built(), read_optim(ADAM, "optim")
    feed = Feed([clusters()], [0], 16)

    class Blind(torch.autograd.Function):
        """The loss as it is, with gradients that are not finite."""

        @staticmethod
        def forward(ctx: Any, loss: Tensor) -> Tensor:
            return loss.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * torch.inf

    with pytest.raises(ZooError, match="fp16 has no finite gradients, 50 steps were skipped"):
        train(
            Replicas([model], [0]),
            feed,
            lambda outputs, targets: Blind.apply(cross_entropy(outputs, targets)),
            optim,
            60,
            execution=Execution(precision="fp16"),
        )


def test_a_checkpoint_and_its_card_tell_how_many_steps_were_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provenzoo.registry._registered", {})
    provenzoo.register("metrics", "steep")(steep)
    provenzoo.run(recipe(tmp_path, precision="fp16", loss="steep"), ["seeds=1", "publish=train"], out=tmp_path / "run")
    skipped = read_json(tmp_path / "run/stages/train/config.json")["skipped_steps"]["0"]
    assert 0 < skipped < 40
    card = (tmp_path / "run/README.md").read_text()
    assert f"| trained in | <code>fp16</code>; {skipped} steps of seed 0 left out |" in card
    assert "skipped_steps" not in read_json(tmp_path / "run/stages/tune/config.json")


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({"precision": "tf32"}, r"precision: tf32 is of CUDA devices .* not of cpu; write float32"),
        ({"precision": "fp16"}, r"precision: fp16 scales one loss, and replicas .* write bf16 or float32"),
        ({"precision": "bf16", "dtype": "float64"}, r"`precision: bf16` is of float32, not of `dtype: float64`"),
        ({"precision": "half"}, r"stages\.train\.precision"),
    ],
)
def test_what_cannot_be_had_is_told_before_anything_runs(tmp_path: Path, train: dict[str, Any], says: str) -> None:
    with pytest.raises(ZooError, match=says) as found:
        provenzoo.run(recipe(tmp_path, **train), out=tmp_path / "run")
    assert "\n" not in str(found.value) and not (tmp_path / "run").exists()


def test_the_loop_refuses_it_too() -> None:
    replicas = Replicas([MLP(features=8, num_classes=3, hidden=8) for _ in range(2)], [0, 1])
    feed, optim = Feed([clusters()] * 2, [0, 1], 16), read_optim({}, "optim")
    with pytest.raises(UsageError, match="fp16 scales one loss"):
        train(replicas, feed, cross_entropy, optim, 2, execution=Execution(precision="fp16"))


def test_stacked_replicas_train_in_bf16_as_each_alone() -> None:
    def models() -> list[nn.Module]:
        torch.manual_seed(0)
        return [MLP(features=8, num_classes=3, hidden=8) for _ in range(2)]

    optim, execution = read_optim(ADAM, "optim"), Execution(precision="bf16")
    both = Replicas(models(), [0, 1])
    result: Result = train(both, Feed([clusters()] * 2, [0, 1], 16), cross_entropy, optim, 16, execution=execution)
    for seed, model in enumerate(models()):
        feed = Feed([clusters()], [seed], 16)
        alone = train(Replicas([model], [seed]), feed, cross_entropy, optim, 16, execution=execution)
        torch.testing.assert_close(result.train_loss[seed], alone.train_loss[0], rtol=0.02, atol=0.005)


@pytest.mark.usefixtures("no_report")
def test_rates_of_a_grid_train_one_after_another_in_fp16(tmp_path: Path) -> None:
    grid = {"seeds": 1, "precision": "fp16", "optim": "sgd", "grid": {"optim.lr": [0.05, 0.1]}}
    stages = {"train": {k: v for k, v in RECIPE["stages"]["train"].items() if k != "optim"} | grid}
    data = {key: value for key, value in RECIPE.items() if key != "claims"} | {"stages": stages}
    record = provenzoo.run(data, out=tmp_path / "run").record
    assert [(stage["status"], stage["precision"]) for stage in record["stages"]] == [("complete", "fp16")] * 2


@pytest.mark.cuda
def test_tf32_is_on_in_the_steps_alone_and_restored() -> None:
    places = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [place.allow_tf32 for place in places]
    for name, wanted in (("tf32", True), ("float32", False)):
        with precision.Precision(name, torch.device("cuda")).set():  # pyright: ignore[reportArgumentType]
            assert [place.allow_tf32 for place in places] == [wanted, wanted]
            with precision.tf32(False, torch.device("cuda")):
                assert not any(place.allow_tf32 for place in places)
        assert [place.allow_tf32 for place in places] == before
