"""Patch-structured and Gaussian patches: the law they are drawn from, their labelling function, bad arguments."""

import math

import pytest
import torch

import provenzoo
from provenzoo.datasets.base import Recent, Split, Stream
from provenzoo.datasets.gaussian_patches import GaussianPatches
from provenzoo.datasets.partition import make_partition
from provenzoo.datasets.patch_structured import PatchCounts, PatchStructured
from provenzoo.errors import ZooError


def deltas(data: PatchStructured, split: Split) -> torch.Tensor:
    """<w*, X_j> of each patch by set, `[N, L, C]`."""
    return (split.inputs @ data.feature)[:, data.partition]


def test_the_local_sets_of_a_4_by_4_grid_are_the_papers():
    sets = make_partition("local", 16, 4, seed=0, draw=0) + 1
    assert sets.tolist() == [[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15, 16]]


def test_a_random_partition_covers_the_patches_and_is_one_of_the_seed():
    first = make_partition("random", 36, 4, seed=1, draw=0)
    assert sorted(first.flatten().tolist()) == list(range(36))
    assert torch.equal(first, make_partition("random", 36, 4, seed=1, draw=0))
    assert not torch.equal(first, make_partition("random", 36, 4, seed=1, draw=1))
    assert not torch.equal(first, make_partition("random", 36, 4, seed=2, draw=0))


def test_points_are_drawn_as_assumption_1_says():
    data = PatchStructured(patches=16, q=0.4, partition="random", test=20_000)
    along = deltas(data, data.test)
    whole = along.round()
    assert (along - whole).abs().max() < 1e-5  # no noise along w*
    labels = data.test.targets
    assert labels.mean().abs() < 0.03 and set(labels.tolist()) == {1.0, -1.0}
    signal = (whole == labels.view(-1, 1, 1)).all(-1)
    assert signal.any(-1).all()
    share = (whole != 0).float().mean().item()
    assert share == pytest.approx((1 + 3 * 0.4) / 4, abs=0.005)
    noise = data.test.inputs - (data.test.inputs @ data.feature).unsqueeze(-1) * data.feature
    assert noise.square().sum(-1).mean().item() == pytest.approx(
        15 / 16, rel=0.01
    )  # d - 1 directions of variance 1 / d


def test_the_signs_of_a_random_set_are_even_whatever_the_label():
    data = PatchStructured(patches=16, q=1.0, test=20_000)
    along = deltas(data, data.test).round() * data.test.targets.view(-1, 1, 1)
    assert along.mean().item() == pytest.approx(1 / 4, abs=0.01)  # the signal set alone


def test_the_labelling_function_sums_the_sets_beyond_its_threshold():
    data = PatchStructured(patches=8, dim=3, set_size=4, partition=[[0, 1, 2, 3], [4, 5, 6, 7]])

    def point(*signs: float) -> torch.Tensor:
        return torch.tensor(signs).unsqueeze(-1) * data.feature

    points = torch.stack(
        [
            point(1, 1, 1, 1, 1, -1, 1, 1),  # the second set adds up to 2, below 3.6
            point(-1, -1, -1, -1, 0, 0, 1, 1),
            point(1, 1, 1, 1, -1, -1, -1, -1),  # one set against the other
        ]
    )
    assert data.labelling_function(points).tolist() == pytest.approx([4, -4, 0], abs=1e-5)


def test_f_errs_on_its_labels_only_where_random_sets_are_wholly_opposite():
    data = PatchStructured(patches=36, q=0.3, test=200_000, dim=1)
    opposite = 1 - (1 - 0.15**4) ** 8  # chance that one of eight random sets is opposite
    wrong = (data.test.named["labelling"] * data.test.targets <= 0).float().mean().item()
    assert wrong == pytest.approx(opposite, abs=3.5 * math.sqrt(opposite / 200_000))


def test_counts_are_those_of_the_points():
    arguments = {"patches": 16, "q": 0.5, "partition": "random", "seed": 3, "test": 50}
    points, counts = PatchStructured(**arguments), PatchCounts(**arguments)
    whole = deltas(points, points.test).round()
    assert torch.equal(counts.test.inputs[..., 0], (whole > 0).sum(-1).float())
    assert torch.equal(counts.test.inputs[..., 1], (whole < 0).sum(-1).float())
    assert torch.equal(counts.test.targets, points.test.targets)
    assert torch.equal(counts.test.named["labelling"].sign(), points.test.named["labelling"].round().sign())
    streams = [data.train for data in (points, counts)]
    assert all(isinstance(stream, Stream) for stream in streams)
    labels = [stream.draw(5, 20)[1] for stream in streams]
    assert torch.equal(*labels)


def test_a_finite_sample_a_fresh_one_and_the_test_set_are_different_draws():
    data = PatchStructured(patches=16, samples=30, test=30)
    other = PatchStructured(patches=16, samples=30, test=30, feature=1)
    assert len(data.train) == 30
    assert not torch.equal(data.train.inputs, data.test.inputs)
    assert not torch.equal(data.train.targets, other.train.targets)
    assert torch.equal(data.partition, other.partition) and not torch.equal(data.feature, other.feature)
    assert torch.equal(data.train.inputs, PatchStructured(patches=16, samples=30, test=40).train.inputs)


def test_noise_is_a_multiple_of_the_papers():
    quiet, loud = (PatchStructured(patches=16, noise=noise, test=4000) for noise in (0.0, 3.0))
    assert (
        quiet.test.inputs.norm(dim=-1)
        - deltas(quiet, quiet.test).flatten(1)[:, quiet.partition.flatten().argsort()].abs()
    ).abs().max() < 1e-5
    norms = (loud.test.inputs - (loud.test.inputs @ loud.feature).unsqueeze(-1) * loud.feature).square().sum(-1)
    assert norms.mean().item() == pytest.approx(9 * 15 / 16, rel=0.02)


def test_gaussian_patches_are_labelled_by_their_convolution():
    data = GaussianPatches(patches=16, dim=8, test=500)
    assert data.test.inputs.std().item() == pytest.approx(1, abs=0.02)
    for x, y in zip(data.test.inputs[:20], data.test.targets[:20], strict=True):
        sums = [sum(float(x[j] @ data.feature) for j in members) for members in data.partition.tolist()]
        assert math.copysign(1, sum(s**3 for s in sums)) == y.item()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"q": 1.5}, ["q", "less than or equal to 1"]),
        ({"q": -0.1}, ["q", "greater than or equal to 0"]),
        ({"samples": 0}, ["samples", "greater than or equal to 1"]),
        ({"set_size": 40, "partition": "random"}, ["sets of 40 patches", "only 36"]),
        ({"set_size": 5, "partition": "random"}, ["do not cover 36"]),
        ({"patches": 20}, ["square blocks", "partition: random"]),
        ({"patches": 4, "partition": [[0, 1, 2]]}, ["do not cover", "patch 3 is in none"]),
        ({"patches": 4, "partition": [[0, 1], [1, 2, 3]]}, ["do not cover", "in two sets"]),
        ({"patches": 4, "partition": [[0, 1], [2, 3]]}, ["`set_size` patches, 4"]),
        ({"partition": "locale"}, ["partition"]),
        ({"noise": -1.0}, ["noise"]),
    ],
)
def test_bad_arguments_are_told_by_name(arguments, words):
    with pytest.raises(ZooError) as error:
        provenzoo.create_dataset("patch-structured", **arguments)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_the_splits_drawn_last_are_held_as_far_as_bytes_allow():
    held, drawn = Recent(limit=300), []

    def draw(key: int) -> Split:
        drawn.append(key)
        return Split(torch.zeros(25), torch.zeros(25))

    for key in (1, 2, 3, 1, 4, 1, 2):
        held.get(key, lambda key=key: draw(key))
    assert drawn == [1, 2, 3, 4, 2]


def test_the_digest_tells_the_law_and_the_labels_apart_and_not_the_last_bits_of_the_noise():
    base = PatchStructured(patches=16, test=40).test.digest
    assert base == PatchStructured(patches=16, test=40, samples=9).test.digest
    for change in ({"q": 0.31}, {"seed": 1}, {"noise": 2.0}, {"feature": 1}, {"partition": "random"}, {"test": 41}):
        assert PatchStructured(**({"patches": 16, "test": 40} | change)).test.digest != base
    assert GaussianPatches(test=40).test.digest != GaussianPatches(test=40, seed=1).test.digest
