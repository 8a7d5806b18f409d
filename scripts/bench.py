"""Speed against what one would use instead, each row with the bar that it has to meet.

    python scripts/bench.py [--json] [--row NAME]

A row's two sides take turns, ours and the other, five times after a first pass that is not counted; the row tells the
medians. Time is CPU time (user and system) on one torch thread, so that a second process on the machine costs little,
but a quiet machine is still needed: the two share caches. Below the table on a terminal stands the least that a
row has to do, where it was counted (benches/floors.py). Exits with 3 where a bar is missed.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import cast

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

from benches import commands, hub, images, linear, patches, positional, students, training
from benches.floors import FLOORS
from benches.hub import HUB_ROWS, hub_server
from benches.sweeps import ONCE
from benches.timing import Row, Rows, medians

FALLS_SHORT = 3

PARTS = (commands, training, students, positional, images, patches, linear, hub)
ROWS: Rows = {name: row for part in PARTS for name, row in part.ROWS.items()}


def measured(name: str) -> Row:
    """A row of the table, measured now."""
    import torch

    torch.set_num_threads(1)
    print(f"{name} ...", file=sys.stderr, flush=True)
    if name in ONCE:
        measure, bar = ONCE[name]
        ours, other = measure()
    else:
        sides, bar = ROWS[name]
        ours, other = medians(*sides())
    return Row(name, ours, other, bar.ratio(ours, other), bar.words, bar.holds(ours, other))


def machine() -> str:
    """The processor and the versions that the numbers depend on."""
    from importlib.metadata import version

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ", ".join(f"{package} {version(package)}" for package in ("torch", "timm"))
    processor = models[0] if models else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}, 1 thread"


def show(rows: list[Row]) -> None:
    """A table on a terminal; else a line a row, its name first and tabs between."""
    words = {True: "holds", False: "MISSED", None: "not judged"}
    cells = [
        [row.name, f"{row.ours:.4f}", f"{row.other:.4f}", f"{row.ratio:.2f}", row.bar or "-", words[row.holds]]
        for row in rows
    ]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(line) for line in cells))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("row", "ours, s", "other, s", "ratio", "bar", "", title=machine())
    for line in cells:
        table.add_row(*line)
    console = Console()
    console.print(table)
    for row in rows:
        if floor := FLOORS.get(row.name):
            console.print(f"{row.name}: {floor}", style="dim")


def main() -> int:
    """Measure the rows that are asked for and print them."""
    parser = argparse.ArgumentParser(description=cast(str, __doc__).partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--row", default="", metavar="NAME", help="only rows whose name has this in it")
    asked = parser.parse_args()
    rows = [*ROWS, *(ONCE if importlib.util.find_spec("ray") else ())]
    names = [name for name in rows if asked.row.lower() in name.lower()]
    if not names:
        parser.error(f"no row has {asked.row!r} in its name; the rows are: {'; '.join(rows)}")
    with hub_server() if any(HUB_ROWS in name for name in names) else contextlib.nullcontext():
        found = [measured(name) for name in names]
    if asked.json:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in found]}, indent=1))
    else:
        show(found)
    return FALLS_SHORT if any(row.holds is False for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
