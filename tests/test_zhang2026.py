"""The recipes of Zhang, Zhao, Gu, Cao at a reduced budget, against values that were measured independently."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import provenzoo
from provenzoo.datasets.mnist import FashionMNIST
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.recipe import compose, plain_recipe
from provenzoo.pipeline.select import select
from provenzoo.plain import read_json
from provenzoo.registry import list_names

RECIPES = list_names("recipes", "zhang2026/*")


def recipe(name: str, *overrides: str) -> dict[str, Any]:
    """A recipe's data without claims and figures."""
    data = plain_recipe(compose(f"zhang2026/{name}", overrides))
    return {key: value for key, value in data.items() if key != "publish"} | {"claims": {}, "figures": {}}


def run(name: str, out: Path, *overrides: str, **stage: object) -> provenzoo.Run:
    """A recipe without its claims, its first stage changed."""
    data = recipe(name, *overrides)
    next(iter(data["stages"].values())).update(stage)
    return provenzoo.run(data, out=out)


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provenzoo.report.report", lambda path: [])


def test_every_experiment_of_the_paper_has_a_recipe():
    six = {"conv-relu", "conv-leaky", "graph-relu", "graph-leaky", "sparse-token", "group-sparse"}
    others = {"population", "misspecified", "full-attention", "mnist", "fashion-mnist"}
    assert {name.partition("/")[2] for name in RECIPES} >= six | others


def test_a_graph_convolution_is_learned_as_far_as_it_should_be_after_1000_steps(tmp_path):
    found = run("graph-relu", tmp_path, "seeds=3", "stages.train.steps=1000", "stages.train.log_every=500")
    numbers = found.metrics["train"]
    start = read_json(tmp_path / "stages/train/metrics.json")["series"]["values"]["excess-loss"][0]
    assert sum(start) / 3 == pytest.approx(167, rel=0.25)
    assert numbers["excess-loss"]["mean"] == pytest.approx(4.1, rel=0.2)
    assert numbers["score-distance"]["mean"] == pytest.approx(0.775, rel=0.06)
    assert numbers["cosine-to-truth"]["min"] >= 0.999
    assert found.metrics["train.out"]["excess-loss"]["mean"] > numbers["excess-loss"]["mean"]


def test_population_descent_runs_as_a_stage_and_is_verified(tmp_path):
    stage = {"steps": 400, "log_every": 100, "grid": {}, "seeds": 2}
    found = run("population", tmp_path, **stage)
    numbers = found.metrics["train"]
    assert numbers["value-residual"]["max"] <= 1e-12 and numbers["score-residual"]["max"] <= 1e-12
    assert numbers["phase"]["min"] == 3
    losses = read_json(tmp_path / "stages/train/metrics.json")["series"]["values"]["population-loss"]
    assert all(later < before for early, late in pairwise(losses) for before, later in zip(early, late, strict=True))
    assert provenzoo.verify(tmp_path).holds


def test_the_tokens_of_a_set_are_judged_apart_from_the_stages_own(tmp_path):
    found = run("misspecified", tmp_path, "seeds=2", "stages.train.steps=200", "stages.train.log_every=100")
    well, off = (found.metrics[f"train.{label}"]["excess-by-moments"] for label in ("well-specified", "misspecified"))
    assert set(found.metrics) == {"train", "train.well-specified", "train.misspecified"}
    assert well["per_seed"] != off["per_seed"]
    assert found.metrics["train"]["score-distance"] == found.metrics["train.misspecified"]["score-distance"]
    assert provenzoo.verify(tmp_path).holds


def test_a_rate_far_past_the_stable_range_is_told_as_a_divergence(tmp_path):
    with pytest.raises(ZooError, match=r"every seed diverged.*lower optim\.lr"):
        run("graph-relu", tmp_path, "seeds=2", "stages.train.steps=400", "stages.train.optim.lr=3.2")


def test_full_attention_trains_beside_attention_over_positions(tmp_path):
    small = ["seeds=2", "stages.train.steps=20", "stages.train.log_every=10"]
    found = run("full-attention", tmp_path, *small)
    assert found.metrics["train[attention=full]"]["position-block-ratio"]["min"] > 0


def test_a_networks_first_layer_teaches(tmp_path):
    images = {"name": "fashion-mnist-mini", "size": 27, "mean": 0.0, "std": 1.0}
    config = recipe("fashion-mnist", "seeds=2")
    config["stages"]["teacher"] |= {"data": images, "epochs": 2}
    config["stages"]["student"] |= {"steps": 100, "log_every": 50}
    config["stages"]["student"]["data"]["inputs"]["images"] = images
    found = provenzoo.run(config, out=tmp_path)
    for activation in ("relu", "leaky"):
        before, after = (
            read_json(tmp_path / f"stages/student[activation={activation}]/metrics.json")["series"]["values"]["loss"][i]
            for i in (0, -1)
        )
        assert all(b > 5 * a for b, a in zip(before, after, strict=True))
        assert found.metrics[f"student[activation={activation}]"]["cosine-to-truth"]["min"] > 0.3
    assert provenzoo.verify(tmp_path).holds


@pytest.mark.slow
@pytest.mark.skipif(FashionMNIST.missing() is not None, reason="needs the whole of Fashion-MNIST")
def test_the_recipe_on_garments_at_a_reduced_budget(tmp_path):
    config = recipe("fashion-mnist", "seeds=1")
    config["stages"]["teacher"] |= {"epochs": 2, "grid": {}}
    config["stages"]["student"] |= {"steps": 300, "log_every": 100}
    found = provenzoo.run(config, out=tmp_path)
    assert found.metrics["teacher"]["accuracy"]["n"] == 10_000 and found.metrics["teacher"]["accuracy"]["min"] > 0.5
    losses = read_json(tmp_path / "stages/student/metrics.json")["series"]["values"]["loss"]
    assert losses[-1][0] < losses[0][0] / 30


def test_images_that_are_nowhere_are_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("provenzoo.datasets.mnist.SYSTEM", tmp_path / "none")
    monkeypatch.setattr("provenzoo.datasets.places.cache", lambda: tmp_path / "cache")
    chosen, left_out = select("zhang2026/*mnist*")
    assert chosen == [] and "looked for its four idx files in" in left_out["zhang2026/mnist"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.train.dtype=float32", r"train.*\.dtype: `population: true` needs 'float64'"),
        ("stages.train.data.response=linear", r"train.*\.data\.response: .*needs 'teacher'"),
        ("stages.train.model.name=self-attention", r"train.*\.model\.name: .*needs 'position-attention'"),
        ("stages.train.data.inputs.name=exponential-tokens", r"data\.inputs\.name: .*needs 'gaussian-tokens'"),
        ("stages.train.data.inputs.samples=50", r"data\.inputs\.samples: .*has no use for it; leave it out"),
        ("stages.train.loss=cross-entropy", r"\.loss: .*has no use for it"),
    ],
)
def test_what_the_population_loss_is_not_known_for_is_refused(override, message):
    with pytest.raises(UsageError, match=message):
        provenzoo.run("zhang2026/population", [override])


def test_a_student_that_does_not_fit_its_teacher_is_refused_before_training():
    with pytest.raises(ZooError, match="features is 4, but the data has 10"):
        provenzoo.run("zhang2026/graph-relu", ["stages.train.model.features=4"])


@pytest.mark.parametrize(
    ("classes", "features", "metrics", "message"),
    [
        (3, {"features": 10}, ["loss"], "student's outputs are 10 x 20 an item, its targets 10 x 3"),
        (20, {"features": 7}, ["loss"], "student's outputs are 7 x 20 an item, its targets 10 x 20"),
        (20, {}, ["loss"], "position-attention needs 'features'; write it there"),
        (20, {"features": 10}, ["cosine-to-truth"], "asks for 'true_value', which neither model nor data gives"),
    ],
)
def test_a_network_that_teaches_what_the_student_cannot_give_or_be_judged_by_is_told(
    tmp_path, classes, features, metrics, message
):
    config = recipe("graph-relu", "seeds=2")
    stage = config["stages"]["train"] | {"steps": 3, "log_every": 1, "sets": {}, "metrics": metrics}
    stage["model"] = {"name": "position-attention", "activation": "identity", **features}
    stage["data"]["teacher"] = {
        "name": "network",
        "model": {"name": "mlp", "features": 20, "num_classes": classes},
    }
    with pytest.raises(ZooError, match=message):
        provenzoo.run(config | {"stages": {"train": stage}}, out=tmp_path)


def test_a_set_that_does_not_fit_the_student_is_refused_before_training():
    with pytest.raises(ZooError, match=r"sets\.out: the model has tokens 20, the data 24"):
        provenzoo.run(
            "zhang2026/graph-relu", ["stages.train.sets.out.data={inputs: {tokens: 24}, teacher: {tokens: 24}}"]
        )


def test_rates_past_the_stable_range_fall_short_or_are_told_and_leave_the_others(tmp_path):
    config = recipe("graph-relu", "seeds=2", "stages.train.steps=1000", "stages.train.log_every=500")
    config["stages"]["train"]["grid"] = {"optim.lr": [0.1, 0.8, 3.2]}
    with pytest.raises(ZooError, match=r"^train\[optim\.lr=3\.2\]: every seed diverged"):
        provenzoo.run(config, out=tmp_path)
    metrics = read_json(tmp_path / "run.json")["metrics"]
    stable, past = (metrics[f"train[optim.lr={rate}]"]["excess-loss"]["mean"] for rate in (0.1, 0.8))
    assert stable == pytest.approx(4.1, rel=0.25) and past > 1.4 * stable


def test_a_set_cannot_change_the_model_of_a_training():
    config = recipe("graph-relu")
    config["stages"]["train"]["sets"] = {"other": {"model": {"leak": 0.5}}}
    with pytest.raises(UsageError, match="overlay `data` alone"):
        provenzoo.run(config)


@pytest.mark.whole
@pytest.mark.parametrize("name", RECIPES)
def test_every_claim_of_the_paper_holds(name, tmp_path):
    if left_out := select(name)[1]:
        pytest.skip(left_out[name])
    done = provenzoo.run(name, ["device=cpu"], out=tmp_path)
    assert done.claims and [claim["id"] for claim in done.claims if not claim["holds"]] == []
