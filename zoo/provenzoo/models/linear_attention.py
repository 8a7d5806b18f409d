"""Linear attention on prompts of linear regression, looped or in layers (Gatmiry et al. 2024, Sec. 3.3 to 3.5).

A layer is `Z <- Z - (1/n) P Z M (Z^T Q Z)` on `Z = [[X, x_q], [y^T, 0]]`, where M hides the query; the prediction is
minus the last entry of Z (Eq. 2 to 4). With the theory's `Q = [[A, 0], [0, 0]]` and `P = [[0, 0], [u^T, 1]]` the block
X stays, and the last row is always `s^T X` on the examples and `(s - w)^T x_q` on the query, with

    s^T <- s^T - (s + u)^T G A,    s_0 = w,    G = X X^T / n,    prediction - y_q = -s^T x_q :

gradient descent on w with the preconditioner A^T, in dim^2 operations a loop. The paper's Eq. 12 and 13 give the terms
in u the other sign.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from provenzoo.errors import ZooError
from provenzoo.models.base import Count, Groups, Model

Form = Literal["theory", "symmetric", "full"]
Compute = Literal["residual", "tokens"]
Std = Annotated[float, Field(ge=0)]


class LinearAttention(Model, nn.Module):
    """What looped and layered models share: three forms, on prompts or on Gram matrices.

    - `theory`: A and u.
    - `symmetric`: the same with `A = (W + W^T) / 2`.
    - `full`: `Q = [[Q, 0], [0, 0]]` and `P = [[P, 0], [0, 1]]`, as in the codebase that the paper trains with (Ahn et
      al. 2023, arXiv:2306.00297); X changes from layer to layer too.

    A (or Q) starts at `diag(diagonal)`; normal draws of `std` are added to all parameters. `compute: tokens` follows
    every token of a prompt, as the layer is written (`full` always does); `residual` gives the same numbers sooner.
    """

    groups: Groups = {"attention": ["query"], "value": ["u", "value"]}
    replicable: ClassVar[bool] = True

    def __init__(
        self, dim: int, stack: tuple[int, ...], form: Form, diagonal: float | list[float], std: float, compute: Compute
    ) -> None:
        super().__init__()
        self.dim, self.form, self.compute = dim, form, compute
        start = torch.as_tensor(diagonal, dtype=torch.float32)
        if start.dim() and len(start) != dim:
            raise ZooError(f"linear attention: diagonal has {len(start)} values, but dim is {dim}")
        self.query = nn.Parameter(start.expand(dim).diag() + std * torch.randn(*stack, dim, dim))
        if form == "full":
            self.value = nn.Parameter(std * torch.randn(*stack, dim, dim))
        else:
            self.u = nn.Parameter(std * torch.randn(*stack, dim))

    @property
    def preconditioner(self) -> Tensor:
        """A (or Q) as it acts, `[..., dim, dim]`; the gradient steps are preconditioned by its transpose."""
        return (self.query + self.query.mT) / 2 if self.form == "symmetric" else self.query

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """A `[..., dim, dim]` and u `[..., dim]` of each layer in turn, or Q and P of `full`."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Predictions `[..., B]` of prompts `[..., B, dim + 1, n + 1]`, or `error_map` of Gram matrices."""
        rows, columns = x.shape[-2:] if x.dim() >= 2 else (0, 0)
        if rows != self.dim + 1 and (rows, columns) != (self.dim, self.dim):
            raise ZooError(
                f"linear attention of dim {self.dim} reads prompts [B, {self.dim + 1}, n + 1] or Gram matrices "
                f"[B, {self.dim}, {self.dim}], not {[*x.shape]}; give model and data the same dim"
            )
        if rows == self.dim:
            return self._moving_error_map(x) if self.form == "full" else self.error_map(x)
        return self.by_tokens(x) if self.compute == "tokens" or self.form == "full" else self.by_residual(x)

    def error_map(self, gram: Tensor) -> Tensor:
        """`[..., B, dim, dim] -> [..., B, dim + 1, dim]`: the matrix M and, as its last row, c of `s^T = w^T M + c`.

        So the prediction's error is `-(w^T M + c) x_q`. One loop gives M = I - G A and c = -u^T G A.
        """
        state = torch.eye(self.dim + 1, self.dim, dtype=gram.dtype, device=gram.device)
        for a, u in self.blocks():
            shift = F.pad(u.unsqueeze(-2), (0, 0, self.dim, 0)).unsqueeze(-3)
            state = state - (state + shift) @ _times(gram, a)
        return state

    def by_residual(self, prompts: Tensor) -> Tensor:
        """Gradient descent for v = w - s from v = 0, with `w^T G = y^T X^T / n`."""
        x, y, query = prompts[..., :-1, :-1].contiguous(), prompts[..., -1:, :-1], prompts[..., :-1, -1]
        n = x.shape[-1]
        gram, target, v = x @ x.mT / n, (y @ x.mT).squeeze(-2) / n, torch.zeros_like(query)
        for a, u in self.blocks():
            shifted = (v - u.unsqueeze(-2)).unsqueeze(-2)
            v = v + (target - (shifted @ gram).squeeze(-2)) @ a
        return (v * query).sum(-1)

    def by_tokens(self, prompts: Tensor) -> Tensor:
        """Equation 3 as it stands, `[..., B, dim + 1, n + 1] -> [..., B]`."""
        z, n = prompts, prompts.shape[-1] - 1
        for block in self.blocks():
            q, p = (matrix.unsqueeze(-3) for matrix in self._token_weights(*block))
            seen = z[..., :n]
            z = z - p @ seen @ (seen.mT @ q @ z) / n
        return -z[..., -1, -1]

    def _moving_error_map(self, gram: Tensor) -> Tensor:
        """`error_map` of `full`: X is T^T X_0 by then, a layer steps by K = G T Q T^T, and T loses K^T T P^T."""
        moved = m = torch.eye(self.dim, dtype=gram.dtype, device=gram.device).expand(gram.shape)
        for q, p in self.blocks():
            step = _times(gram @ moved, q) @ moved.mT
            m, moved = m - m @ step, moved - _times(step.mT @ moved, p.mT)
        return F.pad(m, (0, 0, 0, 1))

    def _token_weights(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Q and P of a layer as they act on tokens, `[..., dim + 1, dim + 1]`."""
        last_row = F.pad(torch.ones_like(first[..., :1, :1]), (self.dim, 0))
        if self.form == "full":
            p = torch.cat([F.pad(second, (0, 1)), last_row], -2)
        else:
            p = F.pad(last_row + F.pad(second.unsqueeze(-2), (0, 1)), (0, 0, self.dim, 0))
        return F.pad(first, (0, 1, 0, 1)), p

    def named_tensors(self) -> dict[str, Tensor]:
        """`preconditioner` (A or Q), `shift` (u) or `value` (P), and `loops`, the number of steps taken."""
        second = {"value": self.value} if self.form == "full" else {"shift": self.u}
        tensors = {"preconditioner": self.preconditioner, **second}
        return {name: tensor.detach() for name, tensor in tensors.items()} | {"loops": torch.tensor(self.depth)}


class LoopedLinearAttention(LinearAttention):
    """One layer, `loops` times; how often may change after training."""

    adaptable: ClassVar[tuple[str, ...]] = ("loops", "compute")

    def __init__(
        self,
        *,
        dim: Count,
        loops: Count,
        form: Form = "theory",
        diagonal: float | list[float] = 0.0,
        std: Std = 0.001,
        compute: Compute = "residual",
    ) -> None:
        super().__init__(dim, (), form, diagonal, std, compute)
        self.depth = loops

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        block = self.preconditioner, self.value if self.form == "full" else self.u
        yield from [block] * self.depth

    def error_map(self, gram: Tensor) -> Tensor:
        """As of layers, by powers: `(s + u)^T <- (s + u)^T (I - G A)`, so that M is a power and `c = u^T (M - I)`."""
        identity = torch.eye(self.dim, dtype=gram.dtype, device=gram.device)
        m = torch.linalg.matrix_power(identity - _times(gram, self.preconditioner), self.depth)
        u = self.u[..., None, None, :]
        return torch.cat([m, u @ m - u], -2)


def _times(gram: Tensor, matrix: Tensor) -> Tensor:
    """`[..., B, dim, dim] @ [..., dim, dim]`, one matrix for a batch, as a product of tall matrices."""
    return (gram.flatten(-3, -2) @ matrix).view(gram.shape)


class LinearAttentionLayers(LinearAttention):
    """`layers` layers with weights of their own (Sec. 5.1 and Theorem A.1)."""

    adaptable: ClassVar[tuple[str, ...]] = ("compute",)

    def __init__(
        self,
        *,
        dim: Count,
        layers: Count,
        form: Form = "theory",
        diagonal: float | list[float] = 0.0,
        std: Std = 0.001,
        compute: Compute = "residual",
    ) -> None:
        super().__init__(dim, (layers,), form, diagonal, std, compute)
        self.depth = layers

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        second = self.value.unbind(-3) if self.form == "full" else self.u.unbind(-2)
        yield from zip(self.preconditioner.unbind(-3), second, strict=True)
