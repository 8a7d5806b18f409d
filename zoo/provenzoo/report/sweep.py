"""The figure of a sweep: each metric against a swept key, with its spread over the seeds, from sweep.json alone."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provenzoo.plain import read_json, write_whole
from provenzoo.report.lines import WIDE
from provenzoo.report.style import DASHES, MARKERS, PALETTE, STYLE, make_panels

FILE = "figure.png"


@dataclass(frozen=True)
class _Scale:
    """The key that goes from left to right, and the place of each of its values."""

    path: str
    places: dict[str, float]
    numeric: bool

    @classmethod
    def of(cls, axes: dict[str, list[Any]]) -> "_Scale":
        """The key of numbers that has the most of them, else the first; values that are no numbers stand in turn."""
        numeric = {path: values for path, values in axes.items() if all(map(_is_number, values)) and len(values) > 1}
        path = max(numeric, key=lambda key: len(numeric[key])) if numeric else next(iter(axes))
        places = axes[path] if numeric else range(len(axes[path]))
        return cls(path, {str(value): float(at) for value, at in zip(axes[path], places, strict=True)}, bool(numeric))

    @property
    def wide(self) -> bool:
        """Whether the numbers call for a logarithmic axis."""
        low, high = min(self.places.values()), max(self.places.values())
        return self.numeric and low > 0 and high > WIDE * low


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def write_figure(folder: Path) -> Path | None:
    """Draw `figure.png` of a sweep's folder and give its path; None where no point has a number to show."""
    record = read_json(folder / "sweep.json")
    points = [point for point in record["points"] if point["status"] == "complete"]
    metrics = [name for name in record["metrics"] if any(name in point["metrics"] for point in points)]
    if not metrics:
        (folder / FILE).unlink(missing_ok=True)
        return None
    with matplotlib.rc_context(STYLE):
        buffer = io.BytesIO()
        figure, caption = draw(record["axes"], points, metrics)
        left_out = len(record["points"]) - len(points)
        caption += f" {left_out} points that are not complete are left out." if left_out else ""
        title = f"Sweep of {record['recipe']}"
        figure.savefig(buffer, format="png", metadata={"Title": title, "Description": caption, "Software": None})
    write_whole(folder / FILE, buffer.getvalue())
    return folder / FILE


def draw(axes: dict[str, list[Any]], points: list[dict[str, Any]], metrics: list[str]) -> tuple[Figure, str]:
    """A panel a metric: means over seeds with bars of one standard deviation, a line for the values of other keys."""
    scale = _Scale.of(axes)
    lines: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for point in points:
        others = ((path, str(v)) for path, v in point["values"].items() if path != scale.path and len(axes[path]) > 1)
        lines.setdefault(tuple(others), []).append(point)
    figure, panels = make_panels(len(metrics), height=3.5 if len(metrics) < 3 else 3.0)
    for panel, metric in zip(panels, metrics, strict=True):
        for index, (others, members) in enumerate(lines.items()):
            _line(panel, scale, members, metric, index, ", ".join(value for _, value in others))
        panel.set(title=metric, xlabel=scale.path)
        _set_places(panel, scale)
    if len(lines) > 1:
        title = ", ".join(path.rpartition(".")[2] for path, _ in next(iter(lines)))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, title=title, loc="outside right upper", alignment="left")
    return figure, f"{' and '.join(metrics)} against {scale.path}: mean over seeds, bars of one standard deviation."


def _line(panel: Axes, scale: _Scale, members: list[dict[str, Any]], metric: str, index: int, label: str) -> None:
    found = {scale.places[str(m["values"][scale.path])]: m["metrics"].get(metric, {}) for m in members}
    x = sorted(found)
    mean, std = (np.array([found[at].get(key) for at in x], dtype=float) for key in ("mean", "std"))
    panel.errorbar(
        x,
        mean,
        std if np.nanmax(std, initial=0.0) > 0 else None,
        label=label,
        color=PALETTE[index % len(PALETTE)],
        marker=MARKERS[index % len(MARKERS)],
        linestyle=DASHES[index // len(PALETTE) % len(DASHES)] if scale.numeric else "none",
        capsize=2.5,
        elinewidth=1,
        markersize=4.5,
    )


def _set_places(panel: Axes, scale: _Scale) -> None:
    if scale.wide:
        panel.set_xscale("log")
    if not scale.numeric:
        panel.set_xticks(list(scale.places.values()), list(scale.places))
        panel.set_xlim(-0.5, len(scale.places) - 0.5)
