"""Running: the run folder, skipping, exact resume, claims and exit codes, on a problem of seconds."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import provenzoo
from provenzoo import checkpoint
from provenzoo.errors import ZooError
from provenzoo.plain import dump_yaml, read_json

RECIPE: dict[str, Any] = {
    "recipe": "small",
    "seeds": 2,
    "device": "cpu",
    "stages": {
        "train": {
            "stage": "pretrain",
            "model": {"name": "mlp", "hidden": 16},
            "data": {"name": "gaussian-clusters", "train": 400, "test": 203},
            "optim": {"name": "adamw", "lr": 0.01, "schedule": {"name": "cosine", "warmup": 0.1}, "clip": 1.0},
            "steps": 40,
            "batch": 32,
            "metrics": ["loss", "accuracy", "class-accuracy"],
            "log_every": 20,
        },
        "tune": {
            "stage": "finetune",
            "from": "train",
            "reset": ["head"],
            "freeze": ["body"],
            "steps": 20,
            "metrics": ["loss", "accuracy"],
        },
        "judge": {
            "stage": "evaluate",
            "from": "tune",
            "metrics": ["accuracy"],
            "sets": {"in": {}, "noisy": {"data": {"noise": 5.0}}},
        },
    },
    "claims": {
        "learns": {"says": "it learns", "metric": "train.accuracy", "over": "all", "holds": ">= 0.5"},
        "frozen": {"says": "the body is frozen", "metric": "tune.frozen-unchanged", "holds": "== 1"},
    },
}


def recipe(tmp_path: Path, **stages: dict[str, Any]) -> Path:
    """The recipe with some settings changed, as a file."""
    data = json.loads(json.dumps(RECIPE))
    for name, change in stages.items():
        data["stages"][name] |= change
    file = tmp_path / "small.yaml"
    file.write_text(dump_yaml(data))
    return file


def weights(run: Path, stage: str = "train") -> dict[str, torch.Tensor]:
    return checkpoint.load(run / "stages" / stage / "model.safetensors")[0]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("reference")
    return provenzoo.run(recipe(folder), out=folder / "run").path


def command(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "provenzoo", *map(str, words)], capture_output=True, text=True, **options
    )


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


def test_every_evaluated_set_keeps_the_digest_of_its_data(reference: Path) -> None:
    sets = read_json(reference / "stages/judge/metrics.json")["sets"]
    digests = sets["in"]["digests"] + sets["noisy"]["digests"]
    assert len(set(digests)) == 4 and all(len(digest) == 64 for digest in digests)


def test_a_trained_stage_loads_by_its_folder(reference: Path) -> None:
    model = provenzoo.load(f"local:{reference / 'stages' / 'tune'}", seed=1)
    assert torch.equal(model.state_dict()["head.weight"], weights(reference, "tune")["head.weight"][1])


# --- again --------------------------------------------------------------------------------------------------------


def copied(reference: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference, tmp_path / "run"))


def touched(run: Path) -> dict[str, int]:
    return {stage: (run / "stages" / stage / "stage.json").stat().st_mtime_ns for stage in ("train", "tune", "judge")}


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


# --- interrupted --------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from provenzoo import plain
from provenzoo.pipeline.run import run

count, kind = int(sys.argv[3]), sys.argv[4]
written = 0
original = plain.write_whole

def write(path, content):
    global written
    written += 1
    if written == count and kind == "during":
        with open(str(path) + ".part", "wb") as file:
            file.write((content if isinstance(content, bytes) else content.encode())[:20])
        os.kill(os.getpid(), signal.SIGKILL)
    original(path, content)
    if written == count:
        os.kill(os.getpid(), signal.SIGKILL)

import provenzoo.training.loop as loop

for module in list(sys.modules.values()):
    if getattr(module, "write_whole", None) is original:
        module.write_whole = write


class Always:
    # the state is saved at every step
    def __init__(self, seconds): ...
    def __call__(self): return True
    def restart(self): ...


loop.Every = Always
run(sys.argv[1], out=sys.argv[2])
"""


@pytest.mark.parametrize(
    ("count", "kind"), [(2, "after"), (11, "after"), (24, "during"), (46, "after"), (60, "during")]
)
def test_killed_at_any_moment_and_run_again_the_weights_are_those_of_an_uninterrupted_run(
    reference: Path, tmp_path: Path, count: int, kind: str
) -> None:
    file, run = recipe(tmp_path), tmp_path / "run"
    killed = subprocess.run([sys.executable, "-c", KILLED, file, run, str(count), kind], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert provenzoo.run(file, out=run).holds
    for stage in ("train", "tune"):
        assert same(weights(run, stage), weights(reference, stage))
    mine, theirs = (read_json(folder / "run.json") for folder in (run, reference))
    assert mine["metrics"] == theirs["metrics"] and mine["claims"] == theirs["claims"]
    series = [checkpoint.load(folder / "stages/train/series.safetensors")[0] for folder in (run, reference)]
    assert same(*series)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    file = recipe(tmp_path, train={"steps": 30_000, "log_every": 30_000})
    words = [sys.executable, "-m", "provenzoo", "run", str(file), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    stage = tmp_path / "run/stages/train/stage.json"
    deadline = time.monotonic() + 60
    while not stage.is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors and "run again to go on" in errors
    assert read_json(tmp_path / "run/run.json")["status"] == "interrupted"
    states = list((tmp_path / "run/stages/train").glob(".*.state"))
    assert states, "the state was saved"


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
    assert (tmp_path / "photos" / "cat.png").exists()


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


def test_exit_codes_and_one_json_document(reference: Path, tmp_path: Path) -> None:
    run, file = copied(reference, tmp_path), recipe(tmp_path)
    good = command("run", file, "--out", run, "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["status"] == "complete"
    short = command("run", file, "claims.learns.holds=>= 0.999", "--out", run)
    assert short.returncode == 3 and "FALLS SHORT" in short.stdout
    wrong = command("run", file, "lr=fast")
    assert wrong.returncode == 2 and wrong.stdout == "" and wrong.stderr.count("\n") <= 2 and "optim.lr" in wrong.stderr
    broken = command("run", tmp_path / "none.yaml")
    assert broken.returncode == 1 and "none.yaml" in broken.stderr and "Traceback" not in broken.stderr


def test_config_prints_what_runs(tmp_path: Path) -> None:
    from provenzoo.plain import parse_yaml

    shown = command("config", recipe(tmp_path), "note=50% a@b|c#d 中文")
    assert parse_yaml(shown.stdout, "shown")["note"] == "50% a@b|c#d 中文" and "3 points" in shown.stderr


def test_no_cuda_is_told_before_anything_is_written(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ZooError, match="this machine has no cuda that torch can use; take device=cpu"):
        provenzoo.run(RECIPE, ["device=cuda"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- verify -------------------------------------------------------------------------------------------------------


def test_verify_recomputes_every_number_of_a_run(reference: Path) -> None:
    found = provenzoo.verify(reference)
    assert found.holds and {row.where for row in found.rows} == {"train", "tune", "judge.in", "judge.noisy"}


@pytest.mark.parametrize("stage", ["train", "judge"])
def test_verify_finds_a_number_that_was_changed(reference: Path, tmp_path: Path, stage: str) -> None:
    run = copied(reference, tmp_path)
    file = run / "stages" / stage / "metrics.json"
    data = json.loads(file.read_text())
    next(iter(data["sets"].values()))["values"]["accuracy"][1] += 1 / 203
    file.write_text(json.dumps(data))
    off = [row for row in provenzoo.verify(run).rows if not row.agrees]
    assert [(row.metric, row.seed) for row in off] == [("accuracy", 1)]
    assert command("verify", run).returncode == 3


def test_verify_refuses_weights_that_were_changed(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    file = run / "stages/tune/model.safetensors"
    tensors, metadata = checkpoint.load(file)
    tensors["head.bias"] += 1e-6
    checkpoint.save(file, tensors, metadata)
    with pytest.raises(ZooError, match="not the tensors that were saved"):
        provenzoo.verify(run)
