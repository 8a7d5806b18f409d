"""What does not fit is told before anything runs."""

import re
from pathlib import Path
from typing import Any

import pytest
from small_run import IMAGES, copied, recipe, touched

import provenzoo
from provenzoo.errors import ZooError

pytestmark = pytest.mark.usefixtures("no_report")

# --- before anything runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "tune", "message"),
    [
        ("mlp", {"freeze": ["body", "nothing"]}, "no group 'nothing'; there are: body, head"),
        (
            "mlp",
            {"freeze": ["body.9.*"]},
            "tune: no parameters in a group 'body.9.*'; the model's groups are: body, head",
        ),
        ("mlp", {"freeze": ["*"]}, "tune: everything is frozen, so there is nothing to train"),
        (
            "mlp",
            {"reset": [], "data": {"num_classes": 4}},
            "tune: the checkpoint does not fit at head.weight and 1 more; `reset`",
        ),
        (
            "mlp",
            {"optim": {"groups": {"head": {"lr": 0.1}, "head.*": {"lr": 0.1}}}},
            "head.weight is in both 'head' and",
        ),
        (
            "timm/vit_tiny_patch16_224",
            {"freeze": ["attn"]},
            "tune: no parameters in a group 'attn'; the model's groups are: attention, value",
        ),
        (
            "timm/resnet18",
            {"freeze": ["heads"]},
            "tune: no parameters in a group 'heads'; the model's groups are: head, body",
        ),
    ],
)
def test_what_only_a_built_model_can_tell_is_told_before_anything_runs(
    tmp_path: Path, model: str, tune: dict[str, Any], message: str
) -> None:
    train = {} if model == "mlp" else {"model": {"name": model}, "data": IMAGES | {"size": 32}}
    with pytest.raises(ZooError, match=re.escape(message)):
        provenzoo.run(recipe(tmp_path, train=train, tune=tune, judge={"sets": {"in": {}}}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_set_of_another_shape_than_the_model_is_told_before_anything_runs(tmp_path: Path) -> None:
    file = recipe(tmp_path, judge={"sets": {"in": {}, "more": {"data": {"num_classes": 12}}}})
    with pytest.raises(ZooError, match=r"judge: sets\.more: the model has num_classes 10, the data 12"):
        provenzoo.run(file, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


MISFITS = [
    (
        {"tune": {"reset": [], "data": {"num_classes": 4}}},
        "tune: the checkpoint does not fit at head.weight and 1 more",
    ),
    ({"judge": {"sets": {"in": {"data": {"features": 7}}}}}, "judge: sets.in: the model has features 32, the data 7"),
]


@pytest.mark.parametrize(("changes", "message"), MISFITS)
def test_what_does_not_fit_a_complete_parent_is_told_before_anything_runs(
    reference: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run = copied(reference, tmp_path)
    before = touched(run)
    with pytest.raises(ZooError, match=re.escape(message)):
        provenzoo.run(recipe(tmp_path, **changes), out=run)
    assert touched(run) == before


@pytest.mark.parametrize(("changes", "message"), MISFITS)
def test_what_does_not_fit_a_checkpoint_elsewhere_is_told_before_anything_runs(
    reference: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    [(stage, change)] = changes.items()
    changes = {stage: {**change, "from": f"local:{reference / 'stages' / 'train'}"}}
    with pytest.raises(ZooError, match=re.escape(message)):
        provenzoo.run(recipe(tmp_path, **changes), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
