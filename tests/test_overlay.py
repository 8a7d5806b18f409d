"""The training curves of a stage's points in one figure."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report_run import SEEDS, drawn, write_run

from provenzoo.report.figures import write_figures
from provenzoo.report.lines import lines
from provenzoo.report.overlay import _guides, overlay

STEPS = [0, 10, 20]
SPEC = {"kind": "overlay", "stage": "pretrain", "metric": "loss", "y": "log"}
RECIPE: dict[str, Any] = {
    "recipe": "mine/loops",
    "seeds": SEEDS,
    "stages": {"pretrain": {"stage": "pretrain", "metrics": ["loss"]}},
    "figures": {"figure-2": SPEC},
}


def point(form: str, loops: int) -> dict[str, Any]:
    """A point whose loss at step t of seed k is (1 + k) / loops / (1 + t)."""
    losses = [[(1 + seed) / loops / (1 + step) for seed in range(SEEDS)] for step in STEPS]
    name = f"pretrain[form={form},loops={loops}]"
    return {"name": name, "sets": {"": {"loss": losses[-1]}}, "steps": STEPS, "logged": {"loss": losses}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", RECIPE, [point(form, loops) for form in ("a", "b") for loops in (1, 2, 5)])


def test_there_is_a_line_a_point_the_mean_over_its_seeds(run: Path) -> None:
    figure, caption = drawn(run, overlay, **SPEC)
    found = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(found) == ["a, 1", "a, 2", "a, 5", "b, 1", "b, 2", "b, 5"]
    assert found["a, 5"].get_xdata() == pytest.approx(STEPS)
    assert found["a, 5"].get_ydata() == pytest.approx([2 / 5 / (1 + step) for step in STEPS])
    assert figure.axes[0].get_yscale() == "log" and figure.legends[0].get_title().get_text() == "form, loops"
    assert caption == "pretrain: loss over the steps of the training, held out; mean and range over 3 seeds."


def test_labels_that_all_points_share_are_left_out(run: Path) -> None:
    figure, _ = drawn(run, overlay, **{**SPEC, "stage": "pretrain[form=a]"})
    assert [line.get_label() for line in figure.axes[0].lines] == ["1", "2", "5"]
    assert figure.legends[0].get_title().get_text() == "loops"


def test_it_is_drawn_once_for_all_points(run: Path) -> None:
    assert write_figures(run) == [run / "figures" / "figure-2.png"]


def test_a_stage_beside_is_dashed_in_the_colours_of_the_points_with_its_labels(tmp_path: Path) -> None:
    """And along an axis both stages have a line on the same axes, named by the stage."""
    stages = {name: RECIPE["stages"]["pretrain"] for name in ("layers", "loops")}
    points = [
        point("a", depth) | {"name": f"{name}[depth={depth}]"} for name in ("layers", "loops") for depth in (2, 3)
    ]
    run = write_run(tmp_path / "run", {**RECIPE, "stages": stages, "figures": {}}, points)
    spec = {**SPEC, "stage": "layers", "beside": "loops"}
    figure, caption = drawn(run, overlay, **spec)
    found = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(found) == ["layers, 2", "layers, 3", "loops, 2", "loops, 3"]
    assert [line.get_linestyle() for line in found.values()] == ["-", "-", "--", "--"]
    assert found["layers, 2"].get_color() == found["loops, 2"].get_color() != found["loops, 3"].get_color()
    assert caption.startswith("layers and loops: loss over the steps")
    figure, caption = drawn(run, lines, **{**spec, "kind": "lines", "axis": "depth"})
    assert figure.axes[0].get_legend_handles_labels()[1] == ["layers", "loops"]
    assert caption.startswith("layers and loops: loss at the end, against depth")


def guided(*curves: tuple[float, float], slopes: tuple[float, ...] = (-1.0, -0.5)) -> tuple[list[np.ndarray], Axes]:
    """The lines of guides, `[points, 2]`, under curves `factor * step ** power`."""
    axes = Figure().subplots()
    steps = np.geomspace(10, 10_000, 200)
    for factor, power in curves:
        axes.plot(steps, factor * steps**power)
    axes.set(xscale="log", yscale="log")
    _guides(axes, list(slopes))
    return [np.column_stack(line.get_data()) for line in axes.lines[len(curves) :]], axes


def test_a_guide_has_its_slope_and_lies_under_every_curve_inside_of_the_panel():
    found, axes = guided((100, -1.2), (500, -0.9))
    for (x, y), slope in zip([line.T for line in found], (-1.0, -0.5), strict=True):
        assert np.log(y[-1] / y[0]) / np.log(x[-1] / x[0]) == pytest.approx(slope)
        assert (y < np.minimum(100 * x**-1.2, 500 * x**-0.9)).all() and x[-1] / x[0] > 10
        assert axes.get_ylim()[0] < y.min() and y.max() < axes.get_ylim()[1]
    assert [text.get_text() for text in axes.texts] == ["slope -1", "slope -0.5"]


def test_a_guide_that_a_curve_leaves_no_room_is_left_out():
    found, axes = guided((100, 0.5))
    assert not found and not axes.texts
    assert len(guided((100, -0.5))[0]) == 1
