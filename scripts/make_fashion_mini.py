"""Make the sample of Fashion-MNIST that the package ships, from the whole set.

    python scripts/make_fashion_mini.py [FOLDER]

Of each class the first 200 training and the first 50 test images, in the order of the published files; then
each split is shuffled by NumPy's RandomState(0), whose stream is frozen. The same zlib gives the same files
byte for byte.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from provenzoo.components import create_dataset
from provenzoo.datasets.base import SplitName
from provenzoo.datasets.idx import read_idx, write_idx
from provenzoo.datasets.mnist import FILES, SIDE, FashionMNIST, FashionMNISTMini
from provenzoo.plain import write_whole

EACH: dict[SplitName, int] = {"train": 200, "test": 50}


def sample(labels: torch.Tensor, each: int) -> torch.Tensor:
    """Places of the first `each` images of every class, shuffled."""
    first = torch.cat([torch.nonzero(labels == number)[:each, 0] for number in range(10)]).sort().values
    return first[torch.from_numpy(np.random.RandomState(0).permutation(len(first)))]


def make(folder: Path) -> None:
    """Write the four files of the sample into a folder."""
    whole = create_dataset("fashion-mnist")
    assert isinstance(whole, FashionMNIST)
    for split, each in EACH.items():
        images_name, labels_name = FILES[split]
        count = whole.counts[split]
        images = read_idx(whole.files[images_name], (count, SIDE, SIDE), whole.md5[images_name])
        labels = read_idx(whole.files[labels_name], (count,), whole.md5[labels_name])
        places = sample(labels, each)
        write_whole(folder / f"{images_name}.gz", write_idx(images[places]))
        write_whole(folder / f"{labels_name}.gz", write_idx(labels[places]))


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FashionMNISTMini.folder)
