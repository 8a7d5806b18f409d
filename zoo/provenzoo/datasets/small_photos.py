"""CIFAR-10, CIFAR-100 (Krizhevsky 2009) and SVHN (Netzer et al. 2011): colour photos of 32 x 32.

They are read by torchvision's own readers, which open no file whose MD5 is not the published one.
"""

import os
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property, lru_cache
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
import torchvision.datasets
from torch import Tensor
from torchvision.datasets.utils import check_integrity

from provenzoo.datasets.base import SPLITS, SplitName
from provenzoo.datasets.images import Positive, PublishedImages
from provenzoo.datasets.places import download_folder, places
from provenzoo.errors import ZooError

SIDE = 32
CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_FINE = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle "
    "caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant "
    "flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man "
    "maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree "
    "plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper "
    "snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train "
    "trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CIFAR100_CLASSES = _FINE.split()


@dataclass(kw_only=True, eq=False)
class SmallPhotos(PublishedImages):
    """A published set of photos. `mean` and `std` of each channel normalise them, on the [0, 1] scale.

    Its files are looked for in `root`, in `PROVENZOO_DATA` and in the cache of the user; in each as torchvision lays
    them out, straight or in a folder of the set's name. Where they are nowhere and `download` allows it, torchvision
    downloads them into `PROVENZOO_DATA` or the cache.
    """

    key: ClassVar[str]
    source: ClassVar[str]
    side, channels = SIDE, 3

    mean: list[float]
    std: list[Positive]
    root: str | None = None
    download: bool = True

    @classmethod
    def checksums(cls) -> dict[str, str]:
        """The files below a root, with their MD5."""
        raise NotImplementedError

    @classmethod
    def read(cls, root: Path, split: SplitName, download: bool = False) -> tuple[Any, Any]:
        """A split by torchvision's reader: images as an array of uint8 `[N, 3, 32, 32]`, and labels."""
        raise NotImplementedError

    @classmethod
    def missing(cls, *, root: str | None = None, **args: Any) -> str | None:
        if cls._found(root):
            return None
        partly = "".join(
            f"; {folder} lacks {', '.join(n for n in cls.checksums() if n not in held)}"
            for folder in _folders(cls.key, root)
            if (held := cls._held(folder))
        )
        looked = ", ".join(str(place) for place in places(root))
        return f"{cls.key}: not found; looked for {next(iter(cls.checksums()))} and the rest in {looked}{partly}"

    @cached_property
    def folder(self) -> Path:
        """The folder that holds all files, each the published one."""
        found = self._found(self.root)
        reason = "" if found else self._download() if self.download else "download is off"
        found = found or self._found(self.root)
        if not found:
            hint = f"put {self.source} into `root` or PROVENZOO_DATA, unpacked"
            raise ZooError(f"{self.missing(root=self.root)}\n{hint} ({reason})")
        for name, md5 in self.checksums().items():
            if not check_integrity(found / name, md5):
                raise ZooError(
                    f"{found / name}: not the published file (its MD5 should be {md5})\n"
                    f"put that of {self.source} there, or name another folder in `root`"
                )
        return found

    def statistics(self) -> tuple[list[float], list[float]]:
        return self.mean, cast(list[float], self.std)

    def labels(self, split: SplitName) -> Tensor:
        return _arrays(type(self), self.folder, split)[1]

    def stored(self, split: SplitName, index: Tensor) -> Tensor:
        return _arrays(type(self), self.folder, split)[0][index]

    @classmethod
    def _held(cls, folder: Path) -> list[str]:
        return [name for name in cls.checksums() if (folder / name).is_file()]

    @classmethod
    def _found(cls, root: str | None) -> Path | None:
        """The first folder that holds all files."""
        return next((f for f in _folders(cls.key, root) if len(cls._held(f)) == len(cls.checksums())), None)

    def _download(self) -> str:
        """Download the set; files appear whole or not at all. Returns how it went."""
        target = download_folder()
        try:
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target) as beside, redirect_stdout(sys.stderr):
                for split in SPLITS:
                    self.read(Path(beside), split, download=True)
                for name in self.checksums():
                    (target / name).parent.mkdir(exist_ok=True)
                    os.replace(Path(beside, name), target / name)
        except (OSError, HTTPException, RuntimeError) as error:
            return f"the download failed: {' '.join(str(error).split()) or type(error).__name__}"
        return f"downloaded into {target}"


class CIFAR10(SmallPhotos):
    """CIFAR-10, 50,000 training and 10,000 test photos of ten kinds of thing."""

    key = "cifar10"
    source = "cifar-10-python.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html)"
    names = CIFAR10_CLASSES
    counts_of_classes: ClassVar = [5000] * 10
    reader: ClassVar[type[torchvision.datasets.CIFAR10]] = torchvision.datasets.CIFAR10

    @classmethod
    def checksums(cls) -> dict[str, str]:
        pairs = [*cls.reader.train_list, *cls.reader.test_list, (cls.reader.meta["filename"], cls.reader.meta["md5"])]
        return {f"{cls.reader.base_folder}/{name}": md5 for name, md5 in pairs}

    @classmethod
    def read(cls, root: Path, split: SplitName, download: bool = False) -> tuple[Any, Any]:
        found = cls.reader(root, train=split == "train", download=download)
        return found.data.transpose(0, 3, 1, 2), found.targets


class CIFAR100(CIFAR10):
    """CIFAR-100, 50,000 training and 10,000 test photos of a hundred kinds of thing, by their fine labels."""

    key = "cifar100"
    source = "cifar-100-python.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html)"
    names = CIFAR100_CLASSES
    counts_of_classes: ClassVar = [500] * 100
    reader: ClassVar = torchvision.datasets.CIFAR100


class SVHN(SmallPhotos):
    """SVHN, 73,257 training and 26,032 test photos of house numbers; the extra images are left aside."""

    key = "svhn"
    source = "train_32x32.mat and test_32x32.mat (http://ufldl.stanford.edu/housenumbers/)"
    names: ClassVar = [str(digit) for digit in range(10)]
    counts_of_classes: ClassVar = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    reader: ClassVar = torchvision.datasets.SVHN

    @classmethod
    def checksums(cls) -> dict[str, str]:
        return {name: md5 for _, name, md5 in (cls.reader.split_list[split] for split in SPLITS)}

    @classmethod
    def read(cls, root: Path, split: SplitName, download: bool = False) -> tuple[Any, Any]:
        if find_spec("scipy") is None:
            raise ZooError("svhn: its files are MATLAB's, which scipy reads; pip install scipy")
        found = cls.reader(root, split=split, download=download)
        return found.data, found.labels


def _folders(key: str, root: str | None) -> list[Path]:
    return [folder for place in places(root) for folder in (place, place / key)]


@lru_cache(maxsize=2)
def _arrays(of: type[SmallPhotos], folder: Path, split: SplitName) -> tuple[Tensor, Tensor]:
    """A split's images `[N, 3, 32, 32]` uint8 and labels `[N]` int64, read once for all seeds."""
    images, labels = of.read(folder, split)
    return torch.from_numpy(images).contiguous(), torch.as_tensor(labels)
