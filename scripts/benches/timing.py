"""What a row is: two sides, how their time is taken, and the bar."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROUNDS = 5
Side = Callable[[], float]
"""Does the work once and gives its CPU seconds."""


@dataclass(frozen=True)
class Row:
    """One line of the table. `ours` and `other` are CPU seconds; `bar` and `holds` are None where none is set."""

    name: str
    ours: float
    other: float
    ratio: float
    bar: str | None
    holds: bool | None


@dataclass(frozen=True)
class Bar:
    """What a row is judged by: its words, the ratio that it shows, and whether that is good enough."""

    words: str | None
    ratio: Callable[[float, float], float]
    holds: Callable[[float, float], bool | None]


def at_least(times: float | None) -> Bar:
    """The other takes so many times as long as ours (None: shown, not judged)."""
    return Bar(
        words=f"other / ours >= {times}" if times else None,
        ratio=lambda ours, other: other / ours,
        holds=lambda ours, other: other / ours >= times if times else None,
    )


def at_most(times: float) -> Bar:
    """Ours takes at most so many times as long as the other."""
    return Bar(
        words=f"ours / other <= {times}",
        ratio=lambda ours, other: ours / other,
        holds=lambda ours, other: ours / other <= times,
    )


def at_most_more(seconds: float) -> Bar:
    """Ours takes at most so many seconds more than the other."""
    return Bar(
        words=f"ours - other <= {seconds} s",
        ratio=lambda ours, other: ours / other,
        holds=lambda ours, other: ours - other <= seconds,
    )


Rows = dict[str, tuple[Callable[[], tuple[Side, Side]], Bar]]
"""Name of a row -> what gives its two sides, and its bar."""


def process(*command: str) -> Side:
    """A command from start to end, with the processes that it waits for."""

    def run() -> float:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"error: {' '.join(command)} failed ({child.returncode})")
        return used.ru_utime + used.ru_stime

    return run


def calls(function: Callable[[], Any], repeat: int = 1) -> Side:
    """A function in this process, so many times; seconds of one call."""

    def run() -> float:
        start = time.process_time()
        for _ in range(repeat):
            function()
        return (time.process_time() - start) / repeat

    return run


def clock(function: Callable[[], Any]) -> Side:
    """A function in this process; seconds of the clock."""

    def run() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return run


def medians(ours: Side, other: Side) -> tuple[float, float]:
    """Seconds of both sides: medians of rounds in which they take turns, who begins changing."""
    took: dict[Side, list[float]] = {ours: [], other: []}
    for turn in range(ROUNDS + 1):
        for side in (ours, other) if turn % 2 else (other, ours):
            took[side].append(side())
    return statistics.median(took[ours][1:]), statistics.median(took[other][1:])
