"""The page of a paper: all claims of its recipes in one table, of each recipe the run that finished last."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from report_run import IDEALIZED, LINES, REALISTIC, TRANSFER, association, scalars, transfer, write_run
from small_run import RECIPE as SMALL
from test_report import change_json, text_of

from provenzoo import cli
from provenzoo.errors import ZooError
from provenzoo.pipeline.recipe import compose, plain_recipe
from provenzoo.plain import dump_yaml
from provenzoo.report import report
from provenzoo.report.paper import MOST_FIGURES, write_paper


def claim(id: str, holds: bool | None = True, source: str = "Theorem 5.1") -> dict[str, Any]:
    more = {"metric": f"x.{id}", "over": "mean", "value": 0.98431, "at": "x", "matches": 1, "holds_if": ">= 0.97"}
    return {"id": id, "says": f"It {id}.", "source": source, "holds": holds, **more}


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """Runs of three recipes, one claim of which falls short; `realistic` stands right in its folder, as with --out."""
    folder = tmp_path / "mine"
    recipe = {**TRANSFER, "figures": {"samples": LINES}}
    runs = [
        write_run(folder / "transfer" / "aaaa", recipe, transfer(), [claim("transfers"), claim("waits", holds=False)]),
        write_run(folder / "realistic", REALISTIC, [association()], [claim("associates", source="Figure 4")]),
        write_run(folder / "idealized" / "bbbb", IDEALIZED, [scalars("full"), scalars("scalars")], [claim("leads")]),
    ]
    for run in runs:
        report(run)
    return folder


def test_the_page_tells_the_paper_every_claim_and_the_total(paper: Path) -> None:
    page = text_of(write_paper(paper))
    assert "Vision Transformers provably learn spatial structure" in page
    assert "Samy Jelassi, Michael E. Sander, Yuanzhi Li, 2022. arXiv:2210.09221" in page
    assert "3 of 4 claims hold, in 3 recipes." in page
    assert "mine/transfer 1 of 2 holds It transfers. transfers , mean over the seeds Theorem 5.1 0.9843 >= 0.97" in page
    assert "falls short It waits." in page and "Figure 4" in page


def test_links_lead_to_reports_that_are_there_and_to_parts_of_the_page(paper: Path) -> None:
    page = write_paper(paper).read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]*)"', page)
    local = [link for link in links if not link.startswith(("data:", "#", "https://arxiv.org/"))]
    assert local == ["idealized/bbbb/report.html", "realistic/report.html", "transfer/aaaa/report.html"]
    assert all((paper / unquote(link)).is_file() for link in local)
    assert all(f'id="{link[1:]}"' in page for link in links if link.startswith("#"))


def test_figures_are_inside_and_nothing_else_is_asked_for(paper: Path) -> None:
    page = write_paper(paper).read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 3 and all(source.startswith("data:image/png;base64,") for source in sources)
    assert "<script" not in page and "@import" not in page and str(paper) not in page


def test_a_recipe_of_many_figures_shows_the_first_and_tells_of_the_rest(tmp_path: Path) -> None:
    figures = {f"f{n}": {"kind": "association", "stage": "pretrain", "metric": "test-error"} for n in range(8)}
    report(write_run(tmp_path / "mine" / "realistic", {**REALISTIC, "figures": figures}, [association()]))
    page = write_paper(tmp_path / "mine")
    assert page.read_text(encoding="utf-8").count("data:image/png") == MOST_FIGURES
    assert "2 more figures" in text_of(page) and "claims hold" not in text_of(page)


def test_of_several_runs_of_a_recipe_the_latest_finished_counts(paper: Path) -> None:
    later = write_run(paper / "transfer" / "cccc", TRANSFER, transfer(), [claim("transfers"), claim("waits")])
    change_json(later / "run.json", lambda record: record.update(finished="2026-01-02T03:04:06Z"))
    stopped = write_run(paper / "transfer" / "dddd", TRANSFER, transfer())
    change_json(stopped / "run.json", lambda record: record.update(finished=None, status="interrupted"))
    page = text_of(write_paper(paper))
    assert "4 of 4 claims hold" in page and "run cccc" in page and "run dddd" not in page


def test_a_recipe_that_never_finished_is_named_and_its_claims_are_not_judged(paper: Path) -> None:
    claims = {"saves": {"says": "It saves.", "metric": "transfer.loss", "holds": "<= 1"}}
    recipe = {**TRANSFER, "recipe": "mine/half", "claims": claims}
    run = write_run(paper / "half" / "eeee", recipe, transfer()[:2])
    change_json(run / "run.json", lambda record: record.update(finished=None, status="interrupted"))
    page = text_of(write_paper(paper))
    assert "Not finished, so not judged: mine/half." in page
    assert "3 of 4 claims hold, in 4 recipes" in page and "not judged It saves." in page


def test_text_of_users_is_text_on_the_page(paper: Path) -> None:
    change_json(paper / "realistic" / "run.json", lambda record: record.update(about="<script>alert(1)</script>"))
    page = write_paper(paper)
    assert "<script" not in page.read_text(encoding="utf-8") and "<script>alert(1)</script>" in text_of(page)


def test_report_of_a_folder_of_runs_writes_the_same_page(paper: Path, capsys: pytest.CaptureFixture) -> None:
    first = write_paper(paper).read_bytes()
    (paper / "report.html").unlink()
    assert cli.execute(["report", str(paper)]) == 0
    assert capsys.readouterr().out == f"{paper / 'report.html'}\n"
    assert (paper / "report.html").read_bytes() == first


@pytest.mark.parametrize(
    ("named", "title", "first"),
    [
        ("zhang2026/graph-relu", "Transformers Trained via Gradient Descent Can Provably Learn", "Chenyang Zhang"),
        ("gatmiry2024/loops", "Can Looped Transformers Learn to Implement Multi-step", "Khashayar Gatmiry"),
    ],
)
def test_the_page_of_a_papers_recipes_has_its_title_and_authors(
    tmp_path: Path, named: str, title: str, first: str
) -> None:
    known = plain_recipe(compose(named))["paper"]
    report(write_run(tmp_path / "mine" / "realistic", {**REALISTIC, "paper": known}, [association()]))
    page = write_paper(tmp_path / "mine").read_text(encoding="utf-8")
    assert f"<h1>{title}" in page and f"{first}, " in page and 'href=""' not in page


def test_a_folder_without_runs_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="no run there; name a folder that holds runs"):
        write_paper(tmp_path)
    with pytest.raises(ZooError, match="no run there"):
        report(tmp_path)


# --- after a pattern ----------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes own/one and own/two, and `lone` in no folder."""
    train = {**SMALL["stages"]["train"], "steps": 2, "metrics": ["loss", "accuracy"]}
    claims = {"runs": {"says": "It runs.", "metric": "train.accuracy", "holds": ">= 0"}}
    for name in ("own/one", "own/two", "lone"):
        file = tmp_path / "content" / "pipelines" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            dump_yaml({"device": "cpu", "paper": "arXiv:2210.09221", "stages": {"train": train}, "claims": claims})
        )
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path / "content"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "page"), [((), "runs/own/report.html"), (("--out", "all"), "all/own/report.html")])
def test_a_pattern_ends_with_the_page_of_the_paper(two: Path, words: tuple, page: str, capsys) -> None:
    assert cli.execute(["run", "own/*", *words]) == 0
    said = capsys.readouterr()
    assert f"paper's report: {page}" in said.err and page not in said.out
    assert "2 of 2 claims hold, in 2 recipes." in text_of(two / page)


def test_a_pattern_of_recipes_in_no_folder_has_no_such_page(two: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.execute(["run", "lon*"]) == 0
    assert "paper's report" not in capsys.readouterr().err and not (two / "runs" / "report.html").exists()
