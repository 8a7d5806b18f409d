"""Training images: changed in batches, against one by one in worker processes."""

from typing import Any

from benches.timing import Rows, Side, at_least, clock

COUNT, BATCH = 10_000, 128
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]


def crop_and_flip() -> tuple[Side, Side]:
    """An epoch of images of CIFAR-10's size: shuffled, shifted by up to four pixels, flipped, normalised.

    Ours as a stage has them, on one thread; torchvision's transforms of each image in a DataLoader with two workers,
    which are there before the clock starts. Seconds of the clock, since workers' time is not this process's.
    """
    import torch

    draws = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (COUNT, 3, 32, 32), dtype=torch.uint8, generator=draws)
    labels = torch.randint(10, (COUNT,), generator=draws)
    return clock(batches_of(feed(pixels, labels))), clock(batches_of(loader(pixels, labels)))


def batches_of(batches: Any) -> Any:
    """Goes through all of them."""

    def epoch() -> None:
        assert sum(len(labels) for _, labels in batches) == COUNT

    return epoch


class Epoch:
    """A feed's batches, the next epoch's each time."""

    def __init__(self, feed: Any) -> None:
        self.feed, self.epoch = feed, 0

    def __iter__(self) -> Any:
        steps = self.feed.steps_per_epoch
        self.epoch += 1
        return (self.feed.batch(step) for step in range((self.epoch - 1) * steps, self.epoch * steps))


def feed(pixels: Any, labels: Any) -> Epoch:
    """What a stage trains on."""
    import torch

    from provenzoo.datasets.base import PackedSplit
    from provenzoo.datasets.images import Augment, Augmenter
    from provenzoo.datasets.packed import Packed
    from provenzoo.training.feed import Feed

    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    augment = Augmenter(Augment(flip=True, crop=4), -mean / std)
    return Epoch(Feed([PackedSplit(Packed(pixels, mean, std), labels, augment)], [0], BATCH))


class Photos:
    """As torchvision's CIFAR10 gives them: a PIL image, changed by `transform`, and its label."""

    def __init__(self, pixels: Any, labels: Any, transform: Any) -> None:
        self.arrays = pixels.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.transform = labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.arrays[place])), self.labels[place]


def loader(pixels: Any, labels: Any) -> Any:
    """What one would write with torchvision."""
    from torch.utils.data import DataLoader
    from torchvision import transforms

    each = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    transform = transforms.Compose([*each, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    photos: Any = Photos(pixels, labels, transform)
    return DataLoader(photos, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)


ROWS: Rows = {
    "CIFAR crop and flip, batches / DataLoader with 2 workers": (crop_and_flip, at_least(3)),
}
