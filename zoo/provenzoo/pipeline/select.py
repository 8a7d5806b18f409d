"""Which recipes a pattern runs: those whose data is there and that no GPU is asked for."""

from typing import Any

from provenzoo import components, registry
from provenzoo.errors import UsageError
from provenzoo.pipeline.plan import Plan
from provenzoo.pipeline.recipe import compose, plain_recipe
from provenzoo.plain import did_you_mean, walk


def select(pattern: str) -> tuple[list[str], dict[str, str]]:
    """The recipes to run, and why each of the others is left out. Nothing is downloaded."""
    names = registry.list_names("recipes", pattern)
    if not names:
        known = registry.list_names("recipes")
        raise UsageError(f"no recipe matches {pattern!r}{did_you_mean(pattern.strip('*'), known)}")
    reasons = {name: _reason(plain_recipe(compose(name))) for name in names}
    return [n for n, why in reasons.items() if why is None], {n: why for n, why in reasons.items() if why}


def _reason(data: dict[str, Any]) -> str | None:
    if data.get("scale") == "gpu":
        return "scale: gpu; ask for it by name"
    nodes = [point.node for point in Plan.of(data).points]
    for path, value in (pair for node in nodes for pair in walk(node)):
        if path.rpartition(".")[2] in ("data", "inputs") and isinstance(value, dict) and "name" in value:
            bound = components.check("datasets", value, path)
            missing = getattr(bound.builder, "missing", None)
            if missing and (why := missing(**bound.args)):
                return why
    return None
