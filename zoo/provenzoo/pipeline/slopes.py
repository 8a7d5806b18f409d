"""The slope of a line on log-log axes."""

import math
import statistics
from collections.abc import Sequence


def log_slope(steps: Sequence[int], values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The least-squares slope of log(value) over log(step) and its standard error; null if a value is not above 0."""
    positive = [value for value in values if value is not None and value > 0]
    if len(positive) < len(values):
        return None, None
    fit = statistics.linear_regression(x := [math.log(s) for s in steps], y := [math.log(v) for v in positive])
    spread = math.fsum((a - statistics.fmean(x)) ** 2 for a in x)
    residual = math.fsum((b - fit.intercept - fit.slope * a) ** 2 for a, b in zip(x, y, strict=True))
    return fit.slope, math.sqrt(residual / (len(x) - 2) / spread)
