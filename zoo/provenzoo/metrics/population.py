"""Exact expectations over standard Gaussian tokens of a student and a teacher `sigma(V X S)`.

Row m and column i of the two outputs are `sigma(z)` and `sigma(u)` with z, u jointly Gaussian: variances
`a = |w_m|^2 |s_i|^2` and `b = |v_m|^2 |s*_i|^2`, covariance `c = <w_m, v_m> <s_i, s*_i>`. With slope k below zero,
`sigma(z) = A z + B |z|`, A = (1 + k) / 2, B = (1 - k) / 2, and
`E |z||u| = (2 / pi) (sqrt(ab - c^2) + c arcsin(c / sqrt(ab)))` (Zhang, Zhao, Gu, Cao, Lemma F.5; the arc-cosine kernel
of Cho and Saul 2009). Shapes: W, V `[..., M, d]`, S, S* `[..., D, D]`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of the preactivations: `a`, `b`, `c` `[..., M, D]`."""

    a: Tensor
    b: Tensor
    c: Tensor

    @classmethod
    def of(cls, value: Tensor, scores: Tensor, true_value: Tensor, true_attention: Tensor) -> "Moments":
        """Those of a student (W, S) and a teacher (V*, S*)."""
        return cls(
            _outer(value.square().sum(-1), scores.square().sum(-2)),
            _outer(true_value.square().sum(-1), true_attention.square().sum(-2)),
            _outer((value * true_value).sum(-1), (scores * true_attention).sum(-2)),
        )

    def correlation(self) -> Tensor:
        """`c / sqrt(ab)`, 0 where a preactivation is zero."""
        return (self.c / (self.a * self.b).sqrt()).nan_to_num(0.0).clamp(-1, 1)

    def root(self) -> Tensor:
        """`sqrt(ab - c^2)`."""
        return (self.a * self.b - self.c.square()).clamp(min=0).sqrt()


def kernel(moments: Moments, slope: Tensor) -> Tensor:
    """`E sigma(z) sigma(u)`, `[..., M, D]`; `slope` `[...]`."""
    line, fold = _parts(slope)
    absolute = (2 / math.pi) * (moments.root() + moments.c * moments.correlation().arcsin())
    return line**2 * moments.c + fold**2 * absolute


def power(slope: Tensor) -> Tensor:
    """h with `E sigma(z)^2 = h a`: 1 for the identity, 1/2 for ReLU; `[..., 1, 1]`."""
    line, fold = _parts(slope)
    return line**2 + fold**2


def population_loss(
    value: Tensor, scores: Tensor, true_value: Tensor, true_attention: Tensor, true_slope: Tensor
) -> Tensor:
    """`1/2 E |f*(X) - TF(X)|_F^2` over standard Gaussian X, exactly: `[...]`."""
    moments = Moments.of(value, scores, true_value, true_attention)
    each = power(true_slope) * (moments.a + moments.b) / 2 - kernel(moments, true_slope)
    return each.sum((-2, -1))


def loss_over_tail_constant(
    value: Tensor, scores: Tensor, true_value: Tensor, true_attention: Tensor, true_slope: Tensor
) -> Tensor:
    """`4 L / (K (D - K) D)`, `[...]`; in the tail `1 / (eta t)`.

    The paper's Theorem 3.1 has `D^4` in the place of `(D - K) D`. Following the gradient flow of the logits' gap
    C2 + C3 near p = 1/K, with W_V at its stationary scale, gives `L = K (D - K) D / (4 eta t)` whatever M, V*, sigma.
    """
    loss = population_loss(value, scores, true_value, true_attention, true_slope)
    tokens, group = true_attention.shape[-1], (true_attention > 0).sum((-2, -1)) / true_attention.shape[-1]
    return 4 * loss / (group * (tokens - group) * tokens)


def stationary_scale(scores: Tensor, true_attention: Tensor, true_slope: Tensor) -> Tensor:
    """C1* = F3 / (K p F1) of Lemma D.2: the C1 for which `C1 V*` fits best at these scores, `[...]`."""
    unit = torch.ones_like(true_attention[..., :1, :1])
    moments = Moments.of(unit, scores, unit, true_attention)
    return kernel(moments, true_slope).sum((-2, -1)) / (power(true_slope) * moments.a).sum((-2, -1))


def phase(value: Tensor, scores: Tensor, true_value: Tensor, true_attention: Tensor, true_slope: Tensor) -> Tensor:
    """The phase of training (App. D.2), `[...]`: 1 until `C1 >= 0.95 C1*`, 2 until `p >= 1 / (2 K)`, then 3."""
    scale = (value * true_value).sum((-2, -1)) / true_value.square().sum((-2, -1))
    grown = scale >= 0.95 * stationary_scale(scores, true_attention, true_slope)
    found = (scores * (true_attention > 0)).sum(-2).mean(-1) >= 0.5
    return torch.where(found, 3.0, torch.where(grown, 2.0, 1.0))


def _parts(slope: Tensor) -> tuple[Tensor, Tensor]:
    slope = slope[..., None, None]
    return (1 + slope) / 2, (1 - slope) / 2


def _outer(rows: Tensor, columns: Tensor) -> Tensor:
    return rows.unsqueeze(-1) * columns.unsqueeze(-2)
