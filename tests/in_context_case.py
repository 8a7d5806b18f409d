"""What the tests of in-context regression share: small models and data, and a metric of the two or its refusal."""

from typing import Any

import pytest
import torch
from torch import Tensor

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.metrics import in_context
from provenzoo.metrics.measure import Measure, metric_functions

N, DIM = 20, 4
SPECTRUM = [0.5, 1.0, 1.5, 2.0]


def model(loops: int, seed: int = 0, **settings: Any) -> Any:
    settings = {"diagonal": 0.5, "std": 0.1, "dim": DIM, **settings}
    return provenzoo.create_model("looped-linear-attention", loops=loops, seed=seed, **settings).double()


def data(layout: str = "gram", **settings: Any) -> Any:
    settings = {"n": N, "dim": DIM, "spectrum": SPECTRUM, "test": 20_000, **settings}
    return provenzoo.create_dataset("linear-regression-prompts", layout=layout, **settings)


def sizes(n: int, dim: int, loops: int) -> dict[str, Tensor]:
    return {"context": torch.tensor(n), "covariance": torch.eye(dim), "loops": torch.tensor(loops)}


@torch.no_grad()
def known(made: Any, found: Any) -> dict[str, Tensor]:
    """What metrics may ask for, on a whole test split."""
    inputs, targets = found.test.inputs.double(), found.test.targets.double()
    return {"inputs": inputs, "targets": targets, "outputs": made(inputs), **found.structure, **made.named_tensors()}


def asked(function: Any, everything: dict[str, Tensor]) -> float:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return function(**{name: everything[name] for name in names if name in everything}).item()


def measured(name: str, made: Any, found: Any) -> Any:
    functions = metric_functions([name], in_context.squared_error)
    return Measure(functions, found, found.test, torch.device("cpu"), torch.float64)(made)[name]


def refusal(name: str, made: Any, found: Any) -> str:
    with pytest.raises(ZooError) as caught:
        measured(name, made, found)
    message = str(caught.value)
    assert name in message and "\n" not in message
    return message
