"""Verify: every number again from what is saved; what was changed is found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_run import RECIPE, copied, edit, execute, recipe

import provenzoo
from provenzoo import checkpoint
from provenzoo.errors import ZooError
from provenzoo.pipeline.verify import agree, slack

pytestmark = pytest.mark.usefixtures("no_report")

# --- verify -------------------------------------------------------------------------------------------------------


def test_verify_recomputes_every_number_of_a_run(reference: Path) -> None:
    found = provenzoo.verify(reference)
    assert found.holds
    assert {row.where for row in found.rows} == {"train", "tune", "judge.in", "judge.noisy", "claims"}
    assert [row.seed for row in found.rows if row.metric == "frozen-unchanged"] == [0, 1]


@pytest.mark.parametrize(
    ("name", "change", "off"),
    [
        (
            "stages/train/metrics.json",
            lambda m: m["sets"][""]["values"]["accuracy"].__setitem__(1, 0.9),
            ("train", "accuracy", 1),
        ),
        (
            "stages/judge/metrics.json",
            lambda m: m["sets"]["in"]["values"]["accuracy"].__setitem__(0, 0.9),
            ("judge.in", "accuracy", 0),
        ),
        (
            "stages/judge/metrics.json",
            lambda m: m["sets"]["noisy"]["data"].update(noise=4.0),
            ("judge.noisy", "data-digest", 0),
        ),
        ("run.json", lambda r: r["metrics"]["train"]["accuracy"].update(mean=0.9), ("train", "accuracy (mean)", None)),
        ("run.json", lambda r: r["claims"][0].update(value=0.9), ("claims", "learns", None)),
    ],
)
def test_verify_finds_what_was_changed(
    reference: Path, tmp_path: Path, name: str, change: Callable[[Any], Any], off: tuple[str, str, int | None]
) -> None:
    run = copied(reference, tmp_path)
    edit(run / name, change)
    assert off in [(row.where, row.metric, row.seed) for row in provenzoo.verify(run).rows if not row.agrees]
    assert execute("verify", run) == 3


def test_verify_finds_a_frozen_parameter_that_moved(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    file = run / "stages/tune/model.safetensors"
    tensors, _ = checkpoint.load(file)
    tensors["body.0.weight"][1, 0, 0] += 1e-6
    checkpoint.save(file, tensors)
    edit(run / "stages/tune/config.json", lambda config: config.update(digest=checkpoint.digest(tensors)))
    off = {(row.metric, row.seed) for row in provenzoo.verify(run).rows if not row.agrees}
    assert ("frozen-unchanged", 1) in off and ("frozen-unchanged", 0) not in off


@pytest.mark.parametrize("stage", ["tune", "judge"])
def test_a_stages_folder_verifies_by_itself(reference: Path, stage: str) -> None:
    found = provenzoo.verify(reference / "stages" / stage)
    assert found.holds and {row.where.partition(".")[0] for row in found.rows} == {stage}


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"dtype": "float64"}, "judge": {"dtype": "float64"}},
        {"train": {"seeds": 1}},
        {"judge": {"from": None, "model": {"name": "mlp"}, "data": {"name": "gaussian-clusters"}}},
    ],
    ids=["float64", "a parent of one seed", "untrained"],
)
def test_every_kind_of_evaluation_verifies(tmp_path: Path, changes: dict[str, dict[str, Any]]) -> None:
    data = json.loads(json.dumps(RECIPE))
    for name, change in changes.items():
        data["stages"][name] = {key: v for key, v in (data["stages"][name] | change).items() if v is not None}
    assert provenzoo.verify(provenzoo.run(data, out=tmp_path / "run").path).holds


def test_a_class_that_a_set_lacks_is_null_alone_and_verifies(tmp_path: Path) -> None:
    file = recipe(tmp_path, train={"data": {"name": "gaussian-clusters", "train": 400, "test": 5}})
    done = provenzoo.run(file, out=tmp_path / "run")
    for values in done.metrics["train"]["class-accuracy"]["per_seed"]:
        assert values[5:] == [None] * 5 and all(value in (0.0, 1.0) for value in values[:5])
    assert provenzoo.verify(done.path).holds
    edit(
        done.path / "stages/train/metrics.json",
        lambda m: m["sets"][""]["values"]["class-accuracy"][0].__setitem__(7, 0.5),
    )
    off = [(row.where, row.metric, row.seed) for row in provenzoo.verify(done.path).rows if not row.agrees]
    assert ("train", "class-accuracy", 0) in off and ("train", "class-accuracy", 1) not in off


def test_verify_refuses_weights_that_were_changed(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    file = run / "stages/tune/model.safetensors"
    tensors, metadata = checkpoint.load(file)
    tensors["head.bias"] += 1e-6
    checkpoint.save(file, tensors, metadata)
    with pytest.raises(ZooError, match="not the tensors that were saved"):
        provenzoo.verify(run)


@pytest.mark.parametrize(
    ("metric", "n", "dtype", "least", "most"),
    [
        ("accuracy", 9_999, "float32", 0.0, 0.0),
        ("accuracy", 10_000, "float32", 1e-4, 1e-4),
        ("labelling-error", 25_000, "float32", 2 / 25_000, 2 / 25_000),
        ("class-accuracy", 10_000, "float32", 0.0, 0.0),
        ("loss", 10, "float32", 1e-7, 1e-5),
        ("loss", 10, "float64", 1e-13, 1e-11),
    ],
)
def test_what_another_cpu_may_change_is_a_share_in_ten_thousand_or_rounding(
    metric: str, n: int, dtype: str, least: float, most: float
) -> None:
    allowed = slack(metric, {"n": n, "dtype": dtype})
    assert least <= allowed <= most
    assert agree(0.5, 0.5 + allowed, 0.0, allowed) and not agree(0.5, 0.5 + allowed + 1e-4, 0.0, allowed)
