"""Corruptions of [0, 1] images: what each does to pixels, its severities and what bad settings get."""

import math

import pytest
import torch

from provenzoo.components import create_dataset
from provenzoo.datasets.corruptions import STRENGTHS, Corrupt, apply
from provenzoo.errors import ZooError
from provenzoo.settings import read


def corrupted(images, seed=0, split=1, **how):
    return apply(images, read(Corrupt, how, "corrupt"), seed, split)


@pytest.fixture(scope="module")
def images():
    data = create_dataset("fashion-mnist-mini", mean=0.0, std=1.0, limit=50)
    return data.test.inputs


def test_noise_has_the_asked_sigma():
    grey = torch.full((20, 1, 28, 28), 0.5)
    noise = corrupted(grey, name="noise", sigma=0.1) - grey
    error = 0.1 / math.sqrt(2 * noise.numel())  # standard error of a standard deviation
    assert abs(noise.std().item() - 0.1) < 5 * error


def test_noise_differs_by_seed_and_split_and_repeats_itself(images):
    first = corrupted(images, name="noise", sigma=0.3)
    assert torch.equal(first, corrupted(images, name="noise", sigma=0.3))
    assert not torch.equal(first, corrupted(images, seed=1, name="noise", sigma=0.3))
    assert not torch.equal(first, corrupted(images, split=0, name="noise", sigma=0.3))


@pytest.mark.parametrize("side", [27, 28])
@pytest.mark.parametrize("count", [1, 7, 16, 49])
def test_an_images_noise_does_not_depend_on_how_many_follow_it(side, count):
    grey = torch.full((50, 1, side, side), 0.5)
    few = corrupted(grey[:count], name="noise", sigma=0.2)
    assert torch.equal(few, corrupted(grey, name="noise", sigma=0.2)[:count])


def test_noise_leaves_the_global_generator_alone(images):
    before = torch.get_rng_state()
    corrupted(images, name="noise", sigma=0.3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_blur_of_a_point_is_a_gaussian(sigma):
    point = torch.zeros(1, 1, 29, 29)
    point[..., 14, 14] = 1
    blurred = corrupted(point, name="blur", sigma=sigma)[0, 0].double()
    distance = torch.arange(29, dtype=torch.float64) - 14
    gaussian = torch.exp(-(distance**2) / (2 * sigma**2))
    gaussian[distance.abs() > math.ceil(3 * sigma)] = 0
    gaussian /= gaussian.sum()
    torch.testing.assert_close(blurred, torch.outer(gaussian, gaussian), atol=1e-6, rtol=0)


def test_blur_wider_than_the_image_is_cut_to_it():
    assert corrupted(torch.rand(2, 1, 4, 4), name="blur", sigma=9.0).shape == (2, 1, 4, 4)


def test_brightness_multiplies_every_value(images):
    torch.testing.assert_close(corrupted(images, name="brightness", factor=0.5), images * 0.5)
    assert corrupted(images, name="brightness", factor=3).max() == 1


def test_contrast_pulls_towards_the_images_own_mean(images):
    mean = images.mean((1, 2, 3), keepdim=True)
    expected = mean + 0.3 * (images - mean)
    torch.testing.assert_close(corrupted(images, name="contrast", factor=0.3), expected)


def test_inversion_alone_is_a_whole_one(images):
    torch.testing.assert_close(corrupted(images, name="inversion"), 1 - images)
    torch.testing.assert_close(corrupted(images, name="inversion", amount=0.5), torch.full_like(images, 0.5))


def test_jpeg_loses_more_at_lower_quality_and_little_at_the_best(images):
    losses = [(corrupted(images, name="jpeg", quality=q) - images).abs().mean() for q in (100, 50, 5)]
    assert losses[0] < 1 / 255 < losses[1] < losses[2]


@pytest.mark.parametrize("name", STRENGTHS)
def test_each_severity_changes_more_than_the_one_below(images, name):
    changes = [(corrupted(images, name=name, severity=s) - images).pow(2).mean() for s in range(1, 6)]
    assert all(low < high for low, high in zip([0, *changes], changes, strict=False))


@pytest.mark.parametrize("name", STRENGTHS)
def test_every_corruption_stays_in_range_on_grey_and_on_rgb(images, name):
    for channels in (1, 3):
        result = corrupted(images.expand(-1, channels, -1, -1), name=name, severity=5)
        assert result.shape == (50, channels, 28, 28)
        assert result.dtype == torch.float32
        assert result.min() >= 0 and result.max() <= 1


@pytest.mark.parametrize("name", STRENGTHS)
def test_a_severity_is_its_own_parameter_as_the_table_says(images, name):
    own, table = STRENGTHS[name]
    assert torch.equal(corrupted(images, name=name, severity=4), corrupted(images, name=name, **{own: table[3]}))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"name": "noise"}, "needs 'severity' .1 to 5. or 'sigma'"),
        ({"name": "noise", "sigma": 0.3, "severity": 2}, "not both"),
        ({"name": "blur", "factor": 0.3}, "blur has no 'factor'; it takes 'severity' or 'sigma'"),
        ({"name": "blur", "sigma": 0}, "greater than 0"),
        ({"name": "jpeg", "quality": 50.5}, "quality"),
        ({"name": "jpeg", "severity": 6}, "less than or equal to 5"),
        ({"name": "jpeg", "severity": True}, "severity"),
        ({"name": "fog", "severity": 1}, "'noise', 'blur'"),
        ({"name": "noise", "sgima": 1}, "did you mean 'sigma'"),
        ({"severity": 1}, "'name' is missing"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(how, words):
    with pytest.raises(ZooError, match=words) as told:
        create_dataset("fashion-mnist-mini", corrupt=how)
    assert "corrupt" in str(told.value)
    assert "\n" not in str(told.value)
