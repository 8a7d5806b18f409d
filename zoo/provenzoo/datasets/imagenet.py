"""ImageNet (ILSVRC 2012, arXiv:1409.0575) from a folder, and shifted test sets labelled among its 1,000 classes.

Images are decoded as they are needed: a training batch is a pure function of the step, and the held-out images pass in
batches. The official index of a class is the place of its WordNet id in timm's list.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from provenzoo import plain
from provenzoo.datasets import corruptions
from provenzoo.datasets.base import SPLITS, Deferred, Split, SplitName, Stream
from provenzoo.datasets.image_folder import SUFFIXES, decoded, folders_in, visible
from provenzoo.datasets.images import Augment, ImageDataset, Positive
from provenzoo.datasets.places import places
from provenzoo.datasets.policies import moved
from provenzoo.datasets.randaugment import erase, fill_colour, rand_augment
from provenzoo.draws import generator
from provenzoo.errors import ZooError

SIDE = 224
RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
Box = tuple[float, float, float, float]


@cache
def wordnet_ids(name: str = "imagenet") -> list[str]:
    """The WordNet ids of `imagenet`, of `imagenet_a` or of `imagenet_r`, in the order of the official index."""
    return (files("timm.data") / "_info" / f"{name}_synsets.txt").read_text().split()


@dataclass(kw_only=True, eq=False)
class ImageNet(ImageDataset):
    """`root/train/<WordNet id>/*` and `root/val/<WordNet id>/*`, 1,000 folders each.

    Held-out images: the shorter side resized to `size / crop`, the middle square cut out. Training images: a random box
    of a share of the image between `area` and 1 and of a ratio of sides in [3/4, 4/3], resized to `size`; half of them
    are mirrored; then comes `augment: {rand, erase}`, by draws of the image's own place in the training. `repeats` is
    how often each image of a pass comes in a row, each time with other draws (Hoffer et al. 2019, arXiv:1901.09335).
    `root` is looked for as it is, then as `PROVENZOO_DATA/imagenet`, then in the user's cache. A class that is missing
    or a folder that is none of them is an error. Label k is the k-th class of `classes`, else the official index.
    """

    key: ClassVar[str] = "imagenet"
    source: ClassVar[str] = "ILSVRC2012 (https://image-net.org), with a folder a class in train and val"
    parts: ClassVar[dict[SplitName, str]] = {"train": "train", "test": "val"}

    mean: list[float]
    std: list[Positive]
    root: str | None = None
    crop: Annotated[float, Field(gt=0, le=1)] = 0.875
    area: Annotated[float, Field(gt=0, le=1)] = 0.08
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    repeats: Annotated[int, Field(ge=1, le=8)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        how = self.augment or Augment()
        given = {"samples": self.samples, **{f"augment.{key}": getattr(how, key) for key in ("flip", "crop", "policy")}}
        if key := next((key for key, value in given.items() if value), None):
            raise ZooError(f"{self.key}: takes no `{key}`; its training images are cropped and mirrored, all of them")

    @classmethod
    def missing(cls, *, root: str | None = None, **args: Any) -> str | None:
        if cls._found(root):
            return None
        looked = ", ".join(str(folder) for folder in _candidates(cls.key, root))
        wanted = " and ".join(f"{name}/" for name in cls.parts.values() if name) or "its folders of classes"
        return f"{cls.key}: not found; looked for {wanted} in {looked}"

    @cached_property
    def folder(self) -> Path:
        """The folder of the set."""
        if found := self._found(self.root):
            return found
        raise ZooError(f"{self.missing(root=self.root)}\nput {self.source} there, or name its folder in `root`")

    @classmethod
    def _found(cls, root: str | None) -> Path | None:
        there = (f for f in _candidates(cls.key, root) if all((f / part).is_dir() for part in cls.parts.values()))
        return next(there, None)

    @cached_property
    def all_classes(self) -> list[str]:
        return wordnet_ids()

    @cached_property
    def image_size(self) -> int:
        return self.size or SIDE

    @cached_property
    def colours(self) -> int:
        return 3

    def statistics(self) -> tuple[list[float], list[float]]:
        return self.mean, cast(list[float], self.std)

    @classmethod
    def folder_names(cls) -> dict[str, int]:
        """Name of each folder that must be there -> its official index, the label map."""
        return {name: index for index, name in enumerate(wordnet_ids())}

    def listed(self, split: SplitName) -> tuple[list[Path], Tensor]:
        """The files of the kept classes and their labels `[N]`, class by class."""
        folder, names = self.folder / self.parts[split], self.folder_names()
        _check_folders(self.key, folder, names)
        kept = {number: label for label, number in enumerate(self._kept)}
        found = [(f, kept[n]) for name, n in names.items() if n in kept for f in _images(self.key, folder / name)]
        order = torch.randperm(len(found), generator=generator(0, "imagenet", SPLITS.index(split)))
        chosen = [found[place] for place in order.tolist()][: self.limit]
        return [file for file, _ in chosen], torch.tensor([label for _, label in chosen])

    def stream(self) -> Stream | None:
        """Batches of `size`; every image once in each pass through the set, in an order by (seed, "order", pass)."""
        paths, labels = self.listed("train")

        def items(first: int, count: int) -> tuple[Tensor, Tensor]:
            row = range(first, first + count)
            places = torch.tensor([_place(self.seed, len(paths), at // self.repeats) for at in row])
            draws = [generator(self.seed, "augment", at) for at in row]
            images = self._decode([paths[place] for place in places.tolist()], draws)
            return self._ready(images, places, "train", row), labels[places]

        # noise of `corrupt` is drawn by batch, so that a part of a batch would have another
        return Stream(lambda step, size: items(step * size, size), items=None if self.corrupt else items)

    def prepare(self, split: SplitName) -> Split:
        if split == "train":
            raise ZooError(f"{self.key}: its training images are read as they are needed; write `steps`")
        paths, labels = self.listed(split)

        def read(places: Tensor) -> Tensor:
            return self._ready(self._decode([paths[place] for place in places.tolist()]), places, split)

        names = [f"{path.parent.name}/{path.name} {path.stat().st_size}" for path in paths]
        how = [self.image_size, self.crop, self.interpolation, self.statistics(), self.seed if self.corrupt else None]
        changes = [change.model_dump() if change else None for change in (self.corrupt, self.permute)]
        inputs = Deferred(read, torch.arange(len(paths)))
        made_from = plain.digest([names, labels.tolist(), how, changes])
        return Split(cast(Tensor, inputs), labels, made_from=made_from)

    def _decode(self, paths: Sequence[Path], draws: Sequence[torch.Generator] | None = None) -> Tensor:
        """Images `[n, 3, size, size]` float32 in [0, 1], by several threads."""
        given = draws or [None] * len(paths)
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
            arrays = list(threads.map(self._image, paths, given))
        return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float().div_(255)

    def _image(self, file: Path, draws: torch.Generator | None) -> np.ndarray:
        image = decoded(file, "RGB")
        side, how = self.image_size, RESAMPLING[self.interpolation]
        box = _middle(image.size, self.crop) if draws is None else _random_box(image.size, self.area, draws)
        image = image.resize((side, side), how, box=box)
        if draws is not None and torch.rand((), generator=draws) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if draws is not None and self.augment and self.augment.rand:
            image = rand_augment(image, self.augment.rand, fill_colour(self._scale[0]), draws)
        return np.asarray(image)

    def _ready(self, images: Tensor, places: Tensor, split: SplitName, row: Sequence[int] = ()) -> Tensor:
        """Corrupted, normalised, erased (training images, by their places in the endless row) and permuted.

        Noise of `corrupt` is drawn by batch.
        """
        if self.corrupt:
            images = corruptions.apply(images, self.corrupt, self.seed, SPLITS.index(split) + 2 * int(places[0]))
        mean, std = self._scale
        images = images.sub(mean).div_(std)
        if self.augment and self.augment.erase:
            for image, at in zip(images, row, strict=False):
                draws = generator(self.seed, "erase", at)
                if torch.rand((), generator=draws) < self.augment.erase:
                    erase(image, draws)
        return images if self._permutation is None else moved(images, self._permutation)


class ShiftedImageNet(ImageNet):
    """Test images in folders of classes whose labels are places among the 1,000 of ImageNet; nothing to train on."""

    parts: ClassVar = {"test": ""}

    @property
    def structure(self) -> dict[str, Tensor]:
        """`scored_classes`: the labels that occur, for `accuracy-among-scored`."""
        held = set(self.folder_names().values())
        scored = [label for label, number in enumerate(self._kept) if number in held]
        return super().structure | {"scored_classes": torch.tensor(scored)}

    def stream(self) -> Stream | None:
        raise ZooError(f"{self.key}: a test set, with nothing to train on; name it in a set of an `evaluate` stage")


class ImageNetA(ShiftedImageNet):
    """ImageNet-A (Hendrycks et al. 2021, arXiv:1907.07174): 7,500 images of 200 of the classes."""

    key: ClassVar = "imagenet-a"
    source: ClassVar = "imagenet-a.tar (https://github.com/hendrycks/natural-adv-examples)"
    subset: ClassVar[str] = "imagenet_a"

    @classmethod
    def folder_names(cls) -> dict[str, int]:
        official = super().folder_names()
        return {name: official[name] for name in wordnet_ids(cls.subset)}


class ImageNetR(ImageNetA):
    """ImageNet-R (Hendrycks et al. 2021, arXiv:2006.16241): 30,000 renditions of 200 of the classes."""

    key: ClassVar = "imagenet-r"
    source: ClassVar = "imagenet-r.tar (https://github.com/hendrycks/imagenet-r)"
    subset: ClassVar = "imagenet_r"


class ImageNetV2(ShiftedImageNet):
    """ImageNet-V2 (Recht et al. 2019, arXiv:1902.10811): 10,000 new images, in folders named by index, 0 to 999."""

    key: ClassVar = "imagenet-v2"
    source: ClassVar = "imagenetv2-matched-frequency (https://github.com/modestyachts/ImageNetV2)"

    @classmethod
    def folder_names(cls) -> dict[str, int]:
        return {str(index): index for index in range(len(wordnet_ids()))}


# --- folders and files --------------------------------------------------------------------------------------------


def _candidates(key: str, root: str | None) -> list[Path]:
    given = [Path(root).expanduser()] if root else []
    return [*given, *(place / key for place in places(None))]


def _check_folders(key: str, folder: Path, names: dict[str, int]) -> None:
    """An error unless the folders are those of the label map, neither fewer nor more."""
    held = folders_in(folder)
    lacking = sorted(names.keys() - set(held), key=names.__getitem__)
    if lacking:
        first, more = lacking[0], f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        told = f"{first!r} (class {names[first]}){more}"
        raise ZooError(f"{key}: {folder} has no folder {told}; all {len(names)} are needed")
    if unknown := [name for name in held if name not in names]:
        raise ZooError(f"{key}: {folder / unknown[0]} is no class of {key}; its label would be unknown: move it away")


def _images(key: str, folder: Path) -> list[Path]:
    found = [path for path in visible(folder) if path.suffix.lower() in SUFFIXES]
    if not found:
        raise ZooError(f"{key}: {folder} holds no image")
    return found


# --- which image, which part of it --------------------------------------------------------------------------------


@cache
def _order(seed: int, count: int, epoch: int) -> Tensor:
    return torch.randperm(count, generator=generator(seed, "order", epoch))


def _place(seed: int, count: int, at: int) -> int:
    """The image that comes `at`-th when the set is gone through again and again, each time in another order."""
    epoch, place = divmod(at, count)
    return int(_order(seed, count, epoch)[place])


def _middle(size: tuple[int, int], crop: float) -> Box:
    """The middle square of an image whose side is a share `crop` of the shorter one."""
    width, height = size
    side = min(size) * crop
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _random_box(size: tuple[int, int], area: float, draws: torch.Generator) -> Box:
    """A box of a share of at least `area` and a ratio in [3/4, 4/3] (Szegedy et al. 2015); the middle if none fits."""
    width, height = size
    for _ in range(10):
        share, ratio, across, down = torch.rand(4, generator=draws).tolist()
        pixels = width * height * (area + (1 - area) * share)
        stretch = (4 / 3) ** (ratio - 0.5)  # half of log(ratio), uniform
        wide, high = pixels**0.5 * stretch, pixels**0.5 / stretch
        if wide <= width and high <= height:
            left, top = (width - wide) * across, (height - high) * down
            return left, top, left + wide, top + high
    return _middle(size, 1.0)
