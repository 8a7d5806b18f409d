"""Points about random centres: a small problem of vectors for an MLP."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName
from provenzoo.draws import generator

Count = Annotated[int, Field(ge=1)]


class GaussianClusters(Dataset):
    """`x = centre[y] + noise * z`, with centres and `z` standard normal; the classes take turns.

    Centres are drawn by (seed, "centres"), points by (seed, "points", split). Both splits share the centres,
    which are `structure["centres"]`, `[num_classes, features]`.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        features: Count = 32,
        num_classes: Annotated[int, Field(ge=2)] = 10,
        train: Count = 2000,
        test: Count = 1000,
        noise: Annotated[float, Field(ge=0)] = 2.0,
    ) -> None:
        self.seed = seed
        self.noise = noise
        self.counts = {"train": train, "test": test}
        self.centres = torch.randn(num_classes, features, generator=generator(seed, "centres"))

    @property
    def shapes(self) -> dict[str, int]:
        return {"features": self.centres.shape[1], "num_classes": len(self.centres)}

    @property
    def class_names(self) -> list[str]:
        return [str(label) for label in range(len(self.centres))]

    @property
    def structure(self) -> dict[str, Tensor]:
        return {"centres": self.centres}

    def prepare(self, split: SplitName) -> Split:
        draws = generator(self.seed, "points", SPLITS.index(split))
        targets = torch.arange(self.counts[split]) % len(self.centres)
        noise = torch.randn(len(targets), self.centres.shape[1], generator=draws)
        return Split(self.centres[targets] + self.noise * noise, targets)
