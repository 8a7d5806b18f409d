"""The population oracle against sampling, against autograd of the closed form, and against the paper's formulas."""

import math

import pytest
import torch
from torch import Tensor

from provenzoo import create_model, create_teacher
from provenzoo.errors import ZooError
from provenzoo.metrics import population as exact
from provenzoo.metrics.recovery import half_squared_error
from provenzoo.models.activations import slope_of
from provenzoo.models.one_layer import PositionAttention
from provenzoo.training.optim import read_optim
from provenzoo.training.population import PopulationGradient
from provenzoo.training.replicas import Replicas

ACTIVATIONS = ["identity", "relu", "leaky-relu"]
SIZES = {"tokens": 6, "dim": 3, "features": 2}


def pair(activation: str, filled: bool = True, seed: int = 0) -> tuple[PositionAttention, dict[str, Tensor]]:
    """A student in float64 and its teacher's truth, as a data set's structure tells it."""
    teacher = create_teacher("conv-pool", seed=seed, group=2, activation=activation, **SIZES)
    student = create_model("position-attention", seed=seed, activation=activation, **SIZES).double()
    draws = torch.Generator().manual_seed(seed)
    for parameter in student.parameters() if filled else ():
        parameter.data = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
    return student, {f"true_{name}": tensor.double() for name, tensor in teacher.truth.items()}


def closed_form(student: PositionAttention, truth: dict[str, Tensor]) -> Tensor:
    return exact.population_loss(student.value, student.scores(), *truth.values())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("filled", [True, False])
def test_sampled_loss_and_gradient_average_to_the_exact_ones(activation, filled):
    student, truth = pair(activation, filled)
    value, attention = truth["true_value"], truth["true_attention"]
    losses, gradients = [], []
    draws = torch.Generator().manual_seed(1)
    for _ in range(400):
        x = torch.randn(500, 3, 6, generator=draws, dtype=torch.float64)
        z = value @ x @ attention
        student.zero_grad()
        loss = half_squared_error(student(x), torch.where(z >= 0, z, truth["true_slope"] * z))
        loss.backward()
        losses.append(loss.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in (student.value, student.attention)]))
    sampled = torch.cat([torch.stack(losses).unsqueeze(1), torch.stack(gradients)], 1)
    loss = PopulationGradient([truth], "cpu", torch.float64)(student)
    known = torch.cat([loss.view(1), student.value.grad.flatten(), student.attention.grad.flatten()])
    error = sampled.std(0) / 20
    assert ((sampled.mean(0) - known).abs() <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradient_is_that_of_the_closed_form(activation):
    student, truth = pair(activation)
    loss = closed_form(student, truth)
    by_autograd = torch.autograd.grad(loss, [student.value, student.attention])
    torch.testing.assert_close(PopulationGradient([truth], "cpu", torch.float64)(student), loss.detach())
    for mine, other in zip((student.value.grad, student.attention.grad), by_autograd, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-13)


def test_replicas_have_the_gradients_that_each_has_alone():
    pairs = [pair("relu", seed=seed) for seed in range(3)]
    alone = []
    for student, truth in pairs:
        loss = PopulationGradient([truth], "cpu", torch.float64)(student)
        alone.append((loss, student.value.grad, student.attention.grad))
    module = Replicas([student for student, _ in pairs], range(3)).module
    losses = PopulationGradient([truth for _, truth in pairs], "cpu", torch.float64)(module)
    for mine, theirs in zip((losses, module.value.grad, module.attention.grad), zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(mine, torch.stack(theirs))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_kernel_is_the_arc_cosine_kernel_of_its_parts(activation):
    a, b, c, k = 2.0, 0.5, 0.3, slope_of(activation, 0.1)
    moments = exact.Moments(*(torch.full((1, 1), part, dtype=torch.float64) for part in (a, b, c)))
    found = exact.kernel(moments, torch.tensor(k, dtype=torch.float64))
    theta = math.acos(c / math.sqrt(a * b))
    relu, against = (
        math.sqrt(a * b) * (math.sin(t) + (math.pi - t) * math.cos(t)) / (2 * math.pi) for t in (theta, math.pi - theta)
    )
    assert found.item() == pytest.approx((1 + k * k) * relu - 2 * k * against, abs=1e-12)


def test_the_stationary_scale_of_the_identity_is_the_papers_formula():
    tokens, group, p = 6, 2, 0.3
    mask = create_teacher("conv-pool", group=2, **SIZES).attention.double() > 0
    scores = torch.where(mask, p, (1 - group * p) / (tokens - group))
    known = (tokens - group) * p / (tokens * group * p**2 - 2 * group * p + 1)
    found = exact.stationary_scale(scores.double(), mask.double() / group, torch.ones(()).double())
    assert found.item() == pytest.approx(known)


def test_phases_go_by_the_values_scale_and_then_by_the_scores():
    truth = create_teacher("conv-pool", group=2, **SIZES)
    even, found = torch.full((6, 6), 1 / 6), truth.attention
    slope = torch.tensor(0.0)

    def phase(scale: float, scores: Tensor) -> float:
        return exact.phase(scale * truth.value, scores, truth.value, truth.attention, slope).item()

    assert [phase(0.1, even), phase(5.0, even), phase(1.0, found)] == [1, 2, 3]


def test_phases_turn_at_95_per_cent_of_the_stationary_scale_and_at_half_the_mass():
    """App. D.2: C1 >= 0.95 C1*, then p >= 1 / (2 K)."""
    truth, slope = create_teacher("conv-pool", group=2, **SIZES), torch.tensor(0.0)

    def phase(mass: float, share: float) -> float:
        scores = torch.where(truth.attention > 0, mass / 2, (1 - mass) / 4)
        scale = share * exact.stationary_scale(scores, truth.attention, slope)
        return exact.phase(scale * truth.value, scores, truth.value, truth.attention, slope).item()

    assert [phase(0.49, 0.94), phase(0.49, 0.96), phase(0.51, 0.96)] == [1, 2, 3]


def test_the_loss_over_the_tail_constant_is_in_units_of_k_times_d_minus_k_times_d_over_4():
    student, truth = pair("relu")
    over = exact.loss_over_tail_constant(student.value, student.scores(), *truth.values())
    assert over.item() == pytest.approx(closed_form(student, truth).item() / (2 * (6 - 2) * 6 / 4))


def test_descent_keeps_the_pattern_of_lemma_d2_and_reaches_the_tail():
    student, truth = pair("relu", filled=False)
    gradient, rate, steps = PopulationGradient([truth], "cpu", torch.float64), 0.4, 5000
    optimiser = torch.optim.SGD(student.parameters(), lr=read_optim({"name": "sgd", "lr": rate}, "optim").lr)
    for _ in range(steps):
        gradient(student)
        optimiser.step()
    value, logits, mask = student.value.detach(), student.logits().detach(), truth["true_attention"] > 0
    scale = value / truth["true_value"]
    assert scale.std() < 1e-12 and logits[mask].std() < 1e-10 and logits[~mask].std() < 1e-10
    law = 2 * (6 - 2) * 6 / (4 * rate * steps)
    assert closed_form(student, truth).item() / law == pytest.approx(1, abs=0.1)


def test_a_student_of_another_activation_than_its_teachers_is_refused():
    _, truth = pair("relu")
    student, _ = pair("identity")
    gradient = PopulationGradient([truth], "cpu", torch.float64)
    gradient.check(pair("relu")[0])
    with pytest.raises(ZooError, match="teacher's activation"):
        gradient.check(student)
