"""A metric at the end of a stage against a numeric axis of its grid: one line for each combination of all else."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.report import RunView, StageView, number
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.figure import Scale, numbers_along
from provenzoo.report.style import (
    DASHES,
    MARKERS,
    PALETTE,
    SHARE,
    Array,
    chosen_metrics,
    is_vector,
    make_panels,
    set_scales,
    unit,
)

WIDE = 20
"""Labels above zero that span more than this factor stand on a logarithmic axis, unless `x` says otherwise."""


@dataclass(frozen=True)
class Line:
    """The points that differ along the axis alone, from left to right."""

    labels: tuple[tuple[str, str], ...]
    """The label on every other axis and, of a stage that evaluates, the set; the stage first, where there are two."""
    x: Array
    values: dict[str, list[Array]]
    """Metric -> the seeds' values at each point; NaN where a seed was not finite."""

    def summary(self, metric: str) -> tuple[Array, Array]:
        """Mean and standard deviation (n - 1) over the finite seeds at each point; NaN where there is none."""
        finite = [row[np.isfinite(row)] for row in self.values[metric]]
        means = [row.mean() if row.size else np.nan for row in finite]
        return np.array(means), np.array([row.std(ddof=1) if row.size > 1 else 0.0 for row in finite])


def lines(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Metrics at the end of every point against the numeric labels of `axis`: means, bars of one standard deviation.

    The points of a stage `beside` it have lines of their own, named by the stage.
    """
    axis = spec.axis or ""
    metrics = chosen_metrics(spec, _scalars(stages), where)
    found = _lines(stages, axis, metrics, where)
    x = np.unique(np.concatenate([line.x for line in found]))
    scale = spec.x or ("log" if x[0] > 0 and x[-1] > WIDE * x[0] else "linear")
    figure, panels = make_panels(len(metrics), height=3.5 if len(metrics) < 3 else 3.0)
    for axes, metric in zip(panels, metrics, strict=True):
        beside = _beside(figure, len(found))
        for line, name, style in zip(found, _names(found), _styles(found), strict=True):
            mean, std = line.summary(metric)
            bars = std if max(map(len, line.values[metric])) > 1 else None
            look = {**style, "capsize": 2.5, "elinewidth": 1, "markersize": 4.5}
            axes.update_datalim([*zip(line.x, mean - std, strict=True), *zip(line.x, mean + std, strict=True)])
            axes.errorbar(line.x, mean, bars, label=name, transform=axes.transData + next(beside), **look)
            if spec.baseline is not None:
                axes.axhline(
                    mean[_place(line, spec.baseline, where)], color=style["color"], linestyle="--", linewidth=1
                )
        axes.set(title=metric, xlabel=axis, ylabel=unit(stages[0], metric))
        set_scales(axes, scale, spec.y, least=float(x[x > 0].min(initial=1.0)))
        _ticks(axes, x, scale, room=14 // len(panels))
    if len(found) > 1:
        _place_legend(figure, panels, ", ".join(_several(found)))
    return figure, _caption(found, spec, metrics)


def _place(line: Line, label: str, where: str) -> int:
    """The place of the baseline's label on a line."""
    if label not in (known := [f"{x:g}" for x in line.x]):
        raise ZooError(f"{where}.baseline: no label {label!r} on the axis{did_you_mean(label, known)}")
    return known.index(label)


def _scalars(stages: list[StageView]) -> list[str]:
    """The metrics that every set of every point has as single numbers."""
    values = [entry["values"] for stage in stages for entry in stage.metrics["sets"].values()]
    return [name for name in values[0] if all(name in v and not is_vector([v[name]]) for v in values)]


def _lines(stages: list[StageView], axis: str, metrics: list[str], where: str) -> list[Line]:
    places = numbers_along(axis, [stage.name for stage in stages], where)
    rows: dict[tuple[tuple[str, str], ...], dict[float, dict[str, Any]]] = {}
    several = len({stage.base for stage in stages}) > 1
    for stage in stages:
        others = tuple((name, label) for name, label in stage.labels.items() if name != axis)
        others = (("stage", stage.base), *others) if several else others
        for label, entry in stage.metrics["sets"].items():
            key = (*others, *([("set", label)] if label else []))
            rows.setdefault(key, {})[places[stage.labels[axis]]] = entry["values"]
    return [_line(key, points, metrics) for key, points in rows.items()]


def _line(key: tuple[tuple[str, str], ...], points: dict[float, dict[str, Any]], metrics: list[str]) -> Line:
    x = sorted(points)
    values = {metric: [np.array(points[at][metric], dtype=float) for at in x] for metric in metrics}
    return Line(key, np.array(x), values)


# --- what tells the lines apart -----------------------------------------------------------------------------------


def _several(found: list[Line]) -> list[str]:
    """The axes on which the lines differ."""
    names = dict.fromkeys(name for line in found for name, _ in line.labels)
    return [name for name in names if len({dict(line.labels).get(name) for line in found}) > 1]


def _keys(found: list[Line]) -> list[tuple[str, ...]]:
    """Each line's labels on these axes; empty where it lacks one."""
    return [tuple(dict(line.labels).get(name, "") for name in _several(found)) for line in found]


def _names(found: list[Line]) -> list[str]:
    return [", ".join(label for label in key if label) for key in _keys(found)]


def _styles(found: list[Line]) -> list[dict[str, Any]]:
    """The first of the labels gives a line its colour, the others together its dashes."""
    keys = _keys(found)
    firsts = list(dict.fromkeys(key[:1] for key in keys))
    rests = list(dict.fromkeys(key[1:] for key in keys))
    colours = PALETTE if len(firsts) <= len(PALETTE) else SHARE(np.linspace(0.25, 1, len(firsts)))
    styles = []
    for key in keys:
        colour, dash = firsts.index(key[:1]), rests.index(key[1:])
        marker = dash if len(rests) > 1 else colour
        drawn = {"linestyle": DASHES[dash % len(DASHES)], "marker": MARKERS[marker % len(MARKERS)]}
        styles.append({"color": colours[colour], **drawn})
    return styles


def _beside(figure: Figure, count: int) -> Iterator[ScaledTranslation]:
    """Shifts of a few points to the side, so that bars at the same label are all seen."""
    for shift in np.linspace(-1, 1, count) * min(0.9 * (count - 1), 4.5) if count > 1 else (0.0,):
        yield ScaledTranslation(float(shift) / 72, 0, figure.dpi_scale_trans)


def _place_legend(figure: Figure, panels: list[Axes], title: str) -> None:
    handles, labels = panels[0].get_legend_handles_labels()
    if len(panels) == 1:
        figure.legend(handles, labels, title=title, loc="outside right upper", alignment="left")
    else:
        figure.legend(handles, labels, title=title, loc="outside lower center", ncols=min(len(labels), 5))


def _ticks(axes: Axes, x: Array, scale: Scale, room: int) -> None:
    """A tick at each label of a logarithmic axis, as far as there is room for them."""
    if scale == "linear":
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=bool((x == x.round()).all())))
        return
    places = np.log(np.maximum(x, x[x > 0].min() / 2))
    kept: list[int] = []
    for index, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= (places[-1] - places[0]) / room:
            kept.append(index)
    axes.xaxis.set_major_locator(FixedLocator(x[kept].tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")


# --- caption ------------------------------------------------------------------------------------------------------


def _caption(found: list[Line], spec: Spec, metrics: list[str]) -> str:
    seeds = max(len(row) for line in found for rows in line.values.values() for row in rows)
    over = f"mean over {seeds} seeds, bars of one standard deviation" if seeds > 1 else "one seed"
    text = f"{' and '.join(spec.stages)}: {' and '.join(metrics)} at the end, against {spec.axis}; {over}."
    text += f" Dashed: the means at {spec.baseline}." if spec.baseline is not None else ""
    nulls = [
        f"{metric}{f' of {name}' if name else ''} at {number(float(x))}, seed {seed}"
        for line, name in zip(found, _names(found), strict=True)
        for metric in metrics
        for x, row in zip(line.x, line.values[metric], strict=True)
        for seed in np.flatnonzero(~np.isfinite(row))
    ]
    if not nulls:
        return text
    more = f" and {len(nulls) - 3} more" if len(nulls) > 3 else ""
    return f"{text} Not finite and left out: {'; '.join(nulls[:3])}{more}."
