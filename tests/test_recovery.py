"""Metrics of how near a student is to its teacher, on values worked out by hand."""

import pytest
import torch

from provenzoo.errors import ZooError
from provenzoo.metrics import recovery

V = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
S = torch.block_diag(torch.full((2, 2), 0.5), torch.full((2, 2), 0.5))


def test_the_loss_is_half_the_squared_norm_a_mean_over_items_for_each_replica():
    outputs = torch.zeros(2, 3, 2, 4)
    targets = torch.stack([torch.ones(3, 2, 4), 2 * torch.ones(3, 2, 4)])
    assert recovery.half_squared_error(outputs, targets).tolist() == [4, 16]
    assert recovery.half_squared_error(outputs[0], targets[0]) == 4
    assert recovery.half_squared_error(torch.zeros(3, 4), torch.ones(3, 4), dims=1) == 2


def test_a_student_that_gives_other_shapes_than_its_teacher_is_told_both():
    with pytest.raises(ZooError, match="outputs are 2 x 4 an item, its targets 3 x 4"):
        recovery.half_squared_error(torch.zeros(5, 2, 4), torch.zeros(5, 3, 4))


def test_the_excess_is_over_the_teachers_own_loss():
    inputs = torch.randn(1000, 2, 4)
    teacher = V @ inputs @ S
    noisy = teacher + torch.randn(teacher.shape)
    outputs = teacher + 0.5
    assert recovery.excess_loss(outputs, teacher) == pytest.approx(0.125 * 8)
    assert recovery.excess_loss_cancelled(outputs, noisy, teacher) == pytest.approx(1, abs=0.15)
    assert recovery.excess_loss_cancelled(teacher, noisy, teacher) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize("explained", [True, False])
def test_the_excess_by_moments_is_what_sampling_gives(mean, explained):
    draws = torch.Generator().manual_seed(0)
    value, response = torch.randn(2, 2, 2, generator=draws, dtype=torch.float64)
    scores = torch.randn(4, 4, generator=draws, dtype=torch.float64).softmax(0)
    true = (V.double(), S.double())
    x = torch.empty(200_000, 2, 4, dtype=torch.float64).exponential_(generator=draws) - 1 + mean
    y = true[0] @ x @ true[1] if explained else response @ x
    losses = [((y - w @ x @ s) ** 2).sum((1, 2)) / 2 for w, s in ((value, scores), true)]
    sampled = losses[0] - losses[1]
    moments = [torch.tensor(mean).double(), torch.tensor(1.0).double()]
    found = recovery.excess_by_moments(value, scores, *true, *moments, None if explained else response)
    assert found.item() == pytest.approx(abs(sampled.mean().item()), abs=5 * sampled.std().item() / 200_000**0.5)


def test_cosine_and_distances():
    assert recovery.cosine_to_truth(3 * V, V) == pytest.approx(1)
    assert recovery.cosine_to_truth(torch.zeros(2, 2), V) == 0
    assert recovery.value_distance(torch.zeros(2, 2), V) == pytest.approx(5**0.5)
    even = torch.full((4, 4), 0.25)
    assert recovery.score_distance(even, S) == 1
    assert recovery.group_mass(even, S) == 0.5 and recovery.group_mass(S, S) == 1


def test_coefficients_and_residuals_of_the_pattern():
    logits = torch.where(S > 0, 3.0, -2.0)
    found = [f(logits, S).item() for f in (recovery.group_coefficient, recovery.rest_coefficient)]
    assert found == [3, 2] and recovery.value_coefficient(0.5 * V, V) == 0.5
    assert recovery.score_residual(logits, S) == 0 and recovery.value_residual(2 * V, V) == 0
    off = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    assert recovery.value_residual(off, V) == pytest.approx((1 / 6) ** 0.5)
    assert recovery.score_residual(torch.zeros(4, 4), S) == 0


def test_the_position_block_is_weighed_against_the_largest_other():
    weights = torch.zeros(6, 6)
    weights[2:, 2:] = S
    weights[0, 3], weights[4, 1], weights[1, 0] = 0.1, 0.06, 0.02
    assert recovery.position_block_ratio(weights, S) == pytest.approx(2**0.5 / 0.1)


def test_key_errors_are_rows_of_a_square_image():
    truth, scores = torch.eye(9), torch.eye(9)
    scores[[0, 2, 6, 8]] *= torch.tensor([0.0, 0.5, 0.6, 0.7]).unsqueeze(1)
    scores[4, 4] = 0.75
    assert recovery.key_error(scores, truth).tolist() == pytest.approx([1, 0, 0.5, 0, 0.25, 0, 0.4, 0, 0.3])
    assert recovery.corner_key_error(scores, truth) == pytest.approx(0.3)
    assert recovery.interior_key_error(scores, truth) == 0.25


def test_the_interiors_error_is_its_worst_keys_and_leaves_the_border_out():
    scores = torch.eye(16)
    scores[[1, 4, 5, 6, 9, 10]] *= torch.tensor([0.0, 0.0, 0.9, 0.7, 0.8, 0.95]).unsqueeze(1)
    assert recovery.interior_key_error(scores, torch.eye(16)) == pytest.approx(0.3)


def test_replicas_are_measured_each_for_itself():
    values, scores = torch.randn(3, 2, 2), torch.randn(3, 4, 4).softmax(-2)
    truths, groups = torch.randn(3, 2, 2), S.expand(3, 4, 4)
    alone = [recovery.cosine_to_truth(a, b) for a, b in zip(values, truths, strict=True)]
    torch.testing.assert_close(recovery.cosine_to_truth(values, truths), torch.stack(alone))
    alone = [recovery.score_residual(a.log(), S) for a in scores]
    torch.testing.assert_close(recovery.score_residual(scores.log(), groups), torch.stack(alone))
