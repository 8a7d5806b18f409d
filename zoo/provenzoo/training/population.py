"""Exact population gradient descent of a position-only student: no batch, no noise, float64.

Noise in the targets that is independent of the inputs adds a constant to the population loss, so the gradient is that
of `1/2 E |f*(X) - TF(X)|_F^2` over standard Gaussian X, in closed form (metrics/population.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from provenzoo.metrics.population import Moments, kernel_slopes, population_loss, power
from provenzoo.models.one_layer import PositionAttention


class PopulationLoss:
    """The population loss of a student, one number a replica, whose gradient is exact also where W_V is zero."""

    def __init__(self, truths: Sequence[Mapping[str, Tensor]], device: torch.device, dtype: torch.dtype) -> None:
        parts = [torch.stack([t[name] for t in truths]).to(device, dtype) for name in ("value", "attention", "slope")]
        self.truth = parts if len(truths) > 1 else [part[0] for part in parts]

    def __call__(self, student: nn.Module) -> Tensor:
        """`[]`, or `[R]` with stacked replicas."""
        assert isinstance(student, PositionAttention)
        return _Loss.apply(student.value, student.scores(), *self.truth)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, scores: Tensor, *truth: Tensor) -> Tensor:
        ctx.save_for_backward(value, scores, *truth)
        return population_loss(value, scores, *truth)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        by_value, by_scores = population_gradient(*ctx.saved_tensors)
        scale = outer[0][..., None, None]
        return scale * by_value, scale * by_scores, None, None, None


def population_gradient(
    value: Tensor, scores: Tensor, true_value: Tensor, true_attention: Tensor, true_slope: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of `population_loss` by W_V `[..., M, d]` and by S `[..., D, D]`, with sigma'(0) = 1."""
    by_c, by_a = kernel_slopes(Moments.of(value, scores, true_value, true_attention), true_slope)
    own = power(true_slope) - 2 * by_a
    read = scores.square().sum(-2, keepdim=True)
    common = (scores * true_attention).sum(-2, keepdim=True)
    by_value = (own * read).sum(-1, keepdim=True) * value - (by_c * common).sum(-1, keepdim=True) * true_value
    size = value.square().sum(-1, keepdim=True)
    inner = (value * true_value).sum(-1, keepdim=True)
    by_scores = (own * size).sum(-2, keepdim=True) * scores - (by_c * inner).sum(-2, keepdim=True) * true_attention
    return by_value, by_scores
