"""Exact optima of in-context linear regression by Wishart moments in rational arithmetic (Gatmiry et al. 2024).

For `x ~ N(0, S)`, `w ~ N(0, S^-1)` and the preconditioner `A = a S^-1`, u = 0, the loss of L loops no longer depends on
S: whitened, `G` is `W / n` with `W` a standard Wishart matrix of n degrees of freedom, and the loss is
`E tr (I - a G)^(2L)` (Lemma 4.1), a polynomial in a whose coefficients are moments `E tr G^k`.

Among symmetric A the optimum is of this form. Whitened, the loss is `E |(I - B G)^L|_F^2`, at least
`E tr (I - G^(1/2) B G^(1/2))^(2L)`, with equality at B = bI; that is convex in B and, since the law of G knows no
direction, least at a multiple of I.
"""

import math
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

BITS = 120
"""Optimal step sizes are found to 2^-120."""


class Optimum(NamedTuple):
    """The best step sizes (one of looped layers, L of free ones, descending) and the population loss they give."""

    steps: tuple[float, ...]
    loss: float


@cache
def trace_moment(n: int, dim: int, powers: tuple[int, ...]) -> int:
    """`E prod_i tr W^(k_i)`, W = X X^T with X `[dim, n]` standard normal; an integer.

    Gaussian integration by parts over one factor X of the highest power k gives, for the other powers m_i,

        E tr W^k P = (n + k - 1) E tr W^(k-1) P + sum_(j=0..k-2) E tr W^j tr W^(k-1-j) P
                     + 2 sum_i m_i E tr W^(k+m_i-1) P_i,

    where P is the product of the other traces and P_i the same without its i-th.
    """
    if not powers:
        return 1
    *others, k = sorted(powers)
    if k == 0:
        return dim ** len(powers)

    def moment(*more: int, drop: int | None = None) -> int:
        kept = [m for i, m in enumerate(others) if i != drop]
        return trace_moment(n, dim, tuple(sorted((*kept, *more))))

    split = sum(moment(j, k - 1 - j) for j in range(k - 1))
    joined = sum(2 * m * moment(k + m - 1, drop=i) for i, m in enumerate(others))
    return (n + k - 1) * moment(k - 1) + split + joined


def moments(n: int, dim: int, up_to: int) -> list[Fraction]:
    """`E tr G^k` of G = W / n for k = 0 .. up_to."""
    return [Fraction(trace_moment(n, dim, (k,)), n**k) for k in range(up_to + 1)]


def loss_polynomial(n: int, dim: int, loops: int) -> list[Fraction]:
    """The coefficients of `E tr (I - a G)^(2 loops)` in a, lowest first."""
    power = 2 * loops
    return [(-1) ** k * math.comb(power, k) * moment for k, moment in enumerate(moments(n, dim, power))]


def value(polynomial: list[Fraction], at: Fraction) -> Fraction:
    """A polynomial, lowest coefficient first, at a point."""
    total = Fraction(0)
    for coefficient in reversed(polynomial):
        total = total * at + coefficient
    return total


def derivative(polynomial: list[Fraction]) -> list[Fraction]:
    """The derivative of a polynomial, lowest coefficient first."""
    return [k * coefficient for k, coefficient in enumerate(polynomial)][1:]


def rising_root(polynomial: list[Fraction], low: Fraction, high: Fraction) -> Fraction:
    """Where a polynomial that is negative at `low` and not at `high` changes its sign, to 2^-BITS of the interval."""
    for _ in range(BITS):
        middle = (low + high) / 2
        if value(polynomial, middle) < 0:
            low = middle
        else:
            high = middle
    return high


@cache
def exact_step(n: int, dim: int, loops: int) -> Fraction:
    """The a that minimises `E tr (I - a G)^(2 loops)`, which is convex in a, to 2^-BITS."""
    slope, high = derivative(loss_polynomial(n, dim, loops)), Fraction(1)
    while value(slope, high) < 0:
        high *= 2
    return rising_root(slope, Fraction(0), high)


@cache
def looped_optimum(n: int, dim: int, loops: int) -> Optimum:
    """The best A = aI of one layer that is looped, as (a*, loss*); n context examples of `dim` numbers."""
    step = exact_step(n, dim, loops)
    return Optimum((float(step),), float(value(loss_polynomial(n, dim, loops), step)))


@cache
def layered_optimum(n: int, dim: int, layers: int) -> Optimum:
    """The best A_t = a_t I of layers with weights of their own: `E tr prod_t (I - a_t G)^2`.

    With `p(x) = prod_t (1 - a_t x)` of coefficients c the loss is `c^T H c`, H_jk = E tr G^(j+k), under c_0 = 1. So
    `loss* = 1 / (H^-1)_00`, exactly, and the steps are the reciprocals of the roots of p, which are real and positive
    (p is an orthogonal polynomial of the measure x dmu on x > 0).
    """
    m = moments(n, dim, 2 * layers)
    first_column = solve([[m[j + k] for k in range(layers + 1)] for j in range(layers + 1)])
    coefficients = [float(entry / first_column[0]) for entry in first_column]
    steps = sorted(np.roots(coefficients).real.tolist(), reverse=True)
    return Optimum(tuple(steps), float(1 / first_column[0]))


def solve(matrix: list[list[Fraction]]) -> list[Fraction]:
    """The first column of the inverse of a positive definite matrix, by Gauss-Jordan elimination."""
    size = len(matrix)
    rows = [[*row, Fraction(int(i == 0))] for i, row in enumerate(matrix)]
    for pivot in range(size):
        rows[pivot] = [entry / rows[pivot][pivot] for entry in rows[pivot]]
        for i in range(size):
            if i != pivot:
                factor = rows[i][pivot]
                rows[i] = [entry - factor * above for entry, above in zip(rows[i], rows[pivot], strict=True)]
    return [row[-1] for row in rows]
