"""What ships: the recipes plan, the quickstart's claims hold, every checkpoint loads by name and verifies."""

from pathlib import Path

import pytest
import torch

import provenzoo
from provenzoo import registry
from provenzoo.pipeline.plan import prepare
from provenzoo.plain import read_yaml


@pytest.mark.parametrize("name", provenzoo.list_names("recipes"))
def test_every_recipe_composes_and_plans(name: str) -> None:
    _, plan = prepare(name)
    assert plan.points and plan.recipe.about


def test_the_quickstart_reduced_runs_to_a_report(tmp_path: Path) -> None:
    small = ["seeds=1", "stages.pretrain.epochs=1", "stages.finetune.steps=4"]
    done = provenzoo.run("quickstart", small, out=tmp_path / "run")
    assert done.record["status"] == "complete" and len(done.claims) == 8
    exact = {claim["id"]: claim["holds"] for claim in done.claims}
    assert exact["attention-frozen"] and exact["permuted-encodings-restore"] and exact["encodings-start-random"]


@pytest.mark.slow
def test_every_claim_of_the_quickstart_holds(tmp_path: Path) -> None:
    done = provenzoo.run("quickstart", ["device=cpu"], out=tmp_path / "run")
    assert [claim["id"] for claim in done.claims if not claim["holds"]] == []


@pytest.mark.parametrize("name", provenzoo.list_names("checkpoints"))
def test_a_shipped_checkpoint_loads_by_name_and_every_number_on_it_verifies(name: str) -> None:
    model = provenzoo.load(name)
    assert not model.training and model.provenance["reference"] == name
    found = provenzoo.verify(name)
    assert found.holds and len(found.rows) > 1, [row for row in found.rows if not row.agrees]
    assert read_yaml(registry.entry("checkpoints", name).file)["license"]


def test_the_shipped_quickstart_sees_permuted_images_as_they_were_once_its_encodings_are_permuted() -> None:
    permute = {"cell": 4, "draw": 7}
    data = provenzoo.load("positional-vit-mini.quickstart").provenance["data"]
    straight = provenzoo.create_dataset(**data).test.inputs
    permuted = provenzoo.create_dataset(**data, permute=permute).test.inputs
    with torch.inference_mode():
        expected = provenzoo.load("positional-vit-mini.quickstart")(straight)
        adapted = provenzoo.load("positional-vit-mini.quickstart", permute=permute)(permuted)
    torch.testing.assert_close(adapted, expected, rtol=1e-4, atol=1e-4)
