"""The recipes of Gatmiry et al. 2024: gradient flow follows its exact solution, and every claim holds."""

from pathlib import Path
from typing import Any

import pytest

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.metrics import wishart
from provenzoo.pipeline.recipe import compose, plain_recipe
from provenzoo.plain import read_json

RECIPES = provenzoo.list_names("recipes", "gatmiry2024/*")


def reduced(name: str) -> dict[str, Any]:
    """Two seeds, four steps, forty prompts, the ends of each grid, and no claims, which name more."""
    data = plain_recipe(compose(name)) | {"seeds": 2, "device": "cpu", "claims": {}, "figures": {}}
    data.pop("publish", None)
    for stage in data["stages"].values():
        if "steps" in stage:
            stage |= {"steps": 4, "batch": 8, "log_every": 2}
        stage["grid"] = {axis: ends(labels) for axis, labels in stage.get("grid", {}).items()}
        if "test" in stage.get("data", {}):
            stage["data"]["test"] = 40
    return data


def ends(labels: Any) -> Any:
    if isinstance(labels, str):
        first, _, last = labels.partition("..")
        return [int(first), int(last)]
    return [labels[0], labels[-1]] if isinstance(labels, list) else labels


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_runs_reduced(name: str, tmp_path: Path) -> None:
    run = provenzoo.run(reduced(name), out=tmp_path)
    assert run.record["status"] == "complete" and run.metrics
    assert all(value is not None for found in run.metrics.values() for m in found.values() for value in m["per_seed"])


def falls_short(name: str, overrides: list[str], out: Path) -> list[str]:
    done = provenzoo.run(name, overrides, out=out)
    assert done.claims
    return [claim["id"] for claim in done.claims if not claim["holds"]]


def flow_of_a(step: float, until: float) -> list[float]:
    """The loss every 0.1 on `da/dt = -f'(a) / dim`, f the loss polynomial of n = 100 and two loops, by Euler's method."""
    polynomial = wishart.loss_polynomial(100, 10, 2)
    loss, slope = ([float(c) for c in p] for p in (polynomial, wishart.derivative(polynomial)))
    a, losses = 0.005, []
    for k in range(round(until / step) + 1):
        if k % round(0.1 / step) == 0:
            losses.append(sum(c * a**i for i, c in enumerate(loss)))
        a -= step * sum(c * a**i for i, c in enumerate(slope)) / 10
    return losses


def test_gradient_flow_follows_the_exact_flow_of_a_multiple_of_the_identity(tmp_path: Path) -> None:
    """To the sampling of its Gram matrices with its own step, and to Euler's error with one 200 times smaller."""
    small = ["seeds=1", "stages.flow.steps=100"]
    assert falls_short("gatmiry2024/gradient-flow", small, tmp_path) == []
    measured = read_json(tmp_path / "stages" / "flow" / "metrics.json")["series"]["values"]["loss"]
    losses = [values[0] for values in measured]
    assert losses == pytest.approx(flow_of_a(0.02, 2.0), rel=0.02)
    assert losses == pytest.approx(flow_of_a(0.0001, 2.0), rel=0.1)


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


@pytest.mark.whole
@pytest.mark.parametrize("name", RECIPES)
def test_every_claim_of_the_paper_holds(name: str, tmp_path: Path) -> None:
    assert falls_short(name, ["device=cpu"], tmp_path) == []
