"""Feeds: the batch of any step, a pure function of data, seed and step, so that resuming needs no state."""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

from provenzoo.datasets.base import Split, Stream, as_dtype
from provenzoo.datasets.packed import Packed
from provenzoo.draws import generator
from provenzoo.errors import ZooError
from provenzoo.training import parallel


class AnyFeed(Protocol):
    """What gives a training its batches."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the replicas that train on it."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows of a whole batch."""
        ...

    @property
    def dealt(self) -> bool:
        """Whether `batch` gives the rows of this process alone."""
        ...

    def steps(self, epochs: int) -> int:
        """The number of steps of so many epochs."""
        ...

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a step."""
        ...


CHUNK_BYTES = 8 * 2**20
"""The most that is gathered ahead: an epoch, or as many batches as fit (at least one)."""


class Feed:
    """Batches of one split for one seed, or of a split a seed for stacked replicas.

    Epoch e goes through the set in the order drawn by (seed, "order", e). Its last batch holds what is left
    and is short where the batch does not divide the set. A batch as large as the set or larger is the whole
    set, unshuffled (gradient descent). Images are augmented by (seed, "augment", step); those that are kept as bytes
    lie on the device so, and a batch is normalised after that.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        seeds: Sequence[int],
        batch: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.seeds = tuple(seeds)
        self.dealt = False
        self.size = len(splits[0])
        self.batch_size = min(batch, self.size)
        self.steps_per_epoch = math.ceil(self.size / self.batch_size)
        self._augment = [split.augment for split in splits]
        kept = [split.kept.to(device, dtype) for split in splits]
        if self.steps_per_epoch == 1 and self._augment[0] is None:
            kept = [part.whole() if isinstance(part, Packed) else part for part in kept]
        self._packed = [part for part in kept if isinstance(part, Packed)]
        self._inputs = [part.pixels for part in self._packed] or [part for part in kept if isinstance(part, Tensor)]
        self._targets = [as_dtype(split.targets, device, dtype) for split in splits]
        self._span = max(1, CHUNK_BYTES // self._bytes_per_batch())
        self._ordered: tuple[int, list[Tensor]] = (-1, [])
        self._held: tuple[int, int] = (-1, -1)
        self._batches: tuple[Sequence[Tensor], Sequence[Tensor]] = ((), ())
        self._kept: dict[str, Tensor] = {}

    def steps(self, epochs: int) -> int:
        """The number of steps of so many epochs."""
        return epochs * self.steps_per_epoch

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets `[B, ...]` of a step, or `[R, B, ...]`; good until another step is asked for."""
        epoch, at = divmod(step, self.steps_per_epoch)
        chunk, at = divmod(at, self._span)
        if self._held != (epoch, chunk):
            self._gather(epoch, chunk)
        inputs, targets = self._batches[0][at], self._batches[1][at]
        return (self._ready(inputs, step) if self._packed or self._augment[0] else inputs), targets

    def _gather(self, epoch: int, chunk: int) -> None:
        """One gather for many steps, whose batches are views of it."""
        whole = self.steps_per_epoch == 1
        if not (whole and self._batches[0]):
            start = chunk * self._span * self.batch_size
            take = slice(start, start + self._span * self.batch_size)
            rows = None if whole else [order[take] for order in self._order(epoch)]
            self._batches = self._cut("inputs", self._inputs, rows), self._cut("targets", self._targets, rows)
        self._held = (epoch, chunk)

    def _order(self, epoch: int) -> list[Tensor]:
        """The order of an epoch `[N]`, one a seed."""
        if self._ordered[0] != epoch:
            orders = [torch.randperm(self.size, generator=generator(seed, "order", epoch)) for seed in self.seeds]
            self._ordered = (epoch, [order.to(self._inputs[0].device) for order in orders])
        return self._ordered[1]

    def _cut(self, name: str, tensors: list[Tensor], rows: Sequence[Tensor] | None) -> Sequence[Tensor]:
        """Batches that are views of one buffer, which is used again: new memory each time would cost more."""
        alone = len(tensors) == 1
        if rows is None:
            return [tensors[0] if alone else torch.stack(tensors)]
        shape = (len(tensors), len(rows[0]), *tensors[0].shape[1:])
        if name not in self._kept or self._kept[name].shape != shape:
            self._kept[name] = tensors[0].new_empty(shape)
        for place, tensor, chosen in zip(self._kept[name], tensors, rows, strict=True):
            torch.index_select(tensor, 0, chosen, out=place)
        return self._kept[name][0].split(self.batch_size) if alone else self._kept[name].split(self.batch_size, dim=1)

    def _ready(self, inputs: Tensor, step: int) -> Tensor:
        """Each seed's part augmented, then normalised if it is of bytes."""
        parts = [inputs] if len(self.seeds) == 1 else list(inputs.unbind())
        for place, (augment, seed) in enumerate(zip(self._augment, self.seeds, strict=True)):
            if augment:
                parts[place] = augment(parts[place], generator(seed, "augment", step))
            if self._packed:
                parts[place] = self._packed[place].unpack(parts[place])
        return parts[0] if len(parts) == 1 else torch.stack(parts)

    def _bytes_per_batch(self) -> int:
        item = sum(inputs[0].numel() * inputs.element_size() for inputs in self._inputs)
        return max(1, item * self.batch_size)


AHEAD_BYTES = 2**20
"""Blocks of this size or more are drawn ahead, in threads beside those of the recipe's `threads`.

A generator's numbers come from one core, and drawing takes longer than a step on them.
"""
AHEAD = 2
"""How many blocks are drawn ahead."""


class FreshFeed:
    """A fresh batch every step, of one stream for one seed or of a stream a seed for stacked replicas.

    Of several processes each draws whole batches, of which it takes its rows, unless the streams give `items`: then it
    draws no others, and what `batch` gives is `dealt`.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        seeds: Sequence[int],
        batch: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.seeds = tuple(seeds)
        self.batch_size = batch
        self._streams, self._device, self._dtype = streams, device, dtype
        self._block = streams[0].block
        self.dealt = parallel.world() > 1 and all(stream.items for stream in streams)
        self._rows = parallel.own_rows(batch)[0] if self.dealt else slice(0, batch)
        self._held: tuple[int, tuple[Tensor, Tensor] | None] = (-1, None)
        self._drawer: ThreadPoolExecutor | None = None
        self._ahead: dict[int, Future[tuple[Tensor, Tensor]]] = {}

    def steps(self, epochs: int) -> int:
        """A stream has no epochs: a ZooError."""
        raise ZooError("every batch of this data is drawn afresh, so that there are no epochs; write `steps`")

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs `[B, ...]` and targets `[B, ...]` of any step; with several seeds `[R, B, ...]`."""
        block, at = divmod(step, self._block)
        held, drawn = self._held
        if held != block or drawn is None:
            drawn = self._next(block)
            self._held = (block, drawn)
        axis, count = int(len(self.seeds) > 1), self._rows.stop - self._rows.start
        inputs, targets = (part.narrow(axis, at * count, count) for part in drawn)
        return inputs.to(self._device, self._dtype), as_dtype(targets, self._device, self._dtype)

    def _next(self, block: int) -> tuple[Tensor, Tensor]:
        inputs, targets = self._ahead.pop(block).result() if block in self._ahead else self._draw(block)
        if inputs.nbytes >= AHEAD_BYTES:
            threads = torch.get_num_threads()
            self._drawer = self._drawer or ThreadPoolExecutor(
                AHEAD, initializer=torch.set_num_threads, initargs=(threads,)
            )
            coming = range(block + 1, block + 1 + AHEAD)
            self._ahead = {b: self._ahead.get(b) or self._drawer.submit(self._draw, b) for b in coming}
        return inputs, targets

    def _draw(self, block: int) -> tuple[Tensor, Tensor]:
        drawn = [self._of(stream, block) for stream in self._streams]
        if len(drawn) == 1:
            return drawn[0]
        inputs, targets = zip(*drawn, strict=True)
        return torch.stack(inputs), torch.stack(targets)

    def _of(self, stream: Stream, block: int) -> tuple[Tensor, Tensor]:
        if self.dealt and stream.items:
            return stream.items(block * self.batch_size + self._rows.start, self._rows.stop - self._rows.start)
        return stream.draw(block, self._block * self.batch_size)


class Repeated:
    """The batches of another feed, so many times over: for stacked replicas that share their seeds' data."""

    def __init__(self, feed: AnyFeed, times: int) -> None:
        self.feed, self.times, self.steps = feed, times, feed.steps
        self.seeds = feed.seeds * times
        self.batch_size, self.dealt = feed.batch_size, feed.dealt

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a step, `[times * R, B, ...]`."""
        inputs, targets = self.feed.batch(step)
        return self._repeat(inputs), self._repeat(targets)

    def _repeat(self, part: Tensor) -> Tensor:
        stacked = part if len(self.feed.seeds) > 1 else part.unsqueeze(0)
        return stacked.repeat(self.times, *[1] * (stacked.dim() - 1))


def make_feed(
    splits: Sequence[Split | Stream],
    seeds: Sequence[int],
    batch: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Feed | FreshFeed:
    """The feed of what the seeds train on: finite splits, or streams."""
    streams = [split for split in splits if isinstance(split, Stream)]
    if streams:
        return FreshFeed(streams, seeds, batch, device, dtype)
    return Feed([split for split in splits if isinstance(split, Split)], seeds, batch, device, dtype)
