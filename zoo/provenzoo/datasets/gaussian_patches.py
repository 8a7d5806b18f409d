"""Patches without spatial structure, labelled by a convolution (Jelassi, Sander, Li 2022, Section 2 and Figure 2)."""

import torch
from torch import Tensor

from provenzoo.datasets.partition import Partition
from provenzoo.datasets.patches import Count, Index, Patches
from provenzoo.draws import generator


class GaussianPatches(Patches):
    """`X` `[D, d]` standard normal, y = sign f(X) with f(X) = sum_l (sum_{j in S_l} <w*, X_j>)^3.

    f is a one-hidden-layer convolution with cubic activation whose windows are the sets of the partition.
    `samples` is the size of the training set (none: a fresh batch every step).
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        patches: Count = 16,
        dim: Count = 8,
        set_size: Count = 4,
        partition: Partition = "local",
        draw: Index = 0,
        feature: Index = 0,
        samples: Count | None = None,
        test: Count = 10_000,
    ) -> None:
        law = (patches, dim, set_size, str(partition), draw, feature, test)
        super().__init__(seed, patches, dim, set_size, partition, draw, feature, samples, test, law)

    def labelling_function(self, inputs: Tensor) -> Tensor:
        """f(X): `[..., D, d] -> [...]`."""
        return (inputs @ self.feature)[..., self.partition].sum(-1).pow(3).sum(-1)

    def points(self, size: int, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        draws = generator(self.seed, purpose, step)
        inputs = torch.randn(size, self.partition.numel(), self.dim, generator=draws)
        return inputs, self.labelling_function(inputs).sign()

    def drawn_exactly(self, labels: Tensor) -> Tensor:
        """The partition: a label whose f is near 0 hangs on the last bits."""
        return self.partition
