"""A sweep on a local Ray cluster of two nodes."""

import contextlib
import importlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benches.timing import Bar, at_least

POINTS = 64


def sweeping() -> tuple[float, float]:
    """Wall seconds of a sweep of points that each sleep one second, on two local Ray nodes of one core, and of half as
    many points in a warm worker: what two workers would need if nothing else took time.
    """
    import ray
    from ray.cluster_utils import Cluster

    import provenzoo
    from provenzoo.pipeline.jobs import Job
    from provenzoo.pipeline.on_ray import on_ray
    from provenzoo.training.runtime import Stop

    tests, zoo = Path(__file__).parents[2] / "tests", Path(provenzoo.__file__).parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tests), str(zoo), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(tests))
    awkward = importlib.import_module("awkward")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        os.environ["PROVENZOO_PATH"] = str(awkward.content(Path(folder, "content")))
        stage = {**awkward.STAGE, "data": {"name": "awkward", "mode": "slow", "seconds": 1.0}}
        recipe = {"recipe": "awkward", "device": "cpu", "threads": 1, "stages": {"train": stage}}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            cluster.add_node(num_cpus=1)
            ray.init(address=cluster.address, log_to_driver=False)  # one connection: its workers stay warm
            with on_ray(cluster.address, 1) as engine:
                ends = [time.perf_counter()]
                for _ in engine([Job(str(i), recipe, str(Path(folder, str(i)))) for i in range(4)], Stop()):
                    ends.append(time.perf_counter())
            rates = ",".join(str(i + 1) for i in range(POINTS))
            start = time.perf_counter()
            words = [f"stages.train.optim.lr={rates}"]
            provenzoo.sweep(recipe, words, out=Path(folder, "sweep"), ray=cluster.address)
            took = time.perf_counter() - start
        finally:
            ray.shutdown()
            cluster.shutdown()
    return took, (ends[-1] - ends[-2]) * POINTS / 2


ONCE: dict[str, tuple[Callable[[], tuple[float, float]], Bar]] = {
    f"sweep of {POINTS} points on two Ray nodes / half of them in a warm worker, wall": (sweeping, at_least(0.85)),
}
"""Rows that are measured once, by the clock."""
