"""AutoAugment in batches is torchvision's operation by operation; un-permuted encodings and the permutation's gap."""

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as transforms

from provenzoo.components import create_dataset, create_model
from provenzoo.datasets.images import Augment
from provenzoo.datasets.policies import SIGNED, UNSIGNED, AutoAugmenter, change
from provenzoo.draws import cell_permutation, generator
from provenzoo.errors import ZooError
from provenzoo.metrics.locality import encodings_locality, encodings_locality_unpermuted, unpermuted
from provenzoo.metrics.permutation import permutation_gap

PIXELS = (torch.rand(6, 3, 32, 32, generator=generator(0, "test")) * 255).byte()
ONE = torch.ones(3, 1, 1)


@pytest.mark.parametrize("name", [*SIGNED, *UNSIGNED])
@pytest.mark.parametrize("level", [0, 4, 9])
def test_each_operation_is_torchvisions_at_the_same_magnitude(name, level):
    theirs = transforms.AutoAugment()
    magnitudes, signed = theirs._AUGMENTATION_SPACE[name]
    table = magnitudes(10, 32, 32)
    size = 0.0 if table is None else float(table[level])
    for negative in (False, True) if signed else (False,):
        expected = theirs._apply_image_or_video_transform(
            PIXELS, name, -size if negative else size, InterpolationMode.NEAREST, {torch.Tensor: None}
        )
        apart = (change(PIXELS, name, level, negative).int() - expected.int()).abs()
        assert apart.max() <= 1  # a level where a blend that is whole in theory is cut: their table is float32
        assert (apart > 0).double().mean() < 0.05
    assert signed == (name in SIGNED)


@pytest.mark.parametrize("policy", ["cifar10", "imagenet", "svhn"])
def test_each_image_is_changed_by_its_own_draw_and_equal_draws_change_alike(policy):
    augment = AutoAugmenter(policy, 0 * ONE, ONE)
    same = (PIXELS[:1].float() / 255).expand(64, -1, -1, -1)
    changed = augment(same, generator(1, "augment", 0))
    assert torch.equal(changed, augment(same, generator(1, "augment", 0)))
    assert len({image.numpy().tobytes() for image in changed}) > 20
    assert not torch.equal(changed, augment(same, generator(1, "augment", 1)))


def test_an_image_is_changed_by_the_two_operations_of_one_part_of_the_policy(monkeypatch):
    done = []
    monkeypatch.setattr("provenzoo.datasets.policies.change", lambda x, *how: done.append((len(x), *how)) or x)
    augment = AutoAugmenter("cifar10", 0 * ONE, ONE)
    augment.parts = [(("Rotate", 1.0, 2), ("Invert", 1.0, None))]
    images = PIXELS.float() / 255
    torch.testing.assert_close(augment(images, generator(0, "augment")), images)
    assert sum(count for count, name, *_ in done if name == "Rotate") == 6
    assert {how[1:] for how in done} >= {("Invert", 0, False)} and done[-1] == (6, "Invert", 0, False)


def test_half_of_the_images_are_changed_in_the_negative_direction_and_by_their_probability():
    augment = AutoAugmenter("cifar10", 0 * ONE, ONE)
    augment.parts = [(("Rotate", 0.7, 2), ("Invert", 0.0, None))]
    drawn = dict(augment._drawn(4000, generator(0, "augment")))
    counts = {key: len(places) for key, places in drawn.items()}
    assert abs(counts["Rotate", 2, False] - 1400) < 120 and abs(counts["Rotate", 2, True] - 1400) < 120
    assert sum(counts.values()) == pytest.approx(2800, abs=120)


def test_of_permuted_images_the_natural_image_is_changed():
    permutation = cell_permutation(32, 4, 1)
    images = PIXELS.float() / 255
    moved = images.flatten(2)[..., permutation].view_as(images)
    plain, permuted = (AutoAugmenter("cifar10", 0 * ONE, ONE, p) for p in (None, permutation))
    expected = plain(images, generator(2, "augment")).flatten(2)[..., permutation].view_as(images)
    assert torch.equal(permuted(moved, generator(2, "augment")), expected)


def test_a_policy_on_grey_images_is_an_error():
    with pytest.raises(ZooError, match="colour"):
        create_dataset("fashion-mnist-mini", augment={"policy": "cifar10"})
    assert Augment(policy="svhn").policy == "svhn"


# --- permutation ----------------------------------------------------------------------------------------------


def test_encodings_are_put_back_where_their_patches_are_in_the_natural_image():
    """Encodings that are each patch's own place, moved as the patches are, come back in order."""
    place = torch.cartesian_prod(torch.arange(7.0), torch.arange(7.0))
    moved = place[cell_permutation(7, 1, 3)]
    pixels = create_dataset("fashion-mnist-mini", permute={"cell": 4, "draw": 3}).structure["pixel_permutation"]
    assert torch.equal(unpermuted(moved, pixels), place)
    z = encodings_locality_unpermuted(moved.expand(2, -1, -1), pixels)
    torch.testing.assert_close(
        z, encodings_locality(place).expand(2), rtol=1e-12, atol=0
    )  # a sum of two at once has another order
    assert z.min() > 8
    assert encodings_locality(moved).abs() < 3


def test_a_permutation_that_cuts_patches_is_an_error():
    pixels = cell_permutation(28, 2, 1)
    with pytest.raises(ZooError, match="cuts patches of 4 x 4"):
        unpermuted(torch.rand(49, 3), pixels)


@pytest.mark.parametrize("name", ["vit-mini", "positional-vit-mini"])
def test_a_vit_is_blind_to_a_permutation_of_its_patches_and_encodings(name):
    data = create_dataset("fashion-mnist-mini", limit=4)
    model = create_model(name, **data.shapes).eval()
    assert permutation_gap(model, data.test.inputs, cell=4, draw=1) < 1e-5


def test_a_model_that_looks_at_neighbours_is_not_blind():
    """A ViT whose last word is a weighted sum of its tokens, place by place."""
    data = create_dataset("fashion-mnist-mini", limit=4)
    model = create_model("vit-mini", **data.shapes).eval()
    weights = torch.randn(49, 1, generator=generator(0, "test"))
    model.forward_head = lambda tokens: model.head((tokens * weights).mean(1))
    assert permutation_gap(model, data.test.inputs, cell=4, draw=1) > 1e-3
