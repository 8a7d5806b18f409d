"""Token matrices X `[d, D]`, a token a column: drawn ones (Zhang, Zhao, Gu, Cao, Sec. 4.1) and the patches of images.

They have nothing to predict; `taught` gives them targets.
"""

from functools import cached_property
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from provenzoo import plain
from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName, Stream, law_digest
from provenzoo.draws import generator
from provenzoo.errors import ZooError

Count = Annotated[int, Field(ge=1)]


BLOCK = 16
"""Steps whose batches are drawn at once."""


class DrawnTokens(Dataset):
    """Independent entries of one distribution: a fresh batch every step, or `samples` fixed ones; `test` held out.

    Batches are drawn by (seed, "fresh", step // 16), fixed ones and the held-out split by (seed, "tokens", split).
    """

    mean: float
    variance: float

    def __init__(
        self, *, seed: int = 0, dim: Count = 10, tokens: Count = 20, samples: Count | None = None, test: Count = 500
    ) -> None:
        self.seed, self.dim, self.tokens, self.samples, self.held_out = seed, dim, tokens, samples, test

    @property
    def shapes(self) -> dict[str, int]:
        return {"dim": self.dim, "tokens": self.tokens}

    @property
    def structure(self) -> dict[str, Tensor]:
        return {"token_mean": torch.tensor(self.mean), "token_variance": torch.tensor(self.variance)}

    def entries(self, shape: tuple[int, ...], draws: torch.Generator) -> Tensor:
        """Entries of the distribution."""
        raise NotImplementedError

    @cached_property
    def train(self) -> Split | Stream:
        if self.samples is not None:
            return self.prepare("train")
        return Stream(lambda block, size: self._draw(size, generator(self.seed, "fresh", block)), BLOCK)

    def prepare(self, split: SplitName) -> Split:
        count = (self.samples if split == "train" else self.held_out) or 0
        law = (type(self).__name__, self.seed, split, count, self.dim, self.tokens, self.mean)
        drawn = self._draw(count, generator(self.seed, "tokens", SPLITS.index(split)))
        return Split(*drawn, made_from=law_digest(*law, drawn=torch.zeros(0)))

    def _draw(self, count: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.entries((count, self.dim, self.tokens), draws), torch.zeros(count, 0)


class GaussianTokens(DrawnTokens):
    """Standard normal entries."""

    mean, variance = 0.0, 1.0

    def entries(self, shape: tuple[int, ...], draws: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=draws)


class ExponentialTokens(DrawnTokens):
    """Exponential entries of mean 1, or less 1 (`centred`): the paper's shifted inputs."""

    variance = 1.0

    def __init__(
        self,
        *,
        seed: int = 0,
        dim: Count = 10,
        tokens: Count = 20,
        samples: Count | None = None,
        test: Count = 500,
        centred: bool = False,
    ) -> None:
        super().__init__(seed=seed, dim=dim, tokens=tokens, samples=samples, test=test)
        self.mean = 0.0 if centred else 1.0

    def entries(self, shape: tuple[int, ...], draws: torch.Generator) -> Tensor:
        return torch.empty(shape).exponential_(generator=draws).add_(self.mean - 1)


class PatchTokens(Dataset):
    """The patches of images as tokens: `[C, H, W] -> [C * patch^2, D]`, row by row of the image, without overlap."""

    def __init__(self, *, images: Dataset, patch: Count = 3) -> None:
        if "image_size" not in images.shapes:
            raise ZooError("patch-tokens: `images` are no images; name a set of images, such as fashion-mnist")
        side, channels = images.shapes["image_size"], images.shapes["channels"]
        if side % patch:
            raise ZooError(
                f"patches of {patch} x {patch} do not tile an image of {side} x {side}; choose another `size`"
            )
        self.seed, self.images, self.patch = images.seed, images, patch
        self._shapes = {"dim": channels * patch**2, "tokens": (side // patch) ** 2}

    @property
    def shapes(self) -> dict[str, int]:
        return self._shapes

    @property
    def structure(self) -> dict[str, Tensor]:
        """`mean_tokens` `[d, D]`, the mean held-out image in patches."""
        return {"mean_tokens": self.test.inputs.mean(0)}

    def prepare(self, split: SplitName) -> Split:
        whole = self.images.prepare(split)
        patches = F.unfold(whole.inputs, self.patch, stride=self.patch)
        return Split(patches, torch.zeros(len(patches), 0), made_from=plain.digest([whole.digest, self.patch]))
