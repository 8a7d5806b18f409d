"""Generated data in the published sets' own formats, for tests: noise of a colour that tells the class."""

import hashlib
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets
from PIL import Image

from provenzoo.datasets import small_photos
from provenzoo.datasets.imagenet import ImageNet, ImageNetA


def noise(label: int, count: int, side: int = 32, start: int = 0) -> np.ndarray:
    """Images `[count, side, side, 3]` uint8 around a colour of the class's own."""
    colour = np.random.default_rng(label).integers(40, 216, 3)
    spread = np.random.default_rng([label, start]).integers(-40, 40, (count, side, side, 3))
    return (colour + spread).astype(np.uint8)


def cifar(root: Path, monkeypatch: pytest.MonkeyPatch, classes: int = 10, each: int = 2) -> Path:
    """CIFAR-10's or, with 100 classes, CIFAR-100's files, `each` images a class in every file; torchvision takes them."""
    fine = classes == 100
    reader = torchvision.datasets.CIFAR100 if fine else torchvision.datasets.CIFAR10
    names = small_photos.CIFAR100_CLASSES if fine else small_photos.CIFAR10_CLASSES
    folder = root / reader.base_folder
    folder.mkdir(parents=True)
    lists = {"train_list": [], "test_list": []}
    for which, found in lists.items():
        for number, (file, _) in enumerate(getattr(reader, which)):
            start = number + (0 if which == "train_list" else 100)
            images = np.concatenate([noise(label, each, start=start) for label in range(classes)])
            labels = np.repeat(np.arange(classes), each).tolist()
            rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
            found.append([file, _pickle(folder / file, {"data": rows, "fine_labels" if fine else "labels": labels})])
        monkeypatch.setattr(reader, which, found)
    md5 = _pickle(folder / reader.meta["filename"], {reader.meta["key"]: names})
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": md5})
    return root


def _pickle(file: Path, content: dict) -> str:
    file.write_bytes(pickle.dumps(content))
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def svhn(root: Path, monkeypatch: pytest.MonkeyPatch, each: int = 2) -> Path:
    """SVHN's two files by name and MD5; their content is numpy's, which stands in for MATLAB's and scipy."""
    root.mkdir(parents=True)
    splits = dict(torchvision.datasets.SVHN.split_list)
    for start, split in enumerate(("train", "test")):
        labels = np.repeat(np.arange(1, 11), each)
        images = np.concatenate([noise(label % 10, each, start=start) for label in range(1, 11)])
        url, name, _ = splits[split]
        file = root / name
        with file.open("wb") as opened:
            np.savez(opened, X=images.transpose(1, 2, 3, 0), y=labels[:, None])
        splits[split] = [url, name, hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()]
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", splits)
    return root


def numpys_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `scipy.io` that reads what stands in for a MATLAB file."""
    module = types.ModuleType("scipy.io")
    module.loadmat = lambda file: dict(np.load(file))  # pyright: ignore[reportAttributeAccessIssue]
    parent = types.ModuleType("scipy")
    parent.io = module  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "scipy", parent)
    monkeypatch.setitem(sys.modules, "scipy.io", module)
    monkeypatch.setattr(small_photos, "find_spec", lambda name: module)


def imagenet(root: Path, monkeypatch: pytest.MonkeyPatch, classes: int = 4, each: int = 2, side: int = 40) -> Path:
    """A folder of ImageNet's layout with the first classes of the official index alone; the list of ids is cut to them."""
    ids = ImageNet.folder_names()
    monkeypatch.setattr(
        "provenzoo.datasets.imagenet.wordnet_ids",
        lambda name="imagenet": list(ids)[: classes if name == "imagenet" else 2],
    )
    for start, part in enumerate(("train", "val")):
        for label, name in enumerate(list(ids)[:classes]):
            photos(root / part / name, label, each, side, start)
    return root


def shifted(root: Path, of: type[ImageNetA], classes: list[str], side: int = 40) -> Path:
    """A folder of one image for each of some classes, by the names that the set has for them."""
    for name in classes:
        photos(root / name, of.folder_names()[name], 1, side)
    return root


def photos(folder: Path, label: int, count: int, side: int = 40, start: int = 0) -> None:
    """JPEGs 0.jpg, 1.jpg, ..., a third wider than high."""
    folder.mkdir(parents=True)
    for number, image in enumerate(noise(label, count, side, start)):
        wide = Image.fromarray(image).resize((side * 4 // 3, side))
        wide.save(folder / f"{number}.jpg", quality=95)
