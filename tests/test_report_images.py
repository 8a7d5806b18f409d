"""Figures 1, 5 and 7: columns side by side, a dashed baseline, a threshold, encodings that are put back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_run import SEEDS, TRANSFER, drawn, transfer, write_run

import provenzoo
from provenzoo.draws import cell_permutation
from provenzoo.errors import ZooError
from provenzoo.metrics.locality import unpermuted
from provenzoo.report.columns import columns
from provenzoo.report.figures import write_figures
from provenzoo.report.lines import lines
from provenzoo.report.maps import _put_back, above, encodings
from provenzoo.report.similarities import similarities

VALUES = {"vanilla": [0.86, 0.87, 0.88], "positional": [0.87, 0.90, 0.93]}
COLUMNS = {"kind": "columns", "stage": "train", "metric": "accuracy", "axis": "attention"}
RECIPE: dict[str, Any] = {
    "recipe": "mine/images",
    "seeds": SEEDS,
    "stages": {"train": {"stage": "pretrain", "metrics": ["accuracy"]}},
}


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    points = [
        {"name": f"train[attention={name}]", "sets": {"": {"accuracy": values}}} for name, values in VALUES.items()
    ]
    return write_run(tmp_path / "run", {**RECIPE, "figures": {"figure-7": COLUMNS}}, points)


def test_columns_are_the_means_over_seeds_beside_each_other(pair: Path) -> None:
    figure, caption = drawn(pair, columns, **COLUMNS)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["vanilla", "positional"]
    *levels, _, _ = [part for part in axes.collections if hasattr(part, "get_segments")] + [None, None]
    assert [float(level.get_segments()[0][0, 1]) for level in levels] == pytest.approx([0.87, 0.90])
    assert "by attention; lines are means, dots the 3 seeds" in caption and "above zero" in caption
    assert write_figures(pair) == [pair / "figures" / "figure-7.png"]


def test_columns_have_a_panel_for_each_label_of_the_other_axes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TRANSFER, transfer())
    spec = {"kind": "columns", "stage": "transfer", "metric": "sign-accuracy", "axis": "arm"}
    figure, _ = drawn(run, columns, **spec)
    assert [axes.get_title("left") for axes in figure.axes] == ["1", "4", "16", "64", "256", "1024"]
    with pytest.raises(ZooError, match="no axis 'arms'; did you mean 'arm'"):
        drawn(run, columns, **{**spec, "axis": "arms"})


def test_an_axis_is_needed(pair: Path) -> None:
    with pytest.raises(ZooError, match="'axis' is missing"):
        drawn(pair, columns, kind="columns", stage="train")


def test_a_baseline_is_each_lines_own_mean_at_a_label(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TRANSFER, transfer())
    spec = {"kind": "lines", "stage": "transfer", "metric": "sign-accuracy", "axis": "data.samples"}
    figure, caption = drawn(run, lines, **spec, baseline="1024")
    dashed = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "--"]
    last = [bar.lines[0].get_ydata()[-1] for bar in figure.axes[0].containers]
    assert [line.get_ydata()[0] for line in dashed] == pytest.approx(last)
    assert "Dashed: the means at 1024." in caption
    with pytest.raises(ZooError, match="baseline: no label '1000'"):
        drawn(run, lines, **spec, baseline="1000")


# --- encodings ------------------------------------------------------------------------------------------------


def test_encodings_are_put_back_as_the_metric_puts_them_back() -> None:
    rows = torch.randn(49, 5)
    for cell in (4, 28):
        pixels = cell_permutation(28, cell, 2)
        assert np.array_equal(_put_back(rows.numpy(), pixels.numpy()), unpermuted(rows, pixels).numpy())


def test_each_tokens_products_are_scaled_to_one_and_blank_below_the_threshold() -> None:
    """Products with the others of 6, 0 and -2 are 1, -0.5 and -1; that with itself, which is larger, is 1."""
    rows = np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, -2.0, 1.0]])
    assert above(rows, -1.0)[0].tolist() == [1.0, 1.0, -0.5, -1.0]
    shown = above(rows, 0.55)[0]
    assert shown[:2].tolist() == [1.0, 1.0] and np.isnan(shown[2:]).all()


@pytest.mark.parametrize("permuted", [False, True])
def test_encodings_of_permuted_images_are_shown_as_trained_and_put_back(permuted, tmp_path) -> None:
    tensors = {f"{name}/positional_encodings": torch.randn(SEEDS, 16, 4) for name in ("tensors", "tensors@0")}
    if permuted:
        tensors["structure/pixel_permutation"] = cell_permutation(16, 4, 1).expand(SEEDS, -1).clone()
    point = {"name": "train", "sets": {"": {"accuracy": [0.5] * SEEDS}}, "tensors": tensors}
    run = write_run(tmp_path / "run", RECIPE, [point])
    figure, caption = drawn(run, encodings, kind="encodings", stage="train")
    titles = [axes.get_title("left") for axes in figure.axes[:2]]
    assert titles == (["trained", "trained, put back"] if permuted else ["at initialisation", "trained"])
    assert ("Put back" in caption) == permuted


def test_similarities_are_those_of_one_point_and_of_those_beside_it_and_blank_below_the_threshold(tmp_path) -> None:
    points = [
        {
            "name": name,
            "sets": {"": {"accuracy": [0.5] * SEEDS}},
            "tensors": {"tensors/positional_encodings": torch.randn(SEEDS, 9, 4)},
        }
        for name in ("first[of=a]", "later[of=a]", "later[of=b]")
    ]
    stages = {name: {"stage": "evaluate", "metrics": ["accuracy"]} for name in ("first", "later")}
    run = write_run(tmp_path / "run", {**RECIPE, "stages": stages}, points)
    spec = {"kind": "similarities", "stage": "first[of=a]", "beside": "later"}
    figure, caption = drawn(run, similarities, **spec, threshold=0.55)
    titles = [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]
    assert titles == ["first, a", "later, a", "later, b"]
    assert "below 0.55 blank" in caption and "9 of 9" in caption
    for axes in figure.axes[:3]:
        values = axes.images[0].get_array()
        assert values.min() >= 0.55 and values.max() == 1
    figure, caption = drawn(run, similarities, **spec)
    assert figure.axes[0].images[0].get_array().min() < 0 and "blank" not in caption


def test_a_figure_is_checked_before_anything_runs() -> None:
    recipe = {
        "stages": {
            "train": {
                "stage": "pretrain",
                "model": {"name": "mlp"},
                "data": {"name": "gaussian-clusters"},
                "steps": 1,
                "metrics": ["accuracy"],
                "grid": {"arm": {"a": {}, "b": {}}},
            }
        },
        "figures": {"f": {"kind": "columns", "stage": "train", "axis": "other"}},
    }
    with pytest.raises(ZooError, match="no axis 'other'"):
        provenzoo.run(recipe)
