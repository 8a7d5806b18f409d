"""The Hub: loading from its cache, publishing to a server of the tests."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches.timing import Rows, Side, at_most, calls, clock
from benches.training import unseen_terminal

HUB_ROWS = "Hub"
"""What is in the name of a row that needs the server of the tests."""


@contextlib.contextmanager
def hub_server() -> Iterator[None]:
    """The tests' Hub server as another process, and the client's settings for it, before the client is imported."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "hubserver"]
    child = subprocess.Popen(command, cwd=root / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdin
    told = json.loads(child.stdout.readline())
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HF_ENDPOINT": told["endpoint"], "HF_TOKEN": told["token"], "HF_HOME": home}
        os.environ |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
        os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        try:
            yield
        finally:
            child.stdin.close()
            child.wait()


def published_run(folder: Path, model: dict[str, Any], data: dict[str, Any]) -> Path:
    """A run whose model took one step."""
    import provenzoo

    stage = {"stage": "pretrain", "model": model, "data": data, "steps": 1, "batch": 1, "metrics": ["accuracy"]}
    recipe = {"recipe": "bench", "seeds": 1, "device": "cpu", "stages": {"train": stage}}
    with unseen_terminal():
        return provenzoo.run(recipe, out=folder / "run").path


def hub_loading(checked: bool) -> tuple[Side, Side]:
    """`provenzoo.load` of a ViT-Ti/16 at 224 from the Hub's cache, offline, against timm's load of the same files."""
    import timm
    from huggingface_hub import constants

    import provenzoo
    from provenzoo import fetch

    constants.HF_HUB_OFFLINE = False
    folder = Path(tempfile.mkdtemp())
    data = {"name": "fashion-mnist-mini", "size": 224, "limit": 1}
    done = provenzoo.publish(published_run(folder, {"name": "vit-tiny"}, data), f"someone/vit-{checked}")
    place = Path(fetch.pull(done.reference)["folder"])
    constants.HF_HUB_OFFLINE = True
    notes = place.parents[1] / ".provenzoo"

    def ours() -> None:
        if not checked:
            shutil.rmtree(notes)
        provenzoo.load(done.reference)

    return calls(ours), calls(lambda: timm.create_model(f"local-dir:{place}", pretrained=True))


def hub_publishing() -> tuple[Side, Side]:
    """`provenzoo.publish` of 100 MB to the local server against the client's own commit of the same files; seconds
    of the clock, since both wait for the server."""
    from itertools import count

    from huggingface_hub import CommitOperationAdd, HfApi, constants

    import provenzoo

    constants.HF_HUB_OFFLINE = False
    folder, number = Path(tempfile.mkdtemp()), count()
    data = {"name": "gaussian-clusters", "features": 32, "num_classes": 10, "train": 10, "test": 10}
    run = published_run(folder, {"name": "mlp", "hidden": [4980, 4980]}, data)
    provenzoo.publish(run, f"local:{folder}/files")
    files = [path for path in (folder / "files").rglob("*") if path.is_file()]

    def ours() -> None:
        provenzoo.publish(run, f"someone/ours-{next(number)}")

    def other() -> None:
        name = f"someone/other-{next(number)}"
        HfApi().create_repo(name)
        added = [CommitOperationAdd(path.relative_to(folder / "files").as_posix(), path) for path in files]
        HfApi().create_commit(name, added, commit_message="raw")

    return clock(ours), clock(other)


ROWS: Rows = {
    "load from the Hub's cache, checked before / timm, ViT-Ti/16": (lambda: hub_loading(checked=True), at_most(0.35)),
    "load from the Hub's cache, digest checked / timm, ViT-Ti/16": (lambda: hub_loading(checked=False), at_most(0.7)),
    "publish 100 MB to a local Hub / the raw client": (hub_publishing, at_most(1.3)),
}
