"""Running: what a run leaves, skipping, the folder, divergence, exit codes, on a problem of seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import IMAGES, RECIPE, SHORT, copied, execute, recipe, same, touched, weights

import provenzoo
from provenzoo import checkpoint, plain
from provenzoo.errors import ZooError
from provenzoo.plain import read_json
from provenzoo.training import loop
from provenzoo.training.frozen import Still

pytestmark = pytest.mark.usefixtures("no_report")

# --- what a run leaves --------------------------------------------------------------------------------------------


def test_a_run_leaves_what_the_contract_names(reference: Path) -> None:
    assert {"config.yaml", "run.json", "report.html", "README.md", "stages"} <= {p.name for p in reference.iterdir()}
    for stage in ("train", "tune"):
        names = {p.name for p in (reference / "stages" / stage).iterdir()}
        assert {"model.safetensors", "config.json", "metrics.json", "series.safetensors", "stage.json"} <= names
        assert not [name for name in names if name.endswith((".state", ".part"))]


def test_run_json_is_the_contract_for_scripts(reference: Path) -> None:
    record = read_json(reference / "run.json")
    assert record["status"] == "complete" and record["recipe"] == "small"
    assert [stage["name"] for stage in record["stages"]] == ["train", "tune", "judge"]
    assert [stage["frozen_unchanged"] for stage in record["stages"]] == [None, True, None]
    accuracy = record["metrics"]["train"]["accuracy"]
    assert accuracy["n"] == 203 and len(accuracy["per_seed"]) == 2
    assert accuracy["mean"] == pytest.approx(sum(accuracy["per_seed"]) / 2)
    assert accuracy["std"] == pytest.approx(abs(accuracy["per_seed"][0] - accuracy["per_seed"][1]) / 2**0.5)
    assert record["metrics"]["judge.noisy"]["accuracy"]["mean"] < record["metrics"]["judge.in"]["accuracy"]["mean"]
    assert [claim["id"] for claim in record["claims"]] == ["learns", "frozen"] and all(
        c["holds"] for c in record["claims"]
    )
    assert all(len(values) == 10 for values in record["metrics"]["train"]["class-accuracy"]["per_seed"])


def test_counts_are_exact_for_an_odd_set(reference: Path) -> None:
    for value in read_json(reference / "run.json")["metrics"]["judge.in"]["accuracy"]["per_seed"]:
        assert value * 203 == pytest.approx(round(value * 203), abs=1e-9)


def test_files_always_have_a_leading_replica_dimension_and_series_hold_every_step(reference: Path) -> None:
    assert all(tensor.shape[0] == 2 for tensor in weights(reference).values())
    series, _ = checkpoint.load(reference / "stages" / "train" / "series.safetensors")
    assert series["train-loss"].shape == (2, 40) and series["structure/centres"].shape == (2, 10, 32)
    assert read_json(reference / "stages/train/metrics.json")["series"]["steps"] == [0, 20, 40]


def test_the_frozen_group_is_the_checkpoints_and_the_reset_one_is_not(reference: Path) -> None:
    before, after = weights(reference), weights(reference, "tune")
    assert torch.equal(before["body.0.weight"], after["body.0.weight"])
    assert not torch.equal(before["head.weight"], after["head.weight"])


def test_frozen_unchanged_is_false_and_its_claim_falls_short_where_something_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "freeze", lambda model, names: None)
    done = provenzoo.run(recipe(tmp_path), out=tmp_path / "run")
    assert done.record["stages"][1]["frozen_unchanged"] is False
    assert [(claim["id"], claim["holds"]) for claim in done.claims] == [("learns", True), ("frozen", False)]


@pytest.mark.parametrize("affine", [True, False])
def test_a_statistic_that_moves_in_a_frozen_part_is_seen(affine: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, affine=affine)), torch.nn.Linear(4, 2)
    )
    still = Still(model, [name for name, _ in model.named_parameters() if name.startswith("0.")])
    assert still.unchanged()
    model(torch.randn(8, 4))
    assert not still.unchanged()


@pytest.mark.parametrize(
    "optim", [{"name": "adamw", "weight_decay": 0.3}, {"name": "sgd", "momentum": 0.9, "weight_decay": 0.3}]
)
def test_frozen_attention_of_a_vanilla_vit_keeps_q_and_k_and_moves_v(tmp_path: Path, optim: dict[str, Any]) -> None:
    train = SHORT | {"model": {"name": "vit-mini"}, "data": IMAGES}
    tune = SHORT | {"freeze": ["attention"], "optim": optim}
    done = provenzoo.run(recipe(tmp_path, train=train, tune=tune, judge={"sets": {"in": {}}}), out=tmp_path / "run")
    before, after = weights(done.path), weights(done.path, "tune")
    timms = provenzoo.create_model("vit-mini", image_size=28, channels=1, num_classes=3).state_dict()
    assert before.keys() == after.keys() == timms.keys() and done.record["stages"][1]["frozen_unchanged"]
    for name in (name for name in timms if ".qkv." in name):
        third = len(timms[name]) // 3
        assert torch.equal(before[name][:, : 2 * third], after[name][:, : 2 * third])
        assert (before[name][:, 2 * third :] != after[name][:, 2 * third :]).any()


def test_every_evaluated_set_keeps_the_digest_of_its_data(reference: Path) -> None:
    sets = read_json(reference / "stages/judge/metrics.json")["sets"]
    digests = sets["in"]["digests"] + sets["noisy"]["digests"]
    assert len(set(digests)) == 4 and all(len(digest) == 64 for digest in digests)


def test_a_trained_stage_loads_by_its_folder(reference: Path) -> None:
    model = provenzoo.load(f"local:{reference / 'stages' / 'tune'}", seed=1)
    assert torch.equal(model.state_dict()["head.weight"], weights(reference, "tune")["head.weight"][1])


# --- again --------------------------------------------------------------------------------------------------------


def test_running_again_skips_what_is_complete(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    before = touched(run)
    again = provenzoo.run(recipe(tmp_path), out=run)
    assert touched(run) == before and again.holds


def test_editing_a_claim_retrains_nothing_and_judges_anew(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    before = touched(run)
    again = provenzoo.run(recipe(tmp_path), ["claims.learns.holds=>= 0.999"], out=run)
    assert touched(run) == before and not again.holds


def test_a_change_reruns_only_what_depends_on_it(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    before = touched(run)
    provenzoo.run(recipe(tmp_path), ["stages.tune.steps=21"], out=run)
    after = touched(run)
    assert after["train"] == before["train"] and after["tune"] != before["tune"] and after["judge"] != before["judge"]


def test_fresh_drops_what_was_there(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    before = touched(run)
    provenzoo.run(recipe(tmp_path), out=run, fresh=True)
    assert all(touched(run)[stage] > before[stage] for stage in before) and same(weights(run), weights(reference))


def test_the_saved_config_gives_the_same_run(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    again = provenzoo.run(reference / "config.yaml")
    assert again.record["id"] == read_json(reference / "run.json")["id"]
    assert again.path == Path("runs") / "small" / again.record["id"]
    assert same(weights(again.path), weights(reference)) and same(
        weights(again.path, "tune"), weights(reference, "tune")
    )
    assert Path.cwd() == tmp_path


def test_a_seed_alone_is_the_seed_among_others(tmp_path: Path) -> None:
    settings = {
        "model": {"name": "small-cnn"},
        "data": {"name": "fashion-mnist-mini", "limit": 60},
        "steps": 5,
        "batch": 20,
    }
    stage = {k: v for k, v in RECIPE["stages"]["train"].items() if k != "log_every"} | settings
    runs = [
        provenzoo.run(
            {"recipe": "seeds", "seeds": n, "device": "cpu", "stages": {"train": stage}}, out=tmp_path / str(n)
        ).path
        for n in (1, 3)
    ]
    alone, among = (weights(run) for run in runs)
    assert all(torch.equal(alone[name][0], among[name][0]) for name in alone)


# --- the folder ---------------------------------------------------------------------------------------------------


def test_a_locked_folder_is_refused(reference: Path, tmp_path: Path) -> None:
    from provenzoo.pipeline.folder import RunFolder

    run = copied(reference, tmp_path)
    with RunFolder(run).locked(), pytest.raises(ZooError, match=rf"another run \(process {os.getpid()}\) is writing"):
        provenzoo.run(recipe(tmp_path), out=run)


def test_a_folder_of_another_recipe_or_of_other_things_is_refused(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    with pytest.raises(ZooError, match="holds a run of 'small', not of 'other'"):
        provenzoo.run(RECIPE | {"recipe": "other"}, out=run)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("x")
    with pytest.raises(ZooError, match=r"is no run folder \(it holds 'cat\.png'\)"):
        provenzoo.run(RECIPE, out=tmp_path / "photos", fresh=True)
    assert [file.name for file in (tmp_path / "photos").iterdir()] == ["cat.png"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ZooError, match=r"file/run: cannot be written .* --out"):
        provenzoo.run(RECIPE, out=tmp_path / "file" / "run")


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 4:
            raise OSError(28, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ZooError, match="No space left on device"):
            provenzoo.run(recipe(tmp_path), out=tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.part"))
    assert provenzoo.run(recipe(tmp_path), out=tmp_path / "run").holds
    assert same(weights(tmp_path / "run", "tune"), weights(reference, "tune"))


# --- divergence ---------------------------------------------------------------------------------------------------


def test_a_stage_whose_every_seed_diverges_fails_and_names_step_and_parameter(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"train: every seed diverged: seed 0 at step \d+ \(\S+\)"):
        provenzoo.run(recipe(tmp_path), ["stages.train.optim={name: sgd, lr: 1e20}"], out=tmp_path / "run")
    assert read_json(tmp_path / "run/run.json")["status"] == "failed"


def test_one_seeds_divergence_is_null_for_it_leaves_the_others_and_no_claim_passes(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from provenzoo.stages import train as stage

    original = stage._Stage.fresh

    def poisoned(self: Any, seed: int) -> Any:
        model, filled = original(self, seed)
        if seed == 1:
            with torch.no_grad():
                model.body[0].weight[0, 0] = float("inf")
        return model, filled

    monkeypatch.setattr(stage._Stage, "fresh", poisoned)
    done = provenzoo.run(recipe(tmp_path), out=tmp_path / "run")
    accuracy = done.metrics["train"]["accuracy"]
    assert accuracy["per_seed"][1] is None and accuracy["mean"] is None and accuracy["max"] is None
    assert accuracy["per_seed"][0] == read_json(reference / "run.json")["metrics"]["train"]["accuracy"]["per_seed"][0]
    learns = next(claim for claim in done.claims if claim["id"] == "learns")
    assert learns["value"] is None and not learns["holds"] and "seed 1" in learns["at"]
    assert done.record["stages"][0]["diverged"]["1"]["parameter"] == "body.0.weight"


# --- the command --------------------------------------------------------------------------------------------------


def test_exit_codes(reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = copied(reference, tmp_path), recipe(tmp_path)
    assert execute("run", file, "claims.learns.holds=>= 0.999", "--out", run) == 3
    assert "FALLS SHORT" in capsys.readouterr().out
    assert execute("run", file, "lr=fast") == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") <= 2 and "optim.lr" in said.err
    assert execute("run", tmp_path / "none.yaml") == 1
    assert "none.yaml" in capsys.readouterr().err


def test_json_is_one_document_and_nothing_else_on_standard_output(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    short = ["run", recipe(tmp_path), "claims.learns.holds=>= 0.999", "stages.judge.sets.noisy.data.noise=4.0"]
    words = [sys.executable, "-m", "provenzoo", *map(str, short), "--out", str(run), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 3 and json.loads(done.stdout)["claims"][0]["holds"] is False
    assert "judge: done in" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["verify"], ["report"], ["run", "FILE", "--out"]])
def test_every_command_answers_in_json(
    reference: Path, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(recipe(tmp_path)) if word == "FILE" else word for word in words]
    assert execute(*words, copied(reference, tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out) is not None


def test_config_prints_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute("config", recipe(tmp_path), "note=50% a@b|c#d 中文") == 0
    shown = capsys.readouterr()
    assert plain.parse_yaml(shown.out, "shown")["note"] == "50% a@b|c#d 中文" and "3 points" in shown.err


def test_no_cuda_is_told_before_anything_is_written(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ZooError, match="this machine has no cuda that torch can use; take device=cpu"):
        provenzoo.run(RECIPE, ["device=cuda"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
