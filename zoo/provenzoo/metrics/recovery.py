"""How near a student is to its teacher `f*(X) = sigma(V* X S*)` (Zhang, Zhao, Gu, Cao, Theorems 3.1 and 3.2).

Outputs and targets are `[..., N, M, D]`, V* and W_V `[..., M, d]`, S* and S `[..., D, D]`; each function gives `[...]`.
"""

import torch
from torch import Tensor

from provenzoo.errors import ZooError


def half_squared_error(outputs: Tensor, targets: Tensor, *, dims: int = 2) -> Tensor:
    """The loss `1/2 |Y - TF(X)|_F^2`, summed over M and D, mean over the items: `[..., N, M, D] -> [...]`.

    An item has `dims` dimensions; with 1, items are vectors `[..., N, K]`.
    """
    if outputs.shape != targets.shape:
        raise ZooError(
            f"the student's outputs are {_by(outputs)} an item, its targets {_by(targets)}; "
            "teacher and student differ in what they give"
        )
    difference = outputs - targets
    return (difference * difference).sum(tuple(range(-dims - 1, 0))) / (2 * outputs.shape[-dims - 1])


def excess_loss(outputs: Tensor, teacher_outputs: Tensor) -> Tensor:
    """The noise-free excess `1/2 E |f*(X) - TF(X)|_F^2`: never negative, and smooth over training."""
    return half_squared_error(outputs, teacher_outputs)


def excess_loss_cancelled(outputs: Tensor, targets: Tensor, teacher_outputs: Tensor) -> Tensor:
    """The excess `1/2 E (|Y - TF(X)|^2 - |Y - f*(X)|^2)` on the same draws (Sec. 4.1), for any Y; may be negative.

    Summed as `<f* - TF, 2 Y - f* - TF>`: the difference of two large losses would lose the digits that it is about.
    """
    products = (teacher_outputs - outputs) * (2 * targets - teacher_outputs - outputs)
    return products.sum((-2, -1)).mean(-1) / 2


def excess_by_moments(
    value: Tensor,
    scores: Tensor,
    true_value: Tensor,
    true_attention: Tensor,
    token_mean: Tensor,
    token_variance: Tensor,
    response: Tensor | None = None,
) -> Tensor:
    """`|1/2 E (|Y - W X S|^2 - |Y - V* X S*|^2)|` of identity activations, exactly, from the tokens' first two moments.

    The entries of X are independent with `token_mean` and `token_variance`. `Y = B X` with the `response` B `[..., M,
    d]`; without one Y is the teacher's.
    """
    truth = (true_value, true_attention)
    known = truth if response is None else (response, torch.eye(true_attention.shape[-1]).to(true_attention))
    moments = (token_mean[..., None, None], token_variance[..., None, None])
    losses = [_distance_by_moments(known, student, *moments) for student in ((value, scores), truth)]
    return (losses[0] - losses[1]).abs()


def _distance_by_moments(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """`1/2 E |V X S - W X R|_F^2` of `a` = (V, S) and `b` = (W, R), whose entry [m, i] is linear in X."""
    (v, s), (w, r) = a, b
    rows = [(x * y).sum(-1).unsqueeze(-1) for x, y in ((v, v), (v, w), (w, w))]
    columns = [(x * y).sum(-2).unsqueeze(-2) for x, y in ((s, s), (s, r), (r, r))]
    spread = rows[0] * columns[0] - 2 * rows[1] * columns[1] + rows[2] * columns[2]
    shift = v.sum(-1).unsqueeze(-1) * s.sum(-2).unsqueeze(-2) - w.sum(-1).unsqueeze(-1) * r.sum(-2).unsqueeze(-2)
    return (variance * spread + (mean * shift).square()).sum((-2, -1)) / 2


def cosine_to_truth(value: Tensor, true_value: Tensor) -> Tensor:
    """The cosine of W_V and V* as vectors."""
    inner = (value * true_value).sum((-2, -1))
    size = value.square().sum((-2, -1)).sqrt() * true_value.square().sum((-2, -1)).sqrt()
    return inner / size.clamp(min=torch.finfo(value.dtype).tiny)


def value_distance(value: Tensor, true_value: Tensor) -> Tensor:
    """`|W_V - V*|_F`."""
    return (value - true_value).square().sum((-2, -1)).sqrt()


def score_distance(scores: Tensor, true_attention: Tensor) -> Tensor:
    """`|S - S*|_F`."""
    return (scores - true_attention).square().sum((-2, -1)).sqrt()


def group_mass(scores: Tensor, true_attention: Tensor) -> Tensor:
    """The softmax mass on the right tokens, mean over the columns: K p where S has the pattern of Lemma D.2."""
    return (scores * (true_attention > 0)).sum(-2).mean(-1)


# --- the pattern of Lemma D.2: W_V = C1 V*, P^T W_KQ P = C2 on a column's group and -C3 elsewhere ---------------------


def value_coefficient(value: Tensor, true_value: Tensor) -> Tensor:
    """C1, by least squares."""
    return (value * true_value).sum((-2, -1)) / true_value.square().sum((-2, -1))


def group_coefficient(logits: Tensor, true_attention: Tensor) -> Tensor:
    """C2: the mean logit on the groups."""
    group = (true_attention > 0).to(logits)
    return (logits * group).sum((-2, -1)) / group.sum((-2, -1))


def rest_coefficient(logits: Tensor, true_attention: Tensor) -> Tensor:
    """C3: less the mean logit outside the groups."""
    rest = (true_attention == 0).to(logits)
    return -(logits * rest).sum((-2, -1)) / rest.sum((-2, -1))


def value_residual(value: Tensor, true_value: Tensor) -> Tensor:
    """`|W_V - C1 V*|_F / |W_V|_F`; 0 at W_V = 0."""
    scale = value_coefficient(value, true_value)[..., None, None]
    return _relative(value - scale * true_value, value)


def score_residual(logits: Tensor, true_attention: Tensor) -> Tensor:
    """The distance of `P^T W_KQ P` to its pattern over its norm; 0 at W_KQ = 0."""
    inside = group_coefficient(logits, true_attention)[..., None, None]
    outside = -rest_coefficient(logits, true_attention)[..., None, None]
    return _relative(logits - torch.where(true_attention > 0, inside, outside), logits)


# --- full attention, and images ---------------------------------------------------------------------------------------


def position_block_ratio(attention: Tensor, true_attention: Tensor) -> Tensor:
    """The norm of W_KQ's position block over the largest of its three others (Fig. 1): `[..., d + D, d + D]`."""
    dim = attention.shape[-1] - true_attention.shape[-1]
    rows = attention.split([dim, true_attention.shape[-1]], -2)
    norms = [torch.linalg.matrix_norm(b) for row in rows for b in row.split([dim, true_attention.shape[-1]], -1)]
    others = torch.stack(norms[:-1]).amax(0)
    return norms[-1] / others.clamp(min=torch.finfo(attention.dtype).tiny)


def key_error(scores: Tensor, true_attention: Tensor) -> Tensor:
    """How far each key's scores are from the truth, `[..., D]`: the norm of its row of S - S*, 1/3 if never read."""
    return (scores - true_attention).square().sum(-1).sqrt()


def corner_key_error(scores: Tensor, true_attention: Tensor) -> Tensor:
    """The least `key_error` of the four corner patches of a square image."""
    grid = _square(key_error(scores, true_attention))
    return grid[..., :: grid.shape[-1] - 1, :: grid.shape[-1] - 1].amin((-2, -1))


def interior_key_error(scores: Tensor, true_attention: Tensor) -> Tensor:
    """The largest `key_error` of the patches that do not lie at the border of a square image."""
    return _square(key_error(scores, true_attention))[..., 1:-1, 1:-1].amax((-2, -1))


def _square(keys: Tensor) -> Tensor:
    side = round(keys.shape[-1] ** 0.5)
    return keys.unflatten(-1, (side, side))


def _relative(residual: Tensor, whole: Tensor) -> Tensor:
    size = whole.square().sum((-2, -1)).sqrt()
    return residual.square().sum((-2, -1)).sqrt() / size.clamp(min=torch.finfo(whole.dtype).tiny)


def _by(tensor: Tensor) -> str:
    return " x ".join(str(size) for size in tensor.shape[-2:])
