"""Running all recipes that a pattern names: those whose data is there and that no GPU is asked for."""

from collections.abc import Iterable
from pathlib import Path

from provenzoo import components, registry
from provenzoo.errors import UsageError
from provenzoo.pipeline.plan import Plan, prepare
from provenzoo.pipeline.run import Run, run
from provenzoo.plain import did_you_mean, walk
from provenzoo.report.paper import write_paper
from provenzoo.training import runtime


def run_matching(
    pattern: str, overrides: Iterable[str] = (), *, out: str | Path | None = None, fresh: bool = False
) -> tuple[list[Run], dict[str, str]]:
    """Run the recipes that a pattern chooses; their runs, and why each of the others is left out.

    `out` is the folder of the run folders: a recipe's own is `out/<recipe>`. Recipes `<paper>/<experiment>` also get
    the paper's page, `<paper>/report.html` above their folders, of which a line on standard error tells.
    """
    overrides = list(overrides)
    chosen, left_out = select(pattern, overrides)
    runs = [run(name, overrides, out=Path(out, name) if out else None, fresh=fresh) for name in chosen]
    for paper in dict.fromkeys(name.partition("/")[0] for name in chosen if "/" in name):
        runtime.say(f"paper's report: {write_paper(Path(out or 'runs', paper))}")
    return runs, left_out


def select(pattern: str, overrides: Iterable[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The recipes to run, and why each of the others is left out. Nothing is downloaded."""
    overrides = list(overrides)
    names = registry.list_names("recipes", pattern)
    if not names:
        known = registry.list_names("recipes")
        raise UsageError(f"no recipe matches {pattern!r}{did_you_mean(pattern.strip('*'), known)}")
    reasons = {name: _reason(prepare(name, overrides)[1]) for name in names}
    return [n for n, why in reasons.items() if why is None], {n: why for n, why in reasons.items() if why}


def _reason(plan: Plan) -> str | None:
    if plan.recipe.scale == "gpu":
        return "scale: gpu; ask for it by name"
    for path, value in (pair for point in plan.points for pair in walk(point.node)):
        if path.rpartition(".")[2] in ("data", "inputs", "images") and isinstance(value, dict) and "name" in value:
            bound = components.check("datasets", value, path)
            missing = getattr(bound.builder, "missing", None)
            if missing and (why := missing(**bound.args)):
                return why
    return None
