"""The recipes of Gatmiry et al. 2024: what is exact holds, and gradient flow follows its exact solution."""

from pathlib import Path
from typing import Any

import pytest

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.metrics import wishart
from provenzoo.plain import read_json


def falls_short(name: str, overrides: list[str], out: Path) -> list[str]:
    done = provenzoo.run(name, overrides, out=out)
    assert done.claims
    return [claim["id"] for claim in done.claims if not claim["holds"]]


def test_the_bounds_hold_in_exact_arithmetic(tmp_path: Path) -> None:
    assert falls_short("gatmiry2024/bounds", [], tmp_path) == []


def test_the_forward_pass_is_gradient_descent(tmp_path: Path) -> None:
    small = ["seeds=1", "stages.forward.data.test=50", "stages.closed-form.data.test=4000"]
    assert falls_short("gatmiry2024/is-gradient-descent", small, tmp_path) == []


def test_gradient_flow_follows_the_exact_flow_of_a_multiple_of_the_identity(tmp_path: Path) -> None:
    """da/dt = -f'(a) / dim, f the loss polynomial, by Euler steps 200 times smaller."""
    small = ["seeds=1", "stages.flow.steps=100"]
    assert falls_short("gatmiry2024/gradient-flow", small, tmp_path) == []
    polynomial = wishart.loss_polynomial(100, 10, 2)
    loss, slope = ([float(c) for c in p] for p in (polynomial, wishart.derivative(polynomial)))
    a, small_step = 0.005, 1e-4
    exact = []
    for step in range(20_001):
        if step % 1000 == 0:
            exact.append(sum(c * a**k for k, c in enumerate(loss)))
        a -= small_step * sum(c * a**k for k, c in enumerate(slope)) / 10
    measured = read_json(tmp_path / "stages" / "flow" / "metrics.json")["series"]["values"]["loss"]
    assert [values[0] for values in measured] == pytest.approx(exact, rel=0.05)


def test_a_training_that_explodes_is_told_by_seed_and_step(tmp_path: Path) -> None:
    """Heavy tails at 20 examples and many loops."""
    recipe: dict[str, Any] = {
        "about": "explodes",
        "seeds": 2,
        "stages": {
            "pretrain": {
                "stage": "pretrain",
                "model": {"name": "looped-linear-attention", "loops": 10},
                "data": {"name": "linear-regression-prompts", "n": 20, "layout": "gram", "test": 10},
                "optim": {"name": "sgd", "lr": 10.0},
                "steps": 60,
                "batch": 20,
                "metrics": ["loss"],
            }
        },
    }
    with pytest.raises(ZooError, match=r"every seed diverged: seed 0 at step \d+ \(query\); seed 1 at step \d+"):
        provenzoo.run(recipe, out=tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", provenzoo.list_names("recipes", "gatmiry2024/*"))
def test_every_claim_of_the_paper_holds(name: str, tmp_path: Path) -> None:
    assert falls_short(name, ["device=cpu"], tmp_path) == []
