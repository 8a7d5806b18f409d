"""Patch association as Figures 2 and 4 of Jelassi, Sander, Li 2022 show it: the true sets, the learned A, curves."""

from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.maps import bare, shown_tensor
from provenzoo.report.style import BLUE, RULE, SIGNED, WIDTH, Array, band, chosen_metrics, is_vector, set_scales, unit

PAIRS = ListedColormap(["#ffffff", "#98a2ad"])
FIXED = "#d3d8de"


def association(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """In grey the pairs (i, j) of one set, beside them the learned A `[D, D]`, then metrics over the steps.

    With several metrics all stand in a row (Figure 4). With one, its curve is at the left, and at the right the pairs
    stand above A (Figure 2). Both maps have the patches in one order; the diagonal of A, which is fixed, is greyed.
    """
    seed, learned = shown_tensor(stage, "attention_matrix", spec, where)
    sets = _partition(stage, seed, where)
    logged = stage.metrics["series"]["values"]
    known = [name for name, rows in logged.items() if not is_vector(rows)]
    metrics = chosen_metrics(spec, known, where, [name for name in known if name != "loss"][:2])
    figure, pairs, matrix, curves = _panels(len(metrics))
    order = sets.ravel() if spec.order == "sets" else np.arange(len(learned))
    _draw_pairs(pairs, _together(sets, len(learned))[np.ix_(order, order)])
    _draw_matrix(matrix, learned[np.ix_(order, order)])
    for axes, metric in zip(curves, metrics, strict=True):
        band(axes, np.array(stage.metrics["series"]["steps"]), np.array(logged[metric], dtype=float).T, BLUE)
        axes.set(title=metric, xlabel="step", ylabel=unit(stage, metric))
        set_scales(axes, spec.x, spec.y, least=stage.metrics["series"]["steps"][1])
    return figure, _caption(stage, seed, spec, metrics)


def _panels(metrics: int) -> tuple[Figure, Axes, Axes, list[Axes]]:
    if metrics == 1:
        figure = Figure(figsize=(WIDTH, 5.2))
        grid = figure.add_gridspec(2, 2, width_ratios=[1.9, 1])
        curve, pairs, matrix = (figure.add_subplot(grid[at]) for at in (np.s_[:, 0], np.s_[0, 1], np.s_[1, 1]))
        return figure, pairs, matrix, [curve]
    figure = Figure(figsize=(WIDTH, 2.6))
    pairs, matrix, *curves = cast(list[Axes], list(np.ravel(figure.subplots(1, 2 + metrics))))
    return figure, pairs, matrix, curves


def _partition(stage: StageView, seed: int, where: str) -> Array:
    """The sets `[L, C]` of patches of a seed's data."""
    if "structure/partition" not in stage.series:
        there = [name.removeprefix("structure/") for name in stage.series if name.startswith("structure/")]
        raise ZooError(f"{where}: the data of {stage.name} has no partition{did_you_mean('partition', there)}")
    return stage.series["structure/partition"][seed]


def _together(sets: Array, patches: int) -> Array:
    """`[D, D]`: 1 where two patches are of one set, else 0."""
    pairs = np.zeros((patches, patches))
    for members in sets:
        pairs[np.ix_(members, members)] = 1
    return pairs


def _draw_pairs(axes: Axes, pairs: Array) -> None:
    axes.imshow(pairs, cmap=PAIRS, vmin=0, vmax=1, interpolation="nearest")
    _frame(axes, "pairs of one set")


def _draw_matrix(axes: Axes, learned: Array) -> None:
    free = np.where(np.eye(len(learned), dtype=bool), np.nan, learned)
    bound = float(np.nanmax(np.abs(free))) or 1.0
    image = axes.imshow(free, cmap=SIGNED.with_extremes(bad=FIXED), vmin=-bound, vmax=bound, interpolation="nearest")
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.045, 1.0)))
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(labelsize=8)
    _frame(axes, "learned A")


def _frame(axes: Axes, title: str) -> None:
    bare(axes)
    for spine in axes.spines.values():
        spine.set(visible=True, color=RULE)
    axes.set_anchor("NW")
    axes.set_title(title)
    axes.set_xlabel("patch j", fontsize=8.5, labelpad=3)
    axes.set_ylabel("patch i", fontsize=8.5, labelpad=3)


def _caption(stage: StageView, seed: int, spec: Spec, metrics: list[str]) -> str:
    seeds = len(stage.series["structure/partition"]) - len(stage.diverged)
    order = ", the patches set by set" if spec.order == "sets" else ""
    over = f"mean and range over {seeds} seeds" if seeds > 1 else "one seed"
    curves = f" {' and '.join(metrics)} over the steps: {over}." if metrics else ""
    left_out = "".join(f" Seed {s} diverged at step {at['step']}." for s, at in stage.diverged.items())
    return (
        f"Patch association of {stage.name} (seed {seed}): in grey the pairs (i, j) of patches of one set, beside them "
        f"the learned matrix A in the same order{order}; its diagonal, which is fixed, is grey.{curves}{left_out}"
    )
