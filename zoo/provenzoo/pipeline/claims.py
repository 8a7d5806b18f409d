"""Claims: what a paper or a card says, judged on the metrics of a run."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic

from provenzoo.errors import ZooError
from provenzoo.pipeline.slopes import log_slope
from provenzoo.plain import did_you_mean
from provenzoo.settings import Settings


class Difference(Settings):
    """The first value less the second, seed by seed."""

    difference: list[str] = pydantic.Field(min_length=2, max_length=2)


class Ratio(Settings):
    """The first value over the second, seed by seed; the second may be a number other than 0."""

    ratio: tuple[str, str | int | float] = pydantic.Field(strict=False)

    @pydantic.field_validator("ratio")
    @classmethod
    def _is_defined(cls, pair: tuple[str, str | int | float]) -> tuple[str, str | int | float]:
        if pair[1] == 0:
            raise ValueError("a ratio to 0 says nothing")
        return pair


class Steps(Settings):
    """Consecutive differences along an axis, or along the logged steps of a path with `@*`: `[path, axis or step]`."""

    steps: list[str] = pydantic.Field(min_length=2, max_length=2)


class Slope(Settings):
    """The slope of log(value) over log(step), seed by seed, by least squares: `[path@*, tail]`.

    The tail begins at a share of the last step (`0.25`) or at a step (`2000`).
    """

    slope: tuple[str, int | float] = pydantic.Field(strict=False)

    @pydantic.field_validator("slope")
    @classmethod
    def _is_a_tail(cls, pair: tuple[str, int | float]) -> tuple[str, int | float]:
        path, tail = pair
        if not path.endswith("@*"):
            raise ValueError(f"a slope is over the logged steps; write {path.partition('@')[0]}@*")
        if not (0 < tail < 1 or (isinstance(tail, int) and tail >= 1)):
            raise ValueError("a tail begins at a share of the last step (0 < share < 1) or at a step (a whole number)")
        return pair


def _form(metric: Any) -> str | None:
    """The tag of a metric's form: the key that makes it one."""
    if isinstance(metric, str):
        return "[path]"
    keys = (
        [*metric]
        if isinstance(metric, Mapping)
        else [*type(metric).model_fields]
        if isinstance(metric, Settings)
        else []
    )
    return f"[{keys[0]}]" if len(keys) == 1 else None


Metric = Annotated[
    Annotated[str, pydantic.Tag("[path]")]
    | Annotated[Difference, pydantic.Tag("[difference]")]
    | Annotated[Ratio, pydantic.Tag("[ratio]")]
    | Annotated[Steps, pydantic.Tag("[steps]")]
    | Annotated[Slope, pydantic.Tag("[slope]")],
    pydantic.Discriminator(
        _form,
        custom_error_type="form",
        custom_error_message="write a path, {difference: [P, P]}, {ratio: [P, P]}, {steps: [P, axis]} or "
        "{slope: [P@*, tail]}",
    ),
]


class Claim(Settings):
    """One claim of a recipe."""

    says: str
    source: str = ""
    metric: Metric
    over: Literal["mean", "min", "max", "all"] = "mean"
    holds: str

    @pydantic.field_validator("holds")
    @classmethod
    def _bound_is_readable(cls, text: str) -> str:
        bound(text)
        return text


# --- bounds -------------------------------------------------------------------------------------------------------

_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_ORDER = re.compile(rf"(>=|<=|==|>|<)\s*{_NUMBER}")
_RANGE = re.compile(rf"in\s*\[\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\]")


def bound(text: str) -> Callable[[float], tuple[bool, float]]:
    """A bound as a function: value -> (holds, how far on the wrong side; negative inside)."""
    if match := _ORDER.fullmatch(text.strip()):
        sign, limit = match[1], float(match[2])
        match sign:
            case ">=":
                return lambda v: (v >= limit, limit - v)
            case ">":
                return lambda v: (v > limit, limit - v)
            case "<=":
                return lambda v: (v <= limit, v - limit)
            case "<":
                return lambda v: (v < limit, v - limit)
            case _:
                return lambda v: (v == limit, abs(v - limit))
    if match := _RANGE.fullmatch(text.strip()):
        low, high = float(match[1]), float(match[2])
        if low > high:
            raise ValueError(f"the range {text!r} is empty")
        return lambda v: (low <= v <= high, max(low - v, v - high))
    raise ValueError("not a bound; write '>= x', '> x', '<= x', '< x', '== x' or 'in [a, b]'")


# --- the table of a run's numbers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """Where a number stands: stage, point, set and logged step (None: the end)."""

    stage: str
    labels: tuple[tuple[str, str], ...]
    set: str
    metric: str
    step: int | None

    def __str__(self) -> str:
        inside = ",".join(f"{axis}={label}" for axis, label in self.labels)
        name = f"{self.stage}[{inside}]" if inside else self.stage
        path = ".".join(part for part in (name, self.set, self.metric) if part)
        return path if self.step is None else f"{path}@{self.step}"


Values = list[float | None]
Table = dict[Key, Values]
"""One number a seed at each key; null where a seed's replica was not finite."""


@dataclass(frozen=True)
class MetricPath:
    """A parsed `stage[axis=label,...].set.metric@step`."""

    text: str
    stage: str
    labels: dict[str, str] | None
    set: str
    metric: str
    step: int | Literal["*"] | None

    @classmethod
    def parse(cls, text: str) -> "MetricPath":
        """Read a path; what cannot be one is an error that says how it is written."""
        match = re.fullmatch(r"([^.\[\]@]+)(?:\[([^\]]*)\])?\.(?:(.+)\.)?([^.@]+)(?:@(\d{1,18}|\*))?", text)
        if match is None:
            raise ZooError(f"{text!r} is no metric's path; write stage[axis=label,...].set.metric@step")
        stage, inside, set_label, metric, step = match.groups()
        labels = None
        if inside is not None:
            pairs = [part.partition("=") for part in inside.split(",")]
            if any(not equals for _, equals, _ in pairs) or len({axis for axis, _, _ in pairs}) < len(pairs):
                raise ZooError(f"{text!r}: brackets hold axis=label, each axis once")
            labels = {axis.strip(): label.strip() for axis, _, label in pairs}
        return cls(
            text,
            stage,
            labels,
            set_label or "",
            metric,
            None if step is None else "*" if step == "*" else int(step),
        )

    def find(self, table: Table) -> Table:
        """The entries of a table that the path names, at least one; what is misspelt is named with the nearest."""
        found = self._narrow(list(table), lambda key: key.stage, self.stage, "stage")
        found = self._at_labels(found)
        if self.set != "*":
            found = self._narrow(found, lambda key: key.set, self.set, "set")
        found = self._narrow(found, lambda key: key.metric, self.metric, "metric")
        if self.step == "*":
            found = [key for key in found if key.step is not None]
        else:
            steps = sorted({key.step for key in found if key.step is not None})
            found = [key for key in found if key.step == self.step]
            if not found:
                raise ZooError(f"{self.text!r}: step {self.step} is not logged; logged: {_some(steps)}")
        if not found:
            raise ZooError(f"{self.text!r}: no steps are logged there")
        return {key: table[key] for key in found}

    def _narrow(self, keys: list[Key], part: Callable[[Key], str], wanted: str, what: str) -> list[Key]:
        found = [key for key in keys if part(key) == wanted]
        if not found:
            known = sorted({part(key) for key in keys if part(key)})
            if what == "set" and not wanted:
                raise ZooError(
                    f"{self.text!r}: the stage has sets: {', '.join(known)}; write {self.stage}.SET.{self.metric}"
                )
            raise ZooError(f"{self.text!r}: no {what} {wanted!r}{did_you_mean(wanted, known)}")
        return found

    def _at_labels(self, keys: list[Key]) -> list[Key]:
        if self.labels is None:
            return keys
        axes = sorted({axis for key in keys for axis, _ in key.labels})
        for axis in self.labels:
            if axis not in axes:
                raise ZooError(f"{self.text!r}: no axis {axis!r}{did_you_mean(axis, axes)}")
        for axis in axes:
            if axis not in self.labels:
                raise ZooError(f"{self.text!r}: brackets name every axis; {axis!r} is missing (write {axis}=* for all)")
        for axis, wanted in self.labels.items():
            if wanted != "*":
                known = [dict(key.labels)[axis] for key in keys if axis in dict(key.labels)]
                keys = [key for key in keys if dict(key.labels).get(axis) == wanted]
                if not keys:
                    raise ZooError(
                        f"{self.text!r}: no label {wanted!r} on {axis}{did_you_mean(wanted, sorted(set(known)))}"
                    )
        return keys


def _some(items: list[Any]) -> str:
    return ", ".join(map(str, items[:8])) + (", ..." if len(items) > 8 else "") if items else "none"


# --- judging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A judged claim, as run.json holds it."""

    id: str
    claim: Claim
    value: float | None
    at: str
    matches: int
    holds: bool

    def plain(self) -> dict[str, Any]:
        """The claim's entry in run.json."""
        metric = self.claim.metric if isinstance(self.claim.metric, str) else self.claim.metric.model_dump(mode="json")
        return {
            "id": self.id,
            "says": self.claim.says,
            "source": self.claim.source,
            "metric": metric,
            "over": self.claim.over,
            "value": self.value,
            "at": self.at,
            "matches": self.matches,
            "holds_if": self.claim.holds,
            "holds": self.holds,
        }


def judge(claims: Mapping[str, Claim], table: Table) -> list[Verdict]:
    """Every claim on a table of numbers. The value is the worst match; a null never holds."""
    return [_judge(id, claim, table) for id, claim in claims.items()]


def per_seed(claim: Claim, table: Table, stage: str, seeds: int) -> Values | None:
    """A claim's value for each of so many seeds: at a stage, or where it is first judged; None without any."""
    matches = sorted(_matches(claim.metric, table), key=lambda match: not match[0].startswith(f"{stage}."))
    return next((values for _, values in matches if len(values) == seeds and any(v is not None for v in values)), None)


def _judge(id: str, claim: Claim, table: Table) -> Verdict:
    test = bound(claim.holds)
    try:
        matches = list(_matches(claim.metric, table))
    except ZooError as error:
        raise ZooError(f"claims.{id}: {error}") from None
    numbers = [(value, at) for at, values in matches for value, at in _over(claim.over, values, at)]

    def badness(pair: tuple[float | None, str]) -> float:
        return math.inf if pair[0] is None else test(pair[0])[1]

    value, at = max(numbers, key=badness)
    holds = all(v is not None and test(v)[0] for v, _ in numbers)
    return Verdict(id, claim, value, at, len(matches), holds)


def _over(over: str, values: Values, at: str) -> list[tuple[float | None, str]]:
    if over == "all":
        several = len(values) > 1
        return [(value, f"{at}, seed {k}" if several else at) for k, value in enumerate(values)]
    finite = [value for value in values if value is not None]
    if len(finite) < len(values):
        return [(None, at)]
    reduce: dict[str, Callable[[list[float]], float]] = {
        "mean": lambda v: sum(v) / len(v),
        "min": min,
        "max": max,
    }
    return [(reduce[over](finite), at)]


def _matches(metric: Metric, table: Table) -> Iterator[tuple[str, Values]]:
    match metric:
        case str():
            for key, values in MetricPath.parse(metric).find(table).items():
                yield str(key), values
        case Difference():
            yield from _pairs(metric.difference, table, lambda a, b: a - b, "-")
        case Ratio(ratio=(path, int() | float() as number)):
            for key, values in MetricPath.parse(path).find(table).items():
                yield f"{key} / {number:g}", [None if value is None else value / number for value in values]
        case Ratio():
            yield from _pairs([str(path) for path in metric.ratio], table, lambda a, b: a / b if b else None, "/")
        case Slope():
            yield from _slopes(*metric.slope, table)
        case Steps():
            path, axis = metric.steps
            yield from _steps(path, axis, table)


def _seed_by_seed(a: Values, b: Values, f: Callable[[float, float], float | None]) -> Values:
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise ZooError(f"{len(a)} seeds cannot be compared with {len(b)}")
    size = max(len(a), len(b))
    a, b = (v * size if len(v) == 1 else v for v in (a, b))
    return [None if x is None or y is None else f(x, y) for x, y in zip(a, b, strict=True)]


def _pairs(
    texts: list[str], table: Table, f: Callable[[float, float], float | None], sign: str
) -> Iterator[tuple[str, Values]]:
    """Both sides, joined where the axes that neither path pins have the same label (and, with `@*`, the same step)."""
    paths = [MetricPath.parse(text) for text in texts]
    pinned = {axis for path in paths for axis, label in (path.labels or {}).items() if label != "*"}
    every_step = all(path.step == "*" for path in paths)
    found = False
    for (a, x), (b, y) in itertools.product(*(path.find(table).items() for path in paths)):
        left, right = dict(a.labels), dict(b.labels)
        agree = all(left[axis] == right[axis] for axis in (left.keys() & right.keys()) - pinned)
        if agree and (a.step == b.step or not every_step):
            found = True
            yield f"{a} {sign} {b}", _seed_by_seed(x, y, f)
    if not found:
        raise ZooError(f"{texts[0]!r} and {texts[1]!r} have no point in common")


def _steps(path: str, axis: str, table: Table) -> Iterator[tuple[str, Values]]:
    lines: dict[tuple, list[tuple[Key, Values]]] = {}
    for key, values in MetricPath.parse(path).find(table).items():
        logged = axis == "step" and key.step is not None
        if axis == "step" and key.step is None and axis not in dict(key.labels):
            raise ZooError(f"steps: {path!r} is the last value alone; for its logged steps write {path + '@*'!r}")
        if axis not in dict(key.labels) and not logged:
            raise ZooError(f"steps: {path!r} has no axis {axis!r}{did_you_mean(axis, dict(key.labels))}")
        rest = tuple(pair for pair in key.labels if pair[0] != axis)
        lines.setdefault((rest, key.set, None if logged else key.step), []).append((key, values))
    if all(len(line) < 2 for line in lines.values()):
        raise ZooError(f"steps: {path!r} has one point along {axis!r}; two are needed")
    for line in lines.values():
        for (_, before), (key, after) in itertools.pairwise(line):
            yield f"step to {key}", _seed_by_seed(after, before, lambda a, b: a - b)


def _slopes(path: str, tail: int | float, table: Table) -> Iterator[tuple[str, Values]]:
    """A slope a seed of each series that the path names, with the largest of their standard errors."""
    lines: dict[tuple, dict[int, tuple[Key, Values]]] = {}
    for key, values in MetricPath.parse(path).find(table).items():
        lines.setdefault((key.labels, key.set), {})[key.step or 0] = (key, values)
    for line in lines.values():
        start = tail * max(line) if tail < 1 else tail
        steps = [step for step in sorted(line) if step >= start and step > 0]
        if len(steps) < 3:
            raise ZooError(f"slope: {path!r} has {len(steps)} logged steps from {start:g} on; three are needed")
        key = line[steps[0]][0]
        seeds = list(zip(*(line[step][1] for step in steps), strict=True))
        fits = [log_slope(steps, values) for values in seeds]
        errors = [error for _, error in fits if error is not None]
        told = f" (standard error {max(errors):.2g})" if errors else ""
        yield f"slope of {str(key).partition('@')[0]} over steps {steps[0]}..{steps[-1]}{told}", [s for s, _ in fits]
