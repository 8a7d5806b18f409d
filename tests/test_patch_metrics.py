"""Metrics of patch association on matrices whose answer is plain, and of scores with signs."""

import math

import pytest
import torch

from provenzoo.metrics.binary import labelling_error, logistic, sign_accuracy, sign_error
from provenzoo.metrics.patch_association import (
    alpha,
    association_margin,
    attention_spread,
    disjoint_association,
    feature_cosine,
    gamma,
    patch_association,
    rho,
    value_outside_span,
)

SETS = torch.tensor([[0, 2], [1, 3]])
ASSOCIATED = torch.tensor([[9.0, 0.1, 2.0, 0.3], [0.0, 9.0, 0.5, 1.0], [1.0, 0.2, 9.0, 0.4], [0.6, 3.0, 0.0, 9.0]])


def test_a_row_counts_where_its_two_greatest_entries_are_its_own_set():
    assert patch_association(ASSOCIATED, SETS) == 1
    broken = ASSOCIATED.clone()
    broken[0, 3] = 2.5
    assert patch_association(broken, SETS) == 0.75
    low_diagonal = ASSOCIATED.clone()
    low_diagonal[1, 1] = -1.0
    assert patch_association(low_diagonal, SETS) == 0.75  # the diagonal is one of the set
    assert patch_association(torch.stack([ASSOCIATED, broken]), SETS).tolist() == [1, 0.75]


def test_a_tie_is_no_association():
    assert patch_association(torch.zeros(4, 4), SETS) == 0
    assert disjoint_association(torch.zeros(4, 4), SETS) == 0


def test_the_margin_is_the_worst_rows_without_the_diagonal():
    assert association_margin(ASSOCIATED, SETS).item() == pytest.approx(min(2 - 0.3, 1 - 0.5, 1 - 0.4, 3 - 0.6))


def test_disjoint_rows_meet_their_set_nowhere():
    other = torch.tensor([[0.0, 5, 0, 5], [5, 0, 5, 0], [0, 5, 0, 5], [5, 0, 5, 0]])
    assert disjoint_association(other, SETS) == 1
    other[0, 0] = 6
    assert disjoint_association(other, SETS) == 0.75


def test_gamma_rho_and_the_spread_within_their_classes():
    assert gamma(attention_matrix=ASSOCIATED, partition=SETS).item() == pytest.approx((2 + 1 + 1 + 3) / 4)
    beyond = [0.1, 0.3, 0.0, 0.5, 0.2, 0.4, 0.6, 0.0]
    assert rho(attention_matrix=ASSOCIATED, partition=SETS).item() == pytest.approx(sum(beyond) / 8)
    spread = math.sqrt(sum((x - 1.75) ** 2 for x in (2, 1, 1, 3)) / 3)
    assert attention_spread(ASSOCIATED, SETS).item() == pytest.approx(spread / 1.75)


def test_the_value_vector_against_the_feature():
    feature, value = torch.tensor([1.0, 0, 0]), torch.tensor([3.0, 0, 4.0])
    assert feature_cosine(value, feature).item() == pytest.approx(0.6)
    assert value_outside_span(value, feature).item() == pytest.approx(0.8)
    assert alpha(value, feature).item() == pytest.approx(3)


def test_scores_without_the_sign_of_the_label_are_errors_and_so_is_what_is_not_finite():
    outputs = torch.tensor([2.0, -1.0, 0.0, math.nan, math.inf, -3.0])
    targets = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, -1.0])
    assert sign_error(outputs, targets).item() == pytest.approx(4 / 6)
    assert sign_accuracy(outputs, targets).item() == pytest.approx(2 / 6)
    assert labelling_error(torch.tensor([1.0, 1.0]), torch.tensor([4.0, 0.0])).item() == 0.5


def test_the_logistic_loss_is_in_nats():
    outputs, targets = torch.tensor([0.0, 100.0, -100.0]), torch.tensor([1.0, 1.0, 1.0])
    assert logistic(outputs, targets).item() == pytest.approx((math.log(2) + 0 + 100) / 3)
