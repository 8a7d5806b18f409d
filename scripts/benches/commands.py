"""Commands as processes, and what a run costs beside its training."""

import atexit
import contextlib
import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benches.timing import Rows, Side, at_least, at_most_more, calls, process


def listing() -> tuple[Side, Side]:
    """`provenzoo list models` against timm's list of models, both as processes."""
    command = Path(sys.executable).with_name("provenzoo")
    ours = [str(command)] if command.is_file() else [sys.executable, "-m", "provenzoo"]
    return process(*ours, "list", "models"), process(sys.executable, "-c", "import timm; timm.list_models()")


def importing() -> tuple[Side, Side]:
    """`import provenzoo` against a Python that imports nothing."""
    return process(sys.executable, "-c", "import provenzoo"), process(sys.executable, "-c", "")


ONE_STEP: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "stages": {
        "train": {
            "stage": "pretrain",
            "model": {"name": "mlp", "hidden": 2},
            "data": {"name": "gaussian-clusters", "features": 4, "num_classes": 2, "train": 8, "test": 8},
            "optim": {"name": "sgd", "lr": 0.1},
            "steps": 1,
            "batch": 4,
            "metrics": ["loss", "accuracy"],
        }
    },
}


def run_overhead() -> tuple[Side, Side]:
    """A run of one step, from the recipe to the report, against nothing; imports are made in the pass not counted."""
    import provenzoo

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with contextlib.redirect_stderr(io.StringIO()):
        provenzoo.run(ONE_STEP, out=folder)

    def run() -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            provenzoo.run(ONE_STEP, out=folder, fresh=True)

    return calls(run), lambda: 1e-9


ROWS: Rows = {
    "list models / import timm and list": (listing, at_least(20)),
    "import provenzoo / bare python": (importing, at_most_more(0.1)),
    "run of one step, imports aside / nothing": (run_overhead, at_most_more(0.5)),
}
