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

TEMPLATE = "report.html.jinja"


def write_report(run: Path) -> Path:
    """Write `report.html` from a run folder, whatever its state, and give its path."""
    view = RunView.read(run)
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(own_content() / "cards"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["number"] = number
    content = templates.get_template(TEMPLATE).render(
        run=view,
        record=view.record,
        claims=list(_claims(view)),
        results=[block for stage in view.stages if (block := _results(view, stage))["rows"]],
        figures=[{"figure": figure, "uri": _data_uri(figure)} for figure in drawn(view)],
        data_digests=list(_data_digests(view)),
        config=(view.path / "config.yaml").read_text(encoding="utf-8"),
        card=_card(view.path / "README.md"),
    )
    target = view.path / "report.html"
    write_whole(target, content)
    return target


def _claims(view: RunView) -> Iterator[dict[str, Any]]:
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


def _results(view: RunView, stage: StageView) -> dict[str, Any]:
    """A stage's numbers: a group of rows a set, a row a metric."""
    groups = []
    for label in stage.metrics["sets"]:
        summaries = view.record["metrics"].get(f"{stage.name}.{label}" if label else stage.name, {})
        rows = [{"metric": name, **summary, **_seeds(summary["per_seed"])} for name, summary in summaries.items()]
        if rows:
            groups.append({"label": label or "held out", "metrics": rows})
    return {"stage": stage, "rows": groups}


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


def _data_digests(view: RunView) -> Iterator[tuple[str, list[str]]]:
    """Where a set was measured, and the digests of its data, each once."""
    for stage in view.stages:
        for label, entry in stage.metrics["sets"].items():
            name = f"{stage.name}.{label}" if label else stage.name
            yield name, list(dict.fromkeys(entry["digests"]))


def _data_uri(figure: Drawn) -> str:
    return "data:image/png;base64," + base64.b64encode(figure.path.read_bytes()).decode()


def _card(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
