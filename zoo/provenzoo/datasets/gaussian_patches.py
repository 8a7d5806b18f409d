"""Patches without spatial structure, labelled by a convolution (Jelassi, Sander, Li 2022, Section 2 and Figure 2)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName, Stream, law_digest
from provenzoo.datasets.partition import Partition, make_partition
from provenzoo.draws import generator

Count = Annotated[int, Field(ge=1)]


class GaussianPatches(Dataset):
    """`X` `[D, d]` standard normal, y = sign f(X) with f(X) = sum_l (sum_{j in S_l} <w*, X_j>)^3.

    f is a one-hidden-layer convolution with cubic activation whose windows are the sets of the partition.
    `samples` is the size of the training set (none: a fresh batch every step). `structure` holds `partition` `[L, C]`
    and `feature` `[d]`, the unit vector w*.
    """

    loss = "logistic"

    def __init__(
        self,
        *,
        seed: int = 0,
        patches: Count = 16,
        dim: Count = 8,
        set_size: Count = 4,
        partition: Partition = "local",
        draw: Annotated[int, Field(ge=0)] = 0,
        feature: Annotated[int, Field(ge=0)] = 0,
        samples: Count | None = None,
        test: Count = 10_000,
    ) -> None:
        self.seed, self.dim, self.samples, self.test_size = seed, dim, samples, test
        self._args = (patches, dim, set_size, str(partition), draw, feature, test)
        self.partition = make_partition(partition, patches, set_size, seed, draw)
        drawn = torch.randn(dim, generator=generator(seed, "feature", feature))
        self.feature = drawn / drawn.norm()

    @property
    def shapes(self) -> dict[str, int]:
        return {"patches": self.partition.numel(), "dim": self.dim, "set_size": self.partition.shape[1]}

    @property
    def structure(self) -> dict[str, Tensor]:
        return {"partition": self.partition, "feature": self.feature}

    def labelling_function(self, inputs: Tensor) -> Tensor:
        """f(X): `[..., D, d] -> [...]`."""
        return (inputs @ self.feature)[..., self.partition].sum(-1).pow(3).sum(-1)

    def stream(self) -> Stream | None:
        return Stream(lambda step, size: self._points(size, "fresh", step)) if self.samples is None else None

    def prepare(self, split: SplitName) -> Split:
        size = (self.samples if split == "train" else None) or self.test_size
        inputs, labels = self._points(size, split, SPLITS.index(split))
        made_from = law_digest(type(self).__name__, self.seed, split, *self._args, size, drawn=self.partition)
        return Split(inputs, labels, named={"labelling": self.labelling_function(inputs)}, made_from=made_from)

    def _points(self, size: int, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        draws = generator(self.seed, purpose, step)
        inputs = torch.randn(size, self.partition.numel(), self.dim, generator=draws)
        return inputs, self.labelling_function(inputs).sign()
