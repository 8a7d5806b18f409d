"""Running all recipes that a pattern names: those whose data is there and that no GPU is asked for."""

from collections.abc import Iterable
from pathlib import Path

from provenzoo import components, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.jobs import Job, in_processes
from provenzoo.pipeline.plan import Plan, prepare
from provenzoo.pipeline.run import Interrupted, Run, run
from provenzoo.plain import did_you_mean, read_json, walk
from provenzoo.report.paper import write_paper
from provenzoo.training import parallel, runtime

KINDS = {"data": "datasets", "inputs": "datasets", "images": "datasets", "model": "models"}
"""The keys of a recipe whose components may need what is not there."""


def run_matching(
    pattern: str,
    overrides: Iterable[str] = (),
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    jobs: int | None = None,
) -> tuple[list[Run], dict[str, str]]:
    """Run the recipes that a pattern chooses; their runs, and why each of the others is left out.

    `out` is the folder of the run folders: a recipe's own is `out/<recipe>`. Recipes `<paper>/<experiment>` also get
    the paper's page, `<paper>/report.html` above their folders, of which a line on standard error tells. With `jobs`
    they run in so many processes side by side, and one that fails is an error once the others have ended.
    """
    parallel.only_one("a pattern of recipes")
    overrides = list(overrides)
    chosen, left_out = select(pattern, overrides)
    if jobs:
        runs = _side_by_side(chosen, overrides, out, fresh, jobs)
    else:
        runs = [run(name, overrides, out=Path(out, name) if out else None, fresh=fresh) for name in chosen]
    for paper in dict.fromkeys(name.partition("/")[0] for name in chosen if "/" in name):
        runtime.say(f"paper's report: {write_paper(Path(out or 'runs', paper))}")
    return runs, left_out


def _side_by_side(names: list[str], overrides: list[str], out: str | Path | None, fresh: bool, jobs: int) -> list[Run]:
    """Run recipes in so many processes."""
    asked, failed = [], []
    for name in names:
        data, plan = prepare(name, overrides)
        folder = Path(out, name) if out else Path("runs", plan.recipe.recipe, plan.id)
        asked.append(Job(name, data, str(folder), fresh))
    with runtime.Stop() as stop:
        for ended in in_processes(asked, stop, jobs):
            runtime.say(f"{ended.name}: {ended.error or ended.status}")
            failed += [ended.name] if ended.status == "failed" else []
    if stop.signal is not None:
        raise Interrupted(stop.signal, Path(out or "runs"))
    if failed:
        raise ZooError(f"{len(failed)} of {len(names)} recipes failed, for the reasons above: {', '.join(failed)}")
    return [Run(Path(job.out), read_json(Path(job.out, "run.json"))) for job in asked]


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
        kind = KINDS.get(path.rpartition(".")[2])
        if kind and isinstance(value, dict) and "name" in value:
            bound = components.check(kind, value, path)
            missing = getattr(bound.builder, "missing", None)
            if missing and (why := missing(**bound.args)):
                return why
    return None
