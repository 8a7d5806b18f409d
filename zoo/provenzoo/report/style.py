"""What the figures have in common: one style, panels and units."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.report import StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.figure import Scale

Array = NDArray[Any]

INK, MUTED, RULE = "#1f2933", "#66727f", "#dfe4ea"
BLUE, SKY, ORANGE = "#0072b2", "#8cc1e3", "#d55e00"  # after Okabe and Ito: told apart with any colour vision
GREEN, PURPLE, AMBER = "#009e73", "#b0578c", "#e69f00"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, AMBER, INK, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
SIGNED = LinearSegmentedColormap.from_list("signed", ["#b3480a", "#f0a878", "#f7f7f5", "#6fa8d0", "#06407a"])
SHARE = LinearSegmentedColormap.from_list("share", ["#f7f7f5", "#9cc4e0", "#2f7ab5", "#06305c"])
WIDTH = 9.0
STYLE: dict[Any, Any] = {
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
UNITS = {
    "accuracy": "share right",
    "encodings-locality": "z score",
    "encodings-locality-rank": "mean rank of neighbours",
    "frozen-unchanged": "1: equal to the bit",
    "labelling-error": "share wrong",
    "patch-association": "share of rows",
    "sign-accuracy": "share right",
    "sign-error": "share wrong",
}


def chosen_metrics(spec: Spec, known: list[str], where: str, default: list[str] | None = None) -> list[str]:
    """The metrics that are drawn: those that the recipe names, else `default`, else all that are known."""
    for name in spec.chosen:
        if name not in known:
            raise ZooError(f"{where}: no metric {name!r} in {spec.stage}{did_you_mean(name, known)}")
    return spec.chosen or (known if default is None else default)


def make_panels(count: int, height: float = 2.9, share: bool = False) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(WIDTH, height * rows))
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=share).flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def band(
    axes: Axes,
    x: Array,
    rows: Array,
    colour: str,
    label: str = "",
    marker: str = "",
    dash: str = "-",
    *,
    broad: bool = False,
) -> None:
    """The mean of rows `[R, T]` over the seeds as a line, in a band from the least to the greatest.

    A seed that stops being finite is left out whole.
    """
    rows = rows[np.isfinite(rows).all(-1)]
    if len(rows) == 0:
        return
    if len(rows) > 1:
        axes.fill_between(x, rows.min(0), rows.max(0), color=colour, alpha=0.16, linewidth=0)
    look = {"linewidth": 5, "alpha": 0.35} if broad else {}
    axes.plot(x, rows.mean(0), color=colour, label=label, marker=marker, markersize=3.5, linestyle=dash, **look)


def set_scales(axes: Axes, x: Scale | None, y: Scale | None, least: float = 1.0) -> None:
    """Logarithmic axes where they are wanted. From left to right, zero stands at the edge, below `least`.

    Values of which none is above zero have no place on a logarithmic axis and stay on a linear one.
    """
    if x == "log" and axes.dataLim.x0 > 0:
        axes.set_xscale("log")
    elif x == "log":
        axes.set_xscale("symlog", linthresh=least)
        decades = range(math.ceil(math.log10(least)), math.floor(math.log10(max(axes.dataLim.x1, least))) + 1)
        axes.set_xticks([0, *(10**decade for decade in decades)])
    if y == "log" and np.isfinite(axes.dataLim.minposy):
        axes.set_yscale("log")
        _plain_ticks(axes)
    elif y == "linear":
        axes.set_yscale("linear")


def _plain_ticks(axes: Axes) -> None:
    """Plain numbers on a logarithmic axis of a few decades, where powers of ten alone would be too few."""
    low, high = axes.get_ylim()
    if high > 300 * low:
        return
    axes.yaxis.set_major_locator(MaxNLocator(5) if high < 10 * low else LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def unit(stage: StageView, metric: str) -> str:
    losses = {entry["loss"] for entry in stage.metrics["sets"].values()}
    return "nats" if metric == "loss" and losses <= {"cross-entropy", "logistic"} else UNITS.get(metric, "")


def is_vector(rows: list[list[Any]]) -> bool:
    return any(isinstance(value, list) for row in rows for value in row)
