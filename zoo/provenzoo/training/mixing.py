"""mixup (Zhang et al. 2017, arXiv:1710.09412) and cutmix (Yun et al. 2019, arXiv:1905.04899) of a batch's examples.

Every example draws its own share or box, by (seed, "mix", step); boxes are timm's. Its partner is decided by its place
in the batch, within groups of `GROUP` rows, so that processes that have whole groups need no rows of others, and take
one process's step.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from provenzoo.draws import derive
from provenzoo.errors import UsageError
from provenzoo.training import parallel
from provenzoo.training.feed import AnyFeed

GROUP = 16
"""Rows that are mixed among themselves: row i with row i + 8, no nearer than copies of a repeated image lie."""


@dataclass(frozen=True)
class Shares:
    """What `[B]` examples keep of themselves: `kept` `[B]`, of whole images where `boxes` `[B, 4]` are empty.

    A box (top, bottom, left, right) is cut out instead, and `kept` is what is left of the area.
    """

    kept: Tensor
    boxes: Tensor

    def rows(self, some: slice) -> "Shares":
        """Those of some of the examples."""
        return Shares(self.kept[some], self.boxes[some])

    def by_pixel(self, height: int, width: int) -> Tensor:
        """What each pixel keeps `[B, H, W]`."""
        top, bottom, left, right = self.boxes[:, :, None].unbind(1)
        rows, columns = (torch.arange(side, device=self.boxes.device) for side in (height, width))
        down, across = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
        whole = self.kept.masked_fill((bottom > top)[:, 0], 1.0)
        return whole[:, None, None] * ~(down[:, :, None] & across[:, None, :])


@dataclass(frozen=True)
class Mixing:
    """`mixup` and `cutmix` are the alpha of the Beta distribution of an example's own share, 0 for none of it.

    Where both are given, each example draws one of the two. `classes` is the number of logits; `permutation` `[H * W]`
    is that of permuted images, whose boxes lie in the natural ones.
    """

    mixup: float
    cutmix: float
    classes: int
    permutation: Tensor | None = None

    def shares(self, seed: int, step: int, shape: torch.Size) -> Shares:
        """Of the examples `[B, C, H, W]` (without cutmix `[B, ...]`) of a step, on the CPU."""
        draws = np.random.default_rng(derive(seed, "mix", step))
        cut = draws.random(shape[0]) < (0.5 if self.mixup and self.cutmix else float(self.cutmix > 0))
        kept = draws.beta(*[np.where(cut, self.cutmix, self.mixup)] * 2)
        boxes = np.zeros((shape[0], 4), dtype=np.int64)
        if self.cutmix:
            height, width = shape[-2:]
            boxes = np.where(cut[:, None], _boxes(1 - kept, height, width, draws), boxes)
            area = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
            kept = np.where(cut, 1 - area / (height * width), kept)
        return Shares(torch.from_numpy(kept), torch.from_numpy(boxes))

    def __call__(self, inputs: Tensor, labels: Tensor, shares: Shares) -> tuple[Tensor, Tensor]:
        """Mixed inputs `[B, ...]` and targets `[B, classes]`, the shares of the classes."""
        partner = partners(len(inputs)).to(inputs.device)
        kept = shares.kept.to(inputs)
        weights = kept.view(-1, *[1] * (inputs.dim() - 1))
        if self.cutmix:
            weights = Shares(kept, shares.boxes.to(inputs.device)).by_pixel(*inputs.shape[-2:])
            if self.permutation is not None:
                weights = weights.flatten(1)[:, self.permutation.to(inputs.device)].view_as(weights)
            weights = weights.unsqueeze(1)
        own = F.one_hot(labels, self.classes).to(inputs.dtype)
        return inputs[partner].lerp(inputs, weights.expand_as(inputs)), own[partner].lerp(own, kept[:, None])


def _boxes(areas: np.ndarray, height: int, width: int, draws: np.random.Generator) -> np.ndarray:
    """Boxes (top, bottom, left, right) of shares `areas` `[B]` of an image about a uniform centre, cut to the image."""
    ends = []
    for side in (height, width):
        length = (side * np.sqrt(areas)).astype(np.int64)
        centre = draws.integers(0, side, len(areas))
        ends += [centre - length // 2, centre + (length + 1) // 2]
    return np.stack(ends, 1).clip(0, [height, height, width, width])


def partners(count: int) -> Tensor:
    """With which row each of `count` rows is mixed: half a group further, round the group; a row alone with itself."""
    rows = torch.arange(count)
    first = rows - rows % GROUP
    size = (count - first).clamp(max=GROUP)
    return first + (rows - first + size // 2) % size


class MixedFeed:
    """The batches of another feed, mixed; targets are shares of the classes `[B, classes]`.

    A UsageError where this run's processes would draw parts of groups.
    """

    def __init__(self, feed: AnyFeed, mixing: Mixing) -> None:
        self.feed, self.mixing, self.seeds, self.steps = feed, mixing, feed.seeds, feed.steps
        self.batch_size, self.dealt = feed.batch_size, feed.dealt
        self._rows = parallel.own_rows(feed.batch_size)[0] if feed.dealt else slice(None)
        whole = GROUP * parallel.world()
        if feed.dealt and feed.batch_size % whole:
            raise UsageError(
                f"batch: {feed.batch_size} rows in {parallel.world()} processes would part groups of {GROUP}, which "
                f"are mixed among themselves; take a multiple of {whole}, or leave out mixup and cutmix"
            )

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a step; with several seeds `[R, B, ...]`."""
        inputs, labels = self.feed.batch(step)
        if len(self.seeds) == 1:
            return self._mixed(inputs, labels, step, self.seeds[0])
        mixed = [self._mixed(x, y, step, seed) for x, y, seed in zip(inputs, labels, self.seeds, strict=True)]
        return torch.stack([x for x, _ in mixed]), torch.stack([y for _, y in mixed])

    def _mixed(self, inputs: Tensor, labels: Tensor, step: int, seed: int) -> tuple[Tensor, Tensor]:
        count = self.batch_size if self.dealt else len(inputs)
        shares = self.mixing.shares(seed, step, torch.Size([count, *inputs.shape[1:]]))
        return self.mixing(inputs, labels, shares.rows(self._rows))
