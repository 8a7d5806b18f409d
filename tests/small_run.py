"""A recipe of seconds on an MLP, and what tests of runs do with it."""

import hashlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import provenzoo
from provenzoo import checkpoint, cli, plain
from provenzoo.plain import dump_yaml, read_json
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


def copied(reference: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference, tmp_path / "run"))


def touched(run: Path) -> dict[str, int]:
    return {stage: (run / "stages" / stage / "stage.json").stat().st_mtime_ns for stage in ("train", "tune", "judge")}


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


def edit(file: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def as_if_written(stage: Path) -> None:
    """Note a stage's files, some of which a test changed, as those that the run wrote."""
    known = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in stage.iterdir() if file.is_file()}
    edit(
        stage / "stage.json",
        lambda record: record["files"].update({k: known[k] for k in record["files"] if k in known}),
    )
