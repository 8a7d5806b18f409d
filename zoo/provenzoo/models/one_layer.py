"""One-layer transformers as students of a teacher, without residual connections, MLP or head.

Zhang, Zhao, Gu, Cao, "Transformers trained via gradient descent can provably learn a class of teacher models": inputs
are token matrices X `[d, D]`, a token a column, with orthonormal positional encodings P `[D, D]` beside them.
"""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from provenzoo.models.activations import Activation, Leak, activate, slope_of
from provenzoo.models.base import Count, Groups, Model

GROUPS: Groups = {"attention": ["attention"], "value": ["value"]}


def orthonormal(size: int) -> Tensor:
    """A random orthogonal matrix `[size, size]`, from torch's global generator."""
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
    return (q * r.diagonal().sign()).float()


class _WithPositions(Model, nn.Module):
    """A buffer `positions` P `[D, D]` that is orthonormal in the dtype that the module has, not in float32 alone."""

    positions: Tensor

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self.positions.dtype == torch.float64:
            eye = torch.eye(self.positions.shape[-1]).to(self.positions)
            for _ in range(2):  # Newton's iteration for the nearest orthonormal matrix
                self.positions = self.positions @ (3 * eye - self.positions.mT @ self.positions) / 2
        return self


class PositionAttention(_WithPositions):
    """`TF = sigma(W_V X softmax(P^T W_KQ P / sqrt(D)))` (Eq. 2.4), the softmax over each column; zero at the start.

    `attention` is W_KQ `[D, D]`, `value` is W_V `[M, d]`. The scores depend on positions alone.
    """

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
        self.slope = slope_of(activation, leak)
        self.value = nn.Parameter(torch.zeros(features, dim))
        self.attention = nn.Parameter(torch.zeros(tokens, tokens))
        self.register_buffer("positions", orthonormal(tokens))

    def position_scores(self) -> Tensor:
        """`P^T W_KQ P`, `[D, D]` (or `[R, D, D]`): what the gradient moves along, before scaling and softmax."""
        return self.positions.mT @ self.attention @ self.positions

    def scores(self) -> Tensor:
        """S `[D, D]` (or `[R, D, D]`); every column sums to one."""
        scores = self.position_scores()
        return (scores * scores.shape[-1] ** -0.5).softmax(-2)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, d, D] -> [B, M, D]`, or with replicas `[R, B, d, D] -> [R, B, M, D]`."""
        return activate(_apply(self.value, x, self.scores()), self.slope)

    def named_tensors(self) -> dict[str, Tensor]:
        return {
            "value": self.value.detach(),
            "attention": self.attention.detach(),
            "position_scores": self.position_scores().detach(),
            "attention_scores": self.scores().detach(),
        }


def _apply(value: Tensor, x: Tensor, scores: Tensor) -> Tensor:
    """`W X S` with weights and scores that all items share."""
    if value.dim() == 2:
        return value @ (x @ scores)
    mixed = torch.bmm(x.flatten(1, 2), scores).view_as(x)
    return value.unsqueeze(1) @ mixed


class SelfAttention(_WithPositions):
    """`TF = sigma(W_V Z softmax(Z^T W_KQ Z / sqrt(D)))` with `Z = [X; P]` (Eq. 2.3): full attention; zero at the start.

    `attention` is W_KQ `[d + D, d + D]`, `value` is W_V `[M, d + D]`; the last D rows and columns belong to positions.
    """

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
        self.slope = slope_of(activation, leak)
        self.value = nn.Parameter(torch.zeros(features, dim + tokens))
        self.attention = nn.Parameter(torch.zeros(dim + tokens, dim + tokens))
        self.register_buffer("positions", orthonormal(tokens))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, d, D] -> [B, M, D]`, or with replicas `[R, B, d, D] -> [R, B, M, D]`."""
        positions = self.positions.unsqueeze(-3).expand(*x.shape[:-2], *self.positions.shape[-2:])
        z = torch.cat([x, positions], -2)
        scores = z.mT @ (self.attention.unsqueeze(-3) @ z) * x.shape[-1] ** -0.5
        return activate(self.value.unsqueeze(-3) @ z @ scores.softmax(-2), self.slope)

    def named_tensors(self) -> dict[str, Tensor]:
        return {"value": self.value.detach(), "attention": self.attention.detach()}
