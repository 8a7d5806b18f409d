"""Rates of convergence as Figures 2 and 4 of Zhang, Zhao, Gu, Cao show them: curves with slopes as guides."""

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.style import (
    DASHES,
    INK,
    MUTED,
    PALETTE,
    Array,
    band,
    chosen_metrics,
    is_vector,
    make_panels,
    set_scales,
    unit,
)

GUIDES = {-1.0: ":", -0.5: "--"}
"""The slopes that a panel may be given as guides, and their dashes."""


def rates(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """A panel a metric, a line a point of the stage: mean over the seeds, band from the least to the greatest.

    Where both axes are logarithmic, `guides` draws lines of those slopes. Where `phase` was logged, a dot marks where
    each further phase begins.
    """
    known = [name for name, rows in stages[0].metrics["series"]["values"].items() if not is_vector(rows)]
    chosen = chosen_metrics(spec, known, where)
    figure, panels = make_panels(len(chosen), height=3.2)
    for axes, metric in zip(panels, chosen, strict=True):
        for number, stage in enumerate(stages):
            _line(axes, stage, metric, number)
        axes.set(title=metric, xlabel="step", ylabel=unit(stages[0], metric))
        straight = metric.rpartition(".")[2] in ("cosine-to-truth", "group-mass", "accuracy")
        set_scales(axes, spec.x, "linear" if straight else spec.y, least=stages[0].metrics["series"]["steps"][1])
        if spec.x == spec.y == "log" and not straight:
            _guides(axes, spec.guides)
    if len(stages) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(6, len(stages)))
    return figure, _caption(stages, chosen)


def _name(stage: StageView) -> str:
    return ", ".join(stage.labels.values()) or stage.name


def _line(axes: Axes, stage: StageView, metric: str, number: int) -> None:
    series = stage.metrics["series"]
    steps, rows = np.array(series["steps"]), np.array(series["values"][metric], dtype=float).T
    colour = PALETTE[number % len(PALETTE)]
    band(axes, steps, rows, colour, _name(stage), dash=DASHES[number // len(PALETTE) % len(DASHES)])
    for at in _turns(series["values"].get("phase", [])):
        axes.plot(steps[at], np.nanmean(rows[:, at]), "o", color=colour, markeredgecolor="white", markersize=6)


def _turns(phases: list[list[float | None]]) -> list[int]:
    """Where the phase, a median over the seeds, becomes another."""
    middle = [np.median([value or np.nan for value in row]) for row in phases]
    return [at for at, (before, after) in enumerate(itertools.pairwise(middle), 1) if after > before]


def _guides(axes: Axes, slopes: list[float]) -> None:
    """Lines of a slope through the lower right half of a panel with two logarithmic axes."""
    data = np.concatenate([np.column_stack(line.get_data()) for line in axes.lines if np.size(line.get_xdata()) > 1])
    data, limits = data[(data > 0).all(1)], axes.get_ylim()
    right = data[:, 0].max()
    level = np.exp(np.median(np.log(data[data[:, 0] > right / 2, 1])))
    for slope in slopes:
        x: Array = np.array([right / 30, right])
        axes.plot(x, 3 * level * (x / right) ** slope, GUIDES.get(slope, "-."), color=INK, linewidth=1.1)
        style = {"color": MUTED, "fontsize": 8, "ha": "left", "va": "bottom"}
        axes.text(x[0], 3 * level * 30**-slope, f"slope {slope:g}", style, clip_on=True)
    axes.set_ylim(limits)


def _caption(stages: list[StageView], metrics: list[str]) -> str:
    seeds = len(stages[0].metrics["series"]["values"][metrics[0]][0])
    marks = " Dots mark where a further phase begins." if "phase" in stages[0].metrics["series"]["values"] else ""
    over = f"means and ranges over {seeds} seeds" if seeds > 1 else "one seed"
    return f"{', '.join(metrics)} over the steps of {stages[0].base}: {over}.{marks}"
