"""Token matrices, and inputs with a teacher's targets."""

import pytest
import torch

from provenzoo import create_dataset
from provenzoo.datasets.base import Split, Stream
from provenzoo.errors import ZooError

GRAPH = {"inputs": {"name": "gaussian-tokens"}, "teacher": {"name": "graph-conv"}}


def stream(dataset) -> Stream:
    assert isinstance(dataset.train, Stream)
    return dataset.train


@pytest.mark.parametrize(
    ("name", "args", "mean"),
    [("gaussian-tokens", {}, 0), ("exponential-tokens", {}, 1), ("exponential-tokens", {"centred": True}, 0)],
)
def test_tokens_have_the_moments_that_their_structure_tells(name, args, mean):
    dataset = create_dataset(name, tokens=20, dim=10, test=2000, **args)
    inputs = dataset.test.inputs
    assert inputs.shape == (2000, 10, 20)
    assert dataset.structure["token_mean"] == mean and dataset.structure["token_variance"] == 1
    assert inputs.mean() == pytest.approx(mean, abs=0.01) and inputs.var() == pytest.approx(1, abs=0.02)


def from_the_law(values: torch.Tensor, below: torch.Tensor) -> float:
    """Kolmogorov's statistic sqrt(n) max |F_n - F| of values whose law's distribution function is `below` at them."""
    order = values.flatten().argsort()
    count = len(order)
    ranks = torch.arange(count + 1, dtype=torch.float64) / count
    known = below.flatten()[order]
    return count**0.5 * max((ranks[1:] - known).max().item(), (known - ranks[:-1]).max().item())


@pytest.mark.parametrize("name", ["gaussian-tokens", "exponential-tokens"])
@pytest.mark.parametrize("drawn", ["held out", "fixed", "fresh"])
def test_entries_have_their_law_and_are_independent_of_one_another(name, drawn):
    dataset = create_dataset(name, tokens=4, dim=3, test=4000, samples=4000 if drawn == "fixed" else None)
    split = dataset.test if drawn == "held out" else dataset.train
    inputs = stream(dataset).batch(5, 4000)[0] if drawn == "fresh" else split.inputs
    values = inputs.double()
    below = torch.special.ndtr(values) if name == "gaussian-tokens" else -torch.expm1(-values)
    assert inputs.shape == (4000, 3, 4) and from_the_law(values, below) < 1.95  # exceeded once in a thousand
    assert from_the_law(values, (below + 0.02).clamp(max=1)) > 1.95
    correlations = torch.corrcoef(values.flatten(1).T) - torch.eye(12)
    assert correlations.abs().max() < 4.5 / 4000**0.5


def test_centred_tokens_are_the_same_draws_less_their_mean_and_other_data():
    plain, centred = (create_dataset("exponential-tokens", tokens=5, centred=centred) for centred in (False, True))
    torch.testing.assert_close(centred.test.inputs, plain.test.inputs - 1)
    torch.testing.assert_close(stream(centred).batch(3, 8)[0], stream(plain).batch(3, 8)[0] - 1)
    assert plain.test.inputs.min() >= 0 and centred.test.digest != plain.test.digest


@pytest.mark.parametrize("name", ["gaussian-tokens", "exponential-tokens"])
def test_tokens_of_other_steps_seeds_and_splits_are_other_draws(name):
    dataset, other = (create_dataset(name, seed=seed, tokens=4, dim=3) for seed in (0, 1))
    fixed = create_dataset(name, tokens=4, dim=3, samples=8)
    drawn = [*(stream(dataset).batch(step, 8)[0] for step in (0, 1, 16)), stream(other).batch(0, 8)[0]]
    drawn += [split.inputs[:8] for split in (dataset.test, other.test, fixed.train)]
    assert len({tuple(inputs.flatten().tolist()) for inputs in drawn}) == len(drawn)


def test_a_batch_is_a_function_of_seed_and_step():
    first, again, other = (stream(create_dataset("taught", seed=seed, noise=1.0, **GRAPH)) for seed in (1, 1, 2))
    for a, b in zip(first.batch(7, 5), again.batch(7, 5), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.batch(7, 5)[0], first.batch(8, 5)[0])
    assert not torch.equal(first.batch(7, 5)[0], other.batch(7, 5)[0])


def test_samples_make_a_finite_training_split():
    dataset = create_dataset(
        "taught", inputs={"name": "gaussian-tokens", "samples": 12}, teacher={"name": "graph-conv"}
    )
    assert isinstance(dataset.train, Split) and len(dataset.train) == 12
    assert not torch.equal(dataset.train.inputs, dataset.test.inputs[:12])


def test_targets_are_the_teachers_outputs_and_noise():
    clean, noisy = (create_dataset("taught", noise=noise, **GRAPH) for noise in (0.0, 2.0))
    inputs, targets = stream(clean).batch(0, 50)
    assert torch.equal(targets, clean.teacher(inputs))
    same, other = stream(noisy).batch(0, 50)
    assert torch.equal(same, inputs)
    assert (other - targets).std() == pytest.approx(2, rel=0.03)
    held_out = noisy.test.targets - noisy.teacher(noisy.test.inputs)
    assert held_out.std() == pytest.approx(2, rel=0.03)
    assert torch.equal(noisy.test.named["teacher_outputs"], noisy.teacher(noisy.test.inputs))


def test_data_of_another_teacher_noise_or_seed_has_another_digest():
    def digest(seed: int = 0, noise: float = 1.0, **teacher: object) -> str:
        node = {"name": "graph-conv", **teacher}
        return create_dataset("taught", seed=seed, noise=noise, inputs=GRAPH["inputs"], teacher=node).test.digest

    assert digest() == digest()
    others = [digest(), digest(seed=1), digest(noise=2.0), digest(activation="identity"), digest(features=3)]
    assert len(set(others)) == len(others)


def test_the_structure_tells_the_teachers_truth():
    dataset = create_dataset("taught", seed=3, **GRAPH)
    assert torch.equal(dataset.structure["true_value"], dataset.teacher.value)
    assert torch.equal(dataset.structure["true_attention"], dataset.teacher.attention)
    assert dataset.structure["true_slope"] == 0


def test_targets_that_the_teacher_does_not_explain_are_linear_in_each_token():
    dataset = create_dataset("taught", response="linear", **GRAPH)
    inputs, targets = stream(dataset).batch(0, 4)
    torch.testing.assert_close(targets, dataset.structure["response"] @ inputs)


def test_patches_are_cut_row_by_row():
    images = {"name": "fashion-mnist-mini", "size": 27, "limit": 3}
    tokens = create_dataset("patch-tokens", images=images, patch=3)
    whole = create_dataset(**images).test.inputs
    patches = tokens.test.inputs
    assert tokens.shapes == {"dim": 9, "tokens": 81} and patches.shape == (3, 9, 81)
    assert torch.equal(patches[:, :, 10], whole[:, 0, 3:6, 3:6].flatten(1))


def test_the_digest_tells_patches_of_other_sizes_apart():
    images = {"name": "fashion-mnist-mini", "size": 27, "limit": 3}
    splits = [create_dataset("patch-tokens", images=images, patch=patch).test for patch in (3, 9, 3)]
    assert splits[0].digest == splits[2].digest != splits[1].digest


def test_patches_that_do_not_tile_the_images_are_an_error():
    with pytest.raises(ZooError, match="patches of 3 x 3 do not tile an image of 28 x 28"):
        create_dataset("patch-tokens", images={"name": "fashion-mnist-mini"}, patch=3)


def test_what_are_no_images_has_no_patches():
    with pytest.raises(ZooError, match="are no images"):
        create_dataset("patch-tokens", images={"name": "gaussian-clusters"})


def test_a_linear_response_needs_token_matrices():
    model = {"name": "small-cnn", "channels": 1, "num_classes": 4}
    with pytest.raises(ZooError, match="`response: linear` needs a teacher of token matrices"):
        images = {"name": "fashion-mnist-mini", "limit": 6}
        create_dataset("taught", inputs=images, teacher={"name": "network", "model": model}, response="linear")


def test_a_network_may_teach_on_images():
    model = {"name": "small-cnn", "channels": 1, "num_classes": 4}
    images = {"name": "fashion-mnist-mini", "limit": 6}
    dataset = create_dataset("taught", inputs=images, teacher={"name": "network", "model": model})
    assert dataset.loss == "half-squared-error-of-vectors" and dataset.test.targets.shape == (6, 4)
