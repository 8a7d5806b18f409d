"""RandAugment and random erasing: timm's operations, each image's own draws, on small photos and on decoded ones."""

import random

import pytest
import stand_ins
import torch
from PIL import Image
from timm.data import auto_augment

from provenzoo.components import create_dataset
from provenzoo.datasets.base import Stream
from provenzoo.datasets.randaugment import OPERATIONS, Eraser, Rand, RandAugmenter, change, erase
from provenzoo.draws import cell_permutation, generator
from provenzoo.errors import ZooError

PHOTO = Image.fromarray(stand_ins.noise(3, 1, 32)[0])
FILL = (9, 99, 199)
GREY = torch.full((3, 1, 1), 0.5)
PLAIN = {"mean": [0.5] * 3, "std": [0.25] * 3}


def test_the_operations_are_timms_of_increasing_strength():
    assert sorted(OPERATIONS) == sorted(auto_augment._RAND_INCREASING_TRANSFORMS)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("level", [0.0, 4.3, 9.0, 10.0])
def test_an_operation_at_a_magnitude_is_timms(name, negative, level, monkeypatch):
    monkeypatch.setattr(random, "random", lambda: 0.9 if negative else 0.1)
    how = {"img_mean": FILL, "interpolation": Image.Resampling.BICUBIC}
    theirs = auto_augment.AugmentOp(name, prob=1.0, magnitude=level, hparams=how)
    ours = change(PHOTO, name, level, negative, fillcolor=FILL, resample=Image.Resampling.BICUBIC)
    assert ours.tobytes() == theirs(PHOTO.copy()).tobytes()


def batch(count: int = 64) -> torch.Tensor:
    photo = torch.from_numpy(stand_ins.noise(3, 1, 32)).permute(0, 3, 1, 2)
    return ((photo / 255 - 0.5) / 0.25).expand(count, -1, -1, -1)


@pytest.mark.parametrize("changed", [RandAugmenter(Rand(), GREY, GREY / 2), Eraser(1.0)])
def test_each_image_of_a_batch_has_its_own_draw_and_equal_draws_change_alike(changed):
    one = changed(batch(), generator(1, "augment", 0))
    assert torch.equal(one, changed(batch(), generator(1, "augment", 0)))
    assert len({image.numpy().tobytes() for image in one}) > 20
    assert not torch.equal(one, changed(batch(), generator(1, "augment", 1)))


@pytest.mark.parametrize("of", [lambda p: RandAugmenter(Rand(), GREY, GREY / 2, p), lambda p: Eraser(1.0, p)])
def test_of_permuted_images_the_natural_image_is_changed(of):
    order = cell_permutation(32, 4, 1)
    moved = batch(6).flatten(2)[..., order].view(6, 3, 32, 32)
    expected = of(None)(batch(6), generator(2, "augment")).flatten(2)[..., order].view(6, 3, 32, 32)
    assert torch.equal(of(order)(moved, generator(2, "augment")), expected)


def test_half_of_the_layers_are_done_and_the_magnitude_spreads_about_its_mean(monkeypatch):
    levels = []
    monkeypatch.setattr(
        "provenzoo.datasets.randaugment.change", lambda image, name, level, *_, **__: levels.append(level) or image
    )
    RandAugmenter(Rand(magnitude=5.0, spread=0.5), GREY, GREY)(batch(1000), generator(0, "augment"))
    assert abs(len(levels) - 1000) < 5 * (2000 * 0.25) ** 0.5
    drawn = torch.tensor(levels)
    assert abs(drawn.mean() - 5) < 5 * 0.5 / len(levels) ** 0.5 and 0.45 < drawn.std() < 0.55


def test_a_rectangle_of_the_published_shares_and_ratios_becomes_noise_of_the_normalised_images_scale():
    shares, noise = [], []
    for draw in range(300):
        image = torch.full((3, 64, 64), 7.0)
        erase(image, generator(draw, "erase"))
        erased = image[0] != 7
        rows, columns = erased.any(1).sum().item(), erased.any(0).sum().item()
        assert erased.sum() == rows * columns and 0.28 < rows / columns < 1 / 0.28
        shares.append(rows * columns / 64**2)
        noise.append(image[:, erased].flatten())
    assert min(shares) > 0.015 and max(shares) < 0.35
    whole = torch.cat(noise)
    assert abs(whole.mean()) < 5 / len(whole) ** 0.5 and abs(whole.std() - 1) < 0.01


def test_a_share_of_the_images_is_erased():
    images = batch(2000)
    changed = (Eraser(0.25)(images, generator(0, "augment")) != images).flatten(1).any(1)
    assert abs(changed.sum() - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


def test_small_photos_are_augmented_after_crop_and_flip(tmp_path, monkeypatch):
    root = stand_ins.cifar(tmp_path / "data", monkeypatch)
    plain = create_dataset("cifar10", root=str(root), augment={"flip": True}, **PLAIN).train
    data = create_dataset("cifar10", root=str(root), augment={"flip": True, "rand": {}, "erase": 0.25}, **PLAIN).train
    draws, again = generator(0, "augment", 0), generator(0, "augment", 0)
    expected = Eraser(0.25)(RandAugmenter(Rand(), GREY, GREY / 2)(plain.augment(plain.inputs, draws), draws), draws)
    assert torch.equal(data.augment(data.inputs, again), expected)


def test_rand_augment_of_grey_images_is_refused():
    with pytest.raises(ZooError, match=r"augment.rand: RandAugment is for colour images"):
        create_dataset("fashion-mnist-mini", augment={"rand": {}})


# --- decoded images -------------------------------------------------------------------------------------------


def stream(root, seed: int = 0, **args) -> Stream:
    found = create_dataset("imagenet", seed=seed, root=str(root), size=16, **PLAIN, **args).stream()
    assert found and found.items
    return found


def test_an_items_draws_are_those_of_its_place_whoever_decodes_it_and_another_pass_draws_others(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch, classes=4, each=3)
    data = stream(root, augment={"rand": {}, "erase": 0.5}, area=1.0)
    inputs, targets = data.draw(0, 24)
    for first, count in ((0, 5), (5, 12), (17, 7)):  # other workers, other batches, another process
        part = data.items(first, count)
        assert torch.equal(part[0], inputs[first : first + count])
        assert torch.equal(part[1], targets[first : first + count])
    plain = stream(root, area=1.0).draw(0, 24)[0]
    assert (plain != inputs).flatten(1).any(1).sum() > 12
    assert not torch.equal(stream(root, 1, augment={"rand": {}, "erase": 0.5}, area=1.0).draw(0, 24)[0], inputs)
    first_pass, second_pass = ({image.numpy().tobytes() for image in half} for half in inputs.split(12))
    assert len(first_pass - second_pass) > 6


def test_repeats_give_each_image_of_a_pass_so_often_in_a_row_with_other_draws(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch, classes=4, each=3)
    once, thrice = stream(root).draw(0, 12)[1], stream(root, repeats=3, augment={"rand": {}}).draw(0, 36)
    assert torch.equal(thrice[1], once.repeat_interleave(3))
    assert len({image.numpy().tobytes() for image in thrice[0]}) > 30


@pytest.mark.parametrize("key", ["flip", "crop", "policy"])
def test_what_imagenet_does_not_take_is_named(key, tmp_path):
    value = {"flip": True, "crop": 4, "policy": "imagenet"}[key]
    with pytest.raises(ZooError, match=f"imagenet: takes no `augment.{key}`"):
        create_dataset("imagenet", root=str(tmp_path), augment={key: value})
