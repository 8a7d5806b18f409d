"""Figures, page and card of a run folder that these tests write themselves."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image

from provenzoo import checkpoint
from provenzoo.errors import ZooError
from provenzoo.plain import dump_yaml, read_json, read_yaml, write_json, write_whole
from provenzoo.report import metric_text, number, report
from provenzoo.report.card import cell, write_card
from provenzoo.report.figure import Figure
from provenzoo.report.figures import FIGURES, OF_THE_RUN, write_figures
from provenzoo.report.page import write_report

SETS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "in-distribution": ({}, [0.724, 0.712, 0.696]),
    "noise": ({"corrupt": {"name": "noise", "sigma": 0.3}}, [0.508, 0.492, 0.428]),
    "blur": ({"corrupt": {"name": "blur", "sigma": 2.0}}, [0.712, 0.780, 0.592]),
    "brightness": ({"corrupt": {"name": "brightness", "factor": 0.5}}, [0.632, 0.480, 0.532]),
    "permuted": ({"permute": {"cell": 4, "draw": 1}}, [0.288, 0.376, 0.316]),
    "permuted-to-match": ({"permute": {"cell": 4, "draw": 1}}, [0.724, 0.712, 0.696]),
}
DATA = {"name": "fashion-mnist-mini", "mean": 0.286, "std": 0.353, "classes": [5, 6, 7, 8, 9], "samples": 20}
SHIFT = ["evaluate.in-distribution.accuracy", "evaluate.noise.accuracy"]
RECIPE: dict[str, Any] = {
    "recipe": "quickstart",
    "about": "A small positional ViT learns five kinds of garment & five others.",
    "paper": "arXiv:2210.09221",
    "seeds": 3,
    "stages": {
        "pretrain": {
            "stage": "pretrain",
            "model": {"name": "positional-vit-mini"},
            "metrics": ["loss", "accuracy"],
        },
        "finetune": {"stage": "finetune", "from": "pretrain", "reset": ["head"], "freeze": ["attention"]},
        "evaluate": {
            "stage": "evaluate",
            "from": "finetune",
            "metrics": ["accuracy", "loss", "class-accuracy"],
            "sets": {label: {"data": shift} if shift else {} for label, (shift, _) in SETS.items()},
        },
    },
    "publish": "finetune",
    "claims": {"noise-hurts": {"says": "Noise costs accuracy.", "metric": {"difference": SHIFT}, "holds": ">= 0.10"}},
}
CLAIM = {
    "id": "noise-hurts",
    "says": "Noise costs accuracy.",
    "source": "Section 6",
    "metric": {"difference": SHIFT},
    "over": "all",
    "value": 0.216,
    "at": " - ".join(SHIFT) + ", seed 0",
    "matches": 1,
    "holds_if": ">= 0.10",
    "holds": True,
}
SHORT = {
    **CLAIM,
    "id": "fine-tuned",
    "says": "Five new kinds.",
    "metric": SHIFT[0],
    "value": 0.696,
    "holds": False,
}


# --- a run folder -------------------------------------------------------------------------------------------------


def write_run(path: Path, **changes: Any) -> Path:
    """A finished run in the quickstart's shape; `changes` are laid over the recipe's top level."""
    write_whole(path / "config.yaml", dump_yaml({**RECIPE, **changes}))
    sets = {label: _set({**DATA, **shift}, values) for label, (shift, values) in SETS.items()}
    for label, entry in sets.items():
        entry["values"]["class-accuracy"] = [[0.6, 0.9, 0.7, 0.5, 0.8]] * 3
        entry["digests"] = [f"{label}-{seed}" for seed in range(3)]
    _stage(path, "pretrain", None, {"": _set(DATA, [0.84, 0.85, 0.86])}, steps=200)
    _stage(path, "finetune", "pretrain", {"": _set(DATA, SETS["in-distribution"][1])}, steps=150)
    _stage(path, "evaluate", "finetune", sets, steps=0)
    names = ["pretrain", "finetune", "evaluate"]
    metrics = {f"evaluate.{label}": _summaries(entry) for label, entry in sets.items()}
    metrics |= {name: _summaries(read_json(path / f"stages/{name}/metrics.json")["sets"][""]) for name in names[:2]}
    write_json(
        path / "run.json",
        {
            "recipe": "quickstart",
            "about": RECIPE["about"],
            "note": "",
            "status": "complete",
            "version": "0.1.0",
            "id": "8b325dab6c73",
            "seeds": 3,
            "finished": "2026-01-02T03:04:05Z",
            "environment": {"python": "3.11.7", "torch": "2.14.1", "gpu": None, "device": "cpu"},
            "stages": [_entry(name, frozen=True if name == "finetune" else None) for name in names],
            "metrics": metrics,
            "claims": [CLAIM, SHORT],
        },
    )
    return path


def _set(data: dict[str, Any], accuracy: list[float]) -> dict[str, Any]:
    values: dict[str, Any] = {"accuracy": accuracy, "loss": [2 - value for value in accuracy]}
    node = {"name": "positional-vit-mini"}
    more = {
        "loss": "cross-entropy",
        "dtype": "float32",
        "seeds": [0, 1, 2],
        "n": 250,
        "digests": ["ab12"] * 3,
    }
    return {"model": node, "data": data, "metrics": list(values), "values": values, **more}


def _summaries(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: _summary(values) | {"n": entry["n"]} for name, values in entry["values"].items()}


def _summary(values: list[Any]) -> dict[str, Any]:
    if not all(isinstance(value, float) for value in values):
        return {"mean": None, "std": None, "min": None, "max": None, "per_seed": values}
    spread = {"mean": fmean(values), "std": stdev(values), "min": min(values), "max": max(values)}
    return {**spread, "per_seed": values}


def _entry(name: str, status: str = "complete", frozen: bool | None = None) -> dict[str, Any]:
    more = {"inputs_digest": "0529f6be3751" * 5, "frozen_unchanged": frozen, "diverged": {}}
    return {"name": name, "folder": name, "status": status, "seconds": 12.3, **more}


def _stage(run: Path, name: str, origin: str | None, sets: dict[str, Any], steps: int) -> None:
    folder = run / "stages" / name
    logged = list(range(0, steps + 1, 50)) if steps else []
    curve = [[1 - 1 / (2 + step / 50)] * 3 for step in logged]
    series = {"steps": logged, "values": {"accuracy": curve, "loss": curve} if steps else {}}
    metrics = {"sets": sets, "series": series, "frozen_unchanged": None, "diverged": {}}
    write_json(folder / "metrics.json", metrics)
    write_json(folder / "stage.json", {"name": name, "status": "complete", "origin": origin})
    tensors: dict[str, torch.Tensor] = {}
    if steps:
        draw = torch.Generator().manual_seed(0)
        maps = torch.rand(3, 2, 2, 49, 49, generator=draw).softmax(-1)
        encodings = torch.randn(3, 49, 8, generator=draw)
        tensors = {f"{when}/attention_scores": maps for when in ("tensors", "tensors@0")}
        tensors |= {f"{when}/positional_encodings": encodings for when in ("tensors", "tensors@0")}
        tensors["train-loss"] = 2 / (1 + torch.arange(steps) / 20) * torch.tensor([[1.0], [1.1], [0.9]])
        write_json(folder / "config.json", _config(name))
    checkpoint.save(folder / "series.safetensors", tensors)


def _config(name: str) -> dict[str, Any]:
    return {
        "format": 1,
        "recipe": "quickstart",
        "stage": name,
        "paper": "arXiv:2210.09221",
        "version": "0.1.0",
        "model": {"name": "positional-vit-mini", "patch": 4, "dim": 64},
        "filled": {"image_size": 28, "channels": 1, "num_classes": 5},
        "data": DATA,
        "seeds": [0, 1, 2],
        "reset": ["head"],
        "frozen": ["attention"],
        "digest": "1e00885920da" * 5,
    }


def change_json(file: Path, change: Callable[[Any], object]) -> None:
    """Rewrite a JSON file after `change` has edited its data in place."""
    data = read_json(file)
    change(data)
    write_json(file, data)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_run(tmp_path_factory.mktemp("reported") / "run")
    report(path)
    return path


def text_of(page: Path) -> str:
    """What a reader sees of a page, spaces collapsed."""

    class Reader(HTMLParser):
        parts: list[str] = []

        def handle_data(self, data: str) -> None:
            self.parts = [*self.parts, data]

    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return " ".join(" ".join(reader.parts).split())


def figures_of(run: Path) -> list[str]:
    return sorted(f"{file.parts[-3]}/{file.stem}" for file in run.glob("stages/*/figures/*.png"))


# --- figures ------------------------------------------------------------------------------------------------------


def test_without_figures_in_the_recipe_every_stage_gets_what_its_results_allow(reported: Path) -> None:
    training = [
        f"{stage}/{kind}" for stage in ("finetune", "pretrain") for kind in ("attention", "curves", "encodings")
    ]
    assert figures_of(reported) == ["evaluate/bars", *training]


def test_figures_that_the_recipe_names_are_drawn_and_no_others(tmp_path: Path) -> None:
    figures = {
        "learning": {"kind": "curves", "stage": "pretrain", "metric": "accuracy"},
        "shift": {
            "kind": "bars",
            "stage": "evaluate",
            "metrics": ["accuracy", "loss"],
            "caption": "Both, by set.",
        },
        "heads": {"kind": "attention", "stage": "finetune", "token": "mean", "seed": 2},
    }
    run = write_run(tmp_path / "run", figures=figures)
    write_figures(run)
    assert figures_of(run) == ["evaluate/shift", "finetune/heads", "pretrain/learning"]
    assert Image.open(run / "stages/evaluate/figures/shift.png").info["Description"] == "Both, by set."


def test_a_figure_that_is_no_longer_wanted_goes(run: Path) -> None:
    write_figures(run)
    write_whole(run / "config.yaml", dump_yaml({**RECIPE, "figures": {"bars": {"kind": "bars", "stage": "evaluate"}}}))
    write_figures(run)
    assert figures_of(run) == ["evaluate/bars"]


def test_every_kind_that_a_recipe_may_ask_for_can_be_drawn() -> None:
    assert {*FIGURES, *OF_THE_RUN} == set(get_args(Figure.model_fields["kind"].annotation))


def test_drawing_twice_gives_the_same_bytes(run: Path) -> None:
    first, second = ([file.read_bytes() for file in write_figures(run)] for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (
            {"kind": "curvs", "stage": "pretrain"},
            "figures.it.kind: must be 'curves', 'overlay', 'bars', 'lines', 'columns', 'encodings', 'attention',",
        ),
        ({"kind": "bars", "stage": "evaluat"}, "figures.it: no stage 'evaluat'; did you mean 'evaluate'?"),
        (
            {"kind": "bars", "stage": "evaluate", "metric": "acuracy"},
            "no metric 'acuracy' in evaluate; did you mean",
        ),
        (
            {"kind": "bars", "stage": "evaluate", "metrc": "x"},
            "figures.it: unknown key 'metrc'; did you mean 'metric'",
        ),
        ({"kind": "encodings", "stage": "evaluate"}, "figures.it: evaluate keeps no positional_encodings"),
        ({"kind": "attention", "stage": "pretrain", "token": 49}, "no token 49; there are 0 to 48"),
        ({"kind": "attention", "stage": "pretrain", "seed": 3}, "no seed 3; there are 0 to 2"),
    ],
)
def test_a_misspelt_figure_is_one_line_with_the_nearest_names(tmp_path: Path, figure: dict, message: str) -> None:
    run = write_run(tmp_path / "run", figures={"it": figure})
    with pytest.raises(ZooError, match=re.escape(message)) as error:
        write_figures(run)
    assert "\n" not in str(error.value)


def test_maps_are_of_the_first_seed_that_did_not_diverge(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", figures={"grid": {"kind": "encodings", "stage": "pretrain"}})
    at = {"0": {"step": 3, "parameter": "pos_embed"}}
    change_json(run / "run.json", lambda record: record["stages"][0].update(diverged=at))
    write_figures(run)
    assert "(seed 1)" in Image.open(run / "stages/pretrain/figures/grid.png").info["Description"]


def test_a_class_token_is_left_out_of_the_maps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", figures={"heads": {"kind": "attention", "stage": "pretrain"}})
    file = run / "stages/pretrain/series.safetensors"
    tensors, _ = checkpoint.load(file)
    checkpoint.save(file, {**tensors, "tensors/attention_scores": torch.rand(3, 2, 2, 50, 50)})
    write_figures(run)
    assert figures_of(run) == ["pretrain/heads"]


# --- the page -----------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing_from_outside(reported: Path) -> None:
    page = (reported / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href|srcset|action|data)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert sources and all(source.startswith("data:") for source in sources)
    assert "<script" not in page and "@import" not in page


def test_the_page_tells_claims_results_stages_and_recipe(reported: Path) -> None:
    page = text_of(reported / "report.html")
    assert "Claims that hold 1 of 2" in page
    assert "holds Noise costs accuracy." in page and "falls short Five new kinds." in page
    assert "evaluate.in-distribution.accuracy \N{MINUS SIGN} evaluate.noise.accuracy" in page
    assert "noise accuracy 0.476 ± 0.042 0.428 0.508 250 0.508 0.492 0.428" in page  # mean and std: by hand
    assert "every seed; worst: seed 0" in page and "unchanged, to the bit" in page
    assert "about: A small positional ViT" in page and "library_name: provenzoo" in page


def test_the_page_holds_every_figure_with_its_caption(reported: Path) -> None:
    page = (reported / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == len(figures_of(reported))
    assert "accuracy by set, 250 items each" in page


def test_text_of_users_is_text_on_the_page(run: Path) -> None:
    change_json(run / "run.json", lambda record: record.update(about="<script>alert(1)</script> & more"))
    page = write_report(run)
    assert "<script" not in page.read_text(encoding="utf-8")
    assert "<script>alert(1)</script> & more" in text_of(page)


def test_a_recipe_with_its_stages_alone_is_reported(run: Path) -> None:
    write_whole(run / "config.yaml", dump_yaml({key: RECIPE[key] for key in ("recipe", "stages")}))
    change_json(run / "run.json", lambda record: record.update(about="", claims=[]))
    report(run)
    assert "Claims" not in text_of(run / "report.html")


def test_points_of_a_grid_have_results_and_figures_of_their_own(run: Path) -> None:
    point = "evaluate[data.samples=20]"

    def name_point(record: dict[str, Any]) -> None:
        record["stages"][2]["name"] = point
        record["metrics"] = {key.replace("evaluate", point): value for key, value in record["metrics"].items()}

    change_json(run / "run.json", name_point)
    report(run)
    assert f"{point} evaluate from finetune" in text_of(run / "report.html")
    assert "evaluate/bars" in figures_of(run)


# --- runs that did not end well -----------------------------------------------------------------------------------


def diverge(run: Path) -> None:
    """Let seed 2 of fine-tuning stop being finite, as a run records it."""
    at = {"2": {"step": 13, "parameter": "blocks.0.mlp.fc1.weight"}}
    nulls = {"mean": None, "std": None, "min": None, "max": None, "per_seed": [0.72, 0.71, None], "n": 250}

    def spoil_record(record: dict[str, Any]) -> None:
        record["stages"][1]["diverged"] = at
        record["metrics"]["evaluate.noise"]["accuracy"] = nulls
        record["claims"][0].update(value=None, holds=False)

    def spoil_sets(metrics: dict[str, Any]) -> None:
        metrics["sets"]["noise"]["values"]["accuracy"][2] = None

    def spoil_series(metrics: dict[str, Any]) -> None:
        for rows in metrics["series"]["values"].values():
            rows[-1][2] = None

    change_json(run / "run.json", spoil_record)
    change_json(run / "stages/evaluate/metrics.json", spoil_sets)
    change_json(run / "stages/finetune/metrics.json", spoil_series)
    file = run / "stages/finetune/series.safetensors"
    tensors, _ = checkpoint.load(file)
    tensors["train-loss"][2, 13:] = torch.nan
    checkpoint.save(file, tensors)


def test_a_diverged_seed_is_told_with_step_and_parameter_and_never_as_a_number(run: Path) -> None:
    diverge(run)
    report(run)
    page = text_of(run / "report.html")
    assert "seed 2 diverged at step 13 in blocks.0.mlp.fc1.weight" in page
    assert "noise accuracy not finite – – 250 0.72 0.71 not finite" in page
    assert "None" not in page and "nan" not in page.lower().split()
    assert "Seed 2 diverged at step 13." in Image.open(run / "stages/finetune/figures/curves.png").info["Description"]


def test_a_diverged_set_is_no_result_of_the_card(run: Path) -> None:
    diverge(run)
    results = ModelCard.load(write_card(run)).data.eval_results or []
    named = {(result.dataset_config, result.metric_type) for result in results}
    assert ("evaluate.noise", "loss") in named and ("evaluate.noise", "accuracy") not in named
    assert "| noise | accuracy | not finite | – | – | – | 250 |" in (run / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_run_that_stopped_early_is_reported_as_far_as_it_came(run: Path, status: str) -> None:
    def stop(record: dict[str, Any]) -> None:
        waiting = {**_entry("evaluate", "waiting"), "seconds": None}
        record.update(status=status, claims=[], stages=[record["stages"][0], _entry("finetune", status), waiting])
        record["metrics"] = {"pretrain": record["metrics"]["pretrain"]}

    change_json(run / "run.json", stop)
    report(run)
    page = text_of(run / "report.html")
    assert f"This run is {status}" in page and "not judged" in page and "waiting" in page
    assert {figure.partition("/")[0] for figure in figures_of(run)} == {"pretrain"}
    assert f"the run is {status}" in (run / "README.md").read_text(encoding="utf-8")


def test_a_folder_with_a_recipe_and_nothing_else_has_a_page(run: Path) -> None:
    (run / "run.json").unlink()
    report(run)
    assert "Status incomplete" in text_of(run / "report.html")


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="no run there"):
        report(tmp_path)


# --- the card -----------------------------------------------------------------------------------------------------


def test_the_front_matter_is_what_the_hub_reads(reported: Path) -> None:
    data = ModelCard.load(reported / "README.md").data
    assert (data.license, data.library_name, data.pipeline_tag) == (
        "apache-2.0",
        "provenzoo",
        "image-classification",
    )
    assert data.tags == ["provenzoo", "arxiv:2210.09221"]
    assert data.metrics == ["accuracy"] and data.datasets == ["zalando-datasets/fashion_mnist"]


def test_each_shifted_set_is_a_result_of_its_own_with_its_mean(reported: Path) -> None:
    results = ModelCard.load(reported / "README.md").data.eval_results or []
    found = {r.dataset_config: r.metric_value for r in results if r.metric_type == "accuracy"}
    assert found == {f"evaluate.{label}": pytest.approx(fmean(values), abs=1e-6) for label, (_, values) in SETS.items()}
    noise = next(result for result in results if result.dataset_config == "evaluate.noise")
    assert noise.dataset_args and noise.dataset_args["corrupt"] == {"name": "noise", "sigma": 0.3}


def test_the_front_matter_holds_plain_values_and_no_nulls(reported: Path) -> None:
    front = (reported / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    assert "!!" not in front and "null" not in front
    assert json.dumps(yaml.safe_load(front), allow_nan=False)


def test_the_card_shows_how_to_load_the_published_stage(reported: Path) -> None:
    card = (reported / "README.md").read_text(encoding="utf-8")
    snippet = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert snippet is not None
    compile(snippet[1], "card", "exec")
    assert 'provenzoo.load("runs/quickstart/8b325dab6c73/stages/finetune", seed=0)' in snippet[1]


def test_the_card_tells_no_path_of_the_machine(reported: Path) -> None:
    assert str(reported) not in (reported / "README.md").read_text(encoding="utf-8")
    assert str(reported) not in (reported / "report.html").read_text(encoding="utf-8")


def test_figures_of_the_card_are_relative_links_to_files_that_are_there(reported: Path) -> None:
    links = re.findall(r"!\[[^]]*\]\(([^)]*)\)", (reported / "README.md").read_text(encoding="utf-8"))
    assert len(links) == len(figures_of(reported))
    assert all((reported / link).is_file() for link in links)


HOSTILE = "a | b\n`c` <img src=x onerror=y> [d](e) *f* \\"


@pytest.mark.parametrize("written", [cell(HOSTILE), cell(f"{HOSTILE}|")])
def test_text_of_users_cannot_break_a_table(written: str) -> None:
    assert "\n" not in written and "|" not in written and "<" not in written
    assert not re.search(r"(?<!\\)[`*\[\]]", written)


def test_a_hostile_claim_stays_one_row_of_the_card(run: Path) -> None:
    change_json(
        run / "run.json",
        lambda record: record["claims"][0].update(says=HOSTILE, source=HOSTILE, metric=HOSTILE),
    )
    rows = [line for line in write_card(run).read_text(encoding="utf-8").splitlines() if line.startswith("| ✅")]
    assert len(rows) == 1 and rows[0].count("|") == 6 and "<img" not in rows[0]


def test_a_run_without_a_checkpoint_has_a_card_without_results(run: Path) -> None:
    stages = {"evaluate": {**RECIPE["stages"]["evaluate"], "from": "positional-vit-mini.published"}}
    recipe = {key: value for key, value in RECIPE.items() if key != "publish"}
    write_whole(run / "config.yaml", dump_yaml({**recipe, "stages": stages}))
    change_json(run / "run.json", lambda record: record.update(stages=record["stages"][2:]))
    card = ModelCard.load(write_card(run))
    assert card.data.eval_results is None and card.data.pipeline_tag is None


def test_what_a_run_publishes_is_the_last_trained_stage_unless_it_says(run: Path) -> None:
    write_whole(run / "config.yaml", dump_yaml({**read_yaml(run / "config.yaml"), "publish": "pretrain"}))
    assert "stages/pretrain" in write_card(run).read_text(encoding="utf-8")


# --- words and numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not finite"), (0.71066666, "0.7107"), (1.0, "1"), (-0.02, "\N{MINUS SIGN}0.02"), (250, "250")],
)
def test_numbers_have_four_digits_and_null_is_a_word(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_claims_metric_reads_as_it_is_computed() -> None:
    assert metric_text("a.loss") == "a.loss"
    assert metric_text({"difference": ["a.x", "b.x"]}) == "a.x \N{MINUS SIGN} b.x"
    assert metric_text({"ratio": ["a.x", "b.x"]}) == "a.x / b.x"
    assert metric_text({"steps": ["a.x", "model.loops"]}) == "steps of a.x along model.loops"
    assert metric_text({"slope": ["a.x@*", 0.25]}) == "slope of log a.x over log step, from 0.25 of the steps on"
    assert metric_text({"slope": ["a.x@*", 2000]}) == "slope of log a.x over log step, from step 2000 on"
