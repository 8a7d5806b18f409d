"""Binary classification with labels +1 and -1 and one score F a point.

A score that is not finite counts as wrong: `y F <= 0` is false for NaN, so that a diverged model would err nowhere.
In a stage it does not come to that, since a seed of which any score is not finite is null there (metrics/measure.py).
"""

from torch import Tensor
from torch.nn import functional as F


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean of log(1 + exp(-y F)), in nats: `[..., N], [..., N] -> [...]`."""
    return F.softplus(-targets * outputs).mean(-1)


def sign_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Share of points with y F > 0: `[..., N], [..., N] -> [...]`, float64. A score that is NaN counts as wrong."""
    return _agree(outputs, targets).mean(-1)


def sign_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Share of points without y F > 0, so that NaN is wrong: `[..., N], [..., N] -> [...]`, float64."""
    return 1 - _agree(outputs, targets).mean(-1)


def labelling_error(outputs: Tensor, labelling: Tensor) -> Tensor:
    """P[f(X) F(X) <= 0] for the data's labelling function f: `[..., N], [..., N] -> [...]`, float64.

    For f of Assumption 1 (Jelassi et al. 2022): where random sets wholly opposite to the signal set outweigh it, f is 0
    or has the other sign, and the point counts as wrong though F has the sign of the label.
    """
    return 1 - _agree(outputs, labelling).mean(-1)


def _agree(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((targets * outputs > 0) & outputs.isfinite()).double()
