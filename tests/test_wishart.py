"""Exact optima by Wishart moments, against published numbers, closed forms and Monte Carlo."""

from fractions import Fraction

import pytest
import torch

from provenzoo.metrics.wishart import exact_step, layered_optimum, looped_optimum, moments, trace_moment

LOOPS = (1, 2, 3, 5, 10)
OPTIMA = {
    2: (".1538 8.4615", ".1414 8.2152", ".1303 8.1285", ".1123 8.0650", ".0836 8.0269"),
    5: (".3125 6.8750", ".2945 6.1806", ".2772 5.8708", ".2463 5.5848", ".1906 5.3484"),
    10: (".4762 5.2381", ".4568 4.0662", ".4377 3.4949", ".4011 2.9128", ".3263 2.3530"),
    20: (".6452 3.5484", ".6281 2.1053", ".6113 1.4587", ".5772 .86568", ".4981 .39753"),
    50: (".8197 1.8033", ".8089 .61127", ".7983 .25624", ".7761 .062076", ".7173 .0046551"),
    100: (".9009 .99099", ".8945 .19451", ".8881 .048502", ".8746 .0043883", ".8367 3.5905e-5"),
}
"""a* and loss* of A = aI in 10 dimensions, computed by zonal polynomials."""
LAYERED = {
    20: (1.68449, 0.912833, 0.326756, 0.0459008),
    50: (0.407591, 0.103849, 0.00877405, 5.76e-5),
    100: (0.117121, 0.0155636, 3.805e-4, 1.488e-7),
}


@pytest.mark.parametrize("n", OPTIMA)
def test_looped_optima_are_those_of_the_table(n: int) -> None:
    for loops, row in zip(LOOPS, OPTIMA[n], strict=True):
        (step,), loss = looped_optimum(n, 10, loops)
        a, best = map(float, row.split())
        assert step == pytest.approx(a, abs=6e-5) and loss == pytest.approx(best, rel=2e-5)


@pytest.mark.parametrize("n", LAYERED)
def test_layered_optima_are_those_of_the_table(n: int) -> None:
    for layers, best in zip((2, 3, 5, 10), LAYERED[n], strict=True):
        steps, loss = layered_optimum(n, 10, layers)
        assert loss == pytest.approx(best, rel=3e-4) and len(steps) == layers


def test_two_layers_at_20_examples_have_the_known_step_sizes() -> None:
    assert layered_optimum(20, 10, 2).steps == pytest.approx((1.180, 0.420), abs=5e-4)


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (7, 3), (20, 10), (10**12, 10)])
def test_one_loop_has_the_closed_form(n: int, dim: int) -> None:
    step = 1 / (1 + Fraction(dim + 1, n))
    assert abs(exact_step(n, dim, 1) - step) < Fraction(1, 2**100)
    assert looped_optimum(n, dim, 1).loss == pytest.approx(float(dim * (1 - step)), rel=1e-12)
    assert layered_optimum(n, dim, 1).loss == pytest.approx(float(dim * (1 - step)), rel=1e-12)


def test_moments_of_low_order_are_the_known_polynomials() -> None:
    """E tr W, tr W^2, (tr W)^2, tr W^3 (Letac and Massam 2004)."""
    for n, d in ((3, 5), (20, 10)):
        assert trace_moment(n, d, (1,)) == n * d
        assert trace_moment(n, d, (2,)) == n * d * (n + d + 1)
        assert trace_moment(n, d, (1, 1)) == (n * d) ** 2 + 2 * n * d
        assert trace_moment(n, d, (3,)) == n * d * (n**2 + d**2 + 3 * n * d + 3 * n + 3 * d + 4)


def test_in_one_dimension_moments_are_those_of_chi_squared() -> None:
    n = 5
    expected = [Fraction(1)]
    for k in range(20):
        expected.append(expected[-1] * Fraction(n + 2 * k, n))
    assert moments(n, 1, 20) == expected


@pytest.mark.parametrize(("n", "loops"), [(20, 1), (20, 2), (20, 3), (50, 3), (100, 2)])
def test_exact_losses_are_those_of_sampled_gram_matrices(n: int, loops: int) -> None:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 10, n, generator=draws, dtype=torch.float64)
    gram, identity = x @ x.mT / n, torch.eye(10, dtype=torch.float64)

    def agree(steps: tuple[float, ...], loss: float) -> None:
        m = identity
        for step in steps:
            m = m @ (identity - step * gram)
        sampled = m.square().sum((-2, -1))
        assert abs(sampled.mean() - loss) < 4 * sampled.std() / len(sampled) ** 0.5

    (step,), loss = looped_optimum(n, 10, loops)
    agree((step,) * loops, loss)
    agree(*layered_optimum(n, 10, loops))


def test_no_symmetric_preconditioner_beats_the_exact_step() -> None:
    """As the loss is at least a convex function with its least value at a* I."""
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(2000, 4, 8, generator=draws, dtype=torch.float64)
    gram, identity = x @ x.mT / 8, torch.eye(4, dtype=torch.float64)
    skew = torch.randn(4, 4, generator=draws, dtype=torch.float64)
    (step,), _ = looped_optimum(8, 4, 2)

    def bound(a: torch.Tensor) -> float:
        return torch.linalg.matrix_power(identity - gram @ a, 4).diagonal(dim1=-2, dim2=-1).sum(-1).mean().item()

    def loss(a: torch.Tensor) -> float:
        return torch.linalg.matrix_power(identity - gram @ a, 2).square().sum((-2, -1)).mean().item()

    symmetric = step * identity + 0.02 * (skew + skew.mT)
    assert loss(step * identity) == pytest.approx(bound(step * identity))
    assert loss(symmetric) > bound(symmetric)
