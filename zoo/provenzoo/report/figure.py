"""What a recipe says of a figure; apart, so that reading a recipe imports no matplotlib."""

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import model_validator

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.settings import Settings

Scale = Literal["linear", "log"]

OF_ANY = ("bars", "lines", "columns", "similarities")
"""Kinds that show what any stage measures or looks at; the others show what a stage with a training leaves."""
DYNAMICS = ("alpha", "gamma", "rho")
"""The logged metrics that `dynamics` draws."""


class Figure(Settings):
    """One entry of a recipe's `figures`: what is drawn of which stage, from the run folder alone."""

    kind: Literal[
        "curves",
        "overlay",
        "bars",
        "lines",
        "columns",
        "encodings",
        "attention",
        "association",
        "dynamics",
        "scores",
        "weights",
        "regions",
        "similarities",
    ]
    stage: str
    """A stage, or `stage[axis=label,...]`: those of its points that have these labels."""
    beside: str | None = None
    """A second stage, which `dynamics` and `overlay` draw dashed, `lines` on the same axes, `similarities` after it."""
    metric: str | None = None
    metrics: list[str] = []
    axis: str | None = None
    """The axis of the grid that `lines` (whose labels are numbers) and `columns` have from left to right."""
    baseline: str | None = None
    """A label on the axis of `lines`: each line's mean there is also drawn as a dashed line across."""
    x: Scale | None = None
    y: Scale | None = None
    guides: list[float] = []
    """The slopes of the lines that `overlay` draws beside its curves."""
    caption: str = ""
    seed: int | None = None
    """The seed whose tensors maps show; by default the first that did not diverge."""
    token: int | Literal["centre", "mean"] = "centre"
    """The query token of `attention`; `mean` averages over them all."""
    threshold: float | None = None
    """Of `encodings`, `similarities`: P^T P, each map from -1 (least) to 1, below this blank, in place of cosines."""
    order: Literal["natural", "sets"] = "natural"
    """The order of the patches in `association` and `scores`: as they stand, or set by set."""

    @model_validator(mode="after")
    def _has_an_axis(self) -> "Figure":
        if self.kind in ("lines", "columns") and self.axis is None:
            raise ValueError("'axis' is missing: the axis of the grid that goes from left to right")
        return self

    @property
    def stages(self) -> list[str]:
        """The stages that are named."""
        return [self.stage, *([self.beside] if self.beside else [])]

    @property
    def chosen(self) -> list[str]:
        """The metrics that are named."""
        if self.kind == "dynamics":
            return list(DYNAMICS)
        return [*([self.metric] if self.metric else []), *self.metrics]


# --- points by name -----------------------------------------------------------------------------------------------


def parts(name: str) -> tuple[str, dict[str, str]]:
    """Stage and labels by axis of `stage[axis=label,...]`."""
    stage, _, inner = name.partition("[")
    pairs = [part.partition("=") for part in inner.removesuffix("]").split(",")] if inner else []
    return stage, {axis.strip(): label.strip() for axis, _, label in pairs}


def covers(reference: str, name: str) -> bool:
    """Whether `stage` or `stage[axis=label,...]` names a point; an axis that is not named is open, as with `*`."""
    stage, wanted = parts(reference)
    base, labels = parts(name)
    return stage == base and all(axis in labels and label in ("*", labels[axis]) for axis, label in wanted.items())


def labels_along(axis: str, names: Iterable[str], where: str) -> list[str]:
    """The labels of the named points on an axis; a point that has no such axis is an error."""
    found: dict[str, None] = {}
    for name in names:
        _, labels = parts(name)
        if axis not in labels:
            raise ZooError(f"{where}: {name} has no axis {axis!r}{did_you_mean(axis, labels)}")
        found[labels[axis]] = None
    return list(found)


def numbers_along(axis: str, names: Iterable[str], where: str) -> dict[str, float]:
    """Label -> its number on an axis of the named points; a label that is no number is an error."""
    found = {label: _number(label) for label in labels_along(axis, names, where)}
    if odd := [label for label, value in found.items() if not math.isfinite(value)]:
        raise ZooError(f"{where}: the label {odd[0]!r} on {axis} is no number, so it has no place from left to right")
    if len(set(found.values())) < len(found):
        raise ZooError(f"{where}: two labels on {axis} are the same number")
    return found


def _number(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        return math.nan
