"""Logged metrics over the steps of a training, a line for each point of a stage (loops, teachers, arms)."""

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.style import (
    INK,
    MUTED,
    PALETTE,
    SHARE,
    Array,
    band,
    chosen_metrics,
    is_vector,
    make_panels,
    set_scales,
    unit,
)

GUIDES = {-1.0: ":", -0.5: "--"}
"""Slopes that a panel may be given as guides, and their dashes; others are dash-dotted."""
LONGEST, NAME = 30, 8
"""A guide's greatest length, and its name's, as factors of the step."""
BOUNDED = ("cosine-to-truth", "group-mass", "accuracy")
"""Metrics that stay on a linear scale where the figure's is logarithmic."""


def overlay(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """A panel a metric, a line a point: mean over the seeds, band from the least to the greatest.

    Where both axes are logarithmic, `guides` draws lines of those slopes. Where `phase` was logged, a dot marks where
    each further phase begins. The points of a stage `beside` it are dashed, in the colours of those with their labels.
    """
    metrics = chosen_metrics(spec, _logged_by_all(stages), where)
    figure, panels = make_panels(len(metrics), height=3.5 if len(metrics) < 3 else 3.0)
    title, names = _names(stages)
    for axes, metric in zip(panels, metrics, strict=True):
        for stage, name, style in zip(stages, names, _styles(stages), strict=True):
            _line(axes, stage, metric, name, *style)
        axes.set(title=metric, xlabel="step", ylabel=unit(stages[0], metric))
        bounded = metric.rpartition(".")[2] in BOUNDED
        set_scales(axes, spec.x, None if bounded else spec.y, least=stages[0].metrics["series"]["steps"][1])
        if spec.guides and spec.x == spec.y == "log" and not bounded:
            _guides(axes, spec.guides)
    if len(stages) > 1:
        entries = panels[0].get_legend_handles_labels()
        if len(panels) == 1:
            figure.legend(*entries, title=title, loc="outside right upper", alignment="left")
        else:
            figure.legend(*entries, title=title, loc="outside lower center", ncols=min(6, len(stages)))
    return figure, _caption(stages, spec, metrics)


def _logged_by_all(stages: list[StageView]) -> list[str]:
    series = [stage.metrics["series"]["values"] for stage in stages]
    return [name for name, rows in series[0].items() if not is_vector(rows) and all(name in other for other in series)]


def _names(stages: list[StageView]) -> tuple[str, list[str]]:
    """What the points differ in, stage and axes, and each point's labels there."""
    labels = [{"stage": stage.base, **stage.labels} for stage in stages]
    names = dict.fromkeys(axis for own in labels for axis in own)
    several = [axis for axis in names if len({own.get(axis) for own in labels}) > 1]
    return ", ".join(several), [", ".join(own[axis] for axis in several if axis in own) for own in labels]


def _styles(stages: list[StageView]) -> list[tuple[str, str]]:
    """Colour and dashes: points with the same labels are of one colour, those of the second stage dashed."""
    places = list(dict.fromkeys(tuple(stage.labels.items()) for stage in stages))
    colours = PALETTE if len(places) <= len(PALETTE) else SHARE(np.linspace(0.25, 1, len(places)))
    first = stages[0].base
    return [(colours[places.index(tuple(s.labels.items()))], "-" if s.base == first else "--") for s in stages]


def _line(axes: Axes, stage: StageView, metric: str, name: str, colour: str, dash: str) -> None:
    series = stage.metrics["series"]
    steps, rows = np.array(series["steps"]), np.array(series["values"][metric], dtype=float).T
    band(axes, steps, rows, colour, name, dash=dash)
    for at in _turns(series["values"].get("phase", [])):
        axes.plot(steps[at], np.nanmean(rows[:, at]), "o", color=colour, markeredgecolor="white", markersize=6)


def _turns(phases: list[list[float | None]]) -> list[int]:
    """Where the phase, a median over the seeds, becomes another."""
    middle = [np.median([value or np.nan for value in row]) for row in phases]
    return [at for at, (before, after) in enumerate(itertools.pairwise(middle), 1) if after > before]


def _guides(axes: Axes, slopes: list[float]) -> None:
    """Lines of a slope down to the right edge, under the curves: each as long as no curve is near it or its name."""
    data = [np.column_stack(line.get_data()) for line in axes.lines if np.size(line.get_xdata()) > 1]
    curves = [np.log(curve[(curve > 0).all(1)]) for curve in data if (curve > 0).all(1).any()]
    if not curves:
        return
    right = max(curve[-1, 0] for curve in curves)
    steps: Array = np.linspace(right - np.log(LONGEST * NAME), right, 300)
    lowest = np.min([np.interp(steps, *curve.T) for curve in curves], 0)
    there = int((steps < right - np.log(LONGEST)).sum())
    free = np.lib.stride_tricks.sliding_window_view(lowest, there + 1).min(-1) - 0.3
    steps, end, limits = steps[there:], lowest[-1] - 0.6, axes.get_ylim()
    for slope in slopes:
        heights = end + slope * (steps - right)
        start = 1 + np.flatnonzero(heights > free).max(initial=-1)
        if start == len(steps) or steps[start] > right - np.log(2):
            continue
        x, y = np.exp(steps[start:]), np.exp(heights[start:])
        axes.plot(x, y, GUIDES.get(slope, "-."), color=INK, linewidth=1.1)
        _guide_name(axes, x[0], y[0], f"slope {slope:g}")
    axes.set_ylim(min(limits[0], np.exp(end - 0.4)), limits[1])


def _guide_name(axes: Axes, x: float, y: float, name: str) -> None:
    """A guide's name left of its upper end or, where the panel has no room there, under it; never outside the panel."""
    across, _ = (axes.transData + axes.transAxes.inverted()).transform((x, y))
    place = {"ha": "right", "va": "center"} if across > 0.3 else {"ha": "left", "va": "top"}
    style = {"color": MUTED, "fontsize": 8, "clip_on": True} | place
    axes.text(x / 1.1 if across > 0.3 else x, y, name, style).set_in_layout(False)


def _caption(stages: list[StageView], spec: Spec, metrics: list[str]) -> str:
    logged = stages[0].metrics["series"]["values"]
    seeds = len(logged[metrics[0]][0])
    over = f"mean and range over {seeds} seeds" if seeds > 1 else "one seed"
    marks = " Dots mark where a further phase begins." if "phase" in logged else ""
    return (
        f"{' and '.join(spec.stages)}: {' and '.join(metrics)} over the steps of the training, held out; {over}.{marks}"
    )
