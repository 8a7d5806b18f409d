"""The figures of a run, drawn with matplotlib from its folder alone.

A recipe's `figures: {name: {kind, stage, metric}}` says what is drawn; where nothing is written, every stage gets the
kinds that its results allow. A file carries its caption as the PNG's description.
"""

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from PIL import Image

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean, write_whole
from provenzoo.report import RunView, StageView
from provenzoo.settings import Settings, read

Array = NDArray[np.floating[Any]]

# --- style --------------------------------------------------------------------------------------------------------

INK, MUTED, RULE = "#1f2933", "#66727f", "#dfe4ea"
BLUE, SKY, ORANGE = "#0072b2", "#8cc1e3", "#d55e00"  # after Okabe and Ito: told apart with any colour vision
SIGNED = LinearSegmentedColormap.from_list("signed", ["#b3480a", "#f0a878", "#f7f7f5", "#6fa8d0", "#06407a"])
SHARE = LinearSegmentedColormap.from_list("share", ["#f7f7f5", "#9cc4e0", "#2f7ab5", "#06305c"])
WIDTH = 9.0
STYLE: dict[Any, Any] = {
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
UNITS = {
    "accuracy": "share right",
    "encodings-locality": "z score",
    "encodings-locality-rank": "mean rank of neighbours",
    "frozen-unchanged": "1: equal to the bit",
}
DEFAULT_POINTS = 8
"""Of a stage with more points than this, nothing is drawn unless the recipe's `figures` asks for it."""


class Spec(Settings):
    """One entry of a recipe's `figures`."""

    kind: str
    stage: str
    metric: str | None = None
    metrics: list[str] = []
    caption: str = ""
    seed: int | None = None
    """The seed whose tensors `encodings` and `attention` show; by default the first that did not diverge."""
    token: int | Literal["centre", "mean"] = "centre"
    """The query token of `attention`; `mean` averages over them all."""


@dataclass(frozen=True)
class Drawn:
    """A figure's file."""

    name: str
    stage: str
    path: Path
    caption: str


# --- what is drawn ------------------------------------------------------------------------------------------------


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
    if spec.kind not in FIGURES:
        raise ZooError(f"{where}: no kind {spec.kind!r}{did_you_mean(spec.kind, FIGURES)}")
    known = dict.fromkeys([*view.recipe["stages"], *(stage.name for stage in view.stages)])
    if spec.stage not in known:
        raise ZooError(f"{where}: no stage {spec.stage!r}{did_you_mean(spec.stage, known)}")
    return spec


def _defaults(view: RunView) -> Iterator[tuple[str, Spec]]:
    for base in view.recipe["stages"]:
        points = [stage for stage in view.named(base) if stage.complete]
        for kind in _kinds(points[0]) if 0 < len(points) <= DEFAULT_POINTS else ():
            yield kind, Spec(kind=kind, stage=base)


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


# --- curves -------------------------------------------------------------------------------------------------------


def curves(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Training loss (smoothed) and held-out metrics over the steps: mean line, band from least to greatest seed."""
    series = stage.metrics["series"]
    known = {name: rows for name, rows in series["values"].items() if not _is_vector(rows)}
    chosen = _chosen(spec, ["loss", *(name for name in known if name != "loss")], where)
    figure, panels = _panels(len(chosen))
    for axes, metric in zip(panels, chosen, strict=True):
        axes.set(title=metric, xlabel="step", ylabel=_unit(stage, metric))
        if metric == "loss":
            _train_loss(axes, stage.series["train-loss"])
        if metric in known:
            rows = np.array(known[metric], dtype=float).T
            _band(axes, np.array(series["steps"]), rows, ORANGE if metric == "loss" else BLUE, "held out", "o")
        if (chance := run.chance(stage, metric)) is not None:
            axes.axhline(chance, color=ORANGE, linestyle=":", linewidth=1.4)
            style = {"color": ORANGE, "fontsize": 8.5, "ha": "right", "va": "bottom"}
            axes.text(1, chance, "chance", style, transform=axes.get_yaxis_transform())
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
    _band(axes, np.arange(smooth.shape[-1]) + (window + 1) / 2, smooth, BLUE, "training", "")
    finite = smooth[np.isfinite(smooth) & (smooth > 0)]
    if finite.size and finite.max() > 30 * finite.min():
        axes.set_yscale("log")


def _band(axes: Axes, x: Array, rows: Array, colour: str, label: str, marker: str) -> None:
    rows = rows[np.isfinite(rows).all(-1)]
    if len(rows) == 0:
        return
    if len(rows) > 1:
        axes.fill_between(x, rows.min(0), rows.max(0), color=colour, alpha=0.16, linewidth=0)
    axes.plot(x, rows.mean(0), color=colour, label=label, marker=marker, markersize=3.5)


# --- bars ---------------------------------------------------------------------------------------------------------


def bars(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """A metric by set, in the written order: a bar for the mean, a dot for each seed."""
    sets = stage.metrics["sets"]
    first = next(iter(sets.values()))
    known = [name for name, values in first["values"].items() if not _is_vector([values])]
    default = ["accuracy"] if "accuracy" in known else known[:1]
    chosen = _chosen(spec, known, where, default)
    labels = [label or stage.name for label in sets]
    figure, panels = _panels(len(chosen), height=0.9 + 0.36 * len(labels), share=True)
    for axes, metric in zip(panels, chosen, strict=True):
        rows = [np.array(entry["values"][metric], dtype=float) for entry in sets.values()]
        _bar_panel(axes, rows, _reference(stage), run.chance(stage, metric))
        axes.set_title(metric, pad=18)
        axes.set_xlabel(_unit(stage, metric))
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
        text = f"{row.mean():#.3g}" if whole else "diverged"
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


# --- maps ---------------------------------------------------------------------------------------------------------


def encodings(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Likeness of the positional encodings of a grid of tokens, at first and trained (Jelassi et al. 2022, Figure 1).

    Each small map is a row of the cosine similarities P^T P of the encodings, centred over the tokens.
    """
    seed, trained = _tensor(stage, "positional_encodings", spec, where)
    at_first = stage.series["tensors@0/positional_encodings"][seed]
    figure = Figure(figsize=(WIDTH, 4.5))
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
    _mosaic(left, _tiles(_cosines(at_first), where))
    image = _mosaic(right, _tiles(_cosines(trained), where))
    left.set_title("at initialisation")
    right.set_title("trained")
    bar = figure.colorbar(image, ax=(left, right), shrink=0.82, aspect=28, pad=0.02, ticks=[-1, 0, 1])
    bar.set_label("cosine similarity")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    side = math.isqrt(len(trained))
    return figure, (
        f"Positional encodings of {stage.name} (seed {seed}): the map at each place of the {side} by {side} grid "
        "of tokens shows how alike that token's encoding is to every other's."
    )


def attention(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Attention scores `[L, H, N, N]` on the token grid: a row a layer, a column a head, for one query token."""
    seed, scores = _tensor(stage, "attention_scores", spec, where)
    layers, heads, tokens, _ = scores.shape
    side, prefix = _side(tokens, where)
    query = _query(spec, side, where)
    row = scores[:, :, prefix:].mean(2) if query is None else scores[:, :, prefix + query]
    maps = row[..., prefix:].reshape(layers, heads, side, side)
    figure = Figure(figsize=(WIDTH, 0.3 + layers * WIDTH / max(heads, 4) * 0.72), layout="compressed")
    grid = figure.subplots(layers, heads, squeeze=False)
    for layer, head in np.ndindex(layers, heads):
        axes = cast(Axes, grid[layer, head])
        here = maps[layer, head]
        axes.imshow(here, cmap=SHARE, vmin=0, vmax=float(here.max()))
        _bare(axes)
        axes.set_xlabel(f"max {here.max():.2g}", fontsize=8, labelpad=2)
        if query is not None:
            axes.scatter(query % side, query // side, s=42, facecolor="none", edgecolor=ORANGE, linewidth=1.4)
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize=9.5, loc="center")
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}", fontsize=9.5, color=INK, fontweight="bold")
    whose = "mean over the query tokens" if query is None else f"query token {query} (ringed)"
    return figure, (
        f"Attention of {stage.name} (seed {seed}), {whose}: the share that goes to each token; "
        "every map has its own scale."
    )


def _cosines(encodings: Array) -> Array:
    centred = encodings - encodings.mean(0)
    unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True).clip(1e-12)
    return unit @ unit.T


def _tiles(likeness: Array, where: str, most: int = 7) -> Array:
    """Maps `[m, m, side, side]` of at most `most` x `most` tokens that are spread over the grid."""
    side, prefix = _side(len(likeness), where)
    picked = np.linspace(0, side - 1, min(side, most)).round().astype(int)
    maps = likeness[prefix:, prefix:].reshape(side, side, side, side)
    return maps[np.ix_(picked, picked)]


def _mosaic(axes: Axes, tiles: Array) -> AxesImage:
    """Tiles `[m, m, side, side]` of values in [-1, 1] in one image with gaps between them."""
    count, _, side, _ = tiles.shape
    scale = max(1, 28 // side)
    size, gap = side * scale, max(2, side * scale // 9)
    canvas = np.full((count * (size + gap) - gap,) * 2, np.nan)
    for i, j in np.ndindex(count, count):
        top, left = i * (size + gap), j * (size + gap)
        canvas[top : top + size, left : left + size] = np.kron(tiles[i, j], np.ones((scale, scale)))
    _bare(axes)
    return axes.imshow(canvas, cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")


def _bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _side(tokens: int, where: str) -> tuple[int, int]:
    """Side of the token grid and the number of prefix tokens (a class token) before it."""
    for prefix in (0, 1):
        if (side := math.isqrt(tokens - prefix)) ** 2 == tokens - prefix:
            return side, prefix
    raise ZooError(f"{where}: {tokens} tokens are no square grid")


def _query(spec: Spec, side: int, where: str) -> int | None:
    if isinstance(spec.token, int):
        if not 0 <= spec.token < side * side:
            raise ZooError(f"{where}: no token {spec.token}; there are 0 to {side * side - 1}")
        return spec.token
    return side // 2 * (side + 1) if spec.token == "centre" else None


def _tensor(stage: StageView, name: str, spec: Spec, where: str) -> tuple[int, Array]:
    """The seed that is shown and its tensor."""
    tensor = stage.series.get(f"tensors/{name}")
    if tensor is None:
        named = [key.removeprefix("tensors/") for key in stage.series if key.startswith("tensors/")]
        raise ZooError(f"{where}: {stage.name} keeps no {name}{did_you_mean(name, named)}")
    seed = spec.seed if spec.seed is not None else min(set(range(len(tensor))) - stage.diverged.keys())
    if not 0 <= seed < len(tensor):
        raise ZooError(f"{where}: no seed {seed}; there are 0 to {len(tensor) - 1}")
    return seed, tensor[seed]


# --- small helpers ------------------------------------------------------------------------------------------------


def _chosen(spec: Spec, known: list[str], where: str, default: list[str] | None = None) -> list[str]:
    chosen = [*([spec.metric] if spec.metric else []), *spec.metrics]
    for name in chosen:
        if name not in known:
            raise ZooError(f"{where}: no metric {name!r} in {spec.stage}{did_you_mean(name, known)}")
    return chosen or (known if default is None else default)


def _panels(count: int, height: float = 2.9, share: bool = False) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(WIDTH, height * rows))
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=share).flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def _unit(stage: StageView, metric: str) -> str:
    losses = {entry["loss"] for entry in stage.metrics["sets"].values()}
    return "nats" if metric == "loss" and losses == {"cross-entropy"} else UNITS.get(metric, metric)


def _is_vector(rows: list[list[Any]]) -> bool:
    return any(isinstance(value, list) for row in rows for value in row)


Draw = Callable[[StageView, RunView, Spec, str], tuple[Figure, str]]
FIGURES: dict[str, Draw] = {"curves": curves, "bars": bars, "encodings": encodings, "attention": attention}
"""Kind -> the function that draws it: stage, run, settings and the place for errors -> figure and caption."""
