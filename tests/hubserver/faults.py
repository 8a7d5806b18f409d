"""What can go wrong on demand: an answer of 503, a download cut short, a slow answer, a commit in between."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One thing to go wrong: for requests that match, so many times."""

    method: str
    path: str
    times: int
    status: int | None = None
    cut: int | None = None
    """Of the answer's body only so many bytes are sent, then the connection ends."""
    wait: float = 0
    before: Callable[[], None] | None = None
    """Called before the request is answered, as by someone else."""


@dataclass
class Faults:
    """The faults that are still to come."""

    pending: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, method: str, path: str, times: int = 1, **what: object) -> None:
        """Let requests whose method and path (a pattern to search for) match go wrong."""
        self.pending.append(Fault(method, path, times, **what))  # pyright: ignore[reportArgumentType]

    def clear(self) -> None:
        self.pending.clear()

    def next(self, method: str, path: str) -> Fault | None:
        """The fault of a request; it is used up."""
        with self._lock:
            for fault in self.pending:
                if fault.times > 0 and fault.method == method and re.search(fault.path, path):
                    fault.times -= 1
                    return fault
        return None
