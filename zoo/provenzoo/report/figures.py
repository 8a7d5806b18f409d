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
from provenzoo.report.association import association
from provenzoo.report.charts import bars, curves
from provenzoo.report.columns import columns
from provenzoo.report.dynamics import dynamics
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.lines import lines
from provenzoo.report.maps import attention, encodings
from provenzoo.report.overlay import overlay
from provenzoo.report.scores import regions, scores, weights
from provenzoo.report.similarities import similarities
from provenzoo.report.style import STYLE
from provenzoo.settings import read

Draw = Callable[[StageView, RunView, Spec, str], tuple[Figure, str]]
FIGURES: dict[str, Draw] = {
    "curves": curves,
    "bars": bars,
    "encodings": encodings,
    "attention": attention,
    "association": association,
}
"""Kind -> the function that draws it: stage, run, settings and the place for errors -> figure and caption."""
DrawAll = Callable[[list[StageView], RunView, Spec, str], tuple[Figure, str]]
OF_THE_RUN: dict[str, DrawAll] = {
    "lines": lines,
    "overlay": overlay,
    "columns": columns,
    "dynamics": dynamics,
    "similarities": similarities,
    "scores": scores,
    "weights": weights,
    "regions": regions,
}
"""The kinds that are drawn once of all points: those of `stage`, then those of the stage `beside` it."""

DEFAULT_POINTS = 8
"""Of a stage with more points than this, nothing is drawn unless the recipe's `figures` asks for it."""


@dataclass(frozen=True)
class Drawn:
    """A figure's file."""

    name: str
    stage: str
    path: Path
    caption: str


@dataclass(frozen=True)
class Planned:
    """A figure to draw: of one point or, where its kind is of the run, of all."""

    name: str
    spec: Spec
    stages: list[StageView]
    path: Path

    def draw(self, run: RunView) -> bytes:
        """The PNG, with its caption inside."""
        where = f"figures.{self.name}"
        with matplotlib.rc_context(STYLE):
            if self.spec.kind in OF_THE_RUN:
                figure, caption = OF_THE_RUN[self.spec.kind](self.stages, run, self.spec, where)
            else:
                figure, caption = FIGURES[self.spec.kind](self.stages[0], run, self.spec, where)
            return _png(figure, self.name, self.spec.caption or caption)


def write_figures(run: Path) -> list[Path]:
    """Draw every figure of a run to `stages/<stage>/figures/<name>.png`, those of the run to `figures/<name>.png`.

    Figures that are no longer wanted go.
    """
    view = RunView.read(run)
    written: list[Path] = []
    for figure in planned(view):
        write_whole(figure.path, figure.draw(view))
        written.append(figure.path)
    for folder in (view.path, *(stage.path for stage in view.stages)):
        for stale in set((folder / "figures").glob("*.png")) - set(written):
            stale.unlink()
    return written


def drawn(view: RunView) -> list[Drawn]:
    """The figures whose files are there, in the recipe's order."""
    there = [figure for figure in planned(view) if figure.path.is_file()]
    return [Drawn(figure.name, figure.stages[0].name, figure.path, _caption(figure.path)) for figure in there]


def planned(view: RunView) -> Iterator[Planned]:
    """Each figure that the complete stages allow, with its settings. A misspelt one is a ZooError."""
    specs = {name: _checked(view, name, node) for name, node in view.recipe.get("figures", {}).items()}
    for name, spec in specs.items() if specs else _defaults(view):
        stages = [stage for stage in view.named(spec.stage) if stage.complete]
        if spec.kind not in OF_THE_RUN:
            yield from (Planned(name, spec, [stage], _file(stage.path, name)) for stage in stages)
            continue
        beside = [stage for stage in view.named(spec.beside) if stage.complete] if spec.beside else []
        if stages and (beside or not spec.beside):
            yield Planned(name, spec, [*stages, *beside], _file(view.path, name))


def _checked(view: RunView, name: str, node: Any) -> Spec:
    where = f"figures.{name}"
    spec = read(Spec, node, where)
    known = dict.fromkeys([*view.recipe["stages"], *(stage.name for stage in view.stages)])
    for stage in spec.stages:
        if stage not in known and not view.named(stage):
            raise ZooError(f"{where}: no stage {stage!r}{did_you_mean(stage, known)}")
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


def _file(folder: Path, name: str) -> Path:
    return folder / "figures" / f"{quote(name, safe=' ')}.png"


def _png(figure: Figure, title: str, caption: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Title": title, "Description": caption, "Software": None})
    return buffer.getvalue()


def _caption(file: Path) -> str:
    try:
        with Image.open(file) as image:
            return str(image.info.get("Description", ""))
    except OSError as error:
        words = " ".join(str(error).split()[:3])
        raise ZooError(f"{file}: is no picture that can be read ({words}); `provenzoo report` draws it again") from None
