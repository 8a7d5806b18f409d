"""Micro-batches add up to the batch that they are split from."""

import pytest
import torch
from torch import nn

from provenzoo.metrics.classification import cross_entropy
from provenzoo.training.loop import _Training
from provenzoo.training.optim import Optim
from provenzoo.training.replicas import Replicas


class Fixed:
    """A feed of one batch."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def batch(self, step: int) -> tuple[torch.Tensor, ...]:
        return self.tensors


@pytest.mark.parametrize("k", [2, 3, 4])
def test_uneven_micro_batches_have_the_loss_and_gradients_of_the_batch(k: int) -> None:
    torch.manual_seed(0)
    feed = Fixed(torch.randn(7, 5, dtype=torch.float64), torch.randint(3, (7,)))
    start = nn.Linear(5, 3).double()
    found = []
    for accumulate in (1, k):
        model = nn.Linear(5, 3).double()
        model.load_state_dict(start.state_dict())
        training = _Training(Replicas([model], [0]), feed, cross_entropy, Optim(), 1, None, None, accumulate)  # pyright: ignore
        value = training._backward(model)
        found.append([value.detach(), *(p.grad for p in model.parameters())])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-10)
