"""Metrics against closed forms and slow, explicit references."""

import math

import pytest
import torch

from provenzoo.datasets.base import Split
from provenzoo.datasets.gaussian_clusters import GaussianClusters
from provenzoo.errors import ZooError
from provenzoo.metrics.classification import accuracy, class_accuracy, cross_entropy
from provenzoo.metrics.locality import encodings_locality, encodings_locality_rank, neighbours
from provenzoo.metrics.measure import Measure


def test_accuracy_counts_a_set_of_odd_size_exactly():
    outputs = torch.eye(3).repeat(3, 1)[:7]
    targets = torch.tensor([0, 1, 2, 0, 1, 0, 1])
    assert accuracy(outputs, targets).item() == 5 / 7
    assert class_accuracy(outputs, targets).tolist() == [2 / 3, 2 / 3, 1.0]


def test_replicas_are_judged_apart():
    outputs, targets = torch.randn(2, 3, 11, 5), torch.randint(5, (2, 3, 11))
    for metric in (accuracy, class_accuracy, cross_entropy):
        together = metric(outputs, targets)
        for index in [(0, 0), (1, 2)]:
            alone = metric(outputs[index], targets[index])
            torch.testing.assert_close(together[index], alone, equal_nan=True)


def test_a_class_that_the_set_lacks_has_no_accuracy():
    assert class_accuracy(torch.eye(3), torch.tensor([0, 1, 1]))[2].isnan()


def measured(outputs: torch.Tensor):
    """What is kept of metrics of a set with the classes 0 and 1 of 3, where a model gives these outputs."""
    functions = {
        "each": class_accuracy,
        "scalar": lambda outputs: outputs.sum() * math.nan,
        "nested": lambda targets: torch.tensor([[1.0, math.inf], [2.0, 3.0]]),
    }
    split = Split(outputs, torch.tensor([0, 1, 0]))
    return Measure(functions, GaussianClusters(), split, torch.device("cpu"), torch.float32)(torch.nn.Identity())


def test_an_entry_that_says_nothing_is_null_alone_and_a_replica_that_is_not_finite_is_null_whole():
    nested = [[1.0, None], [2.0, 3.0]]
    assert measured(torch.eye(3)) == {"each": [0.5, 1.0, None], "scalar": None, "nested": nested}
    assert measured(torch.eye(3) / 0) == {"each": None, "scalar": None, "nested": nested}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_an_error(bad):
    outputs = torch.zeros(4, 3)
    outputs[2, 1] = bad
    with pytest.raises(ZooError, match="NaN or infinity"):
        accuracy(outputs, torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_cross_entropy_is_the_mean_of_minus_the_smoothed_log_probabilities(smoothing, lead):
    outputs, targets = torch.randn(*lead, 6, 4, dtype=torch.float64), torch.randint(4, (*lead, 6))
    log_probability = outputs - outputs.exp().sum(-1, keepdim=True).log()
    wanted = smoothing / 4 + (1 - smoothing) * torch.eye(4, dtype=torch.float64)[targets]
    expected = -(wanted * log_probability).sum(-1).mean(-1)
    torch.testing.assert_close(cross_entropy(outputs, targets, label_smoothing=smoothing), expected)


def bumps(side: int) -> torch.Tensor:
    """Encodings `[side^2, side^2]`: a Gaussian bump of width 1.5 patches around each patch."""
    place = torch.cartesian_prod(torch.arange(side), torch.arange(side)).double()
    return (-torch.cdist(place, place).square() / (2 * 1.5**2)).exp()


def slow_rank(encodings: torch.Tensor, label: list[int]) -> float:
    """The mean rank of the neighbours of a 3 x 3 grid or larger, by loops over pairs."""
    points = encodings.double().tolist()
    tokens, width, side = len(points), len(points[0]), math.isqrt(len(points))
    mean = [sum(p[c] for p in points) / tokens for c in range(width)]
    points = [[p[c] - mean[c] for c in range(width)] for p in points]

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    ranks = []
    for i in range(tokens):
        for j in range(tokens):
            if i != j and abs(i // side - j // side) <= 1 and abs(i % side - j % side) <= 1:
                a, b = label[i], label[j]
                lower = [cosine(points[a], points[c]) < cosine(points[a], points[b]) for c in range(tokens) if c != a]
                ranks.append(sum(lower) / (tokens - 2))
    return sum(ranks) / len(ranks)


@pytest.mark.parametrize("side", [3, 4])
def test_the_locality_rank_is_the_mean_rank_that_loops_over_pairs_find(side):
    encodings = torch.randn(side * side, 5, dtype=torch.float64)
    assert encodings_locality_rank(encodings).item() == pytest.approx(
        slow_rank(encodings, list(range(side**2))), abs=1e-12
    )


def test_the_z_score_agrees_with_other_relabellings_drawn_and_ranked_by_loops():
    encodings = bumps(3) + 0.05 * torch.randn(9, 9)
    null = torch.tensor([slow_rank(encodings, torch.randperm(9).tolist()) for _ in range(400)])
    expected = (slow_rank(encodings, list(range(9))) - null.mean()) / null.std()
    assert encodings_locality(encodings).item() == pytest.approx(expected.item(), rel=0.2)


def test_a_grid_of_3_x_3_has_40_ordered_pairs_that_touch():
    first, second = neighbours(9)
    assert len(first) == 40  # 4 corners of 3, 4 edges of 5, a centre of 8
    assert set(second[first == 0].tolist()) == {1, 3, 4}


def test_smooth_encodings_are_local_and_random_ones_are_not():
    assert encodings_locality(bumps(7)) > 10
    assert encodings_locality_rank(bumps(7)) > 0.9
    scattered = torch.randn(20, 49, 64)
    assert (encodings_locality(scattered).abs() < 4).all()
    assert encodings_locality(scattered).mean().abs() < 1


def test_smooth_encodings_in_a_scrambled_order_are_not_local():
    assert encodings_locality(bumps(7)[torch.randperm(49)]).abs() < 4


def test_locality_takes_replicas_and_does_not_depend_on_scale_or_offset():
    encodings = torch.randn(2, 3, 16, 8)
    together = encodings_locality(encodings)
    assert together.shape == (2, 3)
    torch.testing.assert_close(together[1, 2], encodings_locality(encodings[1, 2]))
    torch.testing.assert_close(together, encodings_locality(encodings.double() * 4 + 2), atol=0.05, rtol=0)


def test_encodings_that_say_nothing_or_are_not_finite_have_no_z_score():
    assert encodings_locality(torch.ones(9, 4)).isnan()
    assert encodings_locality_rank(torch.ones(9, 4)) == 0.5
    broken = torch.randn(2, 9, 4)
    broken[1, 3, 2] = math.nan
    assert encodings_locality(broken).isnan().tolist() == [False, True]


@pytest.mark.parametrize("tokens", [4, 12])
def test_tokens_that_are_no_grid_of_3_x_3_or_more_are_an_error(tokens):
    with pytest.raises(ZooError, match=f"{tokens} tokens"):
        encodings_locality(torch.randn(tokens, 4))
