"""Running: the run folder, skipping, exact resume, claims and exit codes, on a problem of seconds."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import provenzoo
from provenzoo import checkpoint, cli, plain, registry
from provenzoo.datasets.base import Split, SplitName
from provenzoo.datasets.gaussian_clusters import GaussianClusters
from provenzoo.errors import ZooError
from provenzoo.fetch import Checkpoint
from provenzoo.plain import dump_yaml, read_json
from provenzoo.stages.train import Still
from provenzoo.training import loop

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


IMAGES = {"name": "fashion-mnist-mini", "classes": [0, 1, 2], "samples": 10, "limit": 30}
SHORT = {"steps": 5, "batch": 10, "log_every": 2}


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


@pytest.fixture(autouse=True)
def _no_report(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the reference draws its report: the most of what a run of this size takes."""
    monkeypatch.setattr("provenzoo.report.report", lambda path: [])


def execute(*words: str | Path) -> int:
    """The exit code of a command line in this process; `capsys` has what it said."""
    return cli.execute([str(word) for word in words])


def in_child(work: Callable[[], Any]) -> int:
    """What became of a fork that did some work: 0, 1 for an error, minus the number of the signal that ended it."""
    if (child := os.fork()) == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


class Always:
    """In the place of `Every`: the state is saved at every step."""

    def __init__(self, seconds: float) -> None: ...

    def __call__(self) -> bool:
        return True

    def restart(self) -> None: ...


def killed(file: Path, out: Path, count: int, *, during: bool = False) -> int:
    """A run that saves at every step and kills itself after, or during, the write of the file of that number."""
    written = 0
    original = plain.write_whole

    def write(path: Path, content: bytes | str) -> None:
        nonlocal written
        written += 1
        if written == count and during:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}.part")
            beside.write_bytes((content.encode() if isinstance(content, str) else content)[:20])
            os.kill(os.getpid(), signal.SIGKILL)
        original(path, content)
        if written == count:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        for module in list(sys.modules.values()):
            if getattr(module, "write_whole", None) is original:
                module.write_whole = write  # pyright: ignore[reportAttributeAccessIssue]
        loop.Every = Always  # pyright: ignore[reportAttributeAccessIssue]
        provenzoo.run(file, out=out)

    return in_child(work)


def assert_same_run(mine: Path, theirs: Path) -> None:
    """Weights, series, metrics and claims are the same to the bit, and nothing else was left."""
    names = sorted(str(file.relative_to(theirs)) for file in theirs.glob("stages/*/*.safetensors"))
    assert names == sorted(str(file.relative_to(mine)) for file in mine.glob("stages/*/*.safetensors"))
    for name in names:
        assert same(*(checkpoint.load(run / name)[0] for run in (mine, theirs))), name
    records = [read_json(run / "run.json") for run in (mine, theirs)]
    for key in ("id", "status", "metrics", "claims"):
        assert records[0][key] == records[1][key]
    assert not [file for file in mine.rglob(".*") if file.suffix in (".part", ".state")]


@pytest.mark.parametrize(
    ("count", "during"), [(2, False), (11, False), (24, True), (44, False), (50, True), (63, False), (70, True)]
)
def test_killed_at_any_moment_and_run_again_the_run_is_that_of_an_uninterrupted_one(
    reference: Path, tmp_path: Path, count: int, during: bool
) -> None:
    file, run = recipe(tmp_path), tmp_path / "run"
    assert killed(file, run, count, during=during) == -signal.SIGKILL
    assert provenzoo.run(file, out=run).holds
    assert_same_run(run, reference)


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "vanilla ViT, attention frozen, paths dropped": {
        "train": SHORT | {"model": {"name": "vit-mini", "drop_path": 0.3}, "data": IMAGES},
        "tune": SHORT | {"freeze": ["attention"], "optim": {"name": "sgd", "momentum": 0.9, "weight_decay": 0.1}},
        "judge": {"sets": {"in": {}}},
    },
    "BatchNorm, augmented": {
        "train": SHORT | {"model": {"name": "small-cnn"}, "data": IMAGES | {"augment": {"flip": True, "crop": 2}}},
        "tune": SHORT | {"freeze": ["features"]},
        "judge": {"sets": {"in": {}}},
    },
    "seeds one after another": {
        "train": {"model": {"name": "mlp", "hidden": 700}, "batch": 2000, "steps": 5},
        "tune": {"batch": 2000, "steps": 5},
    },
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_draws_or_keeps_statistics_as_it_trains_resumes_exactly_too(
    tmp_path: Path, changes: dict[str, dict[str, Any]]
) -> None:
    file, run = recipe(tmp_path, **changes), tmp_path / "run"
    whole = provenzoo.run(file, out=tmp_path / "whole")
    for count in (11, 19):  # in `train`, then in `tune`
        assert killed(file, run, count) == -signal.SIGKILL
    assert provenzoo.run(file, out=run).record["claims"] == whole.claims
    assert_same_run(run, whole.path)


def test_while_it_runs_run_json_does_not_tell_of_an_earlier_run(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    assert killed(recipe(tmp_path, tune={"steps": 21}), run, 6) == -signal.SIGKILL
    record = read_json(run / "run.json")
    assert record["status"] == "running" and record["claims"] == []
    assert [stage["status"] for stage in record["stages"]] == ["complete", "waiting", "waiting"]
    assert record["finished"] is None


def test_killed_in_its_last_stage_run_json_tells_of_those_before(reference: Path, tmp_path: Path) -> None:
    from provenzoo.pipeline.folder import RunFolder

    file, run, start = recipe(tmp_path), tmp_path / "run", RunFolder.start

    def killed_at_judge(self: RunFolder, point: Any) -> None:
        start(self, point)
        if point.name == "judge":
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        RunFolder.start = killed_at_judge
        provenzoo.run(file, out=run)

    assert in_child(work) == -signal.SIGKILL
    record, whole = read_json(run / "run.json"), read_json(reference / "run.json")
    assert record["status"] == "running" and record["finished"] is None and whole["finished"]
    assert [stage["status"] for stage in record["stages"]] == ["complete", "complete", "waiting"]
    assert record["metrics"] == {where: whole["metrics"][where] for where in ("train", "tune")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    file, run = recipe(tmp_path, train={"steps": 300_000, "log_every": 300_000}), tmp_path / "run"
    code, errors = signalled(file, run, number, run / "stages/train/stage.json")
    assert code == 128 + number and "Traceback" not in errors and "run again to go on" in errors
    assert read_json(run / "run.json")["status"] == "interrupted"
    assert list((run / "stages/train").glob(".*.state")), "the state was saved"


def test_an_evaluation_stops_too(tmp_path: Path) -> None:
    sets = {f"set-{i}": {"data": {"test": 100_000, "noise": 1 + i / 100}} for i in range(100)}
    file, run = recipe(tmp_path, judge={"sets": sets}), tmp_path / "run"
    code, _ = signalled(file, run, signal.SIGTERM, run / "stages/judge/stage.json")
    assert code == 128 + signal.SIGTERM
    statuses = [stage["status"] for stage in read_json(run / "run.json")["stages"]]
    assert statuses == ["complete", "complete", "interrupted"]


def signalled(file: Path, out: Path, number: int, awaited: Path) -> tuple[int, str]:
    """Exit code and messages of a run that gets a signal a moment after a file is there."""
    errors = out.with_name("errors")
    if (child := os.fork()) == 0:
        os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        os._exit(execute("run", file, "--out", out))
    deadline = time.monotonic() + 60
    while not awaited.is_file() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errors.read_text()


# --- damage -------------------------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train/stage.json", cut),
        ("train/stage.json", lambda file: file.write_text("[]")),
        ("train/model.safetensors", cut),
        ("train/model.safetensors", flip),
        ("tune/config.json", Path.unlink),
        ("tune/series.safetensors", Path.unlink),
        ("judge/metrics.json", lambda file: file.write_text(file.read_text().replace("0.", "0.9"))),
    ],
)
def test_a_stage_with_a_damaged_file_is_done_again(
    reference: Path, tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    run = copied(reference, tmp_path)
    damage(run / "stages" / name)
    before = touched(run)
    provenzoo.run(recipe(tmp_path), out=run)
    assert [stage for stage, time in touched(run).items() if time != before[stage]] == [name.partition("/")[0]]
    assert_same_run(run, reference)


@pytest.mark.parametrize("damage", [cut, flip, lambda file: file.write_bytes(b"")])
def test_a_damaged_state_is_told_and_the_stage_starts_anew(
    reference: Path, tmp_path: Path, damage: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = recipe(tmp_path), tmp_path / "run"
    assert killed(file, run, 20) == -signal.SIGKILL
    [state] = (run / "stages/train").glob(".*.state")
    damage(state)
    provenzoo.run(file, out=run)
    assert f"{state}: damaged, so this part of train starts anew" in capsys.readouterr().err
    assert_same_run(run, reference)


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


# --- a checkpoint inside a component ------------------------------------------------------------------------------


class Teacher:
    """The first layer of a trained mlp."""

    def __init__(self, *, checkpoint: Checkpoint, seed: int = 0, layer: str = "body.0") -> None:
        self.weight = checkpoint.state(seed)[f"{layer}.weight"]


class Taught(GaussianClusters):
    """Clusters whose labels are a teacher's."""

    def __init__(self, *, teacher: Teacher, seed: int = 0, noise: float = 2.0) -> None:
        super().__init__(seed=seed, train=100, test=50, noise=noise)
        self.teacher = teacher

    def prepare(self, split: SplitName) -> Split:
        made = super().prepare(split)
        return Split(made.inputs, (made.inputs @ self.teacher.weight.T).argmax(-1) % 10)


TAUGHT: dict[str, Any] = {
    "recipe": "taught",
    "seeds": 2,
    "device": "cpu",
    "stages": {
        "teacher": RECIPE["stages"]["train"] | SHORT,
        "student": RECIPE["stages"]["train"]
        | SHORT
        | {"data": {"name": "taught", "teacher": {"name": "first-layer", "from": "teacher", "layer": "body.0"}}},
        "judge": {
            "stage": "evaluate",
            "from": "student",
            "metrics": ["accuracy"],
            "sets": {"in": {}, "noisy": {"data": {"noise": 5.0}}},
        },
    },
}


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    provenzoo.register("teachers", "first-layer")(Teacher)
    provenzoo.register("datasets", "taught")(Taught)


@pytest.mark.usefixtures("taught")
def test_data_with_a_trained_teacher_runs_resumes_and_verifies(tmp_path: Path) -> None:
    file, run = tmp_path / "taught.yaml", tmp_path / "run"
    file.write_text(dump_yaml(TAUGHT))
    whole = provenzoo.run(file, out=tmp_path / "whole").path
    assert killed(file, run, 20) == -signal.SIGKILL
    assert list((run / "stages/student").glob(".*.state")), "killed as the student trained"
    provenzoo.run(file, out=run)
    assert_same_run(run, whole)
    teacher = read_json(run / "stages/student/config.json")["data"]["teacher"]
    assert teacher == {"name": "first-layer", "from": "teacher", "layer": "body.0"}
    assert provenzoo.verify(run).holds and provenzoo.verify(run / "stages/judge").holds

    abroad = {"judge": TAUGHT["stages"]["judge"] | {"from": f"local:{run / 'stages' / 'student'}"}}
    with pytest.raises(ZooError, match=r"data\.teacher\.from: 'teacher' is a stage of the run that local:"):
        provenzoo.run(TAUGHT | {"stages": abroad}, out=tmp_path / "abroad")
    abroad["judge"] |= {"data": {"teacher": {"from": f"local:{run / 'stages' / 'teacher'}"}}}
    judged = provenzoo.run(TAUGHT | {"stages": abroad}, out=tmp_path / "abroad")
    assert judged.metrics["judge.in"] == read_json(run / "run.json")["metrics"]["judge.in"]


@pytest.mark.usefixtures("taught")
def test_outside_of_a_run_a_teacher_comes_from_a_folder(reference: Path) -> None:
    teacher = {"name": "first-layer", "from": f"local:{reference / 'stages' / 'train'}"}
    data: Any = provenzoo.create_dataset("taught", seed=1, teacher=teacher)
    assert torch.equal(data.teacher.weight, weights(reference)["body.0.weight"][1])


# --- verify -------------------------------------------------------------------------------------------------------


def test_verify_recomputes_every_number_of_a_run(reference: Path) -> None:
    found = provenzoo.verify(reference)
    assert found.holds
    assert {row.where for row in found.rows} == {"train", "tune", "judge.in", "judge.noisy", "claims"}
    assert [row.seed for row in found.rows if row.metric == "frozen-unchanged"] == [0, 1]


def edit(file: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


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
