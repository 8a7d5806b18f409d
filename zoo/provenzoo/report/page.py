"""One self-contained HTML page a run: no script, no request, figures inside, light and dark, on paper too."""

import base64
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2

from provenzoo.content import own_content
from provenzoo.plain import write_whole
from provenzoo.report import RunView, StageView, metric_text, number
from provenzoo.report.figures import Drawn, drawn
from provenzoo.report.preview import preview

TEMPLATE = "report.html.jinja"
MOST_POINTS = 12
"""The results of a stage with more points than this stand in one table, a row a point."""


def write_report(run: Path) -> Path:
    """Write `report.html` from a run folder, whatever its state, and give its path."""
    view = RunView.read(run)
    target = view.path / "report.html"
    write_whole(
        target,
        render(
            TEMPLATE,
            run=view,
            record=view.record,
            claims=list(claims_of(view)),
            results=list(_results(view)),
            stages=[_stage_row(points) for points in _grouped(view)],
            figures=[picture(figure) for figure in drawn(view)],
            data_digests=list(_data_digests(view)),
            config=(view.path / "config.yaml").read_text(encoding="utf-8"),
            card=_card(view.path / "README.md"),
        ),
    )
    return target


def render(template: str, **values: Any) -> str:
    """A page from a template of cards/; all that it shows is escaped."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(own_content() / "cards"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["number"] = number
    return templates.get_template(template).render(**values)


def picture(figure: Drawn) -> dict[str, Any]:
    """A figure and its file as a data URI."""
    return {"figure": figure, "uri": "data:image/png;base64," + base64.b64encode(figure.path.read_bytes()).decode()}


def claims_of(view: RunView) -> Iterator[dict[str, Any]]:
    """The judged claims or, before they are, those of the recipe with `holds` none."""
    unjudged = {"source": "", "over": "mean", "value": None, "at": "", "holds": None}
    written = [
        {**unjudged, **claim, "id": id, "holds": None, "holds_if": claim["holds"]}
        for id, claim in view.recipe.get("claims", {}).items()
    ]
    for claim in view.record["claims"] or written:
        yield {**claim, "metric": metric_text(claim["metric"]), "at": _worst(claim)}


def _worst(claim: dict[str, Any]) -> str:
    """Where a claim's value was found, as far as its metric does not say it."""
    place, _, seed = claim["at"].rpartition(", seed ")
    alone = claim.get("matches", 1) == 1
    return (f"seed {seed}" if place else "") if alone else claim["at"]


# --- results ------------------------------------------------------------------------------------------------------


def _grouped(view: RunView) -> Iterator[list[StageView]]:
    """The stages in their order: each point for itself, or all of a stage with many of them."""
    for base in dict.fromkeys(stage.base for stage in view.stages):
        points = view.named(base)
        yield from [points] if len(points) > MOST_POINTS else ([point] for point in points)


def _results(view: RunView) -> Iterator[dict[str, Any]]:
    """A block a point, or one for all points of a stage with many of them; what has no numbers has no block."""
    for points in _grouped(view):
        block = _grid(view, points) if len(points) > 1 else _block(view, points[0])
        if block["rows"]:
            yield block


def _block(view: RunView, stage: StageView) -> dict[str, Any]:
    """A stage's numbers: a group of rows a set, a row a metric."""
    groups = []
    for label, summaries in _summaries(view, stage):
        rows = [{"metric": name, **summary, **_seeds(summary["per_seed"])} for name, summary in summaries.items()]
        if rows:
            groups.append({"label": label or "held out", "metrics": rows})
    return {"grid": False, "stage": stage, "rows": groups}


def _grid(view: RunView, points: list[StageView]) -> dict[str, Any]:
    """The numbers of many points: a row a point (and set), a column an axis and a metric."""
    found = [(point, label, values) for point in points for label, values in _summaries(view, point)]
    axes = list(dict.fromkeys(axis for point in points for axis in point.labels))
    sets = ["set"] if any(label for _, label, _ in found) else []
    metrics = list(dict.fromkeys(name for *_, values in found for name, v in values.items() if _is_column(name, v)))
    rows = [
        {
            "labels": [*(point.labels.get(axis, "–") for axis in axes), *([label] if sets else [])],
            "numbers": [values.get(metric) for metric in metrics],
        }
        for point, label, values in found
    ]
    first = {"name": points[0].base, "kind": points[0].node["stage"], "points": len(points)}
    return {"grid": True, **first, "axes": axes + sets, "metrics": metrics, "rows": rows}


def _summaries(view: RunView, stage: StageView) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each set of a stage with what run.json tells of its metrics."""
    for label in stage.metrics["sets"]:
        yield label, view.record["metrics"].get(f"{stage.name}.{label}" if label else stage.name, {})


def _is_column(name: str, summary: dict[str, Any]) -> bool:
    return name != "frozen-unchanged" and not any(isinstance(value, list) for value in summary["per_seed"])


def _seeds(values: list[Any]) -> dict[str, Any]:
    """The numbers of each seed as text; of a vector (one number a class) the means over the seeds that have one."""
    vectors = [value for value in values if isinstance(value, list)]
    columns = [[value for value in column if value is not None] for column in zip(*vectors, strict=True)]
    means = [f"{fmean(column):.2g}" if column else "none" for column in columns]
    return {
        "vector": bool(vectors),
        "seeds": means or [number(v) for v in values],
        "several": len(values) > 1,
    }


def _stage_row(points: list[StageView]) -> dict[str, Any]:
    """A row of the table of stages: one point, or all of a stage with many of them."""
    first, entries, complete = points[0], [point.entry for point in points], sum(point.complete for point in points)
    alone = len(points) == 1
    spent = [entry["seconds"] for entry in entries if entry["seconds"] is not None]
    frozen = [e["frozen_unchanged"] for e in entries if e["frozen_unchanged"] is not None]
    failed = any(entry["status"] == "failed" for entry in entries)
    return {
        "name": first.name if alone else f"{first.base}, {len(points)} points",
        "status": first.entry["status"] if alone or complete == len(points) else f"{complete} complete",
        "look": "good" if complete == len(points) else "bad" if failed else "warn",
        "seconds": sum(spent) if spent else None,
        "frozen": all(frozen) if frozen else None,
        "inputs": first.entry["inputs_digest"] if alone else "",
        "diverged": [("" if alone else f"{p.name}: ", *pair) for p in points for pair in p.diverged.items()],
    }


def _data_digests(view: RunView) -> Iterator[tuple[str, list[str]]]:
    """Where a set was measured, and the digests of its data, each once."""
    for stage in view.stages:
        for label, entry in stage.metrics["sets"].items():
            name = f"{stage.name}.{label}" if label else stage.name
            yield name, list(dict.fromkeys(entry["digests"]))


def _card(file: Path) -> dict[str, Any] | None:
    """The card's front matter and its text as HTML."""
    if not file.is_file():
        return None
    front, html = preview(file.read_text(encoding="utf-8"))
    return {"front": front, "html": html}
