"""A logged metric over the steps of a training, one line for each point of a stage (loops, context lengths, arms)."""

import numpy as np
from matplotlib.figure import Figure

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.style import PALETTE, SHARE, band, chosen_metrics, is_vector, make_panels, set_scales, unit


def overlay(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Logged metrics of every point in one panel each: mean line, band from the least to the greatest seed."""
    metrics = chosen_metrics(spec, _logged_by_all(stages), where)
    figure, panels = make_panels(len(metrics), height=3.5 if len(metrics) < 3 else 3.0)
    colours = PALETTE if len(stages) <= len(PALETTE) else SHARE(np.linspace(0.25, 1, len(stages)))
    title, names = _names(stages)
    for axes, metric in zip(panels, metrics, strict=True):
        for stage, name, colour in zip(stages, names, colours, strict=False):
            series = stage.metrics["series"]
            rows = np.array(series["values"][metric], dtype=float).T
            band(axes, np.array(series["steps"]), rows, colour, name)
        axes.set(title=metric, xlabel="step", ylabel=unit(stages[0], metric))
        set_scales(axes, spec.x, spec.y, least=stages[0].metrics["series"]["steps"][1])
    if len(stages) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, title=title, loc="outside right upper", alignment="left")
    seeds = len(stages[0].metrics["series"]["values"][metrics[0]][0])
    over = f"mean and range over {seeds} seeds" if seeds > 1 else "one seed"
    return figure, f"{spec.stage}: {' and '.join(metrics)} over the steps of the training, held out; {over}."


def _logged_by_all(stages: list[StageView]) -> list[str]:
    series = [stage.metrics["series"]["values"] for stage in stages]
    return [name for name, rows in series[0].items() if not is_vector(rows) and all(name in other for other in series)]


def _names(stages: list[StageView]) -> tuple[str, list[str]]:
    """The axes on which the points differ, and each point's labels there."""
    axes = dict.fromkeys(axis for stage in stages for axis in stage.labels)
    several = [axis for axis in axes if len({stage.labels.get(axis) for stage in stages}) > 1]
    return ", ".join(several), [", ".join(stage.labels.get(axis, "") for axis in several) for stage in stages]
