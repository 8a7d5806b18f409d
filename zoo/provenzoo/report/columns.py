"""A metric at the end of a stage, side by side for the labels of one axis (as in Jelassi et al. 2022, Figure 7)."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.figure import labels_along
from provenzoo.report.style import INK, ORANGE, PALETTE, Array, chosen_metrics, is_vector, make_panels, unit

Column = tuple[str, Array]
"""A label of the axis, and the seeds' values."""


def columns(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """A panel for each metric and combination of the other axes; in it, means as lines and seeds as dots at each label.

    The vertical axis spans what was measured and does not begin at zero.
    """
    axis = spec.axis or ""
    metrics = chosen_metrics(spec, _scalars(stages), where)
    panels = {
        (metric, others): found
        for metric in metrics
        for others, found in _by_others(stages, axis, metric, where).items()
    }
    figure, drawn = make_panels(len(panels), height=3.1)
    for axes, ((metric, others), found) in zip(drawn, panels.items(), strict=True):
        _panel(axes, found, run.chance(stages[0], metric))
        axes.set_title(", ".join(filter(None, [others, metric if len(metrics) > 1 or not others else ""])))
        axes.set_ylabel(f"{metric} ({unit(stages[0], metric)})" if unit(stages[0], metric) else metric)
    seeds = max(len(values) for found in panels.values() for _, values in found)
    over = f"lines are means, dots the {seeds} seeds" if seeds > 1 else "one seed"
    return figure, f"{spec.stage}: {' and '.join(metrics)} at the end, by {axis}; {over}. The scale starts above zero."


def _scalars(stages: list[StageView]) -> list[str]:
    """The metrics that every point has as single numbers."""
    values = [entry["values"] for stage in stages for entry in stage.metrics["sets"].values()]
    return [name for name in values[0] if all(name in v and not is_vector([v[name]]) for v in values)]


def _by_others(stages: list[StageView], axis: str, metric: str, where: str) -> dict[str, list[Column]]:
    """The columns of each panel, by the labels on the other axes and the set."""
    labels_along(axis, [stage.name for stage in stages], where)
    found: dict[str, list[Column]] = {}
    for stage in stages:
        others = [label for name, label in stage.labels.items() if name != axis]
        for label, entry in stage.metrics["sets"].items():
            key = ", ".join([*others, *([label] if label else [])])
            values = np.array(entry["values"][metric], dtype=float)
            found.setdefault(key, []).append((stage.labels[axis], values))
    return found


def _panel(axes: Axes, found: list[Column], chance: float | None) -> None:
    for place, (_, values) in enumerate(found):
        colour, finite = PALETTE[place % len(PALETTE)], values[np.isfinite(values)]
        if len(finite) == len(values):
            mean = float(finite.mean())
            axes.hlines(mean, place - 0.3, place + 0.3, color=colour, linewidth=3)
            axes.annotate(f"{mean:#.3g}", (place + 0.32, mean), va="center", fontsize=8.5, color=INK)
        across = place + np.linspace(-0.12, 0.12, len(finite)) if len(finite) > 1 else np.full(len(finite), place)
        axes.scatter(across, finite, s=24, color=colour, edgecolor="white", linewidth=0.8, zorder=3)
    low = min((float(np.nanmin(v)) for _, v in found if np.isfinite(v).any()), default=math.nan)
    if chance is not None and low < 2 * chance:
        axes.axhline(chance, color=ORANGE, linestyle=":", linewidth=1.4)
    crowded = len(found) > 3
    labels = [label for label, _ in found]
    axes.set_xticks(
        range(len(found)), labels, color=INK, rotation=30 if crowded else 0, ha="right" if crowded else "center"
    )
    axes.set_xlim(-0.6, len(found) - 0.2)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(y=0.25)
    axes.grid(axis="x", visible=False)
