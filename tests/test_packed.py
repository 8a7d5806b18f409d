"""Images kept as bytes: a quarter of the memory, and to the bit what the set normalised at once would give."""

import pytest
import stand_ins
import torch
from torch import Tensor, nn

import provenzoo
from provenzoo.datasets import small_photos
from provenzoo.datasets.base import Deferred, PackedSplit, Split, digest
from provenzoo.datasets.packed import Packed
from provenzoo.draws import cell_permutation, generator
from provenzoo.metrics.measure import Measure
from provenzoo.training.feed import Feed

MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Generated images in CIFAR-10's own files."""
    small_photos._arrays.cache_clear()
    stand_ins.cifar(tmp_path, monkeypatch, classes=10, each=6)
    yield {"name": "cifar10", "root": str(tmp_path)}
    small_photos._arrays.cache_clear()


def scale() -> list[Tensor]:
    return [torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD)]


def normalised(pixels: Tensor) -> Tensor:
    """All at once, as torchvision's ToTensor and Normalize do it."""
    mean, std = scale()
    return (pixels.float() / 255 - mean) / std


def every_byte(count: int = 300) -> Tensor:
    """Images of all 256 values in every channel, `[count, 3, 16, 16]`."""
    order = torch.stack([torch.randperm(256, generator=generator(0, "bytes", place)) for place in range(3 * count)])
    return order.byte().view(count, 3, 16, 16)


def test_a_photo_takes_a_byte_a_value(photos):
    data = provenzoo.create_dataset(**photos)
    for split in (data.train, data.test):
        assert isinstance(split, PackedSplit)
        assert split.kept.nbytes * 4 == split.inputs.nbytes == len(split) * 3 * 32 * 32 * 4


def test_every_batch_has_the_bits_of_the_set_normalised_at_once(photos):
    data = provenzoo.create_dataset(**photos)
    pixels, labels = small_photos._arrays(small_photos.CIFAR10, data.folder, "train")
    whole = normalised(pixels)
    assert torch.equal(data.train.inputs, whole)
    feed = Feed([data.train], [7], batch=16)
    for step in range(2 * feed.steps_per_epoch):
        inputs, targets = feed.batch(step)
        epoch, at = divmod(step, feed.steps_per_epoch)
        order = torch.randperm(len(whole), generator=generator(7, "order", epoch))
        rows = order[16 * at : 16 * (at + 1)]
        assert torch.equal(inputs, whole[rows]) and torch.equal(targets, labels[rows])


def test_a_batch_as_large_as_the_set_is_the_whole_of_it(photos):
    data = provenzoo.create_dataset(**photos)
    inputs, targets = Feed([data.train], [0], batch=1000).batch(3)
    assert torch.equal(inputs, data.train.inputs) and torch.equal(targets, data.train.targets)


@pytest.mark.parametrize("permute", [None, {"cell": 4}])
@pytest.mark.parametrize("augment", [{"flip": True, "crop": 4}, {"flip": True, "crop": 4, "policy": "cifar10"}])
def test_changing_bytes_and_changing_normalised_images_give_the_same(photos, augment, permute):
    data = provenzoo.create_dataset(**photos, augment=augment, permute=permute)
    split = data.train
    before = [split.augment(split.inputs, generator(seed, "augment", 5)) for seed in (1, 2)]
    after = [split.kept.unpack(split.augment(split.kept.pixels, generator(seed, "augment", 5))) for seed in (1, 2)]
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert not torch.equal(after[0], after[1]) and not torch.equal(after[0], split.inputs)


def test_replicas_are_augmented_and_normalised_each_by_its_own_seed(photos):
    sets = [provenzoo.create_dataset(**photos, seed=seed, augment={"flip": True, "crop": 4}) for seed in (0, 3)]
    together = Feed([data.train for data in sets], [0, 3], batch=16)
    alone = [Feed([data.train], [seed], batch=16) for data, seed in zip(sets, (0, 3), strict=True)]
    for step in (0, 5):
        inputs, _ = together.batch(step)
        assert torch.equal(inputs, torch.stack([feed.batch(step)[0] for feed in alone]))


def test_a_permuted_set_is_kept_as_bytes_too(photos):
    natural = provenzoo.create_dataset(**photos).test.inputs.flatten(2)
    split = provenzoo.create_dataset(**photos, permute={"cell": 8}).test
    assert isinstance(split, PackedSplit)
    assert torch.equal(split.inputs.flatten(2), natural[..., cell_permutation(32, 8, 0)])


def test_the_digest_is_that_of_the_normalised_images():
    packed, labels = Packed(every_byte(2500), *scale()), torch.arange(2500)
    assert PackedSplit(packed, labels).digest == digest(normalised(every_byte(2500)), labels)


def test_resized_and_corrupted_images_are_no_whole_numbers_and_kept_as_float32(photos):
    for how in ({"size": 16}, {"corrupt": {"name": "blur", "severity": 1}}):
        split = provenzoo.create_dataset(**photos, **how).test
        assert not isinstance(split, PackedSplit) and split.kept is split.inputs
    assert isinstance(provenzoo.create_dataset(**photos, size=40).test, PackedSplit)


def test_a_metric_that_asks_for_inputs_has_them_normalised(photos):
    data = provenzoo.create_dataset(**photos)
    functions = {"mean": lambda outputs, inputs: outputs.mean() - inputs.mean()}
    measure = Measure(functions, data, data.test, torch.device("cpu"), torch.float64)
    assert abs(measure(nn.Identity())["mean"]) < 1e-9


def test_what_is_read_batch_by_batch_is_measured_too():
    images = torch.rand(700, 1, 4, 4)
    inputs = Deferred(lambda places: images[places], torch.arange(700))
    data = provenzoo.create_dataset("gaussian-clusters", features=2, num_classes=2)
    split = Split(inputs, torch.arange(700), made_from="?")  # pyright: ignore[reportArgumentType]
    measure = Measure({"mean": lambda outputs: outputs.mean()}, data, split, torch.device("cpu"), torch.float64)
    assert measure(nn.Identity())["mean"] == pytest.approx(images.double().mean().item(), abs=1e-12)


@pytest.mark.cuda
def test_a_gpu_normalises_to_the_cpus_bits():
    packed = Packed(every_byte(), *scale())
    assert torch.equal(packed.to("cuda", torch.float32).whole().cpu(), packed.whole())
