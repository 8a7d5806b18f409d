"""Population descent against three numbers: Lemma D.2 of Zhang, Zhao, Gu, Cao has W_V = C1 V*, logits C2 and -C3.

Put into the loss, the pattern leaves a function of C1, C2 and C3 that is written here by the arc-cosine kernel of Cho and
Saul (2009) alone. A step of gradient descent moves each number by its derivative over the squared norm of what it scales.
"""

import math

import pytest
import torch
from torch import Tensor

from provenzoo import create_model, create_teacher
from provenzoo.metrics import population as exact
from provenzoo.metrics import recovery
from provenzoo.training.population import PopulationGradient

TEACHERS = {
    "conv-relu": ("conv-pool", "relu", {"tokens": 12, "group": 3}),
    "conv-leaky": ("conv-pool", "leaky-relu", {"tokens": 12, "group": 3}),
    "graph-relu": ("graph-conv", "relu", {"tokens": 9}),
    "sparse-token": ("sparse-token", "identity", {"tokens": 8, "group": 2}),
    "group-sparse": ("group-sparse", "identity", {"tokens": 7}),
}


def student_and_truth(
    name: str, activation: str, sizes: dict, dim: int = 4
) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    """A student at zero and what its teacher holds, 1/K to double precision."""
    given = {} if activation == "identity" else {"activation": activation}
    teacher = create_teacher(name, seed=1, dim=dim, **sizes, **given)
    shapes = {"dim": dim, "tokens": sizes["tokens"], "features": len(teacher.value), "activation": activation}
    truth = {f"true_{key}": tensor.double() for key, tensor in teacher.truth.items()}
    members = (truth["true_attention"] > 0).double()
    truth["true_attention"] = members / members.sum(0)
    return create_model("position-attention", seed=1, **shapes).double(), truth


def descend(student: torch.nn.Module, truth: dict[str, Tensor], rate: float, steps: int) -> None:
    gradient = PopulationGradient([truth], "cpu", torch.float64)
    optimiser = torch.optim.SGD(student.parameters(), lr=rate)
    for _ in range(steps):
        gradient(student)
        optimiser.step()


class Pattern:
    """The loss as a function of C1, C2 and C3, for one teacher's D, K, |V*|^2 and slope below zero."""

    def __init__(self, truth: dict[str, Tensor]) -> None:
        self.tokens = truth["true_attention"].shape[-1]
        self.group = int((truth["true_attention"][:, 0] > 0).sum())
        self.size = truth["true_value"].square().sum().item()
        self.slope = truth["true_slope"].item()

    def columns(self, c2: Tensor, c3: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of a column of S: p, |s|^2 and its correlation with that of S*."""
        rest = self.tokens - self.group
        p = 1 / (self.group + rest * torch.exp(-(c2 + c3) / math.sqrt(self.tokens)))
        norm = self.group * p**2 + (1 - self.group * p) ** 2 / rest
        return p, norm, p * (self.group / norm).sqrt()

    def kernel(self, correlation: Tensor) -> Tensor:
        """`E sigma(z) sigma(u)` of unit normals with a correlation."""
        angles = (torch.acos(correlation), math.pi - torch.acos(correlation))
        with_, against = ((torch.sin(t) + (math.pi - t) * torch.cos(t)) / (2 * math.pi) for t in angles)
        return (1 + self.slope**2) * with_ - 2 * self.slope * against

    def loss(self, c1: Tensor, c2: Tensor, c3: Tensor) -> Tensor:
        _, norm, correlation = self.columns(c2, c3)
        half = (1 + self.slope**2) / 2
        crossed = c1 * (norm / self.group).sqrt() * self.kernel(correlation)
        return self.size * self.tokens * (half * (c1**2 * norm + 1 / self.group) / 2 - crossed)

    def best_scale(self, c2: Tensor, c3: Tensor) -> float:
        """The C1 that the loss, a parabola in it, is least at."""
        zero, one = torch.zeros(()).double(), torch.ones(()).double()
        start, middle, end = (self.loss(at, c2, c3).item() for at in (zero, one, 2 * one))
        return (3 * start - 4 * middle + end) / (2 * (start - 2 * middle + end))

    def descended(self, rate: float, steps: int) -> list[Tensor]:
        weights = [self.size, self.tokens * self.group, self.tokens * (self.tokens - self.group)]
        first = (
            rate * (1 + self.slope) / 2
        )  # at W_V = 0 sigma' is 1: by Stein's lemma E sigma(u) x is E sigma'(u) times v
        numbers = [torch.tensor(at, dtype=torch.float64, requires_grad=True) for at in (first, 0.0, 0.0)]
        for _ in range(steps - 1):
            slopes = torch.autograd.grad(self.loss(*numbers), numbers)
            with torch.no_grad():
                for number, slope, weight in zip(numbers, slopes, weights, strict=True):
                    number -= rate * slope / weight
        return [number.detach() for number in numbers]


@pytest.mark.parametrize("name", TEACHERS)
@pytest.mark.parametrize("steps", [1, 25, 800])
def test_the_three_coefficients_are_those_of_descent_on_the_pattern_itself(name: str, steps: int) -> None:
    student, truth = student_and_truth(*TEACHERS[name])
    descend(student, truth, 0.1, steps)
    value, logits, group = student.value.detach(), student.logits().detach(), truth["true_attention"]
    pattern = Pattern(truth)
    known = pattern.descended(0.1, steps)
    found = [recovery.value_coefficient(value, truth["true_value"])]
    found += [measure(logits, group) for measure in (recovery.group_coefficient, recovery.rest_coefficient)]
    torch.testing.assert_close(torch.stack(found), torch.stack(known), rtol=1e-9, atol=1e-12)
    p, _, _ = pattern.columns(*known[1:])
    assert recovery.group_mass(student.scores().detach(), group).item() == pytest.approx(pattern.group * p.item())
    loss = exact.population_loss(value, student.scores().detach(), *truth.values())
    assert loss.item() == pytest.approx(pattern.loss(*known).item(), rel=1e-9)


@pytest.mark.parametrize("name", TEACHERS)
def test_the_stationary_scale_is_where_the_loss_is_least(name: str) -> None:
    student, truth = student_and_truth(*TEACHERS[name])
    descend(student, truth, 0.1, 200)
    logits, group = student.logits().detach(), truth["true_attention"]
    numbers = [measure(logits, group) for measure in (recovery.group_coefficient, recovery.rest_coefficient)]
    found = exact.stationary_scale(student.scores().detach(), group, truth["true_slope"])
    assert found.item() == pytest.approx(Pattern(truth).best_scale(*numbers), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "activation", "rate", "tokens", "group"),
    [
        ("conv-pool", "leaky-relu", 0.2, 36, 4),
        ("graph-conv", "relu", 0.1, 20, 3),
        ("sparse-token", "identity", 0.1, 20, 4),
    ],
)
def test_in_the_tail_the_loss_is_k_d_minus_k_d_over_4_eta_t(
    name: str, activation: str, rate: float, tokens: int, group: int
) -> None:
    student, truth = student_and_truth(name, activation, {"tokens": tokens}, dim=10)
    over = []
    for steps in (3_000, 27_000):
        descend(student, truth, rate, steps)
        loss = exact.population_loss(student.value.detach(), student.scores().detach(), *truth.values()).item()
        over.append(loss * 4 * rate * (3_000 if not over else 30_000) / (group * (tokens - group) * tokens))
    assert 1.0 <= over[1] <= 1.1 and abs(over[1] - 1) < abs(over[0] - 1)
