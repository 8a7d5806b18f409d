"""Figures of whole stages and scales of axes, and the report of a large grid."""

import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from PIL import Image
from report_run import LINES, REALISTIC, SAMPLES, TRANSFER, accuracy, association, drawn, transfer, write_run
from small_run import RECIPE as SMALL

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.pipeline.folder import RunFolder
from provenzoo.pipeline.plan import prepare
from provenzoo.plain import dump_yaml, write_whole
from provenzoo.report import report
from provenzoo.report.charts import curves
from provenzoo.report.figure import covers
from provenzoo.report.figures import write_figures
from provenzoo.report.lines import lines


def caption_of(file: Path) -> str:
    return str(Image.open(file).info["Description"])


# --- lines along an axis ------------------------------------------------------------------------------------------


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", {**TRANSFER, "figures": {"samples": LINES}}, transfer())


def test_a_line_is_the_mean_over_seeds_with_bars_of_one_standard_deviation(grid: Path) -> None:
    figure, caption = drawn(grid, lines, **LINES)
    bars = {bar.get_label(): bar for bar in figure.axes[0].containers}
    assert list(bars) == ["pretrained", "scratch", "initial"]
    line, _, (segments,) = bars["scratch"].lines
    assert line.get_xdata() == pytest.approx(SAMPLES)
    assert line.get_ydata() == pytest.approx([fmean(accuracy(100, n)) for n in SAMPLES])
    low, high = np.array(segments.get_segments())[:, :, 1].T
    assert high - low == pytest.approx([2 * stdev(accuracy(100, n)) for n in SAMPLES])
    assert figure.legends[0].get_title().get_text() == "arm"
    assert "mean over 3 seeds, bars of one standard deviation" in caption


def test_a_figure_of_a_whole_stage_is_drawn_once_and_goes_when_it_is_not_wanted(grid: Path) -> None:
    assert write_figures(grid) == [grid / "figures" / "samples.png"]
    write_whole(grid / "config.yaml", dump_yaml({**TRANSFER, "figures": {"other": LINES}}))
    write_figures(grid)
    assert [file.name for file in grid.rglob("*.png")] == ["other.png"]
    RunFolder(grid).drop()
    assert not (grid / "figures").exists()


def test_page_and_card_show_the_figures_of_the_run(grid: Path) -> None:
    report(grid)
    assert (grid / "report.html").read_text(encoding="utf-8").count("data:image/png;base64,") == 1
    assert "![samples](figures/samples.png)" in (grid / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("samples", "asked", "scale"),
    [(SAMPLES, None, "log"), ((1, 2, 3, 20), None, "linear"), ((0, 1, 100), None, "linear"), (SAMPLES, "linear", "linear"), ((0, 1, 100), "log", "symlog")],
)  # fmt: skip
def test_wide_positive_labels_stand_on_a_logarithmic_axis_unless_asked_otherwise(
    tmp_path: Path, samples: tuple[int, ...], asked: str | None, scale: str
) -> None:
    points = [
        {"name": f"transfer[data.samples={n}]", "sets": {"": {"sign-accuracy": [0.9, 0.8, 0.7]}}} for n in samples
    ]
    figure, _ = drawn(write_run(tmp_path / "run", TRANSFER, points), lines, **LINES, x=asked)
    assert figure.axes[0].get_xscale() == scale and not figure.legends


def test_lines_are_told_apart_by_all_axes_that_vary_and_by_sets(tmp_path: Path) -> None:
    points = [
        {"name": f"judge[dim={dim},loops={loops}]", "sets": {s: {"loss": [0.1, 0.2, 0.3]} for s in ("in", "out")}}
        for dim in (2, 5)
        for loops in (1, 2, 3)
    ]
    recipe = {**TRANSFER, "stages": {"judge": {"stage": "evaluate", "metrics": ["loss"]}}}
    run = write_run(tmp_path / "run", recipe, points)
    figure, _ = drawn(run, lines, kind="lines", stage="judge", axis="loops", y="log")
    legend = figure.legends[0]
    assert legend.get_title().get_text() == "dim, set"
    assert [text.get_text() for text in legend.get_texts()] == ["2, in", "2, out", "5, in", "5, out"]
    looks = [(bar.lines[0].get_color(), bar.lines[0].get_linestyle()) for bar in figure.axes[0].containers]
    assert len(set(looks)) == 4 and len({colour for colour, _ in looks}) == 2
    assert figure.axes[0].get_yscale() == "log"


def test_a_stage_in_brackets_is_those_of_its_points(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TRANSFER, transfer((16, 64)))
    figure, caption = drawn(run, lines, **{**LINES, "stage": "transfer[arm=scratch]"})
    assert [bar.get_label() for bar in figure.axes[0].containers] == ["16", "64"]
    assert figure.legends[0].get_title().get_text() == "model.dim" and "transfer[arm=scratch]" in caption


@pytest.mark.parametrize(
    ("reference", "holds"),
    [("a", True), ("a[x=1]", True), ("a[y=b, x=*]", True), ("a[x=2]", False), ("a[z=*]", False), ("b", False)],
)
def test_a_reference_covers_the_points_with_its_labels(reference: str, holds: bool) -> None:
    assert covers(reference, "a[x=1,y=b]") is holds


def test_a_seed_that_is_not_finite_is_left_out_of_the_mean_and_told(tmp_path: Path) -> None:
    points = transfer()
    points[8]["sets"][""]["sign-accuracy"] = [0.9, None, 0.8]
    points[9]["sets"][""]["sign-accuracy"] = [None, None, None]
    figure, caption = drawn(write_run(tmp_path / "run", TRANSFER, points), lines, **LINES)
    assert "left out: sign-accuracy of scratch at 16, seed 1; sign-accuracy of scratch at 64, seed 0;" in caption
    assert "and 1 more." in caption
    means = figure.axes[0].containers[1].lines[0].get_ydata()
    assert means[2] == pytest.approx(0.85) and np.isnan(means[3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axis": "data.sample"}, "transfer[arm=pretrained,data.samples=1] has no axis 'data.sample'; did you mean 'data.samples'?"),
        ({"axis": "arm"}, "figures.it: the label 'pretrained' on arm is no number"),
        ({"metric": "acuracy"}, "figures.it: no metric 'acuracy' in transfer; did you mean 'sign-accuracy'?"),
        ({"stage": "transfer[arm=scrach]"}, "figures.it: no stage 'transfer[arm=scrach]'; did you mean"),
        ({"axis": None}, "figures.it: 'axis' is missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_line_with_the_nearest_names(tmp_path: Path, change: dict, message: str) -> None:
    spec = {key: value for key, value in {**LINES, **change}.items() if value is not None}
    run = write_run(tmp_path / "run", {**TRANSFER, "figures": {"it": spec}}, transfer())
    with pytest.raises(ZooError, match=re.escape(message)) as error:
        write_figures(run)
    assert "\n" not in str(error.value)


# --- before anything trains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"kind": "lines", "stage": "train", "axis": "data.trian"}, "figures.it: train[data.train=40] has no axis 'data.trian'"),
        ({"kind": "lines", "stage": "train", "axis": "data.train", "metric": "acuracy"}, "no metric 'acuracy' in train; did you mean 'accuracy'"),
        ({"kind": "lines", "stage": "train", "axis": "data.train", "metric": "class-accuracy"}, "no metric 'class-accuracy' in train"),
        ({"kind": "lines", "stage": "train[data.train=41]", "axis": "data.train"}, "no stage 'train[data.train=41]'; did you mean"),
        ({"kind": "lines", "stage": "train"}, "figures.it: 'axis' is missing"),
        ({"kind": "association", "stage": "judge"}, "figures.it: association shows a training, and judge only evaluates"),
        ({"kind": "dynamics", "stage": "train"}, "train has 2 points, such as train[data.train=40]; name one of them"),
        ({"kind": "dynamics", "stage": "train[data.train=40]"}, "no metric 'alpha' in train[data.train=40]"),
        ({"kind": "dynamics", "stage": "train[data.train=40]", "beside": "jugde"}, "no metric 'alpha'"),
        ({"kind": "curves", "stage": "train", "x": "logarithmic"}, "figures.it.x: must be 'linear' or 'log'"),
    ],
)  # fmt: skip
def test_a_figure_that_will_not_draw_is_found_in_the_plan(figure: dict, message: str) -> None:
    with pytest.raises(ZooError, match=re.escape(message)):
        prepare({**GRID, "figures": {"it": figure}})


GRID: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "claims"},
    "stages": {**SMALL["stages"], "train": {**SMALL["stages"]["train"], "steps": 4, "log_every": 2, "grid": {"data.train": [40, 400]}}},
}  # fmt: skip


def test_a_run_of_a_grid_draws_its_lines(tmp_path: Path) -> None:
    figures = {
        "train": {"kind": "lines", "stage": "train", "axis": "data.train", "metrics": ["loss", "accuracy"]},
        "judge": {"kind": "lines", "stage": "judge", "axis": "data.train"},
    }
    run = provenzoo.run({**GRID, "figures": figures}, out=tmp_path / "run").path
    assert sorted(file.stem for file in (run / "figures").iterdir()) == ["judge", "train"]
    assert caption_of(run / "figures" / "judge.png").startswith("judge: accuracy at the end, against data.train; mean")


# --- curves -------------------------------------------------------------------------------------------------------


def test_curves_take_logarithmic_axes_and_keep_step_zero(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", REALISTIC, [association()])
    figure, _ = drawn(run, curves, kind="curves", stage="pretrain", metric="test-error", x="log", y="log")
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("symlog", "log")
    places = axes.transData.transform([(0, 0.1), (20, 0.1), (400, 0.1)])[:, 0]
    assert np.isfinite(places).all() and (np.diff(places) > 0).all()


@pytest.mark.parametrize(
    ("values", "scale"), [([0.0, 0.0, 0.0], "linear"), ([0.0, 0.0, 0.004], "log"), ([-1.0, -2.0, -3.0], "linear"), ([1e-7, 0.1, 0.2], "log")]
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_zeros_on_a_logarithmic_axis_are_no_fault(tmp_path: Path, values: list[float], scale: str) -> None:
    points = [{"name": f"transfer[data.samples={n}]", "sets": {"": {"loss": values}}} for n in SAMPLES]
    run = write_run(tmp_path / "run", TRANSFER, points)
    figure, _ = drawn(run, lines, kind="lines", stage="transfer", metric="loss", axis="data.samples", y="log")
    assert figure.axes[0].get_yscale() == scale


# --- the page of a large grid -------------------------------------------------------------------------------------


def test_a_stage_of_many_points_is_one_table_with_a_row_a_point(grid: Path) -> None:
    page = report(grid)[-1].read_text(encoding="utf-8")
    assert page.count('<table class="grid">') == 1 and "18 points" in page
    row = re.search(r"<tr><th>scratch</th><th>64</th>(.*?)</tr>", page)
    assert row is not None
    text = " ".join(re.sub(r"<[^>]*>", " ", row[1]).split())
    mean, std = fmean(accuracy(100, 64)), stdev(accuracy(100, 64))
    assert text == f"{mean:.4g} ± {std:.2g} 0.2 ± 0.1"
    assert "transfer, 18 points" in page


def test_a_stage_of_few_points_keeps_a_block_a_point(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TRANSFER, transfer()[:12])
    page = report(run)[-1].read_text(encoding="utf-8")
    assert '<table class="grid">' not in page and page.count("<h3>transfer[arm=") == 12


def test_nulls_and_diverged_seeds_of_a_large_grid_are_told(tmp_path: Path) -> None:
    points = transfer()
    points[3]["sets"][""]["sign-accuracy"][2] = None
    points[3]["diverged"] = {"2": {"step": 7, "parameter": "value"}}
    page = report(write_run(tmp_path / "run", TRANSFER, points))[-1].read_text(encoding="utf-8")
    assert "not finite" in page
    assert "transfer[arm=pretrained,data.samples=64]: seed 2 diverged at step 7" in page
