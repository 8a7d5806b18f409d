"""Trainings by the loop alone, in float64, that one process and several do alike; run by torchrun, it saves them."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from provenzoo.datasets.base import Split, Stream
from provenzoo.errors import ZooError
from provenzoo.metrics.measure import loss_function, predict
from provenzoo.models.mlp import MLP
from provenzoo.training import parallel
from provenzoo.training.execution import Execution
from provenzoo.training.feed import AnyFeed, Feed, FreshFeed, Repeated
from provenzoo.training.loop import train
from provenzoo.training.mixing import MixedFeed, Mixing
from provenzoo.training.optim import read_optim
from provenzoo.training.replicas import Replicas

ADAMW = {"name": "adamw", "lr": 0.05, "clip": 0.5, "weight_decay": 0.1}


def split(seed: int, size: int = 203, side: int = 0) -> Split:
    """So many vectors, or images of a side, of three classes."""
    draws = torch.Generator().manual_seed(seed)
    shape = (size, 2, side, side) if side else (size, 5)
    return Split(torch.randn(shape, generator=draws, dtype=torch.float64), torch.randint(3, (size,), generator=draws))


def items(first: int, count: int) -> tuple[Tensor, Tensor]:
    """Items of an endless row, each a function of its place."""
    drawn = [split(place, 1) for place in range(first, first + count)]
    return torch.cat([one.inputs for one in drawn]), torch.cat([one.targets for one in drawn])


STREAM = Stream(lambda step, size: items(step * size, size), items=items)


class Net(nn.Module):
    """Convolutions with BatchNorm, or perceptrons; one parameter is never used."""

    def __init__(self, norm: type[nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        convolutions = nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 3, stride=2, bias=False)
        self.body = nn.Sequential(convolutions[0], norm(4), nn.ReLU(), convolutions[1], norm(4))
        self.head = nn.Linear(4, 3)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Own(nn.BatchNorm2d):
    """A BatchNorm with a forward of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).relu()


def fitted(
    models: list[nn.Module], feed: AnyFeed, steps: int, loss: str = "cross-entropy", **settings: object
) -> dict[str, Tensor]:
    """What a training leaves: parameters, buffers and losses."""
    replicas = Replicas([model.double() for model in models], range(len(models)))
    result = train(replicas, feed, loss_function(loss), read_optim(ADAMW, "optim"), steps, **settings)  # type: ignore[arg-type]
    return {**replicas.module.state_dict(), "losses": result.train_loss}


def mlps(count: int) -> list[nn.Module]:
    """Perceptrons of so many seeds."""
    models: list[nn.Module] = []
    for seed in range(count):
        torch.manual_seed(seed)
        models.append(MLP(features=5, num_classes=3, hidden=8))
    return models


def net(norm: type[nn.Module] = nn.BatchNorm2d) -> list[nn.Module]:
    torch.manual_seed(0)
    return [Net(norm)]


def of(seeds: list[int], batch: int, size: int = 203, side: int = 0) -> Feed:
    return Feed([split(seed, size, side) for seed in seeds], seeds, batch, dtype=torch.float64)


def fresh(batch: int) -> FreshFeed:
    return FreshFeed([STREAM], [0], batch, dtype=torch.float64)


def frozen_norm() -> dict[str, Tensor]:
    """BatchNorm's own parameters frozen, so that it stays as it is."""
    return fitted(
        net(), of([0], 50, side=7), 5, frozen=[f"body.{k}.{name}" for k in (1, 4) for name in ("weight", "bias")]
    )


CASES: dict[str, Callable[[], dict[str, Tensor]]] = {
    "batches of 25, the last of 3": lambda: fitted(mlps(1), of([0], 25), 18),
    "batches of 1": lambda: fitted(mlps(1), of([0], 1, size=7), 9),
    "three seeds at once": lambda: fitted(mlps(3), of([0, 1, 2], 25), 12),
    "two rates at once": lambda: fitted(mlps(2), Repeated(of([0], 25), 2), 12),
    "micro-batches": lambda: fitted(mlps(1), of([0], 25), 12, accumulate=4),
    "moving averages": lambda: fitted(mlps(1), of([0], 25), 12, execution=Execution(ema=0.9)),
    "items of a stream": lambda: fitted(mlps(1), fresh(7), 12),
    "mixed": lambda: fitted(mlps(1), MixedFeed(of([0], 25), Mixing(0.8, 0.0, 3)), 12),
    "items of a stream, mixed": lambda: fitted(mlps(1), MixedFeed(fresh(32), Mixing(0.8, 0.0, 3)), 12),
    "BatchNorm, the last batch of 1": lambda: fitted(net(), of([0], 101, side=7), 6),
    "BatchNorm, micro-batches of unlike sizes": lambda: fitted(net(), of([0], 25, side=7), 6),
    "BatchNorm, frozen": frozen_norm,
    "outputs": lambda: {"outputs": predict(mlps(1)[0].double().eval(), split(0, 1203).inputs)},
}
REFUSED: dict[str, Callable[[], dict[str, Tensor]]] = {
    "BatchNorm of its own": lambda: fitted(net(Own), of([0], 25, side=7), 3),
    "parts of groups that are mixed": lambda: fitted(mlps(1), MixedFeed(fresh(24), Mixing(0.8, 0.0, 3)), 3),
}


def done() -> dict[str, Tensor]:
    """Every case, in this process or among others."""
    with parallel.joined(torch.device("cpu")) if parallel.wanted() > 1 else nullcontext():
        return {f"{case}/{name}": t.clone() for case, run in CASES.items() for name, t in run().items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = done()
    if parallel.speaks():
        save_file(found, Path(sys.argv[1]))
    for run in REFUSED.values():
        try:
            with parallel.joined(torch.device("cpu")):
                run()
        except ZooError as error:
            print(error, file=sys.stderr)
