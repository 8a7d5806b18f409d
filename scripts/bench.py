"""Speed against what one would use instead, each row with the bar that it has to meet.

    python scripts/bench.py [--json] [--row NAME]

A row's two sides take turns, ours and the other, five times after a first pass that is not counted; the row tells the
medians. Time is CPU time (user and system) on one torch thread, so that a second process on the machine costs little,
but a quiet machine is still needed: the two share caches. Exits with 3 where a bar is missed.
"""

import argparse
import atexit
import contextlib
import importlib.util
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

ROUNDS = 5
FALLS_SHORT = 3

Side = Callable[[], float]
"""Does the work once and gives its CPU seconds."""


@dataclass(frozen=True)
class Row:
    """One line of the table. `ours` and `other` are CPU seconds; `bar` and `holds` are None where none is set."""

    name: str
    ours: float
    other: float
    ratio: float
    bar: str | None
    holds: bool | None


# --- bars ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """What a row is judged by: its words, the ratio that it shows, and whether that is good enough."""

    words: str | None
    ratio: Callable[[float, float], float]
    holds: Callable[[float, float], bool | None]


def at_least(times: float | None) -> Bar:
    """The other takes so many times as long as ours (None: shown, not judged)."""
    return Bar(
        words=f"other / ours >= {times}" if times else None,
        ratio=lambda ours, other: other / ours,
        holds=lambda ours, other: other / ours >= times if times else None,
    )


def at_most(times: float) -> Bar:
    """Ours takes at most so many times as long as the other."""
    return Bar(
        words=f"ours / other <= {times}",
        ratio=lambda ours, other: ours / other,
        holds=lambda ours, other: ours / other <= times,
    )


def at_most_more(seconds: float) -> Bar:
    """Ours takes at most so many seconds more than the other."""
    return Bar(
        words=f"ours - other <= {seconds} s",
        ratio=lambda ours, other: ours / other,
        holds=lambda ours, other: ours - other <= seconds,
    )


# --- time ---------------------------------------------------------------------------------------------------


def process(*command: str) -> Side:
    """A command from start to end, with the processes that it waits for."""

    def run() -> float:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"error: {' '.join(command)} failed ({child.returncode})")
        return used.ru_utime + used.ru_stime

    return run


def calls(function: Callable[[], Any], repeat: int = 1) -> Side:
    """A function in this process, so many times; seconds of one call."""

    def run() -> float:
        start = time.process_time()
        for _ in range(repeat):
            function()
        return (time.process_time() - start) / repeat

    return run


def clock(function: Callable[[], Any]) -> Side:
    """A function in this process; seconds of the clock."""

    def run() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return run


def medians(ours: Side, other: Side) -> tuple[float, float]:
    """Seconds of both sides: medians of rounds in which they take turns, who begins changing."""
    took: dict[Side, list[float]] = {ours: [], other: []}
    for turn in range(ROUNDS + 1):
        for side in (ours, other) if turn % 2 else (other, ours):
            took[side].append(side())
    return statistics.median(took[ours][1:]), statistics.median(took[other][1:])


# --- commands -----------------------------------------------------------------------------------------------


def listing() -> tuple[Side, Side]:
    """`provenzoo list models` against timm's list of models, both as processes."""
    command = Path(sys.executable).with_name("provenzoo")
    ours = [str(command)] if command.is_file() else [sys.executable, "-m", "provenzoo"]
    return process(*ours, "list", "models"), process(sys.executable, "-c", "import timm; timm.list_models()")


def importing() -> tuple[Side, Side]:
    """`import provenzoo` against a Python that imports nothing."""
    return process(sys.executable, "-c", "import provenzoo"), process(sys.executable, "-c", "")


# --- runs ---------------------------------------------------------------------------------------------------

ONE_STEP: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "stages": {
        "train": {
            "stage": "pretrain",
            "model": {"name": "mlp", "hidden": 2},
            "data": {"name": "gaussian-clusters", "features": 4, "num_classes": 2, "train": 8, "test": 8},
            "optim": {"name": "sgd", "lr": 0.1},
            "steps": 1,
            "batch": 4,
            "metrics": ["loss", "accuracy"],
        }
    },
}


def run_overhead() -> tuple[Side, Side]:
    """A run of one step, from the recipe to the report, against nothing; imports are made in the pass not counted."""
    import provenzoo

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with contextlib.redirect_stderr(io.StringIO()):
        provenzoo.run(ONE_STEP, out=folder)

    def run() -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            provenzoo.run(ONE_STEP, out=folder, fresh=True)

    return calls(run), lambda: 1e-9


POINTS = 64


def sweeping() -> tuple[float, float]:
    """Wall seconds of a sweep of points that each sleep one second, on two local Ray nodes of one core, and of half as
    many points in a warm worker: what two workers would need if nothing else took time.
    """
    import ray
    from ray.cluster_utils import Cluster

    import provenzoo
    from provenzoo.pipeline.jobs import Job
    from provenzoo.pipeline.on_ray import on_ray
    from provenzoo.training.runtime import Stop

    tests, zoo = Path(__file__).parents[1] / "tests", Path(provenzoo.__file__).parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tests), str(zoo), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(tests))
    awkward = importlib.import_module("awkward")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        os.environ["PROVENZOO_PATH"] = str(awkward.content(Path(folder, "content")))
        stage = {**awkward.STAGE, "data": {"name": "awkward", "mode": "slow", "seconds": 1.0}}
        recipe = {"recipe": "awkward", "device": "cpu", "threads": 1, "stages": {"train": stage}}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            cluster.add_node(num_cpus=1)
            ray.init(address=cluster.address, log_to_driver=False)  # one connection: its workers stay warm
            with on_ray(cluster.address, 1) as engine:
                ends = [time.perf_counter()]
                for _ in engine([Job(str(i), recipe, str(Path(folder, str(i)))) for i in range(4)], Stop()):
                    ends.append(time.perf_counter())
            rates = ",".join(str(i + 1) for i in range(POINTS))
            start = time.perf_counter()
            words = [f"stages.train.optim.lr={rates}"]
            provenzoo.sweep(recipe, words, out=Path(folder, "sweep"), ray=cluster.address)
            took = time.perf_counter() - start
        finally:
            ray.shutdown()
            cluster.shutdown()
    return took, (ends[-1] - ends[-2]) * POINTS / 2


# --- training loop ------------------------------------------------------------------------------------------

STEPS, BATCH = 1000, 256


def loop() -> tuple[Side, Side]:
    """Our loop, measuring ten times and drawing its bar, against the loop that one writes by hand, which does neither.

    An MLP 32-64-10 on 10,240 points with batches of 256, 1,000 steps of the same fused AdamW: one parameter group, so
    with weight decay on biases too.
    """
    import provenzoo

    data = provenzoo.create_dataset("gaussian-clusters", features=32, num_classes=10, train=40 * BATCH)
    return calls(lambda: our_loop(data)), calls(lambda: bare_loop(data.train.inputs, data.train.targets))


def our_loop(data: Any) -> None:
    """As a `pretrain` stage calls it: accuracy and loss on the held-out split, a tenth of the steps apart."""
    import torch

    from provenzoo.metrics.measure import Measure, loss_function, metric_functions
    from provenzoo.training.feed import Feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas
    from provenzoo.training.runtime import Progress

    model = tiny_mlp()
    loss = loss_function("cross-entropy")
    functions = metric_functions(["loss", "accuracy"], loss)
    measure = Measure(functions, data, data.test, torch.device("cpu"), torch.float32)
    with unseen_terminal():
        train(
            Replicas([model], [0]),
            Feed([data.train], [0], BATCH),
            loss,
            read_optim({"name": "adamw", "lr": 1e-3, "decay_vectors": True}, "optim"),
            STEPS,
            log_every=STEPS // 10,
            measure=lambda _: measure(model),
            progress=Progress("bench", STEPS),
        )


def bare_loop(inputs: Any, targets: Any) -> None:
    """The same steps in plain PyTorch: an order an epoch, a gather a batch."""
    import torch
    from torch.nn import functional as F

    model = tiny_mlp()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    batches = len(inputs) // BATCH
    for _ in range(STEPS // batches):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimiser.step()


def tiny_mlp() -> Any:
    """The model of both loops."""
    import provenzoo

    return provenzoo.create_model("mlp", features=32, hidden=64, num_classes=10)


@contextlib.contextmanager
def unseen_terminal() -> Iterator[None]:
    """Standard error that nobody sees and that rich (by FORCE_COLOR) takes for a terminal: the bar is drawn."""
    os.environ["FORCE_COLOR"] = "1"
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


# --- positional attention -----------------------------------------------------------------------------------


def vit_pair(image_size: int) -> tuple[Any, Any]:
    """Our positional ViT-Ti/16 and timm's vanilla one."""
    import timm

    import provenzoo

    sizes = {"image_size": image_size, "channels": 3, "num_classes": 1000}
    ours = provenzoo.create_model("positional-vit-tiny", **sizes)
    return ours, timm.create_model("vit_tiny_patch16_224", img_size=image_size)


def vit_training(image_size: int, batch: int) -> tuple[Side, Side]:
    """A step on random images: forward, backward, AdamW."""
    import torch
    from torch.nn import functional as F

    images, labels = torch.randn(batch, 3, image_size, image_size), torch.randint(1000, (batch,))

    def step(model: Any) -> Side:
        optimiser = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)

        def once() -> None:
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimiser.step()

        return calls(once, repeat=2)

    ours, other = map(step, vit_pair(image_size))
    return ours, other


def vit_inference(image_size: int, batch: int) -> tuple[Side, Side]:
    """Logits of random images in eval mode; ours computes its scores once a checkpoint."""
    import torch

    images = torch.randn(batch, 3, image_size, image_size)

    def forward(model: Any) -> Side:
        model.eval()
        return calls(torch.inference_mode()(lambda: model(images)), repeat=4)

    ours, other = map(forward, vit_pair(image_size))
    return ours, other


# --- patch attention (Jelassi et al. 2022) --------------------------------------------------------------------


def patch_attention_data(patches: int, seeds: int = 1) -> list[Any]:
    """The training data of `jelassi2022/realistic` and its kin, drawn ahead of any clock."""
    import provenzoo

    q = {16: 0.4, 36: 0.3, 64: 0.25}[patches]
    sets = [
        provenzoo.create_dataset("patch-structured", seed=k, patches=patches, q=q, samples=4000) for k in range(seeds)
    ]
    return [data.train for data in sets]


def patch_attention(patches: int) -> Any:
    """The model of a size."""
    import provenzoo

    return provenzoo.create_model("patch-attention", patches=patches, dim=patches)


def train_patch_attention(splits: list[Any], patches: int, batch: int, steps: int) -> None:
    """So many seeds through our loop, at once or in turn as the stage would."""
    from provenzoo.metrics.binary import logistic
    from provenzoo.training.feed import Feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas, groups_of_seeds

    model = patch_attention(patches)
    parameters = sum(p.numel() for p in model.parameters())
    optim = read_optim({"name": "sgd", "groups": {"attention": {"lr": 20.0}, "value": {"lr": 0.1}}}, "optim")
    for seeds in groups_of_seeds(type(model), range(len(splits)), parameters, batch):
        replicas = Replicas([patch_attention(patches) for _ in seeds], seeds)
        train(replicas, Feed([splits[k] for k in seeds], seeds, batch), logistic, optim, steps)


def seeds_together(patches: int, batch: int, steps: int) -> tuple[Side, Side]:
    """Ten seeds against one."""
    splits = patch_attention_data(patches, seeds=10)
    return (
        calls(lambda: train_patch_attention(splits, patches, batch, steps)),
        calls(lambda: train_patch_attention(splits[:1], patches, batch, steps)),
    )


def patch_attention_loop() -> tuple[Side, Side]:
    """Our loop against one by hand with the formula written out for autograd, D = 36, batch 256, 400 steps."""
    [split] = patch_attention_data(36)
    return (
        calls(lambda: train_patch_attention([split], 36, 256, 400)),
        calls(lambda: bare_patch_attention(split.inputs, split.targets, 400)),
    )


def bare_patch_attention(inputs: Any, targets: Any, steps: int, by_hand: bool = False) -> None:
    """Plain PyTorch: SGD with a rate for A and one for v, an order an epoch; gradients by autograd or by hand."""
    import torch
    from torch.nn import functional as F

    model = patch_attention(36)
    a, v = model.attention, model.value
    optimiser = torch.optim.SGD([{"params": [a], "lr": 20.0}, {"params": [v], "lr": 0.1}], fused=True)
    done = 0
    while done < steps:
        for rows in torch.randperm(len(inputs)).split(256):
            x, y = inputs[rows], targets[rows]
            if by_hand:
                a.grad, v.grad = patch_attention_gradients(x, y, a.detach(), v.detach(), model)
            else:
                optimiser.zero_grad()
                scores = (x @ v) @ a.masked_fill(model.diagonal, model.sigma_a).softmax(-1).T
                F.softplus(-y * (scores * ((scores * scores) ** 2 + model.nu)).sum(-1)).mean().backward()
            optimiser.step()
            done += 1
            if done == steps:
                return


def patch_attention_gradients(x: Any, y: Any, a: Any, v: Any, model: Any) -> tuple[Any, Any]:
    """The logistic loss's gradients in A and v, written out (App. H), for p = 5."""
    import torch

    along = x @ v
    shares = a.masked_fill(model.diagonal, model.sigma_a).softmax(-1)
    scores = along @ shares.T
    fourth = (scores * scores) ** 2
    outer = -y * torch.sigmoid(-y * (scores * (fourth + model.nu)).sum(-1)) / len(y)
    slopes = outer.unsqueeze(-1) * (5 * fourth + model.nu)
    in_shares = slopes.T @ along
    in_a = shares * (in_shares - (in_shares * shares).sum(-1, keepdim=True))
    return in_a.masked_fill(model.diagonal, 0.0), (slopes @ shares).flatten() @ x.flatten(0, 1)


def patch_attention_by_hand() -> tuple[Side, Side]:
    """Gradients written out against autograd, both in a bare loop: what the model would gain."""
    [split] = patch_attention_data(36)
    return (
        calls(lambda: bare_patch_attention(split.inputs, split.targets, 400, by_hand=True)),
        calls(lambda: bare_patch_attention(split.inputs, split.targets, 400)),
    )


# --- the Hub --------------------------------------------------------------------------------------------------

HUB_ROWS = "Hub"
"""What is in the name of a row that needs the server of the tests."""


@contextlib.contextmanager
def hub_server() -> Iterator[None]:
    """The tests' Hub server as another process, and the client's settings for it, before the client is imported."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hubserver"]
    child = subprocess.Popen(command, cwd=root / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdin
    told = json.loads(child.stdout.readline())
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HF_ENDPOINT": told["endpoint"], "HF_TOKEN": told["token"], "HF_HOME": home}
        os.environ |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
        os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        try:
            yield
        finally:
            child.stdin.close()
            child.wait()


def published_run(folder: Path, model: dict[str, Any], data: dict[str, Any]) -> Path:
    """A run whose model took one step."""
    import provenzoo

    stage = {"stage": "pretrain", "model": model, "data": data, "steps": 1, "batch": 1, "metrics": ["accuracy"]}
    recipe = {"recipe": "bench", "seeds": 1, "device": "cpu", "stages": {"train": stage}}
    with unseen_terminal():
        return provenzoo.run(recipe, out=folder / "run").path


def hub_loading(checked: bool) -> tuple[Side, Side]:
    """`provenzoo.load` of a ViT-Ti/16 at 224 from the Hub's cache, offline, against timm's load of the same files."""
    import timm
    from huggingface_hub import constants

    import provenzoo
    from provenzoo import fetch

    constants.HF_HUB_OFFLINE = False
    folder = Path(tempfile.mkdtemp())
    data = {"name": "fashion-mnist-mini", "size": 224, "limit": 1}
    done = provenzoo.publish(published_run(folder, {"name": "vit-tiny"}, data), f"someone/vit-{checked}")
    place = Path(fetch.pull(done.reference)["folder"])
    constants.HF_HUB_OFFLINE = True
    notes = place.parents[1] / ".provenzoo"

    def ours() -> None:
        if not checked:
            shutil.rmtree(notes)
        provenzoo.load(done.reference)

    return calls(ours), calls(lambda: timm.create_model(f"local-dir:{place}", pretrained=True))


def hub_publishing() -> tuple[Side, Side]:
    """`provenzoo.publish` of 100 MB to the local server against the client's own commit of the same files; seconds
    of the clock, since both wait for the server."""
    from itertools import count

    from huggingface_hub import CommitOperationAdd, HfApi, constants

    import provenzoo

    constants.HF_HUB_OFFLINE = False
    folder, number = Path(tempfile.mkdtemp()), count()
    data = {"name": "gaussian-clusters", "features": 32, "num_classes": 10, "train": 10, "test": 10}
    run = published_run(folder, {"name": "mlp", "hidden": [4980, 4980]}, data)
    provenzoo.publish(run, f"local:{folder}/files")
    files = [path for path in (folder / "files").rglob("*") if path.is_file()]

    def ours() -> None:
        provenzoo.publish(run, f"someone/ours-{next(number)}")

    def other() -> None:
        name = f"someone/other-{next(number)}"
        HfApi().create_repo(name)
        added = [CommitOperationAdd(path.relative_to(folder / "files").as_posix(), path) for path in files]
        HfApi().create_commit(name, added, commit_message="raw")

    return clock(ours), clock(other)


# --- linear attention ---------------------------------------------------------------------------------------

PROMPTS = {"n": 20, "dim": 10}


def regression(loops: int, compute: str) -> tuple[Any, Any, Any]:
    """A looped model, and 1,000 prompts with 20 examples in 10 dimensions."""
    import provenzoo

    model = provenzoo.create_model("looped-linear-attention", dim=PROMPTS["dim"], loops=loops, compute=compute)
    data = cast(Any, provenzoo.create_dataset("linear-regression-prompts", **PROMPTS))
    return model, *data.train.draw(0, 1000)


def linear_training(loops: int) -> tuple[Side, Side]:
    """A step with 1,000 prompts: on the residual, and token by token with dense matrices, as the paper has it."""
    import torch
    from torch.nn import functional as F

    def step(compute: str) -> Side:
        model, prompts, targets = regression(loops, compute)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

        def once() -> None:
            optimiser.zero_grad()
            F.mse_loss(model(prompts), targets).backward()
            optimiser.step()

        return calls(once, repeat=4)

    return step("residual"), step("tokens")


def linear_evaluation(loops: int) -> tuple[Side, Side]:
    """Predictions for 1,000 prompts: all at once, and in a loop over prompts, token by token."""
    import torch

    ours, prompts, _ = regression(loops, "residual")
    other, _, _ = regression(loops, "tokens")

    @torch.inference_mode()
    def one_by_one() -> None:
        for prompt in prompts:
            other(prompt[None])

    return calls(torch.inference_mode()(lambda: ours(prompts)), repeat=10), calls(one_by_one)


def ten_seeds(batch: int) -> tuple[Side, Side]:
    """50 steps of ten seeds at once against those of one, with the loss that integrates w and the query out."""
    import provenzoo
    from provenzoo.metrics.measure import loss_function
    from provenzoo.training.feed import make_feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas

    def run(seeds: range) -> Side:
        data = [provenzoo.create_dataset("linear-regression-prompts", **PROMPTS, layout="gram", seed=k) for k in seeds]
        splits = [d.train for d in data]
        loss, optim = loss_function("integrated-squared-error"), read_optim({"name": "adamw", "lr": 1e-3}, "optim")

        def once() -> None:
            models = [provenzoo.create_model("looped-linear-attention", dim=10, loops=5, seed=k) for k in seeds]
            train(Replicas(models, seeds), make_feed(splits, seeds, batch), loss, optim, 50)

        return calls(once)

    return run(range(10)), run(range(1))


# --- students of a teacher ----------------------------------------------------------------------------------


def student_data(tokens: int, dim: int, seed: int = 0) -> Any:
    """The graph convolution's data, drawn afresh each step, with noise."""
    import provenzoo

    inputs = {"name": "gaussian-tokens", "tokens": tokens, "dim": dim}
    teacher = {"name": "graph-conv", "tokens": tokens, "dim": dim, "features": dim}
    return provenzoo.create_dataset("taught", seed=seed, inputs=inputs, teacher=teacher, noise=1.0)


def our_student(data: list[Any], batch: int, steps: int) -> None:
    """Students of so many seeds at once, by the loop that a stage calls."""
    from provenzoo.metrics.recovery import half_squared_error
    from provenzoo.models.one_layer import PositionAttention
    from provenzoo.training.feed import make_feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas

    seeds = range(len(data))
    replicas = Replicas([PositionAttention(**each.shapes) for each in data], seeds)
    feed = make_feed([each.train for each in data], seeds, batch)
    train(replicas, feed, half_squared_error, read_optim({"name": "sgd", "lr": 0.1}, "optim"), steps)


def bare_student(data: Any, batch: int, steps: int) -> None:
    """The same student, draws and steps in plain PyTorch, with autograd's gradient."""
    import torch

    value, attention = data.teacher.value, data.teacher.attention
    positions, _ = torch.linalg.qr(torch.randn(len(attention), len(attention)))
    student = [torch.zeros_like(value, requires_grad=True), torch.zeros_like(attention, requires_grad=True)]
    optimiser = torch.optim.SGD(student, lr=0.1, fused=True)
    for _ in range(steps):
        x = torch.randn(batch, value.shape[1], len(attention))
        y = (value @ (x @ attention)).relu()
        y = y + torch.randn_like(y)
        scores = (positions.T @ student[1] @ positions / len(attention) ** 0.5).softmax(0)
        z = student[0] @ (x @ scores)
        optimiser.zero_grad()
        ((torch.where(z >= 0, z, 0.0) - y).square().sum() / (2 * batch)).backward()
        optimiser.step()


def student_step() -> tuple[Side, Side]:
    """A training of graph-relu at the paper's size, draws and all."""
    data = student_data(20, 10)
    return calls(lambda: our_student([data], 100, 400)), calls(lambda: bare_student(data, 100, 400))


def student_gradient() -> tuple[Side, Side]:
    """Forward and backward alone: the gradient by hand against autograd's."""
    import torch

    from provenzoo.models.activations import activate
    from provenzoo.models.one_layer import bilinear

    x, value, scores = torch.randn(100, 10, 20), torch.randn(10, 10), torch.randn(20, 20).softmax(0)
    value, scores = value.requires_grad_(), scores.requires_grad_()
    outer = torch.randn(100, 10, 20)

    def backward(forward: Callable[[], Any]) -> Side:
        return calls(lambda: forward().backward(outer), repeat=200)

    return backward(lambda: bilinear(x, value, scores, 0.0)), backward(lambda: activate(value @ (x @ scores), 0.0))


def many_students() -> tuple[Side, Side]:
    """32 students of a tiny teacher, batch 10, at once and one after another."""
    data = [student_data(20, 5, seed) for seed in range(32)]
    return calls(lambda: our_student(data, 10, 100)), calls(lambda: [bare_student(d, 10, 100) for d in data])


# --- the table ----------------------------------------------------------------------------------------------

ONCE: dict[str, tuple[Callable[[], tuple[float, float]], Bar]] = {
    f"sweep of {POINTS} points on two Ray nodes / half of them in a warm worker, wall": (sweeping, at_least(0.85)),
}
"""Rows that are measured once, by the clock."""
ROWS: dict[str, tuple[Callable[[], tuple[Side, Side]], Bar]] = {
    "list models / import timm and list": (listing, at_least(20)),
    "import provenzoo / bare python": (importing, at_most_more(0.1)),
    "run of one step, imports aside / nothing": (run_overhead, at_most_more(0.5)),
    "our loop / bare loop, MLP 32-64-10": (loop, at_most(1.05)),
    "our / bare loop with autograd, student of a graph convolution": (student_step, at_most(1.1)),
    "gradient by hand / autograd, the same student": (student_gradient, at_least(None)),
    "32 tiny students at once / one after another": (many_students, at_least(8)),
    "positional / vanilla ViT-Ti/16 at 224, training": (lambda: vit_training(224, 8), at_least(1.2)),
    "positional / vanilla ViT-Ti/16 at 224, inference": (lambda: vit_inference(224, 8), at_least(1.2)),
    "positional / vanilla ViT-Ti/16 at 384, training": (lambda: vit_training(384, 4), at_least(None)),
    "positional / vanilla ViT-Ti/16 at 384, inference": (lambda: vit_inference(384, 4), at_least(None)),
    "patch-attention, D 16, batch 64: ten seeds / one": (lambda: seeds_together(16, 64, 400), at_most(3)),
    "patch-attention, D 36, batch 256: ten seeds / one": (lambda: seeds_together(36, 256, 50), at_most(10)),
    "patch-attention, D 64, batch 256: ten seeds / one": (lambda: seeds_together(64, 256, 60), at_most(10)),
    "our loop / bare loop, patch-attention D 36": (patch_attention_loop, at_most(1.1)),
    "gradients by hand / autograd, patch-attention D 36": (patch_attention_by_hand, at_least(None)),
    "linear attention / dense tokens, 1 loop, training": (lambda: linear_training(1), at_least(2.5)),
    "linear attention / dense tokens, 5 loops, training": (lambda: linear_training(5), at_least(5)),
    "linear attention / dense tokens, 10 loops, training": (lambda: linear_training(10), at_least(6)),
    "linear attention / prompt by prompt, 5 loops, evaluation": (lambda: linear_evaluation(5), at_least(100)),
    "linear attention, ten seeds at once / one, batch 64": (lambda: ten_seeds(64), at_most(5)),
    "load from the Hub's cache, checked before / timm, ViT-Ti/16": (lambda: hub_loading(checked=True), at_most(0.35)),
    "load from the Hub's cache, digest checked / timm, ViT-Ti/16": (lambda: hub_loading(checked=False), at_most(0.7)),
    "publish 100 MB to a local Hub / the raw client": (hub_publishing, at_most(1.3)),
}


def measured(name: str) -> Row:
    """A row of the table, measured now."""
    import torch

    torch.set_num_threads(1)
    print(f"{name} ...", file=sys.stderr, flush=True)
    if name in ONCE:
        measure, bar = ONCE[name]
        ours, other = measure()
    else:
        sides, bar = ROWS[name]
        ours, other = medians(*sides())
    return Row(name, ours, other, bar.ratio(ours, other), bar.words, bar.holds(ours, other))


def machine() -> str:
    """The processor and the versions that the numbers depend on."""
    from importlib.metadata import version

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ", ".join(f"{package} {version(package)}" for package in ("torch", "timm"))
    processor = models[0] if models else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}, 1 thread"


def show(rows: list[Row]) -> None:
    """A table on a terminal; else a line a row, its name first and tabs between."""
    words = {True: "holds", False: "MISSED", None: "not judged"}
    cells = [
        [row.name, f"{row.ours:.4f}", f"{row.other:.4f}", f"{row.ratio:.2f}", row.bar or "-", words[row.holds]]
        for row in rows
    ]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(line) for line in cells))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("row", "ours, s", "other, s", "ratio", "bar", "", title=machine())
    for line in cells:
        table.add_row(*line)
    Console().print(table)


def main() -> int:
    """Measure the rows that are asked for and print them."""
    parser = argparse.ArgumentParser(description=cast(str, __doc__).partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--row", default="", metavar="NAME", help="only rows whose name has this in it")
    asked = parser.parse_args()
    rows = [*ROWS, *(ONCE if importlib.util.find_spec("ray") else ())]
    names = [name for name in rows if asked.row.lower() in name.lower()]
    if not names:
        parser.error(f"no row has {asked.row!r} in its name; the rows are: {'; '.join(rows)}")
    with hub_server() if any(HUB_ROWS in name for name in names) else contextlib.nullcontext():
        found = [measured(name) for name in names]
    if asked.json:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in found]}, indent=1))
    else:
        show(found)
    return FALLS_SHORT if any(row.holds is False for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
