"""Tables of a run for a terminal; plain lines where standard output is none."""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from provenzoo.pipeline.verify import DIGEST, Verification


def _table(columns: list[str], rows: list[list[str]]) -> None:
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row))
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def number(value: Any) -> str:
    """A number as a reader wants it."""
    if value is None:
        return "not finite"
    if isinstance(value, list):
        return ", ".join("none" if item is None else number(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def claims_table(record: dict[str, Any]) -> None:
    """Every claim with its value, its bound and whether it holds."""
    rows = [
        [
            claim["id"],
            "holds" if claim["holds"] else "FALLS SHORT",
            number(claim["value"]),
            claim["holds_if"],
            claim["says"],
        ]
        for claim in record["claims"]
    ]
    _table(["claim", "", "value", "holds if", "says"], rows)


def sweep_table(record: dict[str, Any]) -> None:
    """Every point of a sweep: its values, what became of it, its claims, and each metric with its spread over seeds."""
    rows = [
        [
            *(str(value) for value in point["values"].values()),
            point["status"],
            "/".join(map(str, point["claims"])),
            *(_with_spread(point["metrics"].get(metric)) for metric in record["metrics"]),
        ]
        for point in record["points"]
    ]
    _table([*record["axes"], "", "claims", *record["metrics"]], rows)


def _with_spread(summary: dict[str, Any] | None) -> str:
    """Mean and standard deviation over seeds; a dash where there is none."""
    if summary is None:
        return "-"
    spread = f" ± {number(summary['std'])}" if len(summary["per_seed"]) > 1 and summary["std"] is not None else ""
    return number(summary["mean"]) + spread


def verification_table(found: Verification) -> None:
    """Every number as saved and as recomputed."""
    rows = [
        [
            row.where,
            row.metric,
            str(row.seed),
            number(row.saved),
            number(row.recomputed),
            f"{row.tolerance:g}",
            "agrees" if row.agrees else "OFF",
        ]
        for row in found.rows
    ]
    _table(["where", "metric", "seed", "saved", "recomputed", "tolerance", ""], rows)
    other = sorted({row.where for row in found.rows if row.metric == DIGEST and not row.agrees})
    if other:
        print(f"other data than what was measured, so their numbers are not compared: {', '.join(other)}")
    if found.left:
        print(f"claims about more than this checkpoint, which `provenzoo run` judges: {', '.join(found.left)}")
    off = sum(not row.agrees for row in found.rows)
    print(
        f"{len(found.rows)} numbers recomputed, {off} off"
        if off
        else f"{len(found.rows)} numbers recomputed, all agree"
    )
