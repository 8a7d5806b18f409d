"""Attention scores beside the truth, as in Figures 1, 3 and 5 of Zhang, Zhao, Gu, Cao."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.maps import bare, shown_tensor
from provenzoo.report.style import AMBER, INK, SHARE, SIGNED, WIDTH, Array


def scores(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """The true scores S* and the learned S of each point of a stage, on one scale; keys are rows.

    A truth that all points share stands once, before them; else each stands above what was learned from it. With
    `order: sets` tokens stand group by group.
    """
    truths, learned = zip(*(_scores(stage, spec, where) for stage in stages), strict=True)
    names = [", ".join(stage.labels.values()) or "learned" for stage in stages]
    shared = all(np.array_equal(truth, truths[0]) for truth in truths)
    rows = [[truths[0], *learned]] if shared else [truths, learned]
    titles = ["truth", *names] if shared else [*(f"{name}: truth" for name in names), *["learned"] * len(names)]
    scales = [truths[0].max()] * len(titles) if shared else [truth.max() for truth in truths] * 2
    side = min(WIDTH / len(rows[0]), 3.6)
    figure = Figure(figsize=(side * len(rows[0]), (side + 0.3) * len(rows)))
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    matrices = [matrix for row in rows for matrix in row]
    for axes, matrix, title, scale in zip(grid.flat, matrices, titles, scales, strict=True):
        axes.imshow(matrix, cmap=SHARE, vmin=0, vmax=float(scale))
        axes.set_title(title, fontsize=9)
        bare(axes)
    place = "first the teacher's, then the students'" if shared else "above the teachers', below the students'"
    ordered = " Tokens stand group by group." if spec.order == "sets" else ""
    return figure, f"Attention scores of {stages[0].base}: {place}; keys are rows.{ordered}"


def _scores(stage: StageView, spec: Spec, where: str) -> tuple[Array, Array]:
    """The true and the learned scores of the seed that is shown, in the order that is wanted."""
    seed, learned = shown_tensor(stage, "scores", spec, where)
    truth = stage.series["structure/true_attention"][seed]
    order = _by_group(truth) if spec.order == "sets" else np.arange(len(truth))
    return truth[np.ix_(order, order)], learned[np.ix_(order, order)]


def weights(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """The value matrix W_V and the attention weights W_KQ of each point; lines part tokens' from positions' entries."""
    figure = Figure(figsize=(WIDTH, 4.2 * len(stages)))
    grid = figure.subplots(len(stages), 2, squeeze=False)
    for stage, line in zip(stages, grid, strict=True):
        seed, value = shown_tensor(stage, "value", spec, where)
        _, attention = shown_tensor(stage, "attention", spec, where)
        dim, tokens = (stage.series[f"structure/true_{name}"].shape[-1] for name in ("value", "attention"))
        full = value.shape[-1] == attention.shape[-1] == dim + tokens
        name = ", ".join(stage.labels.values()) or stage.name
        for axes, matrix, title in zip(line, (value, attention), ("W_V", "W_KQ"), strict=True):
            bound = float(np.abs(matrix).max()) or 1.0
            image = axes.imshow(matrix, cmap=SIGNED, vmin=-bound, vmax=bound, aspect="auto" if title == "W_V" else None)
            bare(axes)
            axes.set_title(f"{name}: {title} (seed {seed})")
            figure.colorbar(image, ax=axes, shrink=0.8)
            if full:
                axes.axvline(dim - 0.5, color=INK, linewidth=0.8)
            if full and title == "W_KQ":
                axes.axhline(dim - 0.5, color=INK, linewidth=0.8)
    return figure, f"Weights of {stages[0].base}; lines part what reads tokens (first) from what reads positions."


def regions(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """The mean held-out image, with the patches outlined whose scores were not learned.

    A patch is outlined if its row of S is further from that of S* than half the norm of the latter.
    """
    figure = Figure(figsize=(WIDTH, 3.4))
    for axes, stage in zip(figure.subplots(1, len(stages), squeeze=False)[0], stages, strict=True):
        seed, learned = shown_tensor(stage, "scores", spec, where)
        truth = stage.series["structure/true_attention"][seed]
        failed = np.linalg.norm(learned - truth, axis=1) > np.linalg.norm(truth, axis=1) / 2
        image = _from_patches(stage.series["structure/mean_tokens"][seed])
        side = round(len(truth) ** 0.5)
        patch = image.shape[0] / side
        axes.imshow(image, cmap="gray")
        for key in np.flatnonzero(failed):
            corner = ((key % side) * patch - 0.5, (key // side) * patch - 0.5)
            axes.add_patch(Rectangle(corner, patch, patch, fill=False, edgecolor=AMBER, linewidth=1.8))
        bare(axes)
        axes.set_title(f"{', '.join(stage.labels.values()) or stage.name}: {int(failed.sum())} patches")
    return figure, "The mean held-out image; outlined are the patches whose attention scores were not learned."


def _by_group(truth: Array) -> Array:
    """The tokens, those that are read together one after another."""
    return np.lexsort((np.arange(len(truth)), (truth > 0).argmax(0)))


def _from_patches(tokens: Array) -> Array:
    """An image `[side * patch, side * patch]` of grey patches `[patch^2, side^2]`."""
    patch, side = (round(size**0.5) for size in tokens.shape)
    return tokens.reshape(patch, patch, side, side).transpose(2, 0, 3, 1).reshape(side * patch, side * patch)
