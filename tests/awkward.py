"""A data set that fails, dies or waits as its `mode` says, as content of a folder, for tests of runs side by side."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from provenzoo.datasets.gaussian_clusters import GaussianClusters
from provenzoo.errors import ZooError
from provenzoo.plain import dump_yaml


class Awkward(GaussianClusters):
    """Small, with a mode: `fine`, `fails`, `faulty`, `dies` or `slow`; `slow` says in the folder `told` that it began."""

    def __init__(self, *, seed: int = 0, mode: str = "fine", told: str = "", seconds: float = 1.0):
        super().__init__(seed=seed, features=4, num_classes=2, train=8, test=8)
        self.mode, self.told, self.seconds = mode, told, seconds

    def prepare(self, split: Any) -> Any:
        if split == "train" and self.mode == "fails":
            raise ZooError("the data is bad")
        if split == "train" and self.mode == "faulty":
            raise RuntimeError("a bug")
        if split == "train" and self.mode == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if split == "train" and self.mode == "slow":
            if self.told:
                Path(self.told, f"{_node()}-{os.getpid()}-{time.time_ns()}").touch()
            time.sleep(self.seconds)
        return super().prepare(split)


def _node() -> str:
    """The id of the Ray node that this process is on; `here` without Ray."""
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray and ray.is_initialized() else "here"


STAGE: dict[str, Any] = {
    "stage": "pretrain",
    "model": {"name": "mlp", "hidden": 2},
    "data": {"name": "awkward"},
    "optim": {"name": "sgd", "lr": 0.1},
    "steps": 1,
    "batch": 4,
    "metrics": ["loss", "accuracy"],
}


def content(folder: Path, **recipe: Any) -> Path:
    """A content folder with the data set and the recipe `awkward`; the folder."""
    for name, data in {
        "registry/datasets/awkward.yaml": {"builder": "awkward:Awkward", "summary": "awkward"},
        "pipelines/awkward.yaml": {"device": "cpu", "threads": 1, "stages": {"train": STAGE}, **recipe},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dump_yaml(data))
    return folder
