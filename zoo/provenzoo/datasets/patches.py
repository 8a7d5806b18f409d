"""What data of patches in sets has in common: a partition, a feature, and points drawn by (seed, purpose, step)."""

from functools import cached_property
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, Dataset, Recent, Split, SplitName, Stream, law_digest
from provenzoo.datasets.partition import Partition, make_partition
from provenzoo.draws import generator

Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]

TESTS = Recent()


class Patches(Dataset):
    """Points of D patches `[D, d]` in L sets of C, labelled +1 or -1.

    A subclass gives `points` and `labelling_function`. `structure` holds `partition` `[L, C]` and `feature` `[d]`.
    """

    loss = "logistic"

    def __init__(
        self,
        seed: int,
        patches: int,
        dim: int,
        set_size: int,
        partition: Partition,
        draw: int,
        feature: int,
        samples: int | None,
        test: int,
        law: tuple[Any, ...],
    ) -> None:
        self.seed, self.dim, self.feature_index = seed, dim, feature
        self.partition = make_partition(partition, patches, set_size, seed, draw)
        self.samples, self.test_size, self._law = samples, test, law

    @property
    def shapes(self) -> dict[str, int]:
        return {"patches": self.partition.numel(), "dim": self.dim, "set_size": self.partition.shape[1]}

    @cached_property
    def feature(self) -> Tensor:
        """w*, a unit vector `[d]` drawn by (seed, "feature", feature)."""
        drawn = torch.randn(self.dim, generator=generator(self.seed, "feature", self.feature_index))
        return drawn / drawn.norm()

    @property
    def structure(self) -> dict[str, Tensor]:
        return {"partition": self.partition, "feature": self.feature}

    def labelling_function(self, inputs: Tensor) -> Tensor:
        """f(X), whose sign is the label: `[..., D, d] -> [...]`."""
        raise NotImplementedError

    def points(self, size: int, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        """Inputs `[N, ...]` and labels `[N]`, +1 or -1."""
        raise NotImplementedError

    def drawn_exactly(self, labels: Tensor) -> Tensor:
        """What of the points has the same bits on every processor, for their digest."""
        return labels

    def stream(self) -> Stream | None:
        return Stream(lambda step, size: self.points(size, "fresh", step)) if self.samples is None else None

    def prepare(self, split: SplitName) -> Split:
        if split == "test":
            return TESTS.get((type(self), self.seed, *self._law), lambda: self._split("test", self.test_size))
        return self._split("train", self.samples or self.test_size)

    def _split(self, split: SplitName, size: int) -> Split:
        inputs, labels = self.points(size, split, SPLITS.index(split))
        exact = self.drawn_exactly(labels)
        made_from = law_digest(type(self).__name__, self.seed, split, *self._law, size, drawn=exact)
        return Split(inputs, labels, named={"labelling": self.labelling_function(inputs)}, made_from=made_from)
