"""Prompts of linear regression: their law, their layouts, and what is wrong with their settings."""

from typing import Any

import pytest
import torch

import provenzoo
from provenzoo.datasets.base import Stream
from provenzoo.datasets.linear_regression_prompts import LinearRegressionPrompts, bartlett
from provenzoo.errors import ZooError

SPECTRUM = [0.25, 1.0, 2.0]


def prompts(**settings: Any) -> LinearRegressionPrompts:
    data = provenzoo.create_dataset("linear-regression-prompts", **settings)
    assert isinstance(data, LinearRegressionPrompts)
    return data


def test_a_prompt_is_laid_out_as_in_the_paper() -> None:
    data = prompts(n=7, dim=3, test=5)
    z, y_query = data.test.inputs, data.test.targets
    assert z.shape == (5, 4, 8) and y_query.shape == (5,)
    x, y = z[:, :3], z[:, 3]
    w = torch.linalg.lstsq(x[..., :7].mT, y[:, :7, None]).solution
    torch.testing.assert_close((x[..., :7].mT @ w).squeeze(-1), y[:, :7], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close((x[..., 7:].mT @ w).flatten(), y_query, rtol=1e-3, atol=1e-4)
    assert (y[:, 7] == 0).all()


def test_examples_have_the_covariance_and_weights_match_it() -> None:
    data = prompts(n=30, dim=3, test=20_000, spectrum=SPECTRUM, rotate=True)
    z = data.test.inputs.double()
    x = z[:, :3]
    torch.testing.assert_close((x @ x.mT / 31).mean(0), data.covariance, rtol=0.03, atol=0.02)
    torch.testing.assert_close(torch.linalg.eigvalsh(data.covariance), torch.tensor(SPECTRUM).double())
    w = torch.linalg.lstsq(x[..., :30].mT, z[:, 3, :30, None]).solution.squeeze(-1)
    torch.testing.assert_close(w.mT @ w / len(w), data.covariance.inverse(), rtol=0.05, atol=0.06)


def test_weights_may_be_standard_normal() -> None:
    data = prompts(n=4, dim=3, spectrum=SPECTRUM, weights="identity", test=40_000)
    assert data.structure["weight_covariance"].equal(torch.eye(3).double())
    assert data.test.inputs[:, 3, :4].var().item() == pytest.approx(sum(SPECTRUM), rel=0.03)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_bartlett_draws_have_the_law_of_gram_matrices(n: int) -> None:
    """Means of G, of its entries' squares and of tr G^2, tr G^3 against G of drawn examples; also of rank n < dim."""
    draws = torch.Generator().manual_seed(1)
    factor = bartlett(40_000, 4, n, seed=0).double()
    x = torch.randn(40_000, 4, n, generator=draws, dtype=torch.float64)
    drawn, direct = factor @ factor.mT / n, x @ x.mT / n
    for statistic in (
        lambda g: g,
        lambda g: g**2,
        lambda g: (g @ g).diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True),
        lambda g: (g @ g @ g).diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True),
        lambda g: g[:, 0, 1:2] * g[:, 1, 2:3] * g[:, 2, 0:1],
    ):
        a, b = statistic(drawn), statistic(direct)
        error = ((a.var(0) + b.var(0)) / len(a)).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 4.5 * error).all()
    assert torch.linalg.matrix_rank(drawn[0]) == min(n, 4)


def test_the_gram_layout_gives_the_covariances_as_targets() -> None:
    data = prompts(n=50, dim=3, layout="gram", spectrum=SPECTRUM, rotate=True, test=20_000)
    gram, targets = data.test.inputs, data.test.targets
    assert gram.shape == (20_000, 3, 3) and targets.shape == (20_000, 2, 3, 3)
    torch.testing.assert_close(gram.double().mean(0), data.covariance, rtol=0.01, atol=0.01)
    torch.testing.assert_close(targets[7].double(), torch.stack([data.weight_covariance, data.covariance]))
    assert data.loss == "integrated-squared-error" and prompts(n=3).loss == "squared-error"


@pytest.mark.parametrize("layout", ["prompts", "gram"])
def test_a_batch_is_a_function_of_seed_and_step(layout: str) -> None:
    train = prompts(n=5, dim=3, layout=layout).train
    assert isinstance(train, Stream)
    again = prompts(n=5, dim=3, layout=layout).train
    assert isinstance(again, Stream)
    torch.manual_seed(3)
    first = train.draw(4, 6)
    torch.manual_seed(4)
    assert all(map(torch.equal, first, again.draw(4, 6)))
    assert not first[0].equal(train.draw(5, 6)[0])
    other = prompts(n=5, dim=3, layout=layout, seed=1).train
    assert isinstance(other, Stream) and not first[0].equal(other.draw(4, 6)[0])


def test_samples_make_a_finite_training_split_apart_from_the_test() -> None:
    data = prompts(n=5, dim=3, samples=6, test=6)
    assert not isinstance(data.train, Stream) and len(data.train) == 6
    assert not data.train.inputs.equal(data.test.inputs)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n": 0}, "n"),
        ({"n": 5, "dim": 0}, "dim"),
        ({"n": 5, "dim": 2, "covariance": [[1.0]]}, "covariance has 1 rows of 1, but dim is 2"),
        ({"n": 5, "dim": 2, "covariance": [[1.0, 0.0], [0.0]]}, "covariance has 2 rows of 1, 2, but dim is 2"),
        ({"n": 5, "dim": 2, "covariance": [[1.0, 2.0], [2.0, 1.0]]}, r"not positive definite .least eigenvalue -1"),
        ({"n": 5, "dim": 2, "covariance": [[1.0, 0.5], [0.4, 1.0]]}, "not symmetric: at 0, 1 it differs"),
        ({"n": 5, "dim": 2, "covariance": []}, "0 rows of nothing, but dim is 2"),
        ({"n": 5, "dim": 1, "covariance": [[float("inf")]]}, "finite number"),
        ({"n": 5, "dim": 2, "spectrum": []}, "spectrum has 0 values, but dim is 2"),
        ({"n": 5, "dim": 2, "spectrum": [float("inf"), 1.0]}, "finite number"),
        ({"n": 5, "dim": 1, "rotate": True}, "write one, or leave it out"),
        ({"n": 5, "dim": 2, "spectrum": [1.0]}, "spectrum has 1 values, but dim is 2"),
        ({"n": 5, "dim": 2, "spectrum": [1.0, 0.0]}, "spectrum"),
        ({"n": 5, "dim": 1, "spectrum": [1.0], "covariance": [[1.0]]}, "not both"),
        ({"n": 10**19, "dim": 2, "layout": "gram"}, "n"),
        ({"n": 5, "dim": 2, "spectrum": [1e39, 1.0]}, "outside float32"),
        ({"n": 5, "dim": 2, "spectrum": [1e-39, 1.0]}, "outside float32"),
        ({"n": 5, "dim": 2, "spectrum": [1e-80, 1.0]}, "outside float32"),
        ({"n": 5, "dim": 2, "spectrum": [1e-40, 1e40], "rotate": True}, "too far apart"),
    ],
)
def test_settings_that_are_no_regression_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ZooError, match=says):
        prompts(**settings)


def test_a_split_is_known_by_its_law() -> None:
    settings: dict[str, Any] = {"n": 5, "dim": 3, "test": 6, "layout": "gram"}
    first = prompts(**settings).test.digest
    assert first == prompts(**settings).test.digest
    changes = (
        {"n": 6},
        {"spectrum": SPECTRUM},
        {"weights": "identity"},
        {"test": 7},
        {"layout": "prompts"},
        {"seed": 1},
    )
    assert len({first, *(prompts(**{**settings, **change}).test.digest for change in changes)}) == 7
