"""The bench as a command; whether a bar holds is for a quiet machine to say."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[1] / "scripts" / "bench.py"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH), *words], capture_output=True, text=True)


def test_json_is_one_document_with_the_machine_and_the_rows():
    done = bench("--json", "--row", "import provenzoo")
    assert done.returncode in (0, 3), done.stderr
    told = json.loads(done.stdout)
    assert told.keys() == {"machine", "rows"} and "cores" in told["machine"]
    (row,) = told["rows"]
    assert row.keys() == {"name", "ours", "other", "ratio", "bar", "holds"}
    assert row["name"] == "import provenzoo / bare python" and row["holds"] is (done.returncode == 0)


def test_an_unknown_row_is_an_error_that_lists_the_rows():
    done = bench("--row", "teleport")
    assert done.returncode == 2 and done.stdout == ""
    assert "no row has 'teleport'" in done.stderr and "our loop / bare loop" in done.stderr


def test_floors_are_of_rows_that_there_are(parts):
    listed = bench("--row", "teleport").stderr
    names = [name for name in parts("floors").FLOORS if not name.startswith("sweep")]  # listed where Ray is
    assert names and not [name for name in names if name not in listed]


@pytest.fixture
def parts(monkeypatch):
    """The bench's modules by name."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return lambda name: importlib.import_module(f"benches.{name}")


def test_the_gradients_by_hand_that_a_row_times_are_autograds(parts):
    patches = parts("patches")
    model = patches.patch_attention(36)
    x, y = torch.randn(64, 36, 36), torch.randn(64).sign()
    model.attention.data += 0.3 * torch.randn(36, 36)
    model.value.data += torch.randn(36)
    torch.nn.functional.softplus(-y * model(x)).mean().backward()
    by_hand = patches.patch_attention_gradients(x, y, model.attention.detach(), model.value.detach(), model)
    for ours, theirs in zip(by_hand, (model.attention.grad, model.value.grad), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
