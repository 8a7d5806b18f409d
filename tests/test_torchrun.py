"""One run over several processes: what torchrun's two leave is what one leaves, and only the first of them writes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import parallel_case
import pytest
import torch
from safetensors.torch import load_file
from small_run import RECIPE, assert_same_run, weights

import provenzoo
from provenzoo.plain import dump_yaml, merge, read_json

HERE = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
RUN = [*TORCHRUN, "-m", "provenzoo", "run"]


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """A command that prints into `folder/said`, in a process group of its own."""
    with open(folder / "said", "w") as said:
        return subprocess.Popen(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, text=True,
            stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def said(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and words of a command that has three minutes."""
    process = started(command, folder)
    try:
        code = process.wait(180)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return code, (folder / "said").read_text()


def recipe(folder: Path, **stages: dict[str, object]) -> Path:
    """RECIPE in float64, with changes to its stages, in a file."""
    wide = {"train": {"dtype": "float64"}, "tune": {"dtype": "float64"}, "judge": {"dtype": "float64"}}
    file = folder / "small.yaml"
    file.write_text(dump_yaml(merge(merge(RECIPE, {"stages": wide}), {"stages": stages})))
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, torch.Tensor], str]:
    """What two processes leave of every case, and what they said."""
    folder = tmp_path_factory.mktemp("cases")
    code, words = said([*TORCHRUN, str(HERE / "parallel_case.py"), str(folder / "found")], folder)
    assert code == 0, words
    return load_file(folder / "found"), words


@pytest.mark.parametrize("case", parallel_case.CASES)
def test_two_processes_take_the_steps_of_one(case: str, trained: tuple[dict[str, torch.Tensor], str]) -> None:
    found = {name.removeprefix(f"{case}/"): t for name, t in trained[0].items() if name.startswith(f"{case}/")}
    alone = parallel_case.CASES[case]()
    assert found.keys() == alone.keys()
    for name, tensor in alone.items():
        tolerance = 1e-6 if name == "losses" else 1e-10  # losses are kept in float32
        torch.testing.assert_close(found[name], tensor, rtol=tolerance, atol=tolerance, equal_nan=True)
    if case == "outputs":
        assert torch.equal(found["outputs"], alone["outputs"])


def test_a_batch_norm_or_a_mixing_that_cannot_be_taken_over_all_rows_is_refused(
    trained: tuple[dict[str, torch.Tensor], str],
) -> None:
    assert "batch: 24 rows in 2 processes would part groups of 16" in trained[1]
    assert "Own takes its statistics over the rows of one process alone; train this model in one process" in trained[1]


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run folder of two processes, and what they said."""
    folder = tmp_path_factory.mktemp("by-two")
    code, words = said([*RUN, str(recipe(folder)), "trackers=[tensorboard]", "--out", "run"], folder)
    assert code == 0, words
    return folder / "run", words


def test_a_run_of_two_processes_gives_the_numbers_of_one(tmp_path: Path, by_two: tuple[Path, str]) -> None:
    run, words = by_two
    assert words.count("learns\tholds") == words.count("judge: done") == 1
    assert len(list(run.glob("tensorboard/train/seed-*/events*"))) == 2
    alone = provenzoo.run(recipe(tmp_path), out=tmp_path / "alone")
    record = read_json(run / "run.json")
    assert [stage["processes"] for stage in record["stages"]] == [[2], [2], [1]]
    for stage in ("train", "tune"):
        torch.testing.assert_close(weights(run, stage), weights(alone.path, stage), rtol=1e-10, atol=1e-10)
    assert record["metrics"].keys() == alone.metrics.keys()
    for key, metrics in alone.metrics.items():
        for name, summary in metrics.items():
            assert record["metrics"][key][name]["n"] == summary["n"]
            assert record["metrics"][key][name]["mean"] == (summary["mean"] and pytest.approx(summary["mean"], 1e-9))


def changed(folder: Path, rank: int, advance: str) -> str:
    """A file that is the command, in which one process's training does something else at each step."""
    file = folder / "changed.py"
    file.write_text(
        "import os, signal, sys\n"
        "from provenzoo import cli\n"
        "from provenzoo.training.loop import _Training\n"
        "original = _Training.advance\n"
        f"def advance(self):\n{advance}"
        f"if os.environ['RANK'] == '{rank}':\n    _Training.advance = advance\n"
        "sys.exit(cli.execute(sys.argv[1:]))\n"
    )
    return str(file)


def test_stopped_in_the_middle_two_go_on_to_the_bit(tmp_path: Path, by_two: tuple[Path, str]) -> None:
    stopping = "    original(self)\n    if self.done == 25:\n        os.kill(os.getpid(), signal.SIGTERM)\n"
    words = ["run", str(recipe(tmp_path)), "trackers=[tensorboard]", "--out", "run"]
    code, told = said([*TORCHRUN, changed(tmp_path, 0, stopping), *words], tmp_path)
    assert code == 1 and "stopped by SIGTERM; what was done is saved in run: run again to go on" in told
    assert read_json(tmp_path / "run" / "stages" / "train" / "stage.json")["status"] == "interrupted"
    code, told = said([*TORCHRUN, "-m", "provenzoo", *words], tmp_path)
    assert code == 0, told
    assert_same_run(tmp_path / "run", by_two[0])


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for a condition while a process runs, at most two minutes."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def test_told_to_stop_both_leave_and_another_number_of_processes_goes_on_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = recipe(tmp_path, train={"steps": 8_000, "log_every": 2_000}), tmp_path / "run"
    process = started([*RUN, str(file), "--out", str(run)], tmp_path)
    try:
        until(lambda: (run / "stages" / "train" / "stage.json").is_file(), process)
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    words = (tmp_path / "said").read_text()
    assert words.count("stopped by SIGTERM; what was done is saved in") == 1
    assert read_json(run / "run.json")["status"] == "interrupted"
    assert list(run.glob("stages/train/.*.state"))
    provenzoo.run(file, out=run)
    assert "1 processes go on from step" in capsys.readouterr().err
    stages = {stage["name"]: stage["processes"] for stage in read_json(run / "run.json")["stages"]}
    assert stages["train"] == [2, 1]


def test_a_process_that_fails_ends_the_run(tmp_path: Path) -> None:
    failing = changed(tmp_path, 1, "    raise RuntimeError('a GPU fell off')\n")
    code, words = said([*TORCHRUN, failing, "run", str(recipe(tmp_path)), "--out", "run"], tmp_path)
    assert code == 1 and "error: RuntimeError: a GPU fell off" in words
    assert read_json(tmp_path / "run" / "run.json")["status"] in ("running", "interrupted", "failed")


@pytest.mark.parametrize("words", [["run", "zhang2026/*"], ["sweep", "quickstart", "seeds=1,2"]])
def test_what_several_processes_cannot_do_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from provenzoo import cli

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert cli.execute(words) == 2
    assert "torchrun is for one run of one recipe; start" in capsys.readouterr().err


def test_accelerate_starts_it_too(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    code, words = said([*launch, "-m", "provenzoo", "run", str(recipe(tmp_path)), "--out", "run"], tmp_path)
    assert code == 0, words
    assert read_json(tmp_path / "run" / "run.json")["stages"][0]["processes"] == [2]
