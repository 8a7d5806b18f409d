"""Unfinished trainings whose recipe now has another length: refused, or gone on from where that is asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.points import Point

if TYPE_CHECKING:
    from provenzoo.pipeline.folder import RunFolder

LENGTH = ("steps", "epochs", "log_every")


def of(point: Point) -> dict[str, Any]:
    """What stage.json keeps of a training for this: its length, and the digest of all else. Empty for an evaluation."""
    if not point.kind.trains:
        return {}
    rest = replace(point, node={key: value for key, value in point.node.items() if key not in LENGTH})
    return {"length": {key: point.node[key] for key in LENGTH if key in point.node}, "rest_digest": rest.digest}


def differ(record: Mapping[str, Any], point: Point) -> bool:
    """Whether a record is of the same training, but for its length."""
    known = record.get("rest_digest")
    return known is not None and known == of(point).get("rest_digest") and record["inputs_digest"] != point.digest


def check(folder: "RunFolder", points: Iterable[Point], asked: bool) -> None:
    """Refuse to go on under another length, unless it is asked for; to ask for it in vain is a UsageError."""
    other = [point for point in points if differ(folder.record(point), point) and folder.states(point)]
    if asked and not other:
        raise UsageError(
            f"--new-length: {folder.path} has no unfinished training of another length; --out names a run's folder"
        )
    if other and not asked:
        was, now = folder.record(other[0])["length"], of(other[0])["length"]
        raise ZooError(
            f"{other[0].name}: its unfinished training in {folder.path} has {_said(was)}, the recipe {_said(now)}\n"
            "go on from it with --new-length, or drop it with --fresh"
        )


def _said(length: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in length.items())
