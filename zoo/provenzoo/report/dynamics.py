"""The three scalars alpha, gamma and rho over the steps, with the events of Section 4.1 of Jelassi, Sander, Li 2022."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import DYNAMICS
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.style import (
    BLUE,
    DASHES,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    RULE,
    WIDTH,
    Array,
    band,
    chosen_metrics,
    set_scales,
)

LEVELLED, HALF, NEAR = 0.02, 0.5, 0.05
WINDOWS = 20
SIGNS = {"alpha": ("α", BLUE), "gamma": ("γ", ORANGE), "rho": ("ρ", GREEN)}


def plateau(steps: Array, alpha: Array) -> float | None:
    """The first plateau of alpha `[T]` over logged steps `[T]`; None where it has none.

    It is where the slope, taken over twentieths of the steps, first falls below 2 % of the greatest until then (so too
    at a local maximum) or, below half of it, starts to rise again: between its two rises alpha may only slow down.
    """
    ends = np.linspace(0, len(steps) - 1, min(len(steps), WINDOWS + 1)).round().astype(int)
    slopes = np.diff(alpha[ends]) / np.diff(steps[ends])
    greatest = np.maximum.accumulate(slopes)
    turns = np.append(slopes[1:] > slopes[:-1], False) & (slopes < HALF * greatest)
    flat = np.flatnonzero(((slopes < LEVELLED * greatest) | turns) & (greatest > 0))
    return float(alpha[ends[flat[0]]]) if flat.size else None


def events(steps: Array, alpha: Array, gamma: Array, rho: Array) -> tuple[int | None, int | None]:
    """T0 and T1, each a logged step, or None where it is not reached; all arrays are `[T]`.

    T0 is the first logged step at which alpha is within 5 % of its first plateau (`plateau`), T1 the first at which
    gamma is above the greatest |rho| of all logged steps (Jelassi et al. 2022, Section 4.1, Events I to III).
    """
    level = plateau(steps, alpha)
    near = np.zeros(len(steps), bool) if level is None else np.abs(alpha - level) <= NEAR * abs(level)
    return _first(steps, near), _first(steps, gamma > np.abs(rho).max())


def _first(steps: Array, reached: Array) -> int | None:
    return int(steps[reached.argmax()]) if reached.any() else None


def dynamics(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """The scalars of a stage, broad, and of the stage `beside` it, dashed on them; the events are the first one's."""
    figure = Figure(figsize=(WIDTH, 4.2))
    axes = figure.subplots()
    axes.axhline(0, color=RULE, linewidth=1, zorder=0)
    for stage, dash in zip(stages, DASHES, strict=False):
        chosen_metrics(spec, list(stage.metrics["series"]["values"]), where)
        for name, (sign, colour) in SIGNS.items():
            broad = len(stages) > 1 and dash == DASHES[0]  # so that a dashed line on it is seen
            band(axes, _steps(stage), _seeds(stage, name), colour, f"{sign}, {stage.base}", dash=dash, broad=broad)
    axes.set_xlabel("step")
    axes.margins(x=0.01)
    set_scales(axes, spec.x, spec.y, least=float(_steps(stages[0])[1]))
    steps = _steps(stages[0])
    at = events(steps, *(_seeds(stages[0], name).mean(0) for name in DYNAMICS))
    _mark(axes, int(steps[0]), at, int(steps[-1]))
    figure.legend(loc="outside right upper")
    return figure, _caption(stages, at)


def _steps(stage: StageView) -> Array:
    return np.array(stage.metrics["series"]["steps"])


def _seeds(stage: StageView, name: str) -> Array:
    """A logged metric `[R, T]` of the seeds that stayed finite."""
    rows = np.array(stage.metrics["series"]["values"][name], dtype=float).T
    return np.delete(rows, list(stage.diverged), axis=0)


def _mark(axes: Axes, first: int, at: tuple[int | None, int | None], last: int) -> None:
    """A line at T0 and at T1, and above the panel the event that lies between each two of start, T0, T1 and end."""
    reached = sorted((step, name) for name, step in zip(("T₀", "T₁"), at, strict=True) if step is not None)
    places = [_place(axes, step) for step, _ in reached]
    close = len(places) == 2 and places[1] - places[0] < 0.04
    for (step, name), side in zip(reached, ("right", "left") if close else ("center", "center"), strict=False):
        axes.axvline(step, color=INK, linestyle=":", linewidth=1.3)
        offset = ({"right": -3, "center": 0, "left": 3}[side], 3)
        look = {"ha": side, "va": "bottom", "fontsize": 9.5, "textcoords": "offset points"}
        axes.annotate(name, (step, 1), offset, xycoords=axes.get_xaxis_transform(), **look)
    for name, (start, end) in _spans(first, at, last).items():
        left, right = _place(axes, start), _place(axes, end)
        text = f"Event {name}" if right - left > 0.12 else name
        look = {"color": MUTED, "fontweight": "bold", "fontsize": 9.5, "ha": "center", "va": "bottom"}
        axes.text((left + right) / 2, 1.07, text, look, transform=axes.transAxes)


def _place(axes: Axes, step: int) -> float:
    """Where a step stands, from 0 at the left edge to 1 at the right."""
    return float((axes.transData.transform((step, 0))[0] - axes.bbox.x0) / axes.bbox.width)


def _spans(first: int, at: tuple[int | None, int | None], last: int) -> dict[str, tuple[int, int]]:
    """Event -> its first and last step; only events whose two ends are reached in order."""
    ends = [first, *at, last]
    pairs = zip(("I", "II", "III"), ends, ends[1:], strict=False)
    return {name: (start, end) for name, start, end in pairs if start is not None and end is not None and start < end}


def _caption(stages: list[StageView], marked: tuple[int | None, int | None]) -> str:
    full, *others = stages
    seeds = len(full.metrics["series"]["values"]["alpha"][0])
    solid = f"{full.base}, broad, and {others[0].base}, dashed" if others else full.base
    over = f"mean and range over {seeds} seeds" if seeds > 1 else "one seed"
    left_out = "".join(
        f" Seed {seed} of {stage.base} diverged at step {at['step']} and is left out."
        for stage in stages
        for seed, at in stage.diverged.items()
    )
    empty = " Event II, between them, is empty." if None not in marked and "II" not in _spans(0, marked, 0) else ""
    told = [f"step {step}" if step is not None else "not reached" for step in marked]
    return (
        f"α, γ and ρ of {solid}: {over}. T₀ ({told[0]}): the first logged step at which α is within 5 % of its first "
        "plateau, which is where its slope over twentieths of the steps first falls below 2 % of the greatest until "
        f"then or, below half of it, starts to rise again. T₁ ({told[1]}): the first logged step with γ above the "
        f"greatest |ρ| of all logged steps.{empty}{left_out}"
    )
