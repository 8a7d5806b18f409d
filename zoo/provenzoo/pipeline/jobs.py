"""Runs side by side: what one of them is, and local processes that take them in turn."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from provenzoo.errors import ZooError
from provenzoo.pipeline.run import Interrupted, run
from provenzoo.training.runtime import Stop, signal_name

Status = Literal["complete", "failed", "interrupted"]
LOG = ".log"
"""The file of a run folder that has what the run said."""


@dataclass(frozen=True)
class Job:
    """A run to be done: its name, the composed recipe as plain data and the run folder."""

    name: str
    recipe: dict[str, Any]
    out: str
    fresh: bool = False


@dataclass(frozen=True)
class Ended:
    """What became of a job; `error` is a line or two."""

    name: str
    status: Status
    error: str | None = None


Engine = Callable[[Iterable[Job], Stop], Iterator[Ended]]
"""Does jobs and tells of each as it ends, in any order; once `Stop` is requested, those under way save and end."""


def perform(job: Job) -> Ended:
    """Do a job in this process; what it says goes to its folder's log."""
    with _logged(Path(job.out, LOG)):
        try:
            run(job.recipe, out=job.out, fresh=job.fresh)
        except Interrupted:
            return Ended(job.name, "interrupted")
        except ZooError as error:
            return Ended(job.name, "failed", str(error))
        except Exception as error:
            traceback.print_exc()
            where = f"the traceback is in {Path(job.out, LOG)}"
            return Ended(job.name, "failed", f"{type(error).__name__}: {error} ({where})")
    return Ended(job.name, "complete")


@contextlib.contextmanager
def _logged(file: Path) -> Iterator[None]:
    """Inside, what Python prints goes to a file; where it cannot be written, the run itself will tell."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        log = open(file, "a", encoding="utf-8")  # noqa: SIM115  # closed below
    except OSError:
        yield
        return
    with log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


# --- local processes ----------------------------------------------------------------------------------------------


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(jobs: Iterable[Job], stop: Stop, count: int) -> Iterator[Ended]:
    """Do jobs in so many processes, each of which takes one after another.

    A process that dies fails the job that it had, and another takes its place.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
    workers = [_Worker(max(1, cores() // count)) for _ in range(min(count, waiting.qsize()))]
    threads = [threading.Thread(target=_keep_busy, args=(worker, waiting, ended, stop)) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield from _as_they_end(ended, workers, stop)
    finally:
        with contextlib.suppress(queue.Empty):  # the consumer left: nothing more is begun
            while True:
                waiting.get_nowait()
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join()


def _keep_busy(worker: "_Worker", waiting: Any, ended: Any, stop: Stop) -> None:
    with contextlib.suppress(queue.Empty):
        while not stop.requested:
            told = worker.do(waiting.get_nowait())
            ended.put(Ended(told.name, "interrupted") if stop.requested and told.status == "failed" else told)
    worker.end()
    ended.put(None)


def _as_they_end(ended: Any, workers: list["_Worker"], stop: Stop) -> Iterator[Ended]:
    busy = len(workers)
    while busy:
        with contextlib.suppress(queue.Empty):
            if (told := ended.get(timeout=0.2)) is None:
                busy -= 1
            else:
                yield told
        if stop.requested:
            for worker in workers:
                worker.close()


class _Worker:
    """A process that does jobs as `serve` does, started with its first. With its input closed, it saves and ends."""

    def __init__(self, threads: int):
        self._threads = threads
        self._process: subprocess.Popen[str] | None = None

    def do(self, job: Job) -> Ended:
        """Do a job and wait for it."""
        process = self._process = self._process or self._start()
        asked, told = _pipes(process)
        line = ""
        with contextlib.suppress(OSError, ValueError):  # it died, or its input was closed
            print(json.dumps(asdict(job)), file=asked, flush=True)
            line = told.readline()
        if line:
            return Ended(**json.loads(line))
        self._process = None
        code = process.wait()
        how = f"by {signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return Ended(job.name, "failed", f"its process was ended {how}; what it said is in {Path(job.out, LOG)}")

    def close(self) -> None:
        """Close the process's input."""
        if process := self._process:
            with contextlib.suppress(OSError):
                _pipes(process)[0].close()

    def end(self) -> None:
        """Close the process's input and wait for its end."""
        self.close()
        if self._process:
            self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        threads = os.environ.get("OMP_NUM_THREADS") or str(self._threads)
        path = os.pathsep.join(place or os.getcwd() for place in sys.path)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from provenzoo.pipeline.jobs import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us alone; we close their input
            env={**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": path},
        )


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin and process.stdout
    return process.stdin, process.stdout


def serve() -> None:
    """Do the jobs that come on standard input, a JSON document a line, and answer each with one on standard output.

    When the input ends, be it that whoever asks was killed, the job under way saves its state and ends.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    while (job := asked.get()) is not None:
        print(json.dumps(asdict(perform(job))), file=answers, flush=True)


def _read(asked: Any) -> None:
    for line in sys.stdin:
        asked.put(Job(**json.loads(line)))
    asked.put(None)
    os.kill(os.getpid(), signal.SIGTERM)
