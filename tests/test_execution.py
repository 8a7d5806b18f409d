"""`compile` and `channels_last`: in the steps of a training alone; names, files and measurements are those without."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import IMAGES, RECIPE, SHORT, assert_same_run, recipe
from torch import Tensor, nn
from torch import _inductor as inductor
from torch._dynamo.utils import counters

import provenzoo
from provenzoo import checkpoint
from provenzoo.datasets.base import Split
from provenzoo.errors import UsageError, ZooError
from provenzoo.metrics.classification import cross_entropy
from provenzoo.models.mlp import MLP
from provenzoo.models.small_cnn import SmallCNN
from provenzoo.models.split import merged_state, split_fused
from provenzoo.models.vit import ViT
from provenzoo.plain import dump_yaml, read_json
from provenzoo.training import execution
from provenzoo.training.execution import Execution
from provenzoo.training.feed import Feed
from provenzoo.training.loop import Result, train
from provenzoo.training.optim import read_optim
from provenzoo.training.replicas import Replicas
from provenzoo.training.state import State

ADAM = {"lr": 0.005, "schedule": "cosine"}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
TESTS = os.pathsep.join([str(Path(__file__).parent), str(Path(provenzoo.__file__).parents[1])])
KILLED = """
import signal, sys
from pathlib import Path
from small_run import killed
sys.exit(killed(Path(sys.argv[1]), Path(sys.argv[2]), 9) != -signal.SIGKILL)
"""
"""In a process of its own, as a fork of one that has compiled cannot compile."""
NO_COMPILER = not any(shutil.which(name) for name in ("c++", "g++", "clang++"))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled as far as the graph, which then runs as it stands: quick, and without a C++ compiler."""
    monkeypatch.setattr(execution, "BACKEND", "aot_eager")


def photos() -> Split:
    """42 images, so that the last of three batches is short."""
    draws = torch.Generator().manual_seed(0)
    return Split(torch.randn(42, 3, 16, 16, generator=draws), torch.randint(3, (42,), generator=draws))


def cnn(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return SmallCNN(channels=3, num_classes=3)


def vit(seed: int = 0, attention: str = "vanilla", split: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    model = ViT(image_size=16, channels=3, num_classes=3, dim=8, depth=2, heads=2, attention=attention)
    if split:
        split_fused(model)
    return model


def dropping(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 14 * 14, 3))


MODELS = {
    "CNN": cnn,
    "positional ViT": lambda seed=0: vit(seed, "positional"),
    "split ViT": lambda seed=0: vit(seed, split=True),
    "dropout": dropping,
}


def run(model: nn.Module, how: Execution, optim: dict[str, Any] = ADAM, steps: int = 6, **options: Any) -> Result:
    feed = Feed([photos()], [0], 16)
    return train(
        Replicas([model], [0]), feed, cross_entropy, read_optim(optim, "optim"), steps, execution=how, **options
    )


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def resumed(make: Any, how: Execution, optim: dict[str, Any], stopped_at: int, folder: Path) -> nn.Module:
    asked = iter(range(1, stopped_at + 1))
    stop = {"save": lambda s: s.to_file(folder / "state"), "stop": lambda: next(asked) == stopped_at}
    run(make(), how, optim, **stop)
    again = make(1)
    run(again, how, optim, resume=State.from_file(folder / "state"))
    return again


# --- channels_last ------------------------------------------------------------------------------------------------


def test_convolutions_see_channels_last_in_the_steps_and_the_standard_layout_where_it_is_measured() -> None:
    model, seen = cnn(), set()
    [first, *_] = [module for module in model.modules() if isinstance(module, nn.Conv2d)]

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        last = [t.is_contiguous(memory_format=torch.channels_last) for t in (inputs[0], first.weight)]
        seen.add((module.training, *last))

    first.register_forward_pre_hook(look)
    states: list[State] = []
    run(model, Execution(channels_last=True), measure=lambda _: model(photos().inputs), save=states.append)
    assert seen == {(True, True, True), (False, False, False)}
    kept = [*states[-1].model.values(), *states[-1].optimiser.values(), *merged_state(model).values()]
    assert all(tensor.is_contiguous() for tensor in kept)


@pytest.mark.parametrize("make", [cnn, vit], ids=["CNN", "ViT"])
def test_in_channels_last_a_training_is_the_same_but_for_rounding(make: Any) -> None:
    plain, last = make().double(), make().double()
    for model, how in ((plain, Execution()), (last, Execution(channels_last=True))):
        feed = Feed([photos()], [0], 16, dtype=torch.float64)
        train(Replicas([model], [0]), feed, cross_entropy, read_optim(SGD, "optim"), 6, execution=how)
    for a, b in zip(merged_state(plain).values(), merged_state(last).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("ema", [None, 0.7])
@pytest.mark.parametrize("optim", [ADAM, SGD], ids=["adamw", "sgd"])
@pytest.mark.parametrize("stopped_at", [1, 4])
def test_in_channels_last_it_goes_on_to_the_bit(
    optim: dict[str, Any], ema: float | None, stopped_at: int, tmp_path: Path
) -> None:
    how, whole = Execution(channels_last=True, ema=ema), cnn()
    run(whole, how, optim)
    assert same(merged_state(resumed(cnn, how, optim, stopped_at, tmp_path)), merged_state(whole))


def test_what_was_measured_as_it_trained_is_the_saved_weights_to_the_bit() -> None:
    model, seen, images = cnn(), [], photos().inputs
    run(model, Execution(channels_last=True, ema=0.5), measure=lambda _: seen.append(model(images)))
    fresh = cnn(1)
    fresh.load_state_dict({name: tensor.contiguous() for name, tensor in model.state_dict().items()})
    with torch.no_grad():
        assert torch.equal(fresh.eval()(images), seen[-1])


# --- compile ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_compiled_training_is_the_plain_one_under_the_same_names(make: Any) -> None:
    plain, compiled, before = make(), make(), counters["stats"]["unique_graphs"]
    losses = run(plain, Execution()).train_loss, run(compiled, Execution(compile=True)).train_loss
    assert counters["stats"]["unique_graphs"] > before, "something was compiled"
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert not [name for name in compiled.state_dict() if "_orig_mod" in name]


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_compiled_it_goes_on_to_the_bit(make: Any, tmp_path: Path) -> None:
    """From before a short batch, so that sizes come in another order."""
    how, whole = Execution(compile=True, precision="bf16", ema=0.8), make()
    run(whole, how)
    assert same(merged_state(resumed(make, how, ADAM, 2, tmp_path)), merged_state(whole))


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
def test_one_training_after_another_is_compiled_each() -> None:
    """Six models and two sizes of batch are more versions than dynamo keeps of one code."""
    for seed in range(6):
        before = counters["stats"]["unique_graphs"]
        run(cnn(seed), Execution(compile=True), steps=3)
        assert counters["stats"]["unique_graphs"] == before + 2


@pytest.mark.usefixtures("traced")
def test_replicas_that_train_at_once_are_compiled_too() -> None:
    def trained(how: Execution) -> Replicas:
        torch.manual_seed(0)
        replicas = Replicas([MLP(features=768, num_classes=3, hidden=8) for _ in range(2)], [0, 1])
        flat = Split(photos().inputs.flatten(1), photos().targets)
        optim = read_optim(ADAM, "optim")
        train(replicas, Feed([flat] * 2, [0, 1], 16), cross_entropy, optim, 6, execution=how)
        return replicas

    for a, b in zip(trained(Execution()).states(), trained(Execution(compile=True)).states(), strict=True):
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(NO_COMPILER, reason="needs a C++ compiler")
@pytest.mark.usefixtures("no_report")
def test_compiled_to_machine_code_a_killed_run_goes_on_to_the_bit_and_verifies(tmp_path: Path) -> None:
    data = {key: value for key, value in RECIPE.items() if key != "claims"} | {"seeds": 1}
    model = {"name": "small-cnn"}
    node = SHORT | {"model": model, "data": IMAGES, "batch": 12, "compile": True, "channels_last": True}
    data["stages"] = {"train": RECIPE["stages"]["train"] | node | {"steps": 7}}
    file, run = tmp_path / "small.yaml", tmp_path / "run"
    file.write_text(dump_yaml(data))
    whole = provenzoo.run(file, out=tmp_path / "whole")
    subprocess.run([sys.executable, "-c", KILLED, file, run], check=True, env=os.environ | {"PYTHONPATH": TESTS})
    assert list((run / "stages/train").glob(".*.state")), "killed as it trained"
    provenzoo.run(file, out=run)
    assert_same_run(run, whole.path)
    assert provenzoo.verify(run).holds
    config = read_json(run / "stages/train/config.json")
    assert config["compile"] is True and config["channels_last"] is True
    names = checkpoint.load(run / "stages/train/model.safetensors")[0]
    assert not [name for name in names if "_orig_mod" in name]


@pytest.mark.slow
def test_where_nothing_can_be_compiled_it_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    without = inductor.config.patch({"cpp.cxx": (None, "/no/compiler")})
    with without, pytest.raises(ZooError, match=r"compile: torch cannot compile the model here .*; leave it") as found:
        run(cnn(), Execution(compile=True))
    assert "\n" not in str(found.value)


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({"channels_last": True}, "channels_last: replicas of so small a model train at once"),
        ({"channels_last": True, "seeds": 1}, "channels_last: MLP has no convolution over images; leave it out"),
        ({"compile": 1}, r"stages\.train\.compile"),
        ({"compile": True, "population": True}, r"stages\.train\.compile: `population: true` has no forward pass"),
    ],
)
@pytest.mark.usefixtures("no_report")
def test_what_cannot_be_had_is_told_before_anything_runs(tmp_path: Path, train: dict[str, Any], says: str) -> None:
    with pytest.raises(ZooError, match=says) as found:
        provenzoo.run(recipe(tmp_path, train=train, tune={"seeds": train.get("seeds", 2)}), out=tmp_path / "run")
    assert "\n" not in str(found.value) and not (tmp_path / "run").exists()


def test_the_loop_refuses_it_too() -> None:
    replicas = Replicas([MLP(features=8, num_classes=3, hidden=8) for _ in range(2)], [0, 1])
    feed, optim = Feed([photos()] * 2, [0, 1], 16), read_optim({}, "optim")
    with pytest.raises(UsageError, match="channels_last: replicas"):
        train(replicas, feed, cross_entropy, optim, 2, execution=Execution(channels_last=True))
