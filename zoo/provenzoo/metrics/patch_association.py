"""What a positional attention matrix A has learned of a partition (Jelassi, Sander, Li 2022, arXiv:2210.09221).

A is `[..., D, D]` with its diagonal, the partition `[L, C]` holds the patches of each set, the value vector v and the
feature w* are `[..., d]`. Each function gives one number a replica, `[...]`.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from provenzoo.errors import ZooError


def patch_association(attention_matrix: Tensor, partition: Tensor) -> Tensor:
    """Share of rows i in S_l with Top_C{A_ij} = S_l, the diagonal included (Definition 2.2), float64.

    At a tie between the C-th and the next entry Top_C is no set, and the row does not count.
    """
    same = same_set(partition)
    in_set = attention_matrix.masked_fill(~same, torch.inf).amin(-1)
    beyond = attention_matrix.masked_fill(same, -torch.inf).amax(-1)
    return (in_set > beyond).double().mean(-1)


def association_margin(attention_matrix: Tensor, partition: Tensor) -> Tensor:
    """The least over rows of (least entry within the set, off the diagonal) - (greatest entry beyond it)."""
    same = same_set(partition)
    within, _ = pairs(partition)
    in_set = attention_matrix.masked_fill(~within, torch.inf).amin(-1)
    return (in_set - attention_matrix.masked_fill(same, -torch.inf).amax(-1)).amin(-1)


def disjoint_association(attention_matrix: Tensor, partition: Tensor) -> Tensor:
    """Share of rows i in S_l whose Top_C{A_ij} meets S_l nowhere (Theorem 3.2), float64. A tie counts as a meeting."""
    same = same_set(partition)
    ordered = attention_matrix.sort(-1, descending=True).values
    last = ordered[..., partition.shape[1] - 1]
    in_set = attention_matrix.masked_fill(~same, -torch.inf).amax(-1)
    return (in_set < last).double().mean(-1)


def attention_spread(attention_matrix: Tensor, partition: Tensor) -> Tensor:
    """The greater standard deviation of the entries within gamma's class and within rho's, over |gamma| (Lemma 4.1)."""
    spreads = [attention_matrix[..., mask].std(-1) for mask in pairs(partition)]
    return torch.maximum(*spreads) / gamma(attention_matrix=attention_matrix, partition=partition).abs()


def feature_cosine(value_vector: Tensor, feature: Tensor) -> Tensor:
    """Cosine of the angle between v and w*."""
    return F.cosine_similarity(value_vector, feature, dim=-1)


def value_outside_span(value_vector: Tensor, feature: Tensor) -> Tensor:
    """|v - <v, w*> w*| / |v|: the share of v outside the span of w* (Lemma 4.2)."""
    along = (value_vector @ feature).unsqueeze(-1) * feature
    return (value_vector - along).norm(dim=-1) / value_vector.norm(dim=-1)


def alpha(value_vector: Tensor | None = None, feature: Tensor | None = None, alpha: Tensor | None = None) -> Tensor:
    """alpha = <v, w*> (Lemma 4.2), of a whole model or of `patch-attention-scalars`."""
    if alpha is not None:
        return alpha
    return _known(value_vector) @ _known(feature)


def gamma(
    attention_matrix: Tensor | None = None, partition: Tensor | None = None, gamma: Tensor | None = None
) -> Tensor:
    """gamma: the mean of A_ij over pairs i != j of one set (Lemma 4.1), or that of `patch-attention-scalars`."""
    if gamma is not None:
        return gamma
    return _known(attention_matrix)[..., pairs(_known(partition))[0]].mean(-1)


def rho(attention_matrix: Tensor | None = None, partition: Tensor | None = None, rho: Tensor | None = None) -> Tensor:
    """rho: the mean of A_ij over pairs of different sets (Lemma 4.1), or that of `patch-attention-scalars`."""
    if rho is not None:
        return rho
    return _known(attention_matrix)[..., pairs(_known(partition))[1]].mean(-1)


def same_set(partition: Tensor) -> Tensor:
    """`[D, D]`: whether two patches are of one set."""
    of_patch = torch.empty(partition.numel(), dtype=torch.int64, device=partition.device)
    of_patch[partition] = torch.arange(len(partition), device=partition.device).unsqueeze(-1)
    return of_patch.unsqueeze(-1) == of_patch


def pairs(partition: Tensor) -> tuple[Tensor, Tensor]:
    """Masks `[D, D]` of the pairs of different patches within a set, and of those of different sets."""
    same = same_set(partition)
    return same & ~torch.eye(len(same), dtype=torch.bool, device=same.device), ~same


def _known(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ZooError("a model with attention_matrix and value_vector is needed, or their scalars")
    return tensor
