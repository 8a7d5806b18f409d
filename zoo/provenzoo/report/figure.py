"""What a recipe says of a figure; apart, so that reading a recipe imports no matplotlib."""

from typing import Literal

from provenzoo.settings import Settings


class Figure(Settings):
    """One entry of a recipe's `figures`: what is drawn of which stage, from the run folder alone."""

    kind: Literal["curves", "bars", "encodings", "attention"]
    stage: str
    metric: str | None = None
    metrics: list[str] = []
    caption: str = ""
    seed: int | None = None
    """The seed whose tensors `encodings` and `attention` show; by default the first that did not diverge."""
    token: int | Literal["centre", "mean"] = "centre"
    """The query token of `attention`; `mean` averages over them all."""
