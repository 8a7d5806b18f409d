"""What all image data sets share: which images are kept, how they are changed, and augmentation in batches.

A split is prepared in this order: `classes`, `samples` (train only), `limit`, `size`, `corrupt`, `permute`,
normalisation. Corruption comes before permutation, so that a permuted set holds the very pixels of the
unpermuted one, and a model whose positional encodings are permuted alike sees no difference under any
corruption.
"""

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torchvision.transforms.v2 import functional as vision

from provenzoo import plain
from provenzoo.datasets import corruptions
from provenzoo.datasets.base import SPLITS, Augmentation, Dataset, PackedSplit, Split, SplitName, digest
from provenzoo.datasets.corruptions import Corrupt
from provenzoo.datasets.packed import Packed
from provenzoo.datasets.policies import AutoAugmenter, Policy
from provenzoo.datasets.randaugment import Eraser, Rand, RandAugmenter
from provenzoo.draws import Permute, cell_permutation, generator
from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.settings import Settings

Count = Annotated[int, Field(ge=1)]
Side = Annotated[int, Field(ge=1, le=4096)]
Positive = Annotated[float, Field(gt=0)]


class Augment(Settings):
    """Random changes of training images, drawn anew in every batch.

    `flip` mirrors half of the images left to right; `crop` shifts by up to that many pixels, over black; then `policy`
    applies an AutoAugment policy (datasets/policies.py), `rand: {magnitude, spread}` RandAugment
    (datasets/randaugment.py), both to colour images alone; `erase` is the share of the images in which a rectangle
    becomes noise.
    """

    flip: bool = False
    crop: Annotated[int, Field(ge=0)] = 0
    policy: Policy | None = None
    rand: Rand | None = None
    erase: Annotated[float, Field(ge=0, le=1)] = 0.0


@dataclass(kw_only=True, eq=False)
class ImageDataset(Dataset):
    """Images with classes. A subclass gives the members that are not implemented here.

    `classes` keeps those classes, by number or name, labelled 0, 1, ... in the order given. `samples` keeps
    that many training images a class, drawn by (seed, "samples", class), so that 20 samples hold the 10.
    `limit` keeps the first images of each split. `size` is the side of the images in pixels. `permute: {cell: s,
    draw: k}` is the k-th fixed permutation of their cells of s x s pixels. `corrupt: {name, severity}` is one of the
    corruptions in `provenzoo.datasets.corruptions`; `augment` (`Augment`) changes training images in each batch.
    """

    seed: int = 0
    classes: list[int | str] | None = None
    samples: Count | None = None
    limit: Count | None = None
    size: Side | None = None
    permute: Permute | None = None
    corrupt: Corrupt | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        self._kept = self._numbers()
        self._check_samples()
        if self.augment and (self.augment.policy or self.augment.rand) and self.colours != 3:
            key, whose = ("policy", "AutoAugment's policies are") if self.augment.policy else ("rand", "RandAugment is")
            raise ZooError(f"augment.{key}: {whose} for colour images, these have one channel")
        self._permutation = (
            cell_permutation(self.image_size, self.permute.cell, self.permute.draw) if self.permute else None
        )

    @cached_property
    def all_classes(self) -> list[str]:
        """The name of every class of the set, kept or not, in the order of its own labels."""
        raise NotImplementedError

    @cached_property
    def train_counts(self) -> list[int]:
        """The number of training images of each of `all_classes`, known without reading them."""
        raise NotImplementedError

    @cached_property
    def image_size(self) -> int:
        """The side of the prepared images, in pixels."""
        raise NotImplementedError

    @cached_property
    def colours(self) -> int:
        """The channels of the prepared images."""
        raise NotImplementedError

    def statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel, on the [0, 1] scale, that normalise the images."""
        raise NotImplementedError

    def labels(self, split: SplitName) -> Tensor:
        """`[N]` int64, places in `all_classes`."""
        raise NotImplementedError

    def stored(self, split: SplitName, index: Tensor) -> Tensor:
        """A split's images at places `index` `[n]` as its files have them, of one side: `[n, C, H, H]` uint8."""
        raise NotImplementedError

    def pixels(self, split: SplitName, index: Tensor) -> Tensor:
        """A split's images at places `index` `[n]`: `[n, C, image_size, image_size]` float32 in [0, 1]."""
        return fit(self.stored(split, index).float().div_(255), self.image_size)

    @property
    def shapes(self) -> dict[str, int]:
        return {"image_size": self.image_size, "channels": self.colours, "num_classes": len(self._kept)}

    @property
    def structure(self) -> dict[str, Tensor]:
        """Of permuted images `pixel_permutation` `[H * W]`: pixel i is pixel `[i]` of the natural image."""
        return {} if self._permutation is None else {"pixel_permutation": self._permutation}

    @property
    def class_names(self) -> list[str]:
        return [self.all_classes[number] for number in self._kept]

    def prepare(self, split: SplitName) -> Split:
        labels = self.labels(split)
        index = self._choose(split, labels)
        relabel = torch.full([len(self.all_classes)], -1)
        relabel[self._kept] = torch.arange(len(self._kept))
        targets = relabel[labels[index]]
        if self.corrupt:
            return self._corrupted(split, index, targets, self.corrupt)
        batches = self._augmentation() if split == "train" and self.augment else None
        stored = self.stored(split, index)
        noisy = batches is not None and self.augment and self.augment.erase  # by noise beyond what a byte holds
        if stored.shape[-1] <= self.image_size and not noisy:
            return PackedSplit(Packed(self._permuted(fit(stored, self.image_size)), *self._scale), targets, batches)
        smaller = fit(stored.float().div_(255), self.image_size)
        return Split(self._normalised(smaller), targets, augment=batches)

    def _corrupted(self, split: SplitName, index: Tensor, targets: Tensor, how: Corrupt) -> Split:
        images = self.pixels(split, index)
        made_from = self._made_from(digest(images, targets), how)
        images = corruptions.apply(images, how, self.seed, SPLITS.index(split))
        batches = self._augmentation() if split == "train" and self.augment else None
        return Split(self._normalised(images), targets, augment=batches, made_from=made_from)

    def _permuted(self, images: Tensor) -> Tensor:
        if self._permutation is None:
            return images
        return images.flatten(2)[..., self._permutation].view_as(images)

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = self._scale
        return self._permuted(images).sub_(mean).div_(std)

    def _augmentation(self) -> Augmentation:
        """All that `augment` asks for, one after another."""
        how, (mean, std) = cast(Augment, self.augment), self._scale
        steps: list[Augmentation] = [Augmenter(how, -mean / std, self._permutation)]
        if how.policy:
            steps.append(AutoAugmenter(how.policy, mean, std, self._permutation))
        if how.rand:
            steps.append(RandAugmenter(how.rand, mean, std, self._permutation))
        if how.erase:
            steps.append(Eraser(how.erase, self._permutation))
        return lambda images, draws: functools.reduce(lambda changed, step: step(changed, draws), steps, images)

    def _made_from(self, clean: str, corrupt: Corrupt) -> str:
        """A digest of the clean images and of all that is done to them; only noise is drawn by the seed."""
        permute = self.permute.model_dump() if self.permute else None
        seed = self.seed if corrupt.name == "noise" else None
        return plain.digest([clean, corrupt.model_dump(), permute, seed, self.statistics()])

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        mean, std = self.statistics()
        return torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def _choose(self, split: SplitName, labels: Tensor) -> Tensor:
        """Places in the split of the images that are kept, in its own order, `[n]` int64."""
        if split == "train" and self.samples:
            drawn = [self._draw(number, torch.nonzero(labels == number)[:, 0]) for number in self._kept]
            index = torch.cat(drawn).sort().values
        else:
            index = torch.nonzero(torch.isin(labels, torch.tensor(self._kept)))[:, 0]
        return index[: self.limit]

    def _draw(self, number: int, places: Tensor) -> Tensor:
        order = torch.randperm(len(places), generator=generator(self.seed, "samples", number))
        return places[order[: self.samples]]

    def _numbers(self) -> list[int]:
        """The kept classes as places in `all_classes`."""
        names = self.all_classes
        if self.classes is None:
            return list(range(len(names)))
        if not self.classes:
            raise ZooError("classes: an empty list keeps no image; name at least one class")
        numbers = [self._number(name) for name in self.classes]
        for place, number in enumerate(numbers):
            if number in numbers[:place]:
                raise ZooError(f"classes: {names[number]!r} (class {number}) is named twice")
        return numbers

    def _number(self, name: int | str) -> int:
        names = self.all_classes
        if str(name) in names:
            return names.index(str(name))
        if isinstance(name, int) and 0 <= name < len(names):
            return name
        known = ", ".join(f"{number} {name}" for number, name in enumerate(names[:20]))
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        hint = did_you_mean(name, names) if isinstance(name, str) and len(names) > 12 else ""
        raise ZooError(f"classes: the set has no class {name!r}{hint}; it has {known}{more}")

    def _check_samples(self) -> None:
        for number in self._kept if self.samples else []:
            if self.samples and self.samples > self.train_counts[number]:
                raise ZooError(
                    f"samples: {self.samples} a class were asked for, but class {self.all_classes[number]!r} "
                    f"has {self.train_counts[number]} training images"
                )


@dataclass(kw_only=True, eq=False)
class PublishedImages(ImageDataset):
    """A set that is the same everywhere: of its classes, counts, colours and sides no file needs to be asked."""

    names: ClassVar[list[str]]
    counts_of_classes: ClassVar[list[int]]
    side: ClassVar[int]
    channels: ClassVar[int]

    @cached_property
    def all_classes(self) -> list[str]:
        return self.names

    @cached_property
    def train_counts(self) -> list[int]:
        return self.counts_of_classes

    @cached_property
    def image_size(self) -> int:
        return self.size or self.side

    @cached_property
    def colours(self) -> int:
        return self.channels


def fit(images: Tensor, size: int) -> Tensor:
    """Square images `[N, C, H, H]` at another size: larger ones in the middle of black, smaller ones resized.

    Resizing is bilinear with antialiasing. An odd rest of padding goes right and below.
    """
    room = size - images.shape[-1]
    if room <= 0:
        return vision.resize(images, [size, size], antialias=True)
    return F.pad(images, [room // 2, room - room // 2] * 2)


class Augmenter:
    """`Augment` for whole batches: one gather with an own draw for each image, on the device where the batch is.

    `black` `[C, 1, 1]` is the normalised value of a black pixel; in images of bytes it is 0. Of permuted images
    (`permutation` `[H * W]`, as `cell_permutation` gives it) the natural image behind them is flipped and shifted.
    """

    def __init__(self, how: Augment, black: Tensor, permutation: Tensor | None = None) -> None:
        self.how = how
        self.black = black
        self.permutation = permutation

    def __call__(self, images: Tensor, draws: torch.Generator) -> Tensor:
        """A changed copy of a batch `[B, C, H, W]`, normalised or uint8."""
        source, inside = self._sources(images, draws)
        if self.permutation is not None:
            permutation = self.permutation.to(images.device)
            source = permutation.argsort()[source[:, permutation]]
            inside = inside[:, permutation]
        flat = images.flatten(2)
        moved = flat.gather(2, source[:, None].expand_as(flat)).view_as(images)
        black = torch.zeros_like(self.black) if images.dtype == torch.uint8 else self.black
        return torch.where(inside.view(-1, 1, *images.shape[-2:]), moved, black.to(images))

    def _sources(self, images: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """For each pixel, where it comes from and whether that lies in the image, `[B, H * W]`."""
        batch, (height, width), pad = len(images), images.shape[-2:], self.how.crop
        shift = torch.randint(-pad, pad + 1, (2, batch, 1), generator=draws, device=draws.device)
        mirror = torch.rand(batch, 1, generator=draws, device=draws.device) < (0.5 if self.how.flip else 0)
        shift, mirror = shift.to(images.device), mirror.to(images.device)
        rows = torch.arange(height, device=images.device) + shift[0]
        columns = torch.arange(width, device=images.device) + shift[1]
        columns = torch.where(mirror, width - 1 - columns, columns)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        source = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
        return source.flatten(1), inside.flatten(1)
