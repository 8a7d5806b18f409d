"""Maps on the grid of tokens: likeness of positional encodings, attention scores."""

import math
from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean
from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.style import INK, ORANGE, SHARE, SIGNED, WIDTH, Array

GROUND = "#f0f0ec"
"""What is blank in a map."""


def encodings(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Likeness of the positional encodings of a grid of tokens, at first and trained (Jelassi et al. 2022, Figure 1).

    Each small map is a row of the cosine similarities P^T P of the encodings, centred over the tokens. Of a model of
    permuted images: trained, and put back where the patches are in the natural image (Figure 5c).
    """
    seed, trained = shown_tensor(stage, "positional_encodings", spec, where)
    shown = {"at initialisation": stage.series["tensors@0/positional_encodings"][seed], "trained": trained}
    if (moved := stage.series.get("structure/pixel_permutation")) is not None:
        shown = {"trained": trained, "trained, put back": _put_back(trained, moved[seed])}
    figure = Figure(figsize=(WIDTH, 4.5))
    panels = figure.subplots(1, len(shown), gridspec_kw={"wspace": 0.06})
    images = []
    for axes, (title, encodings) in zip(panels, shown.items(), strict=True):
        likeness = cosines(encodings) if spec.threshold is None else above(encodings, spec.threshold)
        images.append(mosaic(axes, tiles(likeness, where)))
        axes.set_title(title)
    bar = figure.colorbar(images[0], ax=panels, shrink=0.82, aspect=28, pad=0.02, ticks=[-1, 0, 1])
    bar.set_label("cosine similarity" if spec.threshold is None else "products of the encodings, from -1 to 1")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    side = math.isqrt(len(trained))
    back = " Put back: where the patches are in the natural image." if moved is not None else ""
    blank = f" Each map goes from -1 to 1, below {spec.threshold:g} blank." if spec.threshold is not None else ""
    return figure, (
        f"Positional encodings of {stage.name} (seed {seed}): the map at each place of the {side} by {side} grid "
        f"of tokens shows how alike that token's encoding is to every other's.{back}{blank}"
    )


def attention(stage: StageView, run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """Attention scores `[L, H, N, N]` on the token grid: a row a layer, a column a head, for one query token."""
    seed, scores = shown_tensor(stage, "attention_scores", spec, where)
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
        bare(axes)
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


def cosines(encodings: Array) -> Array:
    centred = encodings - encodings.mean(0)
    unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True).clip(1e-12)
    return unit @ unit.T


def above(encodings: Array, threshold: float) -> Array:
    """P^T P, each token's likeness to the others from -1 at its least to 1 at its greatest; NaN below the threshold.

    The paper says "between -1 and 1" and no more. A token's product with itself is left out of the range, and is 1: it
    exceeds the others so far that, counted, drawn encodings would show nothing else, where the paper's look random.
    """
    products = encodings @ encodings.T
    own = np.eye(len(products), dtype=bool)
    least = np.where(own, np.inf, products).min(1, keepdims=True)
    greatest = np.where(own, -np.inf, products).max(1, keepdims=True)
    scaled = np.where(own, 1.0, 2 * (products - least) / (greatest - least).clip(1e-12) - 1)
    return np.where(scaled < threshold, np.nan, scaled)


def _put_back(encodings: Array, permutation: Array) -> Array:
    """Encodings `[N, C]` in the order of the natural image's patches; permutation of the pixels `[H * W]`."""
    side, grid = math.isqrt(len(permutation)), math.isqrt(len(encodings))
    patch = side // grid
    corners = (np.arange(grid)[:, None] * patch * side + np.arange(grid) * patch).ravel()
    held = permutation[corners]
    return encodings[np.argsort(held // side // patch * grid + held % side // patch)]


def tiles(likeness: Array, where: str, most: int = 7) -> Array:
    """Maps `[m, m, side, side]` of at most `most` x `most` tokens that are spread over the grid."""
    side, prefix = _side(len(likeness), where)
    picked = np.linspace(0, side - 1, min(side, most)).round().astype(int)
    maps = likeness[prefix:, prefix:].reshape(side, side, side, side)
    return maps[np.ix_(picked, picked)]


def mosaic(axes: Axes, maps: Array) -> AxesImage:
    """Maps `[m, m, side, side]` of values in [-1, 1] in one image with gaps between them."""
    count, _, side, _ = maps.shape
    scale = max(1, 28 // side)
    size, gap = side * scale, max(2, side * scale // 9)
    canvas = np.full((count * (size + gap) - gap,) * 2, np.nan)
    for i, j in np.ndindex(count, count):
        top, left = i * (size + gap), j * (size + gap)
        canvas[top : top + size, left : left + size] = np.kron(maps[i, j], np.ones((scale, scale)))
        if np.isnan(maps[i, j]).any():
            axes.add_patch(Rectangle((left - 0.5, top - 0.5), size, size, facecolor=GROUND, linewidth=0, zorder=0))
    bare(axes)
    return axes.imshow(canvas, cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest", zorder=1)


def bare(axes: Axes) -> None:
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


def shown_tensor(stage: StageView, name: str, spec: Spec, where: str) -> tuple[int, Array]:
    """The seed that is shown and its tensor."""
    tensor = stage.series.get(f"tensors/{name}")
    if tensor is None:
        named = [key.removeprefix("tensors/") for key in stage.series if key.startswith("tensors/")]
        raise ZooError(f"{where}: {stage.name} keeps no {name}{did_you_mean(name, named)}")
    seed = spec.seed if spec.seed is not None else min(set(range(len(tensor))) - stage.diverged.keys())
    if not 0 <= seed < len(tensor):
        raise ZooError(f"{where}: no seed {seed}; there are 0 to {len(tensor) - 1}")
    if seed in stage.diverged:
        raise ZooError(f"{where}: seed {seed} of {stage.name} diverged, so that there is nothing to draw; name another")
    return seed, tensor[seed]
