"""Classification: one number a replica over a whole set, and the loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from provenzoo.errors import ZooError


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Share of the set whose largest logit is the target's: `[..., N, K], [..., N] -> [...]`, float64.

    Logits that are not finite are a ZooError, as the largest of them says nothing.
    """
    return _hits(outputs, targets).double().mean(-1)


def accuracy_among_scored(outputs: Tensor, targets: Tensor, scored_classes: Tensor) -> Tensor:
    """Accuracy where the logits of the classes `[S]` alone compete (Hendrycks et al. 2021, arXiv:1907.07174).

    `[..., N, K], [..., N] -> [...]`, float64; targets are labels among all K classes.
    """
    others = torch.ones(outputs.shape[-1], dtype=torch.bool, device=outputs.device)
    others[scored_classes] = False
    return _hits(outputs, targets, others).double().mean(-1)


def class_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Accuracy on each class, NaN where the set lacks it: `[..., N, K], [..., N] -> [..., K]`, float64."""
    of_class = F.one_hot(targets, outputs.shape[-1]).double()
    return (_hits(outputs, targets).double().unsqueeze(-1) * of_class).sum(-2) / of_class.sum(-2)


def cross_entropy(outputs: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy in nats: `[..., N, K], [..., N] -> [...]`; targets may be shares of the classes `[..., N, K]`.

    With label smoothing e, a target is 1 - e on its class and e spread evenly over all K (Szegedy et al.
    2016, arXiv:1512.00567, Sec. 7).
    """
    if outputs.dim() == 2:
        return F.cross_entropy(outputs, targets, label_smoothing=label_smoothing)
    flat = targets.flatten(0, -2) if targets.is_floating_point() else targets.flatten()
    each = F.cross_entropy(outputs.flatten(0, -2), flat, reduction="none", label_smoothing=label_smoothing)
    return each.view(outputs.shape[:-1]).mean(-1)


def _hits(outputs: Tensor, targets: Tensor, left_out: Tensor | None = None) -> Tensor:
    """Whether the largest logit, but for the classes `left_out` `[K]`, is the target's."""
    if not torch.isfinite(outputs).all():
        raise ZooError("the model's outputs hold NaN or infinity; it diverged or its inputs are off")
    if left_out is not None:
        outputs = outputs.masked_fill(left_out, -torch.inf)
    return outputs.argmax(-1) == targets
