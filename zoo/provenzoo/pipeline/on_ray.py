"""Runs as tasks of a Ray cluster (https://docs.ray.io): one that was on a node that died is done again elsewhere."""

import contextlib
import importlib
import io
import os
import shutil
import socket
import tarfile
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from provenzoo.errors import ZooError
from provenzoo.pipeline.folder import Busy, RunFolder
from provenzoo.pipeline.jobs import Ended, Engine, Job, perform
from provenzoo.plain import write_whole
from provenzoo.training.runtime import Stop

RETRIES = 3
"""How often a task is done again whose node or process died."""
PATIENCE = 60.0
"""Seconds in which a process on a node that was taken for dead leaves its run folder."""
MARK = ".mark"
SENT = ("PROVENZOO_PATH", "PROVENZOO_DATA", "HF_HUB_OFFLINE")
"""The environment variables that a node takes over from here."""


@contextlib.contextmanager
def on_ray(address: str, count: int | None) -> Iterator[Engine]:
    """An engine that does jobs on the cluster at an address (`auto`, `host:port` or `ray://host:port`).

    At most `count` run at once; None leaves it to Ray. A run takes as many CPUs as it has `threads`, else one, and with
    `device: cuda` a GPU. Its folder is written in place where the node sees it under the same path, else it is sent
    back. No Ray, or none at the address, is a ZooError.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ZooError("Ray is not installed here; install it with pip install 'provenzoo[ray]'") from None
    joined = not ray.is_initialized()
    if joined:
        _connect(ray, address)
    try:
        yield lambda jobs, stop: _tasks(ray, deque(jobs), stop, count)
    finally:
        if joined:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    wanted = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if wanted == "auto":
        wanted = _last_started()
    if wanted != "auto" and not os.environ.get("RAY_USE_TLS"):
        _knock(wanted)
    try:
        ray.init(address=wanted, log_to_driver=False, logging_level="error")
    except (Exception, SystemExit) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ZooError(f"no Ray cluster at {wanted!r}: {reason}") from None


def _last_started() -> str:
    """The address that Ray takes for `auto`, be it one of a cluster that is gone; `auto` where only Ray can tell."""
    with contextlib.suppress(ImportError, AttributeError, ConnectionError, ValueError):
        return importlib.import_module("ray._private.services").canonicalize_bootstrap_address("auto") or "auto"
    return "auto"


def _knock(address: str, seconds: float = 5.0) -> None:
    """Greet a server as gRPC does (HTTP/2, RFC 9113, section 3.4); one that does not greet back is a ZooError.

    Ray itself waits for more than a minute.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ZooError(f"--ray {address}: an address is auto, host:port or ray://host:port")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            settings = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ZooError(f"no Ray cluster answers at {address} ({error}); start one, or check host and port") from None
    if len(settings) < 4 or settings[3] != 4:
        raise ZooError(f"what answers at {address} is no Ray cluster; check host and port")


# --- here ---------------------------------------------------------------------------------------------------------


def _tasks(ray: Any, waiting: deque[Job], stop: Stop, count: int | None) -> Iterator[Ended]:
    running: dict[Any, Job] = {}
    task = ray.remote(_on_node)
    while running or (waiting and not stop.requested):
        while waiting and not stop.requested and (count is None or len(running) < count):
            job = waiting.popleft()
            job = replace(job, out=str(Path(job.out).resolve()))
            running[task.options(**_needs(job)).remote(job, _mark(job), str(Path.cwd()), _settings())] = job
        if stop.requested:
            for reference in running:
                ray.cancel(reference)  # as Ctrl-C would: the run saves its state
        for reference in ray.wait(list(running), timeout=0.5)[0]:
            yield _ended(ray, reference, running.pop(reference), stop)


def _needs(job: Job) -> dict[str, Any]:
    cuda = job.recipe.get("device") == "cuda"
    return {
        "name": job.name,
        "num_cpus": job.recipe.get("threads") or 1,
        "max_retries": RETRIES,
        **({"num_gpus": 1} if cuda else {}),
    }


def _settings() -> dict[str, str]:
    return {name: os.environ[name] for name in SENT if name in os.environ}


def _ended(ray: Any, reference: Any, job: Job, stop: Stop) -> Ended:
    try:
        ended, packed = ray.get(reference)
    except Exception as error:  # its node died too often, or Ray itself fails in one of its many ways
        if stop.requested:
            return Ended(job.name, "interrupted")
        return Ended(job.name, "failed", f"Ray: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
    if packed is not None:
        _unpack(packed, Path(job.out))
    Path(job.out, MARK).unlink(missing_ok=True)
    return ended


def _mark(job: Job) -> str:
    """What a node finds in the run folder if it sees the same files."""
    mark = uuid.uuid4().hex
    write_whole(Path(job.out, MARK), mark)
    return mark


def _unpack(packed: bytes, folder: Path) -> None:
    """Put a folder that was sent in the place of another."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as beside:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 have none
            tar.extractall(Path(beside, "run"))
        shutil.rmtree(folder)
        os.replace(Path(beside, "run"), folder)


# --- on a node ----------------------------------------------------------------------------------------------------


def _on_node(job: Job, mark: str, place: str, settings: dict[str, str]) -> tuple[Ended, bytes | None]:
    """Do a job in a node's process: in place where the node sees the run folder, else somewhere to be sent back."""
    os.environ.update(settings)
    with contextlib.suppress(OSError):
        os.chdir(place)
    file = Path(job.out, MARK)
    if file.is_file() and file.read_text() == mark:
        _wait_for(RunFolder(Path(job.out)))
        return perform(job), None
    with tempfile.TemporaryDirectory() as folder:
        return perform(replace(job, out=folder)), _pack(Path(folder))


def _wait_for(folder: RunFolder) -> None:
    """Wait until no other process writes a folder: one whose node was taken for dead may still be ending."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with folder.locked():
                return
        except Busy:
            time.sleep(0.5)


def _pack(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for part in folder.iterdir():
            tar.add(part, part.name)
    return buffer.getvalue()
