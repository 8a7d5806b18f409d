"""One page a paper: the claims of all its recipes in one table, then their figures, from the run folders alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from provenzoo import __version__
from provenzoo.content import own_content
from provenzoo.errors import ZooError
from provenzoo.plain import read_yaml, write_whole
from provenzoo.report import ARXIV, RunView
from provenzoo.report.figures import drawn
from provenzoo.report.page import claims_of, picture, render

TEMPLATE = "paper.html.jinja"
MOST_FIGURES = 6
"""The figures of a recipe that its part of the page shows; its own report has them all."""
DEPTHS = ("*", "*/*", "*/*/*")


def write_paper(folder: Path) -> Path:
    """Write `report.html` of a folder that holds runs, such as runs/jelassi2022, and give its path."""
    folder = Path(folder)
    views = latest(RunView.read(run) for run in runs_below(folder))
    if not views:
        raise ZooError(f"{folder}: no run there; name a folder that holds runs, such as runs/<paper>")
    papers = list(_papers(views))
    recipes = [_recipe(view, folder) for view in views]
    claims = [claim for recipe in recipes for claim in recipe["claims"] if claim["holds"] is not None]
    target = folder / "report.html"
    content = render(
        TEMPLATE,
        title=papers[0]["title"] if len(papers) == 1 else folder.resolve().name,
        papers=papers,
        recipes=recipes,
        judged=len(claims),
        held=sum(claim["holds"] for claim in claims),
        unfinished=[view.record["recipe"] for view in views if view.record["status"] != "complete"],
        version=__version__,
    )
    write_whole(target, content)
    return target


def runs_below(folder: Path) -> list[Path]:
    """The run folders in a folder: `<experiment>/<id>`, `<experiment>` or, of a longer name, one level more."""
    found = {file.parent for depth in DEPTHS for file in Path(folder).glob(f"{depth}/run.json")}
    return sorted(run for run in found if (run / "config.yaml").is_file())


def latest(views: Iterable[RunView]) -> list[RunView]:
    """Of each recipe, by name, the run that finished last; one that did not finish only where there is no other."""
    found: dict[str, RunView] = {}
    for view in sorted(views, key=_age):
        found[view.record["recipe"]] = view
    return [found[name] for name in sorted(found)]


def _age(view: RunView) -> tuple[str, float]:
    return view.record.get("finished") or "", (view.path / "run.json").stat().st_mtime


def _papers(views: list[RunView]) -> Iterator[dict[str, Any]]:
    """Each paper that the recipes name, once; title and authors of those in cards/papers.yaml."""
    known = read_yaml(own_content() / "cards" / "papers.yaml")
    for paper in dict.fromkeys(str(view.recipe.get("paper", "")) for view in views):
        if found := ARXIV.search(paper):
            about = known.get(found[1], {"title": paper, "authors": "", "year": ""})
            yield {"id": f"arXiv:{found[1]}", "link": f"https://arxiv.org/abs/{found[1]}", **about}
        elif paper in known:
            yield {"id": "", "link": "", **known[paper]}


def _recipe(view: RunView, folder: Path) -> dict[str, Any]:
    record, report, figures = view.record, view.path / "report.html", drawn(view)
    claims = list(claims_of(view))
    seeds = f"{record['seeds']} seed{'s' if record['seeds'] != 1 else ''}"
    finished = (record["finished"] or record["status"]).replace("T", " ").replace("Z", " UTC")
    return {
        "name": record["recipe"],
        "about": record["about"],
        "claims": claims,
        "held": sum(claim["holds"] is True for claim in claims),
        "facts": [seeds, f"run {record['id'][:12]}", finished],
        "link": quote(report.relative_to(folder).as_posix()) if report.is_file() else None,
        "pictures": [picture(figure) for figure in figures[:MOST_FIGURES]],
        "more": max(0, len(figures) - MOST_FIGURES),
    }
