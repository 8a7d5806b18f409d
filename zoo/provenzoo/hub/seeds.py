"""Which seed a checkpoint of several is loaded with, and one seed's part of what was measured."""

from typing import Any

from provenzoo.pipeline.claims import per_seed
from provenzoo.pipeline.folder import RunFolder
from provenzoo.pipeline.plan import Plan
from provenzoo.plain import read_yaml
from provenzoo.report import RunView


def default_seed(view: RunView, stage: str, seeds: list[int]) -> tuple[int, str]:
    """The seed that is the (lower) median in the recipe's first claim, and why; the first where no claim can tell.

    Of a claim about several points, the one at the stage tells.
    """
    if len(seeds) == 1:
        return seeds[0], "the only one"
    plan = Plan.of(read_yaml(view.path / "config.yaml"))
    for name, claim in list(plan.recipe.claims.items())[:1]:
        values = per_seed(claim, RunFolder(view.path).table(plan.points), stage, len(seeds))
        if values is not None:
            order = sorted(range(len(seeds)), key=lambda k: values[k])
            return seeds[order[(len(order) - 1) // 2]], f"the median in the claim `{name}`"
    return seeds[0], "the first"


def one_of(entry: dict[str, Any], seed: int) -> dict[str, Any]:
    """A set's entry with one seed's numbers."""
    index = entry["seeds"].index(seed)
    values = {name: [every[index]] for name, every in entry["values"].items()}
    return entry | {"values": values, "digests": [entry["digests"][index]], "seeds": [seed]}
