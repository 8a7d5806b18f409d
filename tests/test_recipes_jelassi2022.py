"""Every recipe of Jelassi et al. 2022's theory runs to its end, reduced, and judges its claims; what diverges never passes."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import provenzoo
from provenzoo import registry
from provenzoo.errors import ZooError
from provenzoo.models.patch_attention import PatchAttention
from provenzoo.plain import read_json

THEORY = [
    "gaussian",
    "idealized",
    "linear-baseline",
    "pipeline",
    "realistic",
    "realistic-16",
    "realistic-64",
    "transfer",
    "unstructured",
]
RECIPES = [f"jelassi2022/{name}" for name in THEORY]


def composed(name: str) -> dict[str, Any]:
    data = OmegaConf.to_container(provenzoo.compose(name))
    assert isinstance(data, dict)
    return data  # pyright: ignore[reportReturnType]


def reduced(name: str) -> dict[str, Any]:
    """Two seeds, three steps, few points; of a grid of samples the labels that claims name."""
    data = composed(name) | {"seeds": 2, "device": "cpu"}
    claims = json.dumps(data["claims"])
    for stage in data["stages"].values():
        if "steps" in stage:
            stage |= {"steps": min(stage["steps"], 3), "batch": 8, "log_every": 2}
        stage.setdefault("data", {})["test"] = 50
        sizes = stage.get("grid", {}).get("data.samples")
        if sizes:
            stage["grid"]["data.samples"] = [size for size in sizes if f"data.samples={size}]" in claims]
    return data


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_runs_reduced(name, tmp_path):
    run = provenzoo.run(reduced(name), out=tmp_path)
    assert run.record["status"] == "complete"
    assert {claim["id"] for claim in run.claims} == set(composed(name)["claims"])
    assert all(claim["source"] and claim["says"] for claim in run.claims)
    drawn = {file.stem for file in tmp_path.rglob("figures/*.png")}
    assert drawn == set(composed(name)["figures"])
    assert (tmp_path / "report.html").is_file()


def test_there_is_a_recipe_for_each_theorem_and_synthetic_figure():
    assert set(registry.list_names("recipes")) >= set(RECIPES)


def easy() -> dict[str, Any]:
    """A recipe whose claims, of every form, hold for healthy seeds."""
    data = reduced("jelassi2022/realistic-16")
    data["stages"]["pretrain"]["steps"] = 30
    error = "pretrain[data.partition=*].sign-error"
    data["claims"] = {
        over: {"says": "Scores have signs.", "metric": error, "over": over, "holds": "<= 1"}
        for over in ("mean", "min", "max", "all")
    } | {"difference": {"says": "So they have.", "metric": {"difference": [error, error]}, "holds": "== 0"}}
    return data


def test_a_seed_that_diverges_is_told_and_no_claim_with_it_passes(tmp_path, monkeypatch):
    """The other seed's scores are finite, and its claims hold where no seed diverges."""
    assert provenzoo.run(easy(), out=tmp_path / "healthy").holds
    drawn = PatchAttention.__init__

    @functools.wraps(drawn)
    def one_is_wild(self, **arguments):
        drawn(self, **arguments)
        if self.value[1] < -0.005:  # seed 0's draw, not seed 1's
            self.value.data *= 1e9

    monkeypatch.setattr(PatchAttention, "__init__", one_is_wild)
    run = provenzoo.run(easy(), out=tmp_path / "wild")
    assert [list(entry["diverged"]) for entry in run.record["stages"]] == [["0"], ["0"]]
    values = run.metrics["pretrain[data.partition=local]"]["sign-error"]
    assert [value is None for value in values["per_seed"]] == [True, False] and values["mean"] is None
    assert not any(claim["holds"] for claim in run.claims)
    assert read_json(tmp_path / "wild" / "run.json")["status"] == "complete"


def test_where_every_seed_diverges_the_stage_fails(tmp_path):
    data = reduced("jelassi2022/realistic-16")
    data["stages"]["pretrain"] |= {"steps": 60, "optim": {"name": "sgd", "lr": 1e9}}
    with pytest.raises(ZooError, match=r"every seed diverged: seed 0 at step .*lower optim.lr"):
        provenzoo.run(data, out=tmp_path)


@pytest.mark.parametrize(
    "overrides, words",
    [
        (["stages.pretrain.data.q=1.2"], "stages.pretrain.*data.q: must be less than or equal to 1"),
        (["stages.pretrain.data.samples=0"], "data.samples: must be greater than or equal to 1"),
        (["stages.pretrain.data.set_size=40"], "sets of 40 patches, but there are only 36"),
        (["stages.pretrain.model.power=4"], "model.power: must be odd"),
    ],
)
def test_bad_settings_are_told_before_anything_trains(overrides, words, tmp_path):
    with pytest.raises(ZooError, match=words):
        provenzoo.run("jelassi2022/realistic", overrides, out=tmp_path)
    assert not Path(tmp_path / "stages").exists()
