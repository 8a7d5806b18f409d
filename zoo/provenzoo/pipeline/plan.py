"""The plan of a recipe: its points, parents first, and every check that needs no training."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from provenzoo import registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.claims import Key, Table, judge
from provenzoo.pipeline.points import Point, expand, order
from provenzoo.pipeline.recipe import Recipe, compose, plain_recipe
from provenzoo.plain import did_you_mean, digest
from provenzoo.report.figure import OF_ANY, Figure, covers, labels_along, numbers_along
from provenzoo.settings import read


@dataclass(frozen=True)
class Plan:
    """A recipe's points, parents first."""

    recipe: Recipe
    points: tuple[Point, ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Plan":
        """Resolve and check a composed recipe; every fault that needs no training to see is raised here."""
        recipe = read(Recipe, data, f"recipe {data.get('recipe')}")
        done: dict[str, list[Point]] = {}
        for name in order(recipe.stages):
            done[name] = expand(name, recipe, done)
        plan = cls(recipe, tuple(point for points in done.values() for point in points))
        for point in plan.points:
            point.kind.check(point.settings, f"stages.{point.name}")
        plan.check_claims()
        plan.check_names()
        return plan

    @property
    def id(self) -> str:
        """The digest of all points' digests, 12 hex digits."""
        return digest([[p.name, p.digest] for p in self.points])[:12]

    def check_claims(self) -> None:
        """Judge every claim on ones, so that misspelt paths and labels are found before anything trains."""
        judge(self.recipe.claims, self._ones())

    def check_names(self) -> None:
        """Check that `figures` and `publish` name stages and metrics that there will be, `card` and `license` files."""
        registry.card_file(self.recipe.card)
        if self.recipe.license is not None:
            registry.license_file(self.recipe.license)
        ones = self._ones()
        for name, figure in self.recipe.figures.items():
            for stage in figure.stages:
                self._check_figure(f"figures.{name}", figure, stage, ones)
        if self.recipe.publish is not None:
            trained = [point for point in self.points if point.kind.trains]
            self._named(self.recipe.publish, "publish: no stage with a checkpoint", trained)

    def _check_figure(self, where: str, figure: Figure, stage: str, ones: Table) -> None:
        """Check what a figure says of one of its stages: points, kind, metrics and axis."""
        points = [point for point in self.points if covers(stage, point.name)]
        first = points[0] if points else self._named(stage, f"{where}: no stage", self.points)
        if figure.kind not in OF_ANY and not first.kind.trains:
            raise ZooError(f"{where}: {figure.kind} shows a training, and {first.stage} only evaluates")
        if figure.kind == "dynamics" and len(points) > 1:
            raise ZooError(f"{where}: {stage} has {len(points)} points, such as {first.name}; name one of them")
        if figure.axis is not None:
            along = labels_along if figure.kind == "columns" else numbers_along
            along(figure.axis, [point.name for point in points], where)
        known = {"loss"} if figure.kind == "curves" else set()
        known |= {key.metric for key in ones if key.stage == first.stage} - {"frozen-unchanged"}
        if first.kind.trains:
            known |= {f"{key.set}.{key.metric}" for key in ones if key.stage == first.stage and key.set}
        for metric in figure.chosen:
            if metric not in known:
                raise ZooError(f"{where}: no metric {metric!r} in {stage}{did_you_mean(metric, sorted(known))}")

    def _named(self, name: str, otherwise: str, points: Sequence[Point]) -> Point:
        """The first point of a stage, or the one of a point's name; another name is an error."""
        if found := [point for point in points if name in (point.stage, point.name)]:
            return found[0]
        known = dict.fromkeys(known for point in points for known in (point.stage, point.name))
        raise ZooError(f"{otherwise} {name!r}{did_you_mean(name, known)}")

    def numbers(self, stage: str | None = None) -> list[str]:
        """The names of the numbers at the end of a stage (of all): `stage[point].set.metric`, as run.json has them."""
        return [
            f"{point.name}.{label}.{metric}" if label else f"{point.name}.{metric}"
            for point in self.points
            if stage in (None, point.stage)
            for label, metric, step in point.kind.expected(point.settings, set())
            if step is None
        ]

    def _ones(self) -> Table:
        table: Table = {}
        mentioned = {
            int(s)
            for s in re.findall(r"@(\d{1,18})", json.dumps([c.model_dump() for c in self.recipe.claims.values()]))
        }
        for point in self.points:
            for set_label, metric, step in point.kind.expected(point.settings, mentioned):
                table[Key(point.stage, point.labels, set_label, metric, step)] = [1.0] * len(point.seeds)
        return table


def prepare(
    recipe: str | Path | DictConfig | Mapping[str, Any], overrides: Iterable[str] = ()
) -> tuple[dict[str, Any], Plan]:
    """A recipe composed, and its plan. A fault that comes with the overrides alone is one of the command's words."""
    overrides = list(overrides)
    try:
        data = plain_recipe(compose(recipe, overrides))
        return data, Plan.of(data)
    except ZooError as error:
        if overrides and not isinstance(error, UsageError) and _is_sound(recipe):
            raise UsageError(str(error)) from None
        raise


def _is_sound(recipe: str | Path | DictConfig | Mapping[str, Any]) -> bool:
    try:
        prepare(recipe)
    except ZooError:
        return False
    return True
