"""MySkeleton: points on two circles, labelled by the circle. Name the paper that yours is from here."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName
from provenzoo.draws import generator

Count = Annotated[int, Field(ge=1)]


class MySkeleton(Dataset):
    """Points `[N, 2]` of radius 1 (label 0) and 2 (label 1), with noise; drawn by (seed, "points", split)."""

    def __init__(
        self, *, seed: int = 0, train: Count = 400, test: Count = 200, noise: Annotated[float, Field(ge=0)] = 0.1
    ) -> None:
        self.seed, self.noise = seed, noise
        self.counts = {"train": train, "test": test}

    @property
    def shapes(self) -> dict[str, int]:
        return {"features": 2, "num_classes": 2}

    @property
    def class_names(self) -> list[str]:
        return ["inner", "outer"]

    @property
    def structure(self) -> dict[str, Tensor]:
        return {"radii": torch.tensor([1.0, 2.0])}

    def prepare(self, split: SplitName) -> Split:
        draws = generator(self.seed, "points", SPLITS.index(split))
        targets = torch.arange(self.counts[split]) % 2
        angles = 2 * torch.pi * torch.rand(len(targets), generator=draws)
        circle = torch.stack([angles.cos(), angles.sin()], -1) * self.structure["radii"][targets, None]
        return Split(circle + self.noise * torch.randn(circle.shape, generator=draws), targets)
