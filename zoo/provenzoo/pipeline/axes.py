"""The keys of a sweep and their values: lists, `range(...)`, `log(...)` and `random(...)`."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from provenzoo.draws import generator
from provenzoo.errors import UsageError
from provenzoo.pipeline.recipe import parse_override
from provenzoo.plain import did_you_mean, scalar

MOST = 10_000
"""The points that a sweep may have."""
_FORM = re.compile(r"(range|log|random)\((.*)\)")


@dataclass(frozen=True)
class Axis:
    """A key of the recipe and the values that it takes in turn, as an override writes them."""

    path: str
    texts: tuple[str, ...]

    @property
    def values(self) -> list[Any]:
        """The values as plain data."""
        return [parse_override(f"{self.path}={text}")[1] for text in self.texts]


def read_axes(words: Iterable[str]) -> tuple[list[str], list[Axis]]:
    """The overrides that hold for every point, and the axes: the words that give several values or a form.

    `path=1,2,3` is a list; what stands in brackets, braces or double quotes is one value. `range(5)`, `range(1,5)` and
    `range(0,10,2)` are Python's, without the end; `log(1e-4,1e-1,7)` is so many numbers from the first to the last in
    equal ratios, to six digits; `random(n)` is n numbers in [0, 1), `random(n,low,high)` n in [low, high) (different
    whole ones if both ends are whole), `random(n,low,high,log)` n whose logarithm is uniform. A key and its form
    give the same random numbers every time. Forms and values may stand in one list.
    """
    fixed: list[str] = []
    axes: list[Axis] = []
    for word in words:
        path, _, value = word.partition("=")
        items = _split(value)
        if len(items) < 2 and not _FORM.fullmatch(value):
            parse_override(word)
            fixed.append(word)
        else:
            axes.append(_axis(path, items))
    if not axes:
        raise UsageError("a sweep needs a key with several values, such as seeds=1,2 or stages.train.steps=range(3)")
    names = [axis.path.removesuffix("+") for axis in axes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{twice[0]!r} is given twice")
    if math.prod(len(axis.texts) for axis in axes) > MOST:
        raise UsageError(f"the sweep has more than {MOST:,} points; give fewer values")
    return fixed, axes


def combinations(axes: Iterable[Axis]) -> Iterator[dict[str, str]]:
    """Every choice of a value for each key; the last key changes fastest."""
    axes = list(axes)
    for chosen in itertools.product(*(axis.texts for axis in axes)):
        yield {axis.path: text for axis, text in zip(axes, chosen, strict=True)}


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """The shortest endings of the paths, by whole keys, that tell them apart."""
    paths = list(paths)
    ends = {path: ["." + ".".join(path.split(".")[-n:]) for n in range(1, path.count(".") + 2)] for path in paths}
    return {
        path: next((end[1:] for end in ends[path] if sum(f".{other}".endswith(end) for other in paths) == 1), path)
        for path in paths
    }


def _axis(path: str, items: list[str]) -> Axis:
    texts = tuple(text for item in items for text in _texts(path, item))
    for text in texts:
        parse_override(f"{path}={text}")
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise UsageError(f"{path}: the value {twice[0]} is there twice")
    return Axis(path, texts)


def _split(value: str) -> list[str]:
    """The parts between commas that stand in no brackets and no double quotes."""
    parts, depth, quoted = [""], 0, False
    for character in value:
        quoted ^= character == '"'
        depth += 0 if quoted else (character in "([{") - (character in ")]}")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _texts(path: str, item: str) -> list[str]:
    if item == "":
        raise UsageError(f"{path}: a value between the commas is empty")
    if not (form := _FORM.fullmatch(item)):
        return [item]
    numbers = {"range": _range, "log": _log, "random": lambda *given: _random(path, *given)}[form[1]]
    given = [scalar(part) for part in _split(form[2])]
    try:
        found = numbers(*given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: {item} is not read: {_reason(form[1], error)}") from None
    if not found:
        raise UsageError(f"{path}: {item} is empty")
    return [str(number) for number in found]


def _reason(form: str, error: Exception) -> str:
    """Our own words, or where Python's would come from a wrong number or kind of arguments, how it is written."""
    usage = {
        "range": "write range(end), range(start,end) or range(start,end,step) with whole numbers",
        "log": "write log(low,high,n) with 0 < low < high and n of 2 or more",
        "random": "write random(n), random(n,low,high) or random(n,low,high,log)",
    }
    return str(error) if isinstance(error, _Told) else usage[form]


class _Told(ValueError):
    """A fault that is told in its own words."""


def _range(*ends: int) -> list[int]:
    found = range(*ends)
    if len(found) > MOST:
        raise _Told(f"it has more than {MOST:,} values")
    return list(found)


def _log(low: float, high: float, count: int) -> list[float]:
    if not 0 < low < high or not 2 <= count <= MOST:
        raise ValueError
    ratio = math.log(high / low)
    return [_rounded(low * math.exp(ratio * i / (count - 1))) for i in range(count)]


def _random(path: str, count: int, low: float = 0.0, high: float = 1.0, scale: str = "linear") -> list[float]:
    if scale not in ("linear", "log"):
        raise _Told(f"no scale {scale!r}{did_you_mean(str(scale), ['linear', 'log'])}")
    if not low < high or (scale == "log" and low <= 0) or not 0 <= count <= MOST:
        raise ValueError
    draws = generator(0, "sweep", *path.encode())
    if scale == "log":
        exponents = torch.rand(count, generator=draws, dtype=torch.float64) * math.log(high / low)
        return [_rounded(low * math.exp(x)) for x in exponents.tolist()]
    if isinstance(low, int) and isinstance(high, int):
        if count > high - low:
            raise _Told(f"there are {high - low} whole numbers from {low} below {high}")
        return (torch.randperm(high - low, generator=draws)[:count] + low).tolist()
    return [_rounded(low + (high - low) * x) for x in torch.rand(count, generator=draws, dtype=torch.float64).tolist()]


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")
