"""MySkeleton: a hidden direction. Name the paper that yours is from here."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.draws import generator
from provenzoo.teachers.base import Teacher


class MySkeleton(Teacher):
    """A unit vector `value` `[D]`, drawn by (seed, "teacher"); a data set takes it as an argument."""

    def __init__(self, *, seed: int = 0, features: Annotated[int, Field(ge=1)] = 8) -> None:
        drawn = torch.randn(features, generator=generator(seed, "teacher"))
        self.value = drawn / drawn.norm()

    @property
    def truth(self) -> dict[str, Tensor]:
        """What a student should find, named as the student's groups are."""
        return {"value": self.value}

    def __call__(self, inputs: Tensor) -> Tensor:
        """`[..., D] -> [...]`: the part along the direction."""
        return inputs @ self.value
