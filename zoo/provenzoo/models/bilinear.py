"""A teacher's function `sigma(V X S)` as a model, so that its ground truth is kept and shared as weights are."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from provenzoo.models.activations import Activation, Leak, slope_of
from provenzoo.models.base import Count, Groups, Model
from provenzoo.models.one_layer import GROUPS, bilinear


class Bilinear(Model, nn.Module):
    """`value` V `[M, d]` and `attention` S `[D, D]` (Zhang, Zhao, Gu, Cao, Eq. 2.1); fresh, normal and uniform."""

    groups: Groups = GROUPS
    replicable: ClassVar[bool] = True

    def __init__(
        self,
        *,
        dim: Count,
        tokens: Count,
        features: Count,
        activation: Activation = "relu",
        leak: Leak = 0.1,
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.leak, self.slope = leak, slope_of(activation, leak)
        self.value = nn.Parameter(torch.randn(features, dim))
        self.attention = nn.Parameter(torch.full((tokens, tokens), 1 / tokens))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, d, D] -> [B, M, D]`, or with replicas `[R, B, d, D] -> [R, B, M, D]`."""
        return bilinear(x, self.value, self.attention, self.slope)

    def named_tensors(self) -> dict[str, Tensor]:
        return {"value": self.value.detach(), "scores": self.attention.detach()}
