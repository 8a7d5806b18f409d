"""One-layer transformers as students of a teacher, without residual connections, MLP or head.

Zhang, Zhao, Gu, Cao, "Transformers trained via gradient descent can provably learn a class of teacher models": inputs
are token matrices X `[d, D]`, a token a column, with orthonormal positional encodings P `[D, D]` beside them.
"""

from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from provenzoo.models.activations import Activation, Leak, activate, slope_of
from provenzoo.models.base import Count, Groups, Model

GROUPS: Groups = {"attention": ["attention"], "value": ["value"]}


def orthonormal(size: int) -> Tensor:
    """A random orthogonal matrix `[size, size]`, from torch's global generator."""
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
    return (q * r.diagonal().sign()).float()


Positions = Literal["random", "one-hot"]
"""P: a random orthonormal matrix, or the identity. To gradient descent all are the same; to Adam they are not."""


class _OneLayer(Model, nn.Module):
    """W_V and W_KQ, zero at the start, of the widths that a subclass gives, and positions.

    The buffer `positions` P `[D, D]` is orthonormal in the dtype that the module has, not in float32 alone.
    """

    groups: Groups = GROUPS
    replicable: ClassVar[bool] = True
    positions: Tensor

    def __init__(
        self,
        *,
        dim: Count,
        tokens: Count,
        features: Count,
        activation: Activation = "relu",
        leak: Leak = 0.1,
        positions: Positions = "random",
    ) -> None:
        super().__init__()
        self.slope = slope_of(activation, leak)
        read, scored = self.widths(dim, tokens)
        self.value = nn.Parameter(torch.zeros(features, read))
        self.attention = nn.Parameter(torch.zeros(scored, scored))
        self.register_buffer("positions", orthonormal(tokens) if positions == "random" else torch.eye(tokens))

    @staticmethod
    def widths(dim: int, tokens: int) -> tuple[int, int]:
        """The width of what W_V reads, and that of W_KQ."""
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self.positions.dtype == torch.float64:
            eye = torch.eye(self.positions.shape[-1]).to(self.positions)
            for _ in range(2):  # Newton's iteration for the nearest orthonormal matrix
                self.positions = self.positions @ (3 * eye - self.positions.mT @ self.positions) / 2
        return self


class PositionAttention(_OneLayer):
    """`TF = sigma(W_V X softmax(P^T W_KQ P / sqrt(D)))` (Eq. 2.4), the softmax over each column; zero at the start.

    `attention` is W_KQ `[D, D]`, `value` is W_V `[M, d]`. The scores depend on positions alone.
    """

    @staticmethod
    def widths(dim: int, tokens: int) -> tuple[int, int]:
        return dim, tokens

    def logits(self) -> Tensor:
        """`P^T W_KQ P`, `[D, D]` (or `[R, D, D]`): what the gradient moves along, before scaling and softmax."""
        return self.positions.mT @ self.attention @ self.positions

    def scores(self) -> Tensor:
        """S `[D, D]` (or `[R, D, D]`); every column sums to one."""
        scores = self.logits()
        return (scores * scores.shape[-1] ** -0.5).softmax(-2)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, d, D] -> [B, M, D]`, or with replicas `[R, B, d, D] -> [R, B, M, D]`."""
        return bilinear(x, self.value, self.scores(), self.slope)

    def named_tensors(self) -> dict[str, Tensor]:
        return {
            "value": self.value.detach(),
            "attention": self.attention.detach(),
            "logits": self.logits().detach(),
            "scores": self.scores().detach(),
        }


class _Bilinear(torch.autograd.Function):
    """`sigma(W X S)` with weights and scores that all items of a batch share, and its gradient by hand.

    With tokens laid out `[d, B, D]` every product is one matrix product a replica: about twice as fast as autograd,
    which multiplies item by item and sums their gradients afterwards.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, scores: Tensor, slope: float) -> Tensor:
        """`[R, B, d, D], [R, M, d], [R, D, D] -> [R, B, M, D]`."""
        replicas, batch, dim, tokens = x.shape
        rows = x.transpose(1, 2).reshape(replicas, dim * batch, tokens)
        mixed = torch.bmm(rows, scores).view(replicas, dim, batch * tokens)
        z = torch.bmm(value, mixed)
        ctx.save_for_backward(rows, mixed, value, scores, z >= 0)
        ctx.slope = slope
        return F.leaky_relu(z, slope).view(replicas, -1, batch, tokens).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        rows, mixed, value, scores, up = ctx.saved_tensors
        by_z = outer[0].transpose(1, 2).reshape(up.shape)
        by_z = by_z * up if ctx.slope == 0 else torch.where(up, by_z, ctx.slope * by_z)
        by_mixed = torch.bmm(value.mT, by_z).view(rows.shape)
        by_x = None
        if ctx.needs_input_grad[0]:
            by_x = torch.bmm(by_mixed, scores.mT).unflatten(1, (value.shape[2], -1)).transpose(1, 2)
        return by_x, torch.bmm(by_z, mixed.mT), torch.bmm(rows.mT, by_mixed), None


def bilinear(x: Tensor, value: Tensor, scores: Tensor, slope: float) -> Tensor:
    """`sigma(W X S)`: `[B, d, D] -> [B, M, D]`, or with replicas `[R, B, d, D] -> [R, B, M, D]`."""
    if value.dim() == 3:
        return _Bilinear.apply(x, value, scores, slope)  # pyright: ignore[reportReturnType]
    return _Bilinear.apply(*(t.unsqueeze(0) for t in (x, value, scores)), slope).squeeze(0)  # pyright: ignore


class SelfAttention(_OneLayer):
    """`TF = sigma(W_V Z softmax(Z^T W_KQ Z / sqrt(D)))` with `Z = [X; P]` (Eq. 2.3): full attention; zero at the start.

    `attention` is W_KQ `[d + D, d + D]`, `value` is W_V `[M, d + D]`; the last D rows and columns belong to positions.
    """

    @staticmethod
    def widths(dim: int, tokens: int) -> tuple[int, int]:
        return dim + tokens, dim + tokens

    def forward(self, x: Tensor) -> Tensor:
        """`[B, d, D] -> [B, M, D]`, or with replicas `[R, B, d, D] -> [R, B, M, D]`."""
        positions = self.positions.unsqueeze(-3).expand(*x.shape[:-2], *self.positions.shape[-2:])
        z = torch.cat([x, positions], -2)
        scores = z.mT @ (self.attention.unsqueeze(-3) @ z) * x.shape[-1] ** -0.5
        return activate(self.value.unsqueeze(-3) @ z @ scores.softmax(-2), self.slope)

    def named_tensors(self) -> dict[str, Tensor]:
        return {"value": self.value.detach(), "attention": self.attention.detach()}
