"""Which seed a checkpoint of several is loaded with, and one seed's part of what was measured."""

from collections.abc import Container
from pathlib import Path
from typing import Any

from provenzoo.pipeline.claims import Table, per_seed
from provenzoo.pipeline.folder import RunFolder
from provenzoo.pipeline.plan import Plan
from provenzoo.plain import read_yaml


def default_seed(run: Path, stage: str, seeds: list[int], lost: Container[int] = ()) -> tuple[int, str]:
    """The default among the seeds that a complete run's stage has, and why it is; none of those that are `lost`."""
    if len(seeds) == 1:
        return seeds[0], "the only one"
    plan = Plan.of(read_yaml(run / "config.yaml"))
    return median_seed(plan, RunFolder(run).table(plan.points), stage, seeds, lost)


def median_seed(plan: Plan, table: Table, stage: str, seeds: list[int], lost: Container[int] = ()) -> tuple[int, str]:
    """The seed that is the median in the recipe's first claim, of two the lower; the first where no claim can tell.

    Of a claim about several points, the one at the stage tells. Seeds that diverged are `lost` and left out.
    """
    kept = [seed for seed in seeds if seed not in lost] or seeds
    for name, claim in list(plan.recipe.claims.items())[:1]:
        values = per_seed(claim, table, stage, len(seeds))
        if values is not None:
            found = sorted((value, seed) for value, seed in zip(values, seeds, strict=True) if value is not None)
            order = [seed for _, seed in found if seed in kept] or kept
            which = "the median" if len(order) % 2 else "the lower of the two medians"
            return order[(len(order) - 1) // 2], f"{which} in the claim `{name}`"
    return kept[0], "the first"


def one_of(entry: dict[str, Any], seed: int) -> dict[str, Any]:
    """A set's entry with one seed's numbers."""
    index = entry["seeds"].index(seed)
    values = {name: [every[index]] for name, every in entry["values"].items()}
    return entry | {"values": values, "digests": [entry["digests"][index]], "seeds": [seed]}
