"""What a run needs of its machine: a device, signals as a flag, messages and a bar on standard error."""

import contextlib
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from types import FrameType
from typing import Any

import rich.progress
import torch
from rich.console import Console

from provenzoo.errors import UsageError
from provenzoo.plain import did_you_mean
from provenzoo.training import parallel

DEVICES = ("auto", "cpu", "cuda", "mps")


# --- device -------------------------------------------------------------------------------------------------


def resolve_device(name: str) -> torch.device:
    """The device of a name; `auto` is CUDA or else the CPU. One that is not there is a UsageError.

    `mps` is taken only when it is named: it has no float64.
    """
    if name not in DEVICES:
        raise UsageError(f"device: no device {name!r}{did_you_mean(name, DEVICES)}")
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name == "auto":
        return torch.device("cuda" if there["cuda"]() else "cpu")
    if name in there and not there[name]():
        raise UsageError(f"device: this machine has no {name} that torch can use; take device=cpu or device=auto")
    return torch.device(name)


@contextlib.contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Inside, CUDA's kernels are those that give the same bits every time (where torch has them); a CPU's do.

    cuBLAS reads its setting once, when it is first used, so that one stays.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Inside, torch computes with so many CPU threads; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def environment() -> dict[str, Any]:
    """What a run's numbers may depend on beside its recipe."""
    found: dict[str, Any] = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("torch", "torchvision", "timm"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    found["threads"] = torch.get_num_threads()
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


# --- signals ------------------------------------------------------------------------------------------------


class Stop:
    """Inside, SIGINT and SIGTERM set a flag instead of ending the process; a second Ctrl-C ends it at once.

    `signal` is the number of the signal that came first. Outside the main thread, which alone gets signals,
    nothing is changed.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self.signal is not None

    def __call__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._came) for number in self.SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or number


def signal_name(number: int) -> str:
    """`Ctrl-C` or the signal's own name, such as SIGTERM."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class Every:
    """True once in so many seconds, counted from the last time or `restart`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self.restart()

    def restart(self) -> None:
        """Count from now."""
        self._due = self._clock() + self._seconds

    def __call__(self) -> bool:
        if self._clock() < self._due:
            return False
        self.restart()
        return True


# --- standard error -----------------------------------------------------------------------------------------


@cache
def _console() -> Console:
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A line for the reader, on standard error; of several processes the first says it."""
    if parallel.leads():
        print(text, file=sys.stderr, flush=True)


class Progress:
    """While entered, a bar with loss and rate on standard error; nothing where that is no terminal."""

    def __init__(self, label: str, steps: int) -> None:
        self.live = _console().is_terminal
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.fields[told]}"),
            rich.progress.TimeRemainingColumn(),
            console=_console(),
            auto_refresh=False,
            transient=True,
            disable=not self.live,
        )
        self._task = self._bar.add_task(label, total=steps, told="")
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def update(self, step: int, loss: float) -> None:
        """Show that so many steps are done, and the loss of the last."""
        now = time.monotonic()
        first_step, began = self._first = self._first or (step, now)
        rate = f"{(step - first_step) / (now - began):.0f} steps/s" if now > began else ""
        self._bar.update(self._task, completed=step, told=f"loss {loss:.4g}  {rate}", refresh=True)
