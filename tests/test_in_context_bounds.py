"""The bounds of Gatmiry et al. 2024, corrected, against numbers worked out here, and where the printed ones fail."""

import math
from typing import Any

import pytest
import torch
from in_context_case import DIM, N, data, measured, model, refusal, sizes

from provenzoo.metrics import in_context_bounds, wishart
from provenzoo.metrics.in_context_bounds import delta, dominance_threshold, flow_time, instance_bound


@pytest.mark.parametrize(("n", "dim", "loops"), [(10_240_000, 10, 1), (655_360_000, 10, 2), (10**12, 10, 3)])
def test_bounds_hold_where_the_theorem_speaks_by_numbers_worked_out_here(n: int, dim: int, loops: int) -> None:
    (step,), loss = wishart.looped_optimum(n, dim, loops)
    bound = 8 * loops * dim**2 * 2 ** (2 * loops) / math.sqrt(n)
    assert in_context_bounds.theorem_3_2_condition(**sizes(n, dim, loops)) <= 1
    assert (
        in_context_bounds.theorem_3_2_loss(**sizes(n, dim, loops)).item() == pytest.approx(loss / bound)
        and loss < bound
    )
    width = 8 * delta(n, dim, loops) * dim ** (1 / (2 * loops))
    assert in_context_bounds.theorem_3_2_interval(**sizes(n, dim, loops)).item() == pytest.approx(abs(step - 1) / width)
    assert 0 < in_context_bounds.theorem_4_4(**sizes(n, dim, loops)) < 1


def test_theorem_4_4_looks_at_the_farthest_a_of_a_loss() -> None:
    """One loop: L(a) = d (1 - 2a + a^2 (1 + (d+1)/n)), so the ends are roots of a quadratic."""
    n, dim = 10**8, 3
    curvature, allowed = 1 + (dim + 1) / n, 4 + 16 * math.sqrt(dim)
    worst = 0.0
    for multiple in in_context_bounds.MULTIPLES:
        epsilon = 4 * delta(n, dim, 1) * multiple
        root = math.sqrt(1 - curvature * (1 - epsilon**2 / 2 / dim))
        worst = max(worst, root / (allowed * epsilon))
    assert in_context_bounds.theorem_4_4(**sizes(n, dim, 1)).item() == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize(("n", "dim", "loops"), [(10**6, 3, 2), (1000, 4, 3)])
def test_theorem_4_4_looks_at_both_ends_of_a_loss(n: int, dim: int, loops: int) -> None:
    """From two loops on the ends are not as far from a*: the loss rises faster above it."""
    (step,), loss = wishart.looped_optimum(n, dim, loops)
    low, high = in_context_bounds._ends(n, dim, loops, 2 * wishart.Fraction(loss))
    polynomial = wishart.loss_polynomial(n, dim, loops)
    assert [float(wishart.value(polynomial, a)) for a in (low, high)] == pytest.approx([2 * loss] * 2, rel=1e-9)
    assert 0 < high - wishart.Fraction(step) < wishart.Fraction(step) - low
    worst = 0.0
    for multiple in in_context_bounds.MULTIPLES:
        epsilon = 4 * delta(n, dim, loops) * multiple
        ends = in_context_bounds._ends(n, dim, loops, wishart.Fraction(epsilon) ** (2 * loops) / 2)
        worst = max(worst, *(abs(float(a) / step - 1) / epsilon for a in ends))
    allowed = 4 + 16 * dim ** (1 / (2 * loops))
    assert in_context_bounds.theorem_4_4(**sizes(n, dim, loops)).item() == pytest.approx(worst / allowed, rel=1e-9)


def test_moments_are_within_lemma_a_2() -> None:
    """E G^2 = (1 + (d+1)/n) I is the largest excess over 4kd / sqrt(n) for k <= 2 and the first moment is exact."""
    numbers = sizes(40_000, 10, 1)
    assert in_context_bounds.smallest_moment(**numbers) == 1
    expected = (11 / 40_000) / (4 * 2 * 10 / 200)
    assert in_context_bounds.moment_excess(**numbers).item() == pytest.approx(expected)
    assert in_context_bounds.moment_excess(**sizes(40_000, 10, 5)) < 1


def test_theorem_3_4_speaks_above_the_appendix_threshold_not_the_printed_one() -> None:
    """2 (4 delta)^2L has 4^2L in it, where the theorem's text prints 4^L."""
    n, dim, loops = 10**10, 10, 2
    assert dominance_threshold(n, dim, loops) == pytest.approx(2 * (4 * delta(n, dim, loops)) ** (2 * loops))
    printed = 16 * loops * dim * 4**loops / math.sqrt(n)
    assert dominance_threshold(n, dim, loops) == pytest.approx(printed * 4**loops)


@pytest.mark.parametrize("loops", [2, 3, 5])
def test_the_time_of_theorem_3_3_is_what_the_dominance_inequality_integrates_to(loops: int) -> None:
    """f' = -f^((2L-1)/L) / 16 from a vast start, by Runge-Kutta, is at xi at the corrected time; at the printed one above."""
    xi, power = 0.5, (2 * loops - 1) / loops
    time, printed = (
        flow_time(torch.tensor(xi).double(), loops).item(),
        xi ** (-(loops - 1) / loops) * (16 * loops / (loops - 1)) ** ((loops - 1) / (2 * loops - 1)),
    )

    def at(end: float) -> float:
        """Integrated in log f, in which the decay from 1e12 is smooth in log time."""
        log_f, t = math.log(1e12), 0.0
        while t < end:
            h = min(0.01 * 16 * math.exp(-(power - 1) * log_f), end - t)

            def slope(value: float) -> float:
                return -math.exp((power - 1) * value) / 16

            k1 = slope(log_f)
            k2 = slope(log_f + h * k1 / 2)
            k3 = slope(log_f + h * k2 / 2)
            k4 = slope(log_f + h * k3)
            log_f, t = log_f + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6, t + h
        return math.exp(log_f)

    assert at(time) == pytest.approx(xi, rel=1e-3)
    assert printed < time and at(printed) > 2 * xi


def test_theorem_4_5_holds_with_its_norms_swapped_back_and_not_as_printed() -> None:
    draws = torch.Generator().manual_seed(0)
    covariance = torch.tensor([0.2, 0.5, 1.0, 2.0]).double().diag()
    root, zeta, loops = covariance.sqrt(), 0.3, 2
    eigenvalues = zeta + (2 - 2 * zeta) * torch.rand(6000, DIM, generator=draws, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(6000, DIM, DIM, generator=draws, dtype=torch.float64)).Q
    gram = root @ basis @ eigenvalues.diag_embed() @ basis.mT @ root
    w = torch.randn(6000, DIM, generator=draws, dtype=torch.float64)
    query = torch.randn(6000, DIM, generator=draws, dtype=torch.float64)
    m = torch.linalg.matrix_power(torch.eye(DIM) - gram @ (1.01 * covariance.inverse()), loops)
    errors = ((w[:, None] @ m).squeeze(1) * query).sum(-1).square()
    assert (errors <= instance_bound(w, query, covariance, 0.02, zeta, loops)).all()
    assert (errors > instance_bound(w, query, covariance.inverse(), 0.02, zeta, loops)).any()


def test_theorem_4_5_needs_the_1_over_n_that_its_text_leaves_out() -> None:
    """Examples with X X^T = S meet its condition as printed for any zeta below 1, but G = S / n: a loop hardly moves."""
    identity, n = torch.eye(DIM).double(), 12
    x = torch.cat([identity, torch.zeros(DIM, n - DIM).double()], 1)
    w = query = identity[:1]
    errors = {}
    for gram in (x @ x.mT, x @ x.mT / n):
        m = torch.linalg.matrix_power(identity - gram, 2)
        errors[gram.trace().item()] = ((w @ m) * query).sum(-1).square()
    allowed = instance_bound(w, query, identity, 0.02, 0.9, 2)
    assert errors[DIM] <= allowed and errors[DIM / n] > allowed


def test_theorem_3_4_as_printed_speaks_at_an_optimum_where_the_gradient_is_zero() -> None:
    """One loop, n = dim = 40,000: loss* is above the printed threshold, with 4^L, and below that of A.11, 4^2L."""
    n = dim = 40_000
    (step,), loss = wishart.looped_optimum(n, dim, 1)
    printed = 16 * dim * 4 / math.sqrt(n)
    slope = wishart.value(wishart.derivative(wishart.loss_polynomial(n, dim, 1)), wishart.exact_step(n, dim, 1))
    assert printed < loss < dominance_threshold(n, dim, 1)
    assert abs(slope) < 1e-20 and step == pytest.approx(0.5, rel=1e-4)


def test_dominance_fails_in_many_dimensions_as_the_proof_drops_a_power_of_them() -> None:
    """At A = I / 2, two loops, 10^5 dimensions and n = 10^14 the theorem speaks, and the ratio is below its 1/16."""
    n, dim, a = 10**14, 100_000, wishart.Fraction(1, 2)
    polynomial = wishart.loss_polynomial(n, dim, 2)
    loss, slope = (float(wishart.value(p, a)) for p in (polynomial, wishart.derivative(polynomial)))
    assert loss > dominance_threshold(n, dim, 2)
    assert slope**2 / dim / loss**1.5 < 1 / 16


def test_lemma_a_2_can_fail_where_n_is_less_than_it_asks_for() -> None:
    """At n = dim = 10 it asks for n >= 4 k^2 d^2 = 400 k^2."""
    assert in_context_bounds.moment_excess(**sizes(10, 10, 5)) > 1


@pytest.mark.parametrize("loops", [1, 2])
def test_single_prompts_are_judged_by_the_whole_formula(loops: int) -> None:
    """theorem-4-5 of prompts whose w is known, against the bound with zeta and closeness worked out by hand."""
    found = data("prompts", n=50, dim=2, spectrum=[0.1, 2.0], test=300)
    made = model(loops, dim=2, form="symmetric", diagonal=[9.5, 0.475], std=0.0)
    z = found.test.inputs.double()
    x, y, query = z[:, :2, :50], z[:, 2, :50], z[:, :2, 50]
    w = torch.linalg.solve(x @ x.mT, (x @ y.unsqueeze(-1)).squeeze(-1))
    scale = torch.tensor([0.1, 2.0]).double().rsqrt()
    eigenvalues = torch.linalg.eigvalsh(scale[:, None] * (x @ x.mT / 50) * scale)
    zeta = torch.stack([eigenvalues[:, 0], 2 - eigenvalues[:, 1]]).amin(0)
    with torch.no_grad():
        errors = (made(z) - found.test.targets.double()).square()
    covariance = torch.tensor([0.1, 2.0]).double().diag()
    for name, norms in (("theorem-4-5", covariance), ("theorem-4-5-printed", covariance.inverse())):
        shares = errors / instance_bound(w, query, norms, 0.1, zeta, loops)
        assert measured(name, made, found) == pytest.approx(shares[zeta > 0].max().item(), rel=1e-4)


def test_what_theorem_4_5_is_not_of_is_refused() -> None:
    settings: dict[str, Any] = {"form": "symmetric", "diagonal": 0.95, "std": 0.0}
    assert "layout: prompts" in refusal("theorem-4-5", model(2, **settings), data(spectrum=None, test=5))
    found = data("prompts", spectrum=None, test=5)
    assert "form: symmetric" in refusal("theorem-4-5", model(2, std=0.3), found)
    assert "raise n" in refusal("theorem-4-5", model(2, **settings | {"diagonal": 0.3}), found)


def test_the_times_and_thresholds_of_gradient_flow_are_those_of_the_loss() -> None:
    """Two loops: loss^-1/2 16 2 / 1, and 16 2 d 4^4 / sqrt n over the loss."""
    made, found = model(2), data(spectrum=None, test=50)
    loss = measured("integrated-squared-error", made, found)
    assert measured("theorem-3-3-time", made, found) == pytest.approx(32 / math.sqrt(loss))
    assert measured("theorem-3-4-condition", made, found) == pytest.approx(32 * DIM * 256 / math.sqrt(N) / loss)
    assert "two loops" in refusal("theorem-3-3-time", model(1), found)
