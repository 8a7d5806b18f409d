"""A sweep on Ray: a real local cluster of two nodes, of which one is taken away; what the node sends back."""

import importlib.util
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from awkward import STAGE, content
from small_run import assert_same_run

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.pipeline import on_ray
from provenzoo.pipeline.jobs import Job
from provenzoo.plain import read_json

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'provenzoo[ray]'"
)
LR = "stages.train.optim.lr"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, where the recipe `awkward` is known to this process and to those that it starts."""
    path = [str(Path(__file__).parent), str(Path(provenzoo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("PROVENZOO_PATH", str(content(tmp_path / "content")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wait_for(happens: Any) -> None:
    until = time.monotonic() + 240
    while not happens():
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.05)


@needs_ray
@pytest.mark.slow
def test_with_one_of_two_nodes_taken_away_every_point_ends_up_complete_once(folder):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        told = folder / "told"
        told.mkdir()

        def take_away() -> None:
            wait_for(lambda: any(file.name.startswith(second.node_id) for file in told.iterdir()))
            cluster.remove_node(second, allow_graceful=False)

        thread = threading.Thread(target=take_away)
        thread.start()
        slow = [f"stages.train.data.{key}" for key in ("mode=slow", f"told={told}", "seconds=1.5")]
        done = provenzoo.sweep("awkward", [f"{LR}=0.1,0.2,0.3,0.4,0.5", *slow], out="s", ray=cluster.address)
        thread.join()
    finally:
        cluster.shutdown()
    assert [point["status"] for point in done.points] == ["complete"] * 5
    assert sorted(file.name for file in (folder / "s" / "points").iterdir()) == [f"lr=0.{i}" for i in range(1, 6)]
    assert len(list(told.iterdir())) <= 6, "only what ran on the second node may be done again"
    assert not list((folder / "s").rglob(".mark"))
    alone = provenzoo.run("awkward", [f"{LR}=0.5", *slow], out="alone")
    assert_same_run(folder / "s" / "points" / "lr=0.5", alone.path)


# --- an address ---------------------------------------------------------------------------------------------------


def test_an_address_where_nothing_listens_is_named():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and not listened on
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(ZooError, match=f"no Ray cluster answers at {address}"):
            on_ray._knock(address)


def test_one_that_listens_and_does_not_answer_or_is_something_else_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ZooError, match=f"no Ray cluster answers at {address}"):
            on_ray._knock(address, seconds=0.1)

        def answer() -> None:
            server.accept()  # the knock before
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ZooError, match=f"what answers at {address} is no Ray cluster"):
            on_ray._knock(address)
        thread.join()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not here")
def test_a_cluster_that_was_killed_is_named_when_auto_finds_what_it_left(folder, monkeypatch):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        (folder / "ray").mkdir()
        (folder / "ray" / "ray_current_cluster").write_text(address)
        monkeypatch.setenv("RAY_TMPDIR", str(folder))
        with pytest.raises(ZooError, match=f"no Ray cluster answers at .*:{address.rpartition(':')[2]} "):
            provenzoo.sweep("awkward", ["seeds=1,2"], ray="auto")


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is here")
def test_without_ray_it_says_what_to_install(folder):
    with pytest.raises(ZooError, match=r"pip install 'provenzoo\[ray\]'"):
        provenzoo.sweep("awkward", ["seeds=1,2"], ray="auto")


# --- run folders --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_report")
def test_a_node_that_does_not_see_the_run_folder_sends_it_back(folder):
    recipe = {"recipe": "awkward", "device": "cpu", "stages": {"train": STAGE}}
    job = Job("one", recipe, str(folder / "points" / "one"))
    on_ray._mark(job)
    ended, packed = on_ray._on_node(job, "of another machine's folder", str(folder), {})
    assert ended.status == "complete" and packed and [f.name for f in Path(job.out).iterdir()] == [".mark"]
    on_ray._unpack(packed, Path(job.out))
    assert read_json(folder / "points" / "one" / "run.json")["status"] == "complete"
    assert [file.name for file in (folder / "points").iterdir()] == ["one"]
    ended, packed = on_ray._on_node(job, on_ray._mark(job), str(folder), {})
    assert ended.status == "complete" and packed is None
