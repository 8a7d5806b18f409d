"""The bounds of Gatmiry et al. 2024 in exact numbers, and as metrics of (n, dim, loops) that need no training.

Each metric of a theorem is what is true over what the theorem allows: at most 1 where the theorem holds. The constants
are small only where n is vast (10^7 at one loop), which exact moments do not mind.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor

from provenzoo.errors import ZooError
from provenzoo.metrics import wishart
from provenzoo.metrics.in_context import integrated_squared_error

MULTIPLES = (1.01, 1.5, 2.0, 4.0)
"""epsilon / (4 delta) at which Theorem 4.4 is looked at."""


def delta(n: int, dim: int, loops: int) -> float:
    """`(8 L d / sqrt n)^(1 / 2L)` (Sec. 3.5)."""
    return (8 * loops * dim / math.sqrt(n)) ** (1 / (2 * loops))


# --- theorem 3.2: the optimum -------------------------------------------------------------------------------------


def theorem_3_2_condition(context: Tensor, covariance: Tensor, loops: Tensor) -> Tensor:
    """`8 L d^2 / sqrt n` over `2^-2L`; the theorem speaks where this is at most 1."""
    n, dim, power = _sizes(context, covariance, loops)
    return _number(8 * power * dim**2 / math.sqrt(n) * 4**power)


def theorem_3_2_loss(context: Tensor, covariance: Tensor, loops: Tensor) -> Tensor:
    """loss* over its bound `8 L d^2 2^2L / sqrt n`."""
    n, dim, power = _sizes(context, covariance, loops)
    return _number(wishart.looped_optimum(n, dim, power).loss / (8 * power * dim**2 * 4**power / math.sqrt(n)))


def theorem_3_2_interval(context: Tensor, covariance: Tensor, loops: Tensor) -> Tensor:
    """`|a* - 1|` over `c = 8 delta d^(1/2L)`, A* = a* S^-1 being within `(1 -+ c) S^-1`."""
    n, dim, power = _sizes(context, covariance, loops)
    allowed = 8 * delta(n, dim, power) * dim ** (1 / (2 * power))
    return _number(abs(wishart.looped_optimum(n, dim, power).steps[0] - 1) / allowed)


# --- theorem 4.4: small loss, close parameters --------------------------------------------------------------------


def theorem_4_4(context: Tensor, covariance: Tensor, loops: Tensor) -> Tensor:
    """The worst of `|a / a* - 1| / (c epsilon)`, `c = 4 + 16 d^(1/2L)`, over all A = aI with `L(A) <= epsilon^2L / 2`.

    The loss is convex in a, so that these a are an interval, whose ends are looked at for several epsilon > 4 delta.
    """
    n, dim, power = _sizes(context, covariance, loops)
    best = wishart.exact_step(n, dim, power)
    worst = 0.0
    for multiple in MULTIPLES:
        epsilon = 4 * delta(n, dim, power) * multiple
        allowed = (4 + 16 * dim ** (1 / (2 * power))) * epsilon
        for end in _ends(n, dim, power, Fraction(epsilon) ** (2 * power) / 2):
            worst = max(worst, abs(float(end / best - 1)) / allowed)
    return _number(worst)


def _ends(n: int, dim: int, loops: int, level: Fraction) -> tuple[Fraction, Fraction]:
    """The a below and above a* at which the loss reaches a level above loss*."""
    polynomial, best = wishart.loss_polynomial(n, dim, loops), wishart.exact_step(n, dim, loops)
    polynomial[0] -= level
    far = Fraction(1)
    while wishart.value(polynomial, best + far) < 0 or wishart.value(polynomial, best - far) < 0:
        far *= 2
    mirrored = [(-1) ** k * coefficient for k, coefficient in enumerate(polynomial)]
    low = -wishart.rising_root(mirrored, -best, far - best)
    return low, wishart.rising_root(polynomial, best, best + far)


# --- lemma A.2: moments -------------------------------------------------------------------------------------------


def smallest_moment(context: Tensor, covariance: Tensor, loops: Tensor) -> Tensor:
    """The least alpha_k of `E G^k = alpha_k I`, k = 1 .. 2 loops; Lemma A.2 has at least 1."""
    n, dim, power = _sizes(context, covariance, loops)
    return _number(float(min(wishart.moments(n, dim, 2 * power)[1:]) / dim))


def moment_excess(context: Tensor, covariance: Tensor, loops: Tensor) -> Tensor:
    """The largest `(alpha_k - 1) / (4 k d / sqrt n)`, k = 1 .. 2 loops; Lemma A.2 has at most 1 where n >= 4 k^2 d^2.

    The lemma's first formula leaves out the power k of the covariance.
    """
    n, dim, power = _sizes(context, covariance, loops)
    alphas = [float(moment / dim - 1) for moment in wishart.moments(n, dim, 2 * power)]
    return _number(max(alphas[k] / (4 * k * dim / math.sqrt(n)) for k in range(1, 2 * power + 1)))


# --- theorems 3.3 and 3.4: gradient flow --------------------------------------------------------------------------


def theorem_3_3_time(outputs: Tensor, targets: Tensor, loops: Tensor) -> Tensor:
    """The time by which Theorem 3.3, corrected, has gradient flow at the present loss (`flow_time`); L > 1."""
    if int(loops) < 2:
        raise ZooError("Theorem 3.3 is for two loops or more")
    return flow_time(integrated_squared_error(outputs, targets), int(loops))


def theorem_3_4_condition(
    outputs: Tensor, targets: Tensor, context: Tensor, covariance: Tensor, loops: Tensor
) -> Tensor:
    """The threshold of Theorem 3.4 (`dominance_threshold`) over the loss; the theorem speaks where it is at most 1."""
    return dominance_threshold(*_sizes(context, covariance, loops)) / integrated_squared_error(outputs, targets)


def dominance_threshold(n: int, dim: int, loops: int) -> float:
    """The loss above which Theorem 3.4 speaks, `2 (4 delta)^2L = 16 L d 4^2L / sqrt n` (A.11); 3.4 prints 4^L."""
    return 16 * loops * dim * 4 ** (2 * loops) / math.sqrt(n)


def flow_time(loss: Tensor, loops: int) -> Tensor:
    """The time by which gradient flow is at most at `loss`, `loss^-((L-1)/L) 16 L / (L-1)`, loops > 1.

    Integrates `f' <= -f^((2L-1)/L) / 16` from infinity. Theorem 3.3 prints the constant to the power (L-1)/(2L-1),
    which is less and does not follow.
    """
    return loss ** (-(loops - 1) / loops) * 16 * loops / (loops - 1)


# --- theorem 4.5: single prompts ----------------------------------------------------------------------------------


def theorem_4_5(
    outputs: Tensor, targets: Tensor, inputs: Tensor, preconditioner: Tensor, covariance: Tensor, loops: Tensor
) -> Tensor:
    """The largest squared error of a prompt over `instance_bound`, of the prompts with a zeta above 0."""
    return _instances(outputs, targets, inputs, preconditioner, covariance, covariance, int(loops))


def theorem_4_5_printed(
    outputs: Tensor, targets: Tensor, inputs: Tensor, preconditioner: Tensor, covariance: Tensor, loops: Tensor
) -> Tensor:
    """The same with the norms of x_q and w as the theorem prints them."""
    return _instances(outputs, targets, inputs, preconditioner, covariance, covariance.inverse(), int(loops))


def _instances(
    outputs: Tensor, targets: Tensor, prompts: Tensor, a: Tensor, covariance: Tensor, norms: Tensor, loops: int
) -> Tensor:
    """`norms` is S as `instance_bound` takes it for the norms; w is what the examples determine, so n >= dim."""
    x, y, query = prompts[..., :-1, :-1], prompts[..., -1, :-1], prompts[..., :-1, -1]
    if x.shape[-2] != len(covariance) or x.shape[-1] < len(covariance):
        raise ZooError("it is of prompts with n of dim or more; give the data `layout: prompts`")
    if a.dim() > 2 or not a.allclose(a.mT):
        raise ZooError("Theorem 4.5 is for one symmetric A, looped; use `form: symmetric`")
    root = torch.linalg.cholesky(covariance)
    inverse = root.inverse()
    eigenvalues = torch.linalg.eigvalsh(inverse @ (x @ x.mT / x.shape[-1]) @ inverse.mT)
    zeta = torch.minimum(eigenvalues[..., 0], 2 - eigenvalues[..., -1])
    closeness = 2 * (torch.linalg.eigvalsh(root.mT @ a.to(root) @ root) - 1).abs().max().item()
    kept = zeta > 0
    if closeness > 1 or not kept.any():
        raise ZooError("Theorem 4.5 is for S A within 1/2 of I and prompts whose G is between 0 and 2 S; raise n")
    w = torch.linalg.lstsq(x.mT, y.unsqueeze(-1)).solution.squeeze(-1)
    bound = instance_bound(w, query, norms, closeness, zeta, loops)
    return ((outputs - targets).square() / bound)[kept].max()


def instance_bound(
    w: Tensor, query: Tensor, covariance: Tensor, closeness: float, zeta: float | Tensor, loops: int
) -> Tensor:
    """Theorem 4.5: the largest squared error on a prompt with `zeta S <= G <= (2 - zeta) S`, `[...]`.

    `(1 + k)^2 (1 + k - zeta)^2L |x_q|^2_(S^-1) |w|^2_S` where A is symmetric within `(1 -+ k/2) S^-1`, k = `closeness`
    at most 1 (in the theorem 16 delta d^(1/2L)). `w` and `query` are `[..., dim]`. The theorem swaps the norms of x_q
    and w, and leaves the 1/n out of G = X X^T / n.
    """
    x_norm = (query @ covariance.inverse() * query).sum(-1)
    w_norm = (w @ covariance * w).sum(-1)
    return (1 + closeness) ** 2 * (1 + closeness - zeta) ** (2 * loops) * x_norm * w_norm


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _sizes(context: Tensor, covariance: Tensor, loops: Tensor) -> tuple[int, int, int]:
    return int(context), covariance.shape[-1], int(loops)
