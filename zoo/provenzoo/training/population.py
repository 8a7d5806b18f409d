"""Exact gradient descent on the population loss of a position-only student: no batch, no noise.

Noise in the targets that is independent of the inputs adds a constant to the population loss, so the gradient is that
of `1/2 E |f*(X) - TF(X)|_F^2` over standard Gaussian X, in closed form (metrics/population.py has the loss).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from provenzoo.errors import UsageError, ZooError
from provenzoo.models.one_layer import PositionAttention

NEEDED = {
    "model.name": "position-attention",
    "data.name": "taught",
    "data.inputs.name": "gaussian-tokens",
    "data.response": "teacher",
    "dtype": "float64",
    "data.inputs.samples": None,
    "loss": None,
}
"""What the population loss is known for: a stage's settings and their values; with None, what it has no use for."""


class PopulationGradient:
    """Sets the exact gradients of a student and gives its population loss, one number a replica.

    `truths` holds a teacher's `value` V* `[M, d]`, `attention` S* `[D, D]` and `slope` `[]` for each replica. Where W_V
    is zero sigma' is 1, as in the student. All but the gradient by P's rotation is elementwise on `[R, M, D]`, and what
    depends on the teacher alone is computed once: a step of tiny matrices is made of the number of its operations.
    """

    def __init__(self, truths: Sequence[Mapping[str, Tensor]], device: torch.device | str, dtype: torch.dtype) -> None:
        if "true_value" not in truths[0]:
            raise ZooError("`population: true` needs a teacher whose V* and S* are known, such as graph-conv")
        self.value, self.attention, slope = (
            torch.stack([truth[name] for truth in truths]).to(device, dtype)
            for name in ("true_value", "true_attention", "true_slope")
        )
        self.slopes = slope
        line, fold = (1 + slope[:, None, None]) / 2, (1 - slope[:, None, None]) / 2
        self.line, self.power, self.bend = line, line**2 + fold**2, fold**2 * 2 / math.pi
        self.bent = bool(fold.any())
        columns = self.attention.square().sum(-2, keepdim=True)
        self.b = self.value.square().sum(-1, keepdim=True) * columns
        self.constant = (self.power * self.b).sum((-2, -1)) / 2

    def check(self, student: nn.Module) -> None:
        """Refuse a student whose activation is not its teacher's: the closed form is for one activation."""
        assert isinstance(student, PositionAttention)
        if not torch.allclose(self.slopes, torch.full_like(self.slopes, student.slope)):
            raise ZooError("`population: true` needs a student with its teacher's activation; give both the same")

    def __call__(self, student: nn.Module) -> Tensor:
        """The loss `[]`, or `[R]` of stacked replicas; parameters' `grad` are set."""
        assert isinstance(student, PositionAttention)
        stacked = student.value.dim() == 3
        tensors = [t.detach() for t in (student.value, student.attention, student.positions)]
        weights = tensors if stacked else [t.unsqueeze(0) for t in tensors]
        loss, by_value, by_attention = self.gradients(*weights)
        student.value.grad, student.attention.grad = (g if stacked else g[0] for g in (by_value, by_attention))
        return loss if stacked else loss[0]

    def gradients(self, value: Tensor, attention: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss `[R]` and its gradients by W_V and W_KQ at W_V `[R, M, d]`, W_KQ, P `[R, D, D]`."""
        scale = attention.shape[-1] ** -0.5
        scores = (positions.mT @ attention @ positions).mul_(scale).softmax(-2)
        loss, by_value, by_scores = self.at_scores(value, scores)
        moved = scores * by_scores
        by_logits = moved.addcmul_(scores, moved.sum(-2, keepdim=True), value=-1).mul_(scale)
        return loss, by_value, positions @ by_logits @ positions.mT

    def at_scores(self, value: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss `[R]` and its gradients by W_V `[R, M, d]` and by the scores S `[R, D, D]`."""
        size, inner = value.square().sum(-1, keepdim=True), (value * self.value).sum(-1, keepdim=True)
        read, common = scores.square().sum(-2, keepdim=True), (scores * self.attention).sum(-2, keepdim=True)
        a, c = size * read, inner * common
        by_c, by_a, kernel = self._kernel(a, c)
        loss = self.constant + (self.power * a / 2 - kernel).sum((-2, -1))
        by_value = (by_a * read).sum(-1, keepdim=True) * value - (by_c * common).sum(-1, keepdim=True) * self.value
        by_scores = (by_a * size).sum(-2, keepdim=True) * scores - (by_c * inner).sum(-2, keepdim=True) * self.attention
        return loss, by_value, by_scores

    def _kernel(self, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The kernel's derivative by c, `power` less twice its derivative by a, and the kernel, `[R, M, D]`."""
        if not self.bent:
            return torch.ones_like(c), self.power.expand_as(a), c
        if not a.any():
            return self.line.expand_as(c), self.power.expand_as(a), torch.zeros_like(c)
        a = a.clamp(min=torch.finfo(a.dtype).tiny ** 0.5)
        both = a * self.b
        root = (both - c * c).clamp_(min=0).sqrt_()
        angle = (c / both.sqrt_()).clamp_(-1, 1).asin_().mul_(self.bend)
        by_c = self.line**2 + angle
        return by_c, self.power - self.bend * root / a, by_c * c + self.bend * root


def check(settings: Any, where: str) -> None:
    """What is wrong with a stage that asks for `population: true`, before anything runs."""
    data = settings.data
    inputs = data.get("inputs") or {}
    given = {
        "model.name": settings.model.get("name"),
        "data.name": data.get("name"),
        "data.inputs.name": inputs.get("name"),
        "data.inputs.samples": inputs.get("samples"),
        "loss": settings.loss,
        "data.response": data.get("response", "teacher"),
        "dtype": settings.dtype,
    }
    for key, needed in NEEDED.items():
        if given[key] != needed:
            wish = "has no use for it; leave it out" if needed is None else f"needs {needed!r}"
            raise UsageError(f"{where}.{key}: `population: true` {wish} (it is {given[key]!r})")
