"""Curves over steps and bars by set."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.style import (
    BLUE,
    INK,
    ORANGE,
    SKY,
    Array,
    band,
    chosen_metrics,
    is_vector,
    make_panels,
    set_scales,
    unit,
)


def curves(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Training loss (smoothed) and held-out metrics over the steps: mean line, band from least to greatest seed."""
    series = stage.metrics["series"]
    known = {name: rows for name, rows in series["values"].items() if not is_vector(rows)}
    chosen = chosen_metrics(spec, ["loss", *(name for name in known if name != "loss")], where)
    figure, panels = make_panels(len(chosen))
    for axes, metric in zip(panels, chosen, strict=True):
        axes.set(title=metric, xlabel="step", ylabel=unit(stage, metric))
        if metric == "loss":
            _train_loss(axes, stage.series["train-loss"])
        if metric in known:
            rows = np.array(known[metric], dtype=float).T
            band(axes, np.array(series["steps"]), rows, ORANGE if metric == "loss" else BLUE, "held out", "o")
        if (chance := run.chance(stage, metric)) is not None:
            axes.axhline(chance, color=ORANGE, linestyle=":", linewidth=1.4)
            style = {"color": ORANGE, "fontsize": 8.5, "ha": "right", "va": "bottom"}
            axes.text(1, chance, "chance", style, transform=axes.get_yaxis_transform())
        set_scales(axes, spec.x, spec.y, least=1 if metric == "loss" else series["steps"][1])
        if metric == "loss":
            axes.legend()
    finite = int(np.isfinite(stage.series["train-loss"]).all(-1).sum())
    left_out = "".join(f" Seed {seed} diverged at step {at['step']}." for seed, at in stage.diverged.items())
    over = f"mean and range over {finite} seeds" if finite > 1 else "one seed"
    return figure, f"Training of {stage.name}: {over}; the training loss is smoothed.{left_out}"


def _train_loss(axes: Axes, losses: Array) -> None:
    window = max(1, losses.shape[-1] // 40)
    kernel = np.ones(window) / window
    smooth = np.stack([np.convolve(row, kernel, mode="valid") for row in losses])
    band(axes, np.arange(smooth.shape[-1]) + (window + 1) / 2, smooth, BLUE, "training", "")
    finite = smooth[np.isfinite(smooth) & (smooth > 0)]
    if finite.size and finite.max() > 30 * finite.min():
        axes.set_yscale("log")


def bars(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """A metric by set, in the written order: a bar for the mean, a dot for each seed."""
    sets = stage.metrics["sets"]
    first = next(iter(sets.values()))
    known = [name for name, values in first["values"].items() if not is_vector([values])]
    default = ["accuracy"] if "accuracy" in known else known[:1]
    chosen = chosen_metrics(spec, known, where, default)
    labels = [label or stage.name for label in sets]
    figure, panels = make_panels(len(chosen), height=0.9 + 0.36 * len(labels), share=True)
    for axes, metric in zip(panels, chosen, strict=True):
        rows = [np.array(entry["values"][metric], dtype=float) for entry in sets.values()]
        _bar_panel(axes, rows, _reference(stage), run.chance(stage, metric))
        axes.set_title(metric, pad=18)
        axes.set_xlabel(unit(stage, metric))
    panels[0].set_yticks(range(len(labels)), labels, color=INK)
    panels[0].invert_yaxis()
    seeds = len(first["values"][chosen[0]])
    each = f"bars are means, dots the {seeds} seeds" if seeds > 1 else "one seed"
    return figure, f"{stage.name}: {' and '.join(chosen)} by set, {first['n']} items each; {each}."


def _bar_panel(axes: Axes, rows: list[Array], reference: int | None, chance: float | None) -> None:
    for y, row in enumerate(rows):
        finite = row[np.isfinite(row)]
        whole = len(finite) == len(row)
        if whole:
            axes.barh(y, row.mean(), height=0.58, color=BLUE if y == reference else SKY)
        axes.scatter(finite, np.full(len(finite), y), s=22, color=INK, edgecolor="white", linewidth=0.8, zorder=3)
        end = max([0.0, *finite, *([row.mean()] if whole else [])])
        text = f"{row.mean():#.3g}" if whole else "not finite"
        axes.annotate(text, (end, y), (7, 0), textcoords="offset points", va="center", fontsize=9)
    if reference is not None and np.isfinite(rows[reference]).all():
        axes.axvline(rows[reference].mean(), color=BLUE, linestyle="--", linewidth=1)
    if chance is not None:
        axes.axvline(chance, color=ORANGE, linestyle=":", linewidth=1.4)
        style = {"color": ORANGE, "fontsize": 8.5, "ha": "center", "va": "bottom"}
        axes.text(chance, 1.01, "chance", style, transform=axes.get_xaxis_transform())
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)


def _reference(stage: StageView) -> int | None:
    """The place of the set that changes nothing, written `{}`: the one in distribution."""
    written = stage.node.get("sets", {})
    return next((i for i, label in enumerate(stage.metrics["sets"]) if written.get(label) == {}), None)
