"""The command: what each bad input gets, one JSON document with `--json`, and running all that a pattern names."""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from provenzoo import cli
from provenzoo.pipeline.select import run_matching
from provenzoo.plain import dump_yaml

TRAIN: dict[str, Any] = {
    "stage": "pretrain",
    "model": {"name": "mlp", "hidden": 4},
    "data": {"name": "gaussian-clusters", "train": 64, "test": 32},
    "optim": {"name": "adamw", "lr": 0.01},
    "steps": 2,
    "batch": 16,
    "metrics": ["loss", "accuracy"],
}
SMALL: dict[str, Any] = {"recipe": "small", "device": "cpu", "stages": {"train": TRAIN}}
JUDGE = {"stage": "evaluate", "metrics": ["accuracy"]}
IMAGES: dict[str, Any] = {**TRAIN, "model": {"name": "vit-mini"}, "data": {"name": "fashion-mnist-mini"}}
TUNE = {"stage": "finetune", "from": "train", "steps": 2, "metrics": ["loss"]}
FILES: dict[str, str] = {
    "small.yaml": dump_yaml(SMALL),
    "images.yaml": dump_yaml({"recipe": "images", "device": "cpu", "stages": {"train": IMAGES, "tune": TUNE}}),
    "misspelt.yaml": dump_yaml({**SMALL, "stages": {"train": {**TRAIN, "bach": 3}}}),
    "misspelt-top.yaml": dump_yaml({**SMALL, "sedes": 3}),
    "itself.yaml": "extends: itself.yaml\n",
    "circle.yaml": dump_yaml({**SMALL, "stages": {"a": {**JUDGE, "from": "b"}, "b": {**JUDGE, "from": "a"}}}),
    "twice.yaml": "seeds: 1\nseeds: 2\n",
    "empty.yaml": "",
    "list.yaml": "- seeds\n- stages\n",
    "another/config.yaml": dump_yaml({**SMALL, "recipe": "other"}),
    "things/thesis.tex": "",
    "locked/.lock": "",
}

# The words after `provenzoo`, the exit code, and a piece of what standard error says.
BAD: list[tuple[str, int, str]] = [
    ("run quikstart", 2, "did you mean 'quickstart'?"),
    ("run none.yaml", 1, "none.yaml: cannot be read"),
    ("run nosuch/*", 2, "no recipe matches 'nosuch/*'"),
    ("run small.yaml stages.train.model.name=mpl", 2, "no model 'mpl'; did you mean 'mlp'?"),
    ("run small.yaml stages.train.data.name=mnits", 2, "did you mean 'mnist'?"),
    ("run small.yaml stages.train.stage=pretrian", 2, "did you mean 'pretrain'?"),
    ("run small.yaml stages.trian.steps=3", 2, "no stage 'trian'; did you mean 'train'?"),
    ("run small.yaml stages.train.metrics=[acuracy]", 2, "no metric 'acuracy'; did you mean 'accuracy'"),
    ("run small.yaml stages.train.bach=3", 2, "unknown key 'bach'; did you mean 'batch'?"),
    ("run small.yaml sedes=3", 2, "did you mean 'seeds'?"),
    ("run small.yaml stages.train.model.hiden=3", 2, "no argument 'hiden'; did you mean 'hidden'?"),
    ("run misspelt.yaml", 1, "unknown key 'bach'; did you mean 'batch'?"),
    ("run misspelt-top.yaml", 1, "unknown key 'sedes'; did you mean 'seeds'?"),
    ("run small.yaml lr=fast", 2, "did you mean 'stages.train.optim.lr'?"),
    ("run small.yaml stages.train.optim.lr=fast", 2, "stages.train.optim.lr: must be a number (it is 'fast')"),
    ("run small.yaml stages.train.epochs=true", 2, "stages.train.epochs: must be a whole number"),
    ("run small.yaml seeds=0", 2, "seeds: must be greater than or equal to 1 (it is 0)"),
    ("run small.yaml seeds=-1", 2, "seeds: must be greater than or equal to 1 (it is -1)"),
    ("run small.yaml seeds=1e99", 2, "seeds: must be a whole number"),
    ("run small.yaml seeds", 2, "an override is path=value"),
    ("run itself.yaml", 1, "extends goes in a circle: itself.yaml -> itself.yaml"),
    ("run circle.yaml", 1, "stages.a: comes from itself: a -> b -> a"),
    ("run twice.yaml", 1, "twice.yaml, line 2: the key 'seeds' is there twice"),
    ("run empty.yaml", 1, "empty.yaml: holds nothing; a mapping"),
    ("run list.yaml", 1, "list.yaml: holds a list; a mapping"),
    ("run images.yaml stages.tune.freeze=[nothing]", 2, "no group 'nothing'; there are: attention, "),
    ("run images.yaml stages.tune.freeze=['*']", 1, "tune: everything is frozen"),
    ("run images.yaml stages.train.data.classes=[0,12]", 1, "the set has no class 12; it has 0 T-shirt/top"),
    ("run images.yaml stages.train.data.samples=5000", 1, "has 200 training images"),
    ("run images.yaml stages.train.model.patch=5", 1, "patches of 5 do not tile an image of 28"),
    ("run small.yaml --out locked", 1, "is writing this folder"),
    ("run small.yaml --out small.yaml/run", 1, "cannot be written (Not a directory); name another folder with --out"),
    ("run small.yaml --out another", 1, "holds a run of 'other', not of 'small'"),
    ("run small.yaml --out things", 1, "it holds 'thesis.tex'"),
    ("run small.yaml device=tpu", 2, "device: must be 'auto', 'cpu'"),
    ("run small.yaml device=cuda", 2, "this machine has no cuda that torch can use"),
    ("config quikstart", 2, "did you mean 'quickstart'?"),
    ("info vti", 2, "did you mean 'vit'?"),
    ("list model", 2, "no kind 'model'; did you mean 'models'?"),
    ("verify nowhere", 2, "no checkpoint 'nowhere'"),
    ("report .", 1, "no run there"),
    ("frobnicate", 2, "No such command 'frobnicate'"),
    ("run", 2, "Missing argument 'RECIPE'"),
    ("run small.yaml --quickly", 2, "--quickly"),
    ("run small.yaml --jobs 2", 2, "--jobs is for a pattern of recipes"),
    ("run small.yaml card=crad", 2, "no template 'crad'; did you mean 'card'?"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that holds FILES."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("words", "code", "piece"), BAD, ids=[words for words, *_ in BAD])
def test_bad_input_gets_one_or_two_lines_and_leaves_nothing_behind(words, code, piece, folder, capsys):
    if "device=cuda" in words and torch.cuda.is_available():
        pytest.skip("CUDA is here")
    before = sorted(folder.rglob("*"))
    with (folder / "locked" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.execute(words.split()) == code
    said = capsys.readouterr()
    assert piece in said.err and said.err.startswith("error: ")
    assert len(said.err.splitlines()) <= 2 and said.out == ""
    assert sorted(folder.rglob("*")) == before


def test_a_traceback_is_shown_only_with_debug(folder, capsys):
    with pytest.raises(Exception, match="quickstart"):
        cli.execute(["--debug", "run", "quikstart"])
    assert cli.execute(["run", "quikstart"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_of_our_own_is_one_line_too(folder, capsys, monkeypatch):
    monkeypatch.setattr("provenzoo.registry.list_names", lambda *_: 1 / 0)
    assert cli.execute(["list", "models"]) == 1
    assert capsys.readouterr().err.startswith("error: ZeroDivisionError: division by zero (a fault of provenzoo;")


# --- what is asked for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["list", "list models", "list models vit-*", "info vit", "info quickstart", "config small.yaml"]
)
def test_json_is_one_document_and_nothing_else(words, folder, capsys):
    assert cli.execute([*words.split(), "--json"]) == 0
    json.loads(capsys.readouterr().out)


def test_lists_are_plain_with_the_name_first(capsys):
    assert cli.execute(["list", "models", "vit-[ms]*"]) == 0
    assert capsys.readouterr().out.splitlines() == ["vit-mini", "vit-small"]
    assert cli.execute(["list"]) == 0
    assert "vit\tmodel" in capsys.readouterr().out.splitlines()
    assert cli.execute(["list", "models", "vit-[ms]*", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["vit-mini", "vit-small"]


def test_info_tells_the_same_plain_and_as_json(capsys):
    assert cli.execute(["info", "mlp", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "models" and "hidden" in told["arguments"]
    assert cli.execute(["info", "mlp"]) == 0
    plain = capsys.readouterr().out
    assert "kind: models" in plain and all(f"  {name}:" in plain for name in told["arguments"])


def test_config_prints_a_recipe_that_composes_to_itself(folder, capsys):
    assert cli.execute(["config", "small.yaml", "seeds=2"]) == 0
    said = capsys.readouterr()
    (folder / "again.yaml").write_text(said.out)
    assert "1 points" in said.err
    assert cli.execute(["config", "again.yaml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["recipe"]["seeds"] == 2 and told["id"] in said.err


# --- patterns -----------------------------------------------------------------------------------------------------


@pytest.fixture
def three(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes named mine/*: one that runs, one for a GPU, and one on a set that is not there."""
    absent = {"name": "mnist", "root": str(folder / "nowhere"), "download": False}
    recipes = {
        "tiny": {"stages": {"train": TRAIN}},
        "large": {"scale": "gpu", "stages": {"train": TRAIN}},
        "digits": {"stages": {"train": {**TRAIN, "data": absent, "model": {"name": "small-cnn"}}}},
    }
    (folder / "own" / "pipelines" / "mine").mkdir(parents=True)
    for name, recipe in recipes.items():
        (folder / "own" / "pipelines" / "mine" / f"{name}.yaml").write_text(dump_yaml({"device": "cpu", **recipe}))
    monkeypatch.setenv("PROVENZOO_PATH", str(folder / "own"))
    monkeypatch.setattr("provenzoo.datasets.mnist.SYSTEM", folder / "no-system")
    monkeypatch.setattr("provenzoo.datasets.places.cache", lambda: folder / "no-cache")
    return folder


def test_a_pattern_runs_what_can_run_and_names_what_is_left_out(three, capsys):
    assert cli.execute(["run", "mine/*", "--out", "all", "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert [record["recipe"] for record in told["runs"]] == ["mine/tiny"]
    assert (three / "all" / "mine" / "tiny" / "run.json").is_file()
    assert told["left_out"].keys() == {"mine/digits", "mine/large"}
    assert "left out: mine/large (scale: gpu" in said.err
    assert f"left out: mine/digits (mnist: not found; looked for its four idx files in {three / 'nowhere'}" in said.err


def test_a_pattern_of_which_all_is_left_out_is_no_fault(three, capsys):
    assert cli.execute(["run", "mine/[dl]*"]) == 0
    assert capsys.readouterr().out == "" and not (three / "runs").exists()


def test_overrides_count_where_a_pattern_chooses(three):
    runs, left_out = run_matching("mine/*g*", ["scale=cpu", "note=small"], out=three / "all")
    assert [run.record["recipe"] for run in runs] == ["mine/large"] and left_out.keys() == {"mine/digits"}
    assert runs[0].record["note"] == "small" and runs[0].path == three / "all" / "mine" / "large"
