"""What a run runs on: the device, its determinism, signals, progress on standard error."""

import os
import platform
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import Any

import torch

from provenzoo.errors import ZooError


def resolve_device(name: str) -> torch.device:
    """The device of a name; `auto` is CUDA, then MPS, then the CPU. One that is not there is an error."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, available in there.items() if available)
    if not there.get(name, False):
        raise ZooError(f"device={name}: there is none here; use device=cpu or device=auto")
    return torch.device(name)


def deterministic(device: torch.device) -> None:
    """Ask the CUDA libraries for deterministic algorithms; the CPU's are."""
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=True)


def environment() -> dict[str, Any]:
    """The versions and the machine that numbers were made with."""
    from importlib.metadata import version

    packages = ("torch", "torchvision", "timm", "safetensors", "numpy")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def say(text: str) -> None:
    """A message on standard error."""
    print(text, file=sys.stderr, flush=True)


def signal_name(number: int) -> str:
    """`Ctrl-C` or the signal's name."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class Stop:
    """While it is entered, the first SIGINT or SIGTERM only asks to stop; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self.signal is not None

    def __enter__(self) -> "Stop":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not in the main thread, where no signal arrives
                break
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


class Progress:
    """A bar with loss and rate on standard error, where that is a terminal; else nothing."""

    def __init__(self, label: str, steps: int) -> None:
        self.label, self.steps = label, steps
        self._bar: Any = None
        self._began = time.monotonic()

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            note = TextColumn("{task.fields[note]}")
            self._bar = Bar(*columns, note, console=Console(stderr=True), auto_refresh=False, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.steps, note="")
            self._first: int | None = None
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, step: int, loss: float | None) -> None:
        """Show a step, the loss and the steps a second."""
        if self._bar:
            if self._first is None:
                self._first, self._began = step, time.monotonic()
            rate = (step - self._first) / max(1e-9, time.monotonic() - self._began)
            note = f"loss {loss:.4f}  " if loss is not None else ""
            self._bar.update(self._task, completed=step, note=f"{note}{rate:,.0f} steps/s" if rate else note, refresh=True)
