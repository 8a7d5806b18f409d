"""What the figures have in common: one style, panels and units."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.report import StageView
from provenzoo.report.figure import Figure as Spec

Array = NDArray[np.floating[Any]]

INK, MUTED, RULE = "#1f2933", "#66727f", "#dfe4ea"
BLUE, SKY, ORANGE = "#0072b2", "#8cc1e3", "#d55e00"  # after Okabe and Ito: told apart with any colour vision
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
}


def chosen_metrics(spec: Spec, known: list[str], where: str, default: list[str] | None = None) -> list[str]:
    chosen = [*([spec.metric] if spec.metric else []), *spec.metrics]
    for name in chosen:
        if name not in known:
            raise ZooError(f"{where}: no metric {name!r} in {spec.stage}{did_you_mean(name, known)}")
    return chosen or (known if default is None else default)


def make_panels(count: int, height: float = 2.9, share: bool = False) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(WIDTH, height * rows))
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=share).flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def unit(stage: StageView, metric: str) -> str:
    losses = {entry["loss"] for entry in stage.metrics["sets"].values()}
    return "nats" if metric == "loss" and losses == {"cross-entropy"} else UNITS.get(metric, metric)


def is_vector(rows: list[list[Any]]) -> bool:
    return any(isinstance(value, list) for row in rows for value in row)
