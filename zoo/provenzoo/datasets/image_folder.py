"""Any folder of images, one subfolder a class.

Either `root/train/<class>/*` and `root/test/<class>/*` (or `val`), or only `root/<class>/*`: then the
fraction `holdout` of each class is held out. What is held out depends on the class and its file names alone,
not on the seed: a model of one seed is never judged on images that another was trained on.
"""

import os
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, SplitName
from provenzoo.datasets.images import ImageDataset, Positive
from provenzoo.draws import derive
from provenzoo.errors import ZooError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
HELD_OUT = ("test", "val")
UNREADABLE = (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


@dataclass(kw_only=True, eq=False)
class ImageFolder(ImageDataset):
    """Images of a folder; hidden files and folders and files that are no images are passed over.

    Classes are the subfolders in order of name, or `classes` in the order given. `channels` 1 is grey, 3 is
    RGB. With `size` an image's middle square is resized to it (bilinear, antialiased); without it all images
    must be squares of one size. `mean` and `std` of each channel are measured on all training images of the
    kept classes where they are not given. Images stand in one order, shuffled by their names, so that `limit`
    mixes classes.
    """

    derived: ClassVar[tuple[str, ...]] = ("classes", "size", "mean", "std")

    root: str
    channels: Literal[1, 3] = 3
    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.2
    mean: list[float] | None = None
    std: list[Positive] | None = None

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != self.channels:
                raise ZooError(f"{name}: {len(values)} values for {self.channels} channels")
        super().__post_init__()
        only_held_out = sorted({*folders_in(self.folders["test"])} - {*self.all_classes})
        if self.classes is None and only_held_out:
            raise ZooError(
                f"image-folder: {self.folders['test']} has a class {only_held_out[0]!r} that "
                f"{self.folders['train']} lacks; name the `classes` to keep"
            )
        _ = self._listed  # a class without images is found here, before anything is read

    @classmethod
    def missing(cls, *, root: str | None = None, **args: Any) -> str | None:
        if root is None:
            return "image-folder: no `root` is given"
        return None if Path(root).expanduser().is_dir() else f"image-folder: there is no folder {root}"

    @cached_property
    def folders(self) -> dict[SplitName, Path]:
        """The folder of each split; the same one where images are held out by `holdout`."""
        root = Path(self.root).expanduser()
        if problem := self.missing(root=self.root):
            raise ZooError(problem)
        held_out = next((root / name for name in HELD_OUT if (root / name).is_dir()), None)
        train = root / "train"
        if train.is_dir() and held_out:
            return {"train": train, "test": held_out}
        if train.is_dir() or held_out:
            lacking = "test or val" if train.is_dir() else "train"
            raise ZooError(f"image-folder: {root} holds {(held_out or train).name} but no folder {lacking}")
        return {"train": root, "test": root}

    @cached_property
    def all_classes(self) -> list[str]:
        folder = self.folders["train"]
        if names := folders_in(folder):
            return names
        raise ZooError(f"image-folder: {folder} holds no folder of a class")

    @cached_property
    def image_size(self) -> int:
        if self.size:
            return self.size
        first = self._listed["train"][0][0]
        with _opened(first) as image:
            width, height = image.size
        if width != height:
            raise ZooError(f"{first}: {width} x {height} is no square; set `size`")
        return width

    @cached_property
    def colours(self) -> int:
        return self.channels

    @cached_property
    def train_counts(self) -> list[int]:
        return torch.bincount(self.labels("train"), minlength=len(self.all_classes)).tolist()

    def statistics(self) -> tuple[list[float], list[float]]:
        return self._statistics

    def resolved(self) -> dict[str, Any]:
        mean, std = self.statistics()
        return {"classes": self.class_names, "size": self.image_size, "mean": mean, "std": std}

    def labels(self, split: SplitName) -> Tensor:
        return torch.tensor([label for _, label in self._listed[split]])

    def stored(self, split: SplitName, index: Tensor) -> Tensor:
        files = [self._listed[split][place][0] for place in index.tolist()]
        images = torch.stack([self._image(file) for file in files])
        return images.permute(0, 3, 1, 2).contiguous()

    @cached_property
    def _statistics(self) -> tuple[list[float], list[float]]:
        if self.mean and self.std:
            return self.mean, self.std
        images = self.pixels("train", torch.arange(len(self._listed["train"]))).double()
        mean, std = images.mean((0, 2, 3)).tolist(), images.std((0, 2, 3)).tolist()
        if not all(std):
            raise ZooError(f"image-folder: the training images of {self.root} are all of one value; set `std`")
        return self.mean or mean, self.std or std

    @cached_property
    def _listed(self) -> dict[SplitName, list[tuple[Path, int]]]:
        """The files of each split with their places in `all_classes`, in one shuffled order."""
        return {split: self._list(split) for split in SPLITS}

    def _list(self, split: SplitName) -> list[tuple[Path, int]]:
        found = [
            (file, number) for number in self._kept for file in self._files_of_class(split, self.all_classes[number])
        ]
        return sorted(found, key=lambda item: _rank(item[0], "order"))

    def _files_of_class(self, split: SplitName, name: str) -> list[Path]:
        folder = self.folders[split] / name
        if not folder.is_dir():
            raise ZooError(f"image-folder: {self.folders[split]} has no folder of class {name!r}")
        files = [path for path in visible(folder) if path.suffix.lower() in SUFFIXES and path.is_file()]
        if not files:
            raise ZooError(f"image-folder: {folder} holds no image of class {name!r}")
        return files if self.folders["train"] != self.folders["test"] else self._held_out(split, name, files)

    def _held_out(self, split: SplitName, name: str, files: list[Path]) -> list[Path]:
        if len(files) < 2:
            raise ZooError(f"image-folder: class {name!r} has one image; to hold one out it needs two")
        count = min(max(1, round(self.holdout * len(files))), len(files) - 1)
        ranked = sorted(files, key=lambda file: _rank(file, "holdout"))
        return ranked[:count] if split == "test" else ranked[count:]

    def _image(self, file: Path) -> Tensor:
        """One image, `[H, W, C]` uint8, of `image_size`."""
        image = decoded(file, "L" if self.channels == 1 else "RGB")
        if self.size:
            image = _middle(image, self.size)
        elif image.size != (self.image_size, self.image_size):
            first, sides = self._listed["train"][0][0], f"{image.width} x {image.height}"
            raise ZooError(f"{file} is {sides}, but {first} is {self.image_size} x {self.image_size}; set `size`")
        return torch.from_numpy(np.array(image)).view(self.image_size, self.image_size, self.channels)


def visible(folder: Path) -> list[Path]:
    """What a folder holds, in order of name, without what is hidden."""
    try:
        return sorted(folder / name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        raise ZooError(f"{folder}: cannot be listed ({error.strerror})") from None


def folders_in(folder: Path) -> list[str]:
    """The names of the folders that a folder holds, without what is hidden."""
    return [path.name for path in visible(folder) if path.is_dir()]


def _rank(file: Path, purpose: str) -> int:
    """A random number that depends on the names of the file and of its class alone."""
    return derive(0, f"{purpose} {file.parent.name}/{file.name}")


def decoded(file: Path, mode: str) -> Image.Image:
    """An image upright, in the mode "L" or "RGB". One that is damaged or deeper than 8 bits is a ZooError."""
    with _opened(file) as opened:
        try:
            return ImageOps.exif_transpose(opened).convert(mode)
        except UNREADABLE as error:
            raise ZooError(f"{file}: a damaged image ({error})") from None


def _opened(file: Path) -> Image.Image:
    """An image whose header was read, 8 bits a channel."""
    try:
        image = Image.open(file)
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "of no known format"
        raise ZooError(f"{file}: cannot be read as an image ({reason})") from None
    if image.mode[0] in "IF" or any("16" in str(tile[3]) for tile in image.tile):
        image.close()
        raise ZooError(f"{file}: has more than 8 bits a channel; convert it to 8 bits")
    return image


def _middle(image: Image.Image, size: int) -> Image.Image:
    """The middle square of an image, resized to `size`."""
    return ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
