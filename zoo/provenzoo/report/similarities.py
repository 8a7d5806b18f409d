"""P^T P of several models side by side, for all their patches (Jelassi et al. 2022, Figure 1 and Appendix A.2)."""

import math

from matplotlib.figure import Figure

from provenzoo.report import RunView, StageView
from provenzoo.report.figure import Figure as Spec
from provenzoo.report.maps import above, cosines, mosaic, shown_tensor, tiles
from provenzoo.report.style import WIDTH

ROW = 2
"""Panels side by side."""


def similarities(stages: list[StageView], run: RunView, spec: Spec, where: str) -> tuple[Figure, str]:
    """A panel a point, as its stage left it; its small maps are the rows of P^T P, each where its token is.

    Each map goes from -1 at its least to 1 at its greatest, below `threshold` blank; without one it holds cosines of
    the encodings, centred over the tokens.
    """
    panels = [(stage, *shown_tensor(stage, "positional_encodings", spec, where)) for stage in stages]
    across, down = min(ROW, len(panels)), math.ceil(len(panels) / ROW)
    figure = Figure(figsize=(WIDTH * across / ROW + 0.6, 4.1 * down))
    grid = figure.subplots(down, across, squeeze=False, gridspec_kw={"wspace": 0.06, "hspace": 0.14})
    image, sides = None, []
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (stage, _, encodings) in zip(grid.flat, panels, strict=False):
        maps = tiles(cosines(encodings) if spec.threshold is None else above(encodings, spec.threshold), where)
        sides.append(f"{maps.shape[0] ** 2} of {maps.shape[-1] ** 2}")
        image = mosaic(axes, maps)
        axes.set_title(", ".join([stage.base, *stage.labels.values()]))
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.82, aspect=28, pad=0.02, ticks=[-1, 0, 1])
    bar.set_label("cosine similarity" if spec.threshold is None else "P^T P, from -1 to 1")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    blank = f", from -1 to 1 and below {spec.threshold:g} blank" if spec.threshold is not None else ""
    seeds = ", ".join(dict.fromkeys(str(seed) for _, seed, _ in panels))
    return figure, (
        "How alike positional encodings are: the map at each place of the grid of tokens shows a token's likeness to "
        f"every other{blank}. Tokens shown: {', '.join(dict.fromkeys(sides))} (seed {seeds})."
    )
