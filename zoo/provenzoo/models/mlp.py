"""A multi-layer perceptron whose replicas train at once."""

from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from provenzoo.models.base import Count, Groups, Model


class Linear(nn.Linear):
    """`nn.Linear` whose weight `[K, D]` and bias `[K]` may carry a leading replica dimension `[R]`."""

    def forward(self, input: Tensor) -> Tensor:
        """`[B, D] -> [B, K]`, or with replicas `[R, B, D] -> [R, B, K]`."""
        if self.weight.dim() == 2:
            return F.linear(input, self.weight, self.bias)
        return torch.baddbmm(self.bias.unsqueeze(1), input, self.weight.mT)


class MLP(Model, nn.Module):
    """Linear layers with ReLU between them, one a width in `hidden`, and a linear head."""

    groups: Groups = {"body": ["body.*"], "head": ["head.*"]}
    refits: ClassVar[tuple[str, ...]] = ("num_classes",)
    replicable: ClassVar[bool] = True

    def __init__(self, *, features: Count, num_classes: Count, hidden: Count | list[Count] = 64) -> None:
        super().__init__()
        widths = [features, *([hidden] if isinstance(hidden, int) else hidden)]
        self.body = nn.ModuleList(Linear(a, b) for a, b in pairwise(widths))
        self.head = Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, features] -> [B, num_classes]`, or with replicas `[R, B, ...]`."""
        for layer in self.body:
            x = F.relu(layer(x))
        return self.head(x)
