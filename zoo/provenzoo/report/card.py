"""The draft of a run's model card, README.md: the Hub's own card classes around a template of cards/.

Only plain Python values reach the front matter, and text that people wrote is escaped where it stands in Markdown.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from provenzoo import registry
from provenzoo.content import own_content
from provenzoo.plain import plain_data, write_whole
from provenzoo.report import ARXIV, RunView, StageView, metric_text, number
from provenzoo.report.figures import Drawn, drawn

HUB_DATASETS = {
    "fashion-mnist": "zalando-datasets/fashion_mnist",
    "fashion-mnist-mini": "zalando-datasets/fashion_mnist",
    "mnist": "ylecun/mnist",
}
"""Registered name -> the id on the Hub of the set that the images are from."""
HUB_METRICS = {"accuracy"}
LICENSE = "apache-2.0"
_KNOWN = """
afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc-by-3.0 cc-by-4.0
cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0
cc0-1.0 cdla-permissive-2.0 epl-2.0 eupl-1.2 gpl-2.0 gpl-3.0 isc lgpl-2.1 lgpl-3.0 mit mpl-2.0 ncsa odbl openrail
unlicense wtfpl zlib
"""
HUB_LICENSES = frozenset(_KNOWN.split())
"""Names of licences that the Hub knows; any other is told as `other` with its name and the file."""
_MARKDOWN = re.compile(r"([\\`*_\[\]~#])")


@dataclass(frozen=True)
class Source:
    """Where a card says that its checkpoint is, and what of it is told there."""

    load: str
    """The reference that `provenzoo.load` takes."""
    seeds: list[int]
    seed: int | None
    """The seed that the snippet asks for; None where the default is taken."""
    results: list[dict[str, Any]]
    """`where`, `label`, the set's `entry`, and `metrics`: name -> mean, std, min, max, per_seed, n."""
    figures: list[tuple[Drawn, str]]
    """Each figure with its link."""
    digest: str = ""
    """Of the tensors."""
    default: str = ""
    """Which seed is the default, and why, where there are several."""
    license: str = LICENSE
    timm: list[str] = field(default_factory=list)
    """The lines by which timm loads it; none where it cannot."""
    published: bool = False
    """Whether the card goes along with the checkpoint rather than standing in the run's folder."""


def write_card(run: Path) -> Path:
    """Write `README.md` from a run folder, whatever its state, and give its path."""
    view = RunView.read(run)
    target = view.path / "README.md"
    write_whole(target, str(draft(view)).rstrip() + "\n")
    return target


def draft(view: RunView) -> ModelCard:
    """The card of a run as it stands in its folder."""
    stage = published(view)
    folder = f"runs/{view.record['recipe']}/{view.record['id']}/stages/{stage.path.name if stage else ''}"
    seeds = stage.config["seeds"] if stage else []
    results = list(_results(view, stage)) if stage else []
    figures = [(figure, quote(figure.path.relative_to(view.path).as_posix())) for figure in drawn(view)]
    digest = stage.config["digest"] if stage else ""
    entry, license = stage.entry if stage else {}, license_of(view.recipe)
    default = f"{entry['seed']}, {entry['seed_is']}" if "seed" in entry else ""
    seed = seeds[0] if seeds and not default else None
    return render(view, stage, Source(folder, seeds, seed, results, figures, digest, default, license))


def license_of(recipe: dict[str, Any]) -> str:
    """The licence of what is published of a recipe."""
    return str(recipe.get("license") or LICENSE)


def render(view: RunView, stage: StageView | None, source: Source) -> ModelCard:
    """The card of a stage's checkpoint (None: of a run without one). Ill-typed numbers are an error."""
    papers, config = _papers(view, stage), stage.config if stage else {}
    front = _front_matter(view.record["recipe"], papers, config, source)
    plain_data(front.to_dict(), f"{view.path}: the card")
    return ModelCard.from_template(
        front,
        template_path=str(registry.card_file(view.recipe.get("card"))),
        cell=cell,
        code=code,
        number=number,
        run=view,
        record=view.record,
        stage=stage,
        source=source,
        paper=_paper(view),
        claims=[{**claim, "metric": metric_text(claim["metric"])} for claim in view.record["claims"]],
        results=source.results,
        figures=source.figures,
        data=list(_data(source.results)),
    )


def render_alone(name: str, summary: str, config: dict[str, Any], source: Source) -> ModelCard:
    """The card of a checkpoint without its run."""
    paper = str(config.get("paper", ""))
    front = _front_matter(name, [paper], config, source)
    plain_data(front.to_dict(), f"{name}: the card")
    return ModelCard.from_template(
        front,
        template_path=str(own_content() / "cards" / "checkpoint.jinja"),
        cell=cell,
        code=code,
        number=number,
        name=name,
        summary=summary,
        config=config,
        source=source,
        paper=_link(paper),
        results=source.results,
        data=list(_data(source.results)),
    )


def published(view: RunView) -> StageView | None:
    """The stage whose checkpoint the card is for: the recipe's `publish`, else the last that trained."""
    trained = [stage for stage in view.stages if stage.complete and stage.trains]
    wanted = view.recipe.get("publish")
    named = [stage for stage in trained if wanted in (stage.name, stage.base)]
    return named[0] if named else trained[-1] if trained and wanted is None else None


# --- text ---------------------------------------------------------------------------------------------------------


def cell(text: object) -> str:
    """Text as it reads, on one line, safe in a Markdown table and anywhere else in Markdown."""
    line = " ".join(str(text).split())
    return _MARKDOWN.sub(r"\\\1", html.escape(line, quote=False)).replace("|", "&#124;")


def code(text: object) -> str:
    """Text in code type, safe in a Markdown table."""
    line = html.escape(" ".join(str(text).split()), quote=False)
    return f"<code>{_MARKDOWN.sub(lambda m: f'&#{ord(m[1])};', line).replace('|', '&#124;')}</code>"


def _paper(view: RunView) -> str:
    """The link of the recipe's paper, or what it says of it."""
    return _link(str(view.recipe.get("paper", "")))


def _link(paper: str) -> str:
    found = ARXIV.search(paper)
    return f"[arXiv:{found[1]}](https://arxiv.org/abs/{found[1]})" if found else cell(paper)


# --- results ------------------------------------------------------------------------------------------------------


def _results(view: RunView, stage: StageView) -> Iterator[dict[str, Any]]:
    """What was measured of a checkpoint: the sets of the stages that judge it, else its own held-out split."""
    judges = [s for s in view.stages if not s.trains and s.complete and s.origin == stage.name]
    for judge in judges or [stage]:
        for label, entry in judge.metrics["sets"].items():
            where = f"{judge.name}.{label}" if label else judge.name
            summaries = view.record["metrics"].get(where, {})
            scalars = {
                name: summary
                for name, summary in summaries.items()
                if name in entry["values"] and not any(isinstance(value, list) for value in summary["per_seed"])
            }
            yield {"where": where, "label": label or "held out", "entry": entry, "metrics": scalars}


def _front_matter(name: str, papers: list[str], config: dict[str, Any], source: Source) -> ModelCardData:
    """The front matter of a checkpoint's card, by its config (empty: of a run without one)."""
    results, license = source.results, source.license
    images = "image_size" in config.get("filled", {})
    task = "image-classification" if images else "other"
    found = [result for row in results for result in _eval_results(row, task)]
    more: dict[str, Any] = {"model_name": name, "eval_results": found} if found else {}
    data = config["data"]["name"] if config else None
    return ModelCardData(
        license=license if license in HUB_LICENSES else "other",
        license_name=None if license in HUB_LICENSES else license,
        license_link=None if license in HUB_LICENSES else "LICENSE",
        library_name="provenzoo",
        pipeline_tag=task if images else None,
        tags=["provenzoo", *_arxiv_tags(papers)],
        datasets=[HUB_DATASETS[data]] if data in HUB_DATASETS else None,
        metrics=sorted({name for row in results for name in row["metrics"] if name in HUB_METRICS}) or None,
        **more,
    )


def _eval_results(row: dict[str, Any], task: str) -> Iterator[EvalResult]:
    """One result a metric of a set; a null (a replica that was not finite) is no result."""
    data = row["entry"]["data"]
    for name, summary in row["metrics"].items():
        if summary["mean"] is None:
            continue
        yield EvalResult(
            task_type=task,
            dataset_type=data["name"],
            dataset_name=f"{data['name']}, {row['label']}",
            dataset_config=row["where"],
            dataset_split="test",
            dataset_args={key: value for key, value in data.items() if key != "name"} or None,
            metric_type=name,
            metric_name=f"{name}, mean over {len(summary['per_seed'])} seeds",
            metric_value=float(f"{summary['mean']:.6g}"),
        )


def _papers(view: RunView, stage: StageView | None) -> list[str]:
    return [str(view.recipe.get("paper")), str(stage.config.get("paper") if stage else None)]


def _arxiv_tags(papers: list[str]) -> list[str]:
    found = [ARXIV.search(paper) for paper in papers]
    return list(dict.fromkeys(f"arxiv:{match[1]}" for match in found if match))


def _data(results: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    for row in results:
        yield row["where"], [digest[:12] for digest in dict.fromkeys(row["entry"]["digests"])]
