"""Batches of a split by step: the order of an epoch is drawn from (seed, "order", epoch), so any step can be asked for."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from provenzoo.datasets.base import Split
from provenzoo.draws import generator

CHUNK_BYTES = 2**27


class Feed:
    """Batches for one replica `[B, ...]`, or for several that train at once `[R, B, ...]`, each from its own split.

    One gather serves many steps, whose batches are views. The last batch of an epoch may be short; a `batch` larger than
    the set is the whole set, in its own order.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        seeds: Sequence[int],
        batch: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.seeds = list(seeds)
        self.inputs = [split.inputs.to(device, dtype) for split in splits]
        self.targets = [split.targets.to(device) for split in splits]
        self.augment = [split.augment for split in splits]
        self.size = len(splits[0])
        self.batch = min(batch, self.size)
        self.steps_an_epoch = math.ceil(self.size / self.batch)
        item = self.inputs[0][0].numel() * self.inputs[0].element_size() * len(splits)
        self.batches_a_chunk = max(1, CHUNK_BYTES // max(1, item * self.batch))
        self._at = (-1, -1)
        self._orders: list[Tensor] = []
        self._views: list[tuple[Tensor, Tensor]] = []

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """The batch of a step: inputs and targets."""
        epoch, index = divmod(step, self.steps_an_epoch)
        chunk, offset = divmod(index, self.batches_a_chunk)
        if (epoch, chunk) != self._at:
            self._gather(epoch, chunk)
        inputs, targets = self._views[offset]
        return (self._augmented(inputs, step), targets) if self.augment[0] else (inputs, targets)

    def _gather(self, epoch: int, chunk: int) -> None:
        if epoch != self._at[0] or not self._orders:
            self._orders = [self._order(seed, epoch) for seed in self.seeds]
        self._at = (epoch, chunk)
        first = chunk * self.batches_a_chunk * self.batch
        part = slice(first, first + self.batches_a_chunk * self.batch)
        inputs = _joined([x[order[part]] for x, order in zip(self.inputs, self._orders, strict=True)])
        targets = _joined([y[order[part]] for y, order in zip(self.targets, self._orders, strict=True)])
        along = 0 if len(self.inputs) == 1 else 1
        self._views = list(zip(inputs.split(self.batch, along), targets.split(self.batch, along), strict=True))

    def _order(self, seed: int, epoch: int) -> Tensor:
        if self.batch == self.size:
            return torch.arange(self.size, device=self.targets[0].device)
        return torch.randperm(self.size, generator=generator(seed, "order", epoch)).to(self.targets[0].device)

    def _augmented(self, inputs: Tensor, step: int) -> Tensor:
        parts = [inputs] if len(self.inputs) == 1 else list(inputs)
        draws = [generator(seed, "augment", step) for seed in self.seeds]
        moved = [a(x, g) if a else x for a, x, g in zip(self.augment, parts, draws, strict=True)]
        return _joined(moved)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts)
