"""Half-spaces: a teacher draws a direction, the data is labelled by the side, and a linear model learns it."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName
from provenzoo.draws import generator
from provenzoo.models.base import Groups, Model
from provenzoo.teachers.base import Teacher

Count = Annotated[int, Field(ge=1)]


class Direction(Teacher):
    """A unit vector `direction` `[D]`, drawn by (seed, "direction")."""

    def __init__(self, *, seed: int = 0, features: Count = 8) -> None:
        drawn = torch.randn(features, generator=generator(seed, "direction"))
        self.direction = drawn / drawn.norm()

    @property
    def truth(self) -> dict[str, Tensor]:
        return {"direction": self.direction}

    def __call__(self, inputs: Tensor) -> Tensor:
        """`[B, D] -> [B]`: the part along the direction."""
        return inputs @ self.direction


class HalfSpace(Dataset):
    """Standard normal points `[N, D]`, labelled 1 where they lie on the teacher's side, else 0."""

    def __init__(self, *, teacher: Teacher, seed: int = 0, train: Count = 400, test: Count = 200) -> None:
        self.seed, self.teacher = seed, teacher
        self.counts = {"train": train, "test": test}

    @property
    def shapes(self) -> dict[str, int]:
        return {"features": len(self.teacher.truth["direction"]), "num_classes": 2}

    @property
    def class_names(self) -> list[str]:
        return ["below", "above"]

    @property
    def structure(self) -> dict[str, Tensor]:
        return {f"true_{name}": tensor for name, tensor in self.teacher.truth.items()}

    def prepare(self, split: SplitName) -> Split:
        draws = generator(self.seed, "points", SPLITS.index(split))
        points = torch.randn(self.counts[split], self.shapes["features"], generator=draws)
        return Split(points, (self.teacher(points) > 0).long())


class Linear(Model, nn.Module):
    """Logits that are linear in the input, `[B, features] -> [B, num_classes]`."""

    groups: Groups = {"head": ["head.*"]}

    def __init__(self, *, features: Count, num_classes: Count) -> None:
        super().__init__()
        self.head = nn.Linear(features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)
