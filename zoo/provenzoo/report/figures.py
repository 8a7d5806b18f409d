"""The figures of a run, drawn with matplotlib from its folder alone.

A recipe's `figures: {name: {kind, stage, metric}}` says what is drawn; where nothing is written, every stage gets the
kinds that its results allow. A file carries its caption as the PNG's description.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean, write_whole
from provenzoo.report import RunView, StageView
from provenzoo.report.charts import bars, curves
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.maps import attention, encodings
from provenzoo.report.style import STYLE
from provenzoo.settings import read

Draw = Callable[[StageView, RunView, Spec, str], tuple[Figure, str]]
FIGURES: dict[str, Draw] = {"curves": curves, "bars": bars, "encodings": encodings, "attention": attention}
"""Kind -> the function that draws it: stage, run, settings and the place for errors -> figure and caption."""

DEFAULT_POINTS = 8
"""Of a stage with more points than this, nothing is drawn unless the recipe's `figures` asks for it."""


@dataclass(frozen=True)
class Drawn:
    """A figure's file."""

    name: str
    stage: str
    path: Path
    caption: str


def write_figures(run: Path) -> list[Path]:
    """Draw every figure of a run to `stages/<stage>/figures/<name>.png`; figures that are no longer wanted go."""
    view = RunView.read(run)
    written: list[Path] = []
    for name, stage, spec in planned(view):
        with matplotlib.rc_context(STYLE):
            figure, caption = FIGURES[spec.kind](stage, view, spec, f"figures.{name}")
            content = _png(figure, name, spec.caption or caption)
        write_whole(_file(stage, name), content)
        written.append(_file(stage, name))
    for stage in view.stages:
        for stale in set((stage.path / "figures").glob("*.png")) - set(written):
            stale.unlink()
    return written


def drawn(view: RunView) -> list[Drawn]:
    """The figures whose files are there, in the recipe's order."""
    found = [(name, stage, _file(stage, name)) for name, stage, _ in planned(view)]
    return [Drawn(name, stage.name, file, _caption(file)) for name, stage, file in found if file.is_file()]


def planned(view: RunView) -> Iterator[tuple[str, StageView, Spec]]:
    """Name, stage and settings of each figure that the complete stages allow. A misspelt one is a ZooError."""
    specs = {name: _checked(view, name, node) for name, node in view.recipe.get("figures", {}).items()}
    for name, spec in specs.items() if specs else _defaults(view):
        for stage in view.named(spec.stage):
            if stage.complete:
                yield name, stage, spec


def _checked(view: RunView, name: str, node: Any) -> Spec:
    where = f"figures.{name}"
    spec = read(Spec, node, where)
    known = dict.fromkeys([*view.recipe["stages"], *(stage.name for stage in view.stages)])
    if spec.stage not in known:
        raise ZooError(f"{where}: no stage {spec.stage!r}{did_you_mean(spec.stage, known)}")
    return spec


def _defaults(view: RunView) -> Iterator[tuple[str, Spec]]:
    for base in view.recipe["stages"]:
        points = [stage for stage in view.named(base) if stage.complete]
        for kind in _kinds(points[0]) if 0 < len(points) <= DEFAULT_POINTS else ():
            yield kind, read(Spec, {"kind": kind, "stage": base}, kind)


def _kinds(stage: StageView) -> list[str]:
    if not stage.trains:
        return ["bars"]
    tensors = {"encodings": "tensors/positional_encodings", "attention": "tensors/attention_scores"}
    return ["curves", *(kind for kind, name in tensors.items() if name in stage.series)]


def _file(stage: StageView, name: str) -> Path:
    return stage.path / "figures" / f"{quote(name, safe=' ')}.png"


def _png(figure: Figure, title: str, caption: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Title": title, "Description": caption, "Software": None})
    return buffer.getvalue()


def _caption(file: Path) -> str:
    with Image.open(file) as image:
        return str(image.info.get("Description", ""))
