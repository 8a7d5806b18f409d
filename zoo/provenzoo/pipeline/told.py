"""What a published checkpoint tells of its numbers, as anybody could have written it: checked before it is used."""

from typing import Annotated, Any

import pydantic
from pydantic import Field

from provenzoo.errors import ZooError
from provenzoo.settings import Settings, read

LARGEST = 2**24
"""What the examples of a set, or another of its sizes, may be to be drawn again where somebody else wrote it."""
SIZES = ("train", "test", "limit", "features", "num_classes", "image_size", "size", "channels", "dim")
_Seeds = Annotated[list[int], Field(min_length=1, max_length=10_000)]


class _Told(Settings):
    """Some keys of a mapping; those that a later version adds are no fault."""

    model_config = pydantic.ConfigDict(extra="ignore")


class ToldSet(_Told):
    """What config.json or metrics.json tells of one set."""

    model: dict[str, Any]
    data: dict[str, Any]
    metrics: list[str]
    values: dict[str, list[int | float | list[int | float | None] | None]]
    loss: str
    dtype: str
    seeds: _Seeds
    n: Annotated[int, Field(ge=1)]
    digests: list[str]


class ToldClaim(_Told):
    """What run.json tells of one claim."""

    id: str
    says: str
    source: str
    metric: Any
    over: str
    value: int | float | None
    matches: int
    holds_if: str
    holds: bool


class ToldRun(_Told):
    """What run.json tells of a run, as far as its card does."""

    seeds: int
    claims: list[ToldClaim]


def check_sets(sets: Any, where: str, own: bool = False) -> dict[str, Any]:
    """The sets of a checkpoint; an error where one is not what an evaluation leaves.

    A run's `own` may be of any size.
    """
    if not isinstance(sets, dict):
        raise ZooError(f"{where}: sets must be a mapping")
    for label, node in sets.items():
        told, at = read(ToldSet, node, f"{where}: sets.{label}"), f"{where}: sets.{label}"
        wrong = [name for name in told.metrics if len(told.values.get(name, [])) != len(told.seeds)]
        if wrong or len(told.digests) != len(told.seeds) or len(set(told.seeds)) < len(told.seeds):
            what = f"{wrong[0]!r}" if wrong else "a digest"
            raise ZooError(f"{at}: {what} is not told once for each of its seeds")
        sizes = {} if own else {"n": told.n} | {f"data.{key}": told.data.get(key) for key in SIZES}
        for key, size in sizes.items():
            if isinstance(size, int) and size > LARGEST:
                raise ZooError(f"{at}.{key}: {size} is more than the {LARGEST} that is drawn; refused")
    return sets


def check_record(record: Any, where: str) -> dict[str, Any]:
    """The content of run.json; an error where it does not tell of seeds and claims as a run's does."""
    read(ToldRun, record, where)
    return record
