"""A published checkpoint proves its card: every number again from what the Hub holds."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hubserver import HubServer
from huggingface_hub import HfApi
from small_run import execute

import provenzoo
from provenzoo import cli
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.publish import publish
from provenzoo.pipeline.verify_card import claim_rows

REPO = "someone/small"


@pytest.fixture
def shared(hub: HubServer, reference: Path) -> str:
    return publish(reference, REPO, stage="tune").reference


def replace(hub: HubServer, name: str, change: Callable[[str], str]) -> None:
    """Change a file on the Hub as somebody who may write there could."""
    before = hub.files(REPO)[name].decode()
    after = change(before)
    assert after != before
    hub.repos[REPO].commit("main", "changed", add={name: after.encode()})


def in_config(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        config = json.loads(text)
        change(config)
        return json.dumps(config)

    return changed


def test_every_number_on_the_card_is_recomputed(hub: HubServer, shared: str, reference: Path) -> None:
    found = provenzoo.verify(shared)
    assert found.holds and found.left == ["learns", "frozen"]
    where = {row.where for row in found.rows}
    assert where == {"tune", "judge.in", "judge.noisy"} | {
        f"card: {w}" for w in ("tune", "judge.in", "judge.noisy", "claims")
    }
    on_card = [row for row in found.rows if row.where == "card: judge.noisy"]
    saved = json.loads((reference / "run.json").read_text())["metrics"]["judge.noisy"]["accuracy"]
    assert {row.metric: row.saved for row in on_card}["accuracy"] == pytest.approx(saved["mean"], rel=1e-5)
    assert {row.metric for row in on_card} == {
        "accuracy",
        "accuracy (mean)",
        "accuracy (std)",
        "accuracy (min)",
        "accuracy (max)",
    }


@pytest.mark.parametrize(
    ("name", "change", "off"),
    [
        ("README.md", lambda t: re.sub(r"(value: )0\.\d+", r"\g<1>0.99", t, count=1), "card: "),
        ("README.md", lambda t: re.sub(r"(\| noisy \| accuracy \| )[\d.]+", r"\g<1>0.99", t), "card: judge.noisy"),
        ("README.md", lambda t: re.sub(r"(accuracy</code>, every seed \| )[\d.]+", r"\g<1>0.999", t), "card: claims"),
        (
            "README.md",
            lambda t: t.replace("| noisy | accuracy |", "| x", 1).replace("| noisy", "", 1),
            "card: judge.noisy",
        ),
        (
            "config.json",
            in_config(lambda c: c["sets"]["judge.in"]["values"]["accuracy"].__setitem__(0, 0.99)),
            "judge.in",
        ),
    ],
    ids=["model-index", "table", "claim", "a missing row", "config"],
)
def test_a_number_that_was_changed_is_found(
    hub: HubServer, shared: str, name: str, change: Callable[[str], str], off: str
) -> None:
    replace(hub, name, change)
    found = provenzoo.verify(f"hf:{REPO}")
    assert not found.holds and any(row.where.startswith(off) for row in found.rows if not row.agrees)
    assert execute("verify", f"hf:{REPO}") == 3


@pytest.mark.parametrize(
    ("metric", "value", "allowed"),
    [
        ("a.accuracy", 0.8, 2 / 20_000),
        ({"difference": ["a.accuracy", "b.accuracy"]}, 0.4, 4 / 20_000),
        ({"ratio": ["a.accuracy", 0.5]}, 1.6, 4 / 20_000),
        ({"ratio": ["a.accuracy", "b.accuracy"]}, 2.0, (2 / 20_000 + 0.8 / 0.4 * 2 / 20_000) / 0.4),
        ({"ratio": ["a.loss", "b.loss"]}, 1.5, 0.0),
        ("a.loss", 0.3, 1e-6),
    ],
    ids=str,
)
def test_a_claim_may_differ_by_what_the_numbers_in_it_may(metric: Any, value: float, allowed: float) -> None:
    """One image in 10,000 may fall on the other side of a boundary on another kind of CPU."""
    node = {"n": 20_000, "dtype": "float32"}
    numbers = {"a": {"accuracy": [0.8], "loss": [0.3]}, "b": {"accuracy": [0.4], "loss": [0.2]}}
    claim = {"says": "s", "source": "", "metric": metric, "over": "all", "holds_if": "<= 9", "holds": True}
    told = {"id": "claim", "matches": 1, **claim}
    config = {"seeds": [0], "sets": {"a": node, "b": node}}

    def verified(value: float) -> bool:
        rows, left = claim_rows({"claims": [{**told, "value": value}], "seeds": 1}, config, numbers)
        assert left == [] and len(rows) == 1
        return rows[0].agrees

    relative = 1e-4
    for sign in (1, -1):
        assert verified(value + sign * 0.99 * (allowed + relative * value) / (1 + relative))
        assert not verified(value + sign * 1.02 * (allowed + relative * value) / (1 - relative))


def test_a_claim_that_is_told_to_hold_where_its_value_does_not_is_off() -> None:
    node = {"n": 20_000, "dtype": "float32"}
    told = {"id": "claim", "matches": 1, "says": "s", "source": "", "metric": "a.accuracy", "over": "all"}
    config, numbers = {"seeds": [0], "sets": {"a": node}}, {"a": {"accuracy": [0.8]}}
    for value, bound, holds, agrees in [
        (0.8, ">= 0.8", True, True),
        (0.80005, ">= 0.80003", True, True),
        (0.80005, ">= 0.9", True, False),
        (0.80005, ">= 0.7", False, False),
        (0.9, ">= 0.7", True, False),
    ]:
        claim = told | {"value": value, "holds_if": bound, "holds": holds}
        [row], _ = claim_rows({"claims": [claim], "seeds": 1}, config, numbers)
        assert row.agrees is agrees, claim


def test_numbers_over_other_data_are_not_compared_and_that_is_said(hub: HubServer, shared: str, capsys) -> None:
    replace(hub, "config.json", in_config(lambda c: c["sets"]["judge.noisy"]["data"].update(noise=4.0)))
    found = provenzoo.verify(f"hf:{REPO}")
    rows = [row for row in found.rows if row.where == "judge.noisy"]
    assert {row.metric for row in rows} == {"data-digest"} and not any(row.agrees for row in rows)
    assert execute("verify", f"hf:{REPO}") == 3
    assert (
        "other data than what was measured, so their numbers are not compared: judge.noisy" in capsys.readouterr().out
    )


def test_a_card_that_cannot_be_read_is_one_line(hub: HubServer, shared: str) -> None:
    replace(hub, "README.md", lambda t: t.replace("model-index:\n", "model-index: 7\nx:\n"))
    with pytest.raises(ZooError, match=r"README\.md: its results cannot be read"):
        provenzoo.verify(f"hf:{REPO}")


def test_json_of_a_verification_is_one_document(shared: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute("verify", shared, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] and told["left"] == ["learns", "frozen"]


# --- finding, telling, fetching -----------------------------------------------------------------------------------


def test_what_others_published_is_listed_a_page_at_a_time_and_loads(hub: HubServer, reference: Path, capsys) -> None:
    for name in ("someone/first", "someone/second", "someone/third"):
        publish(reference, name, stage="tune")
    HfApi().create_repo("someone/other")
    hub.page = 1
    hub.seen.clear()
    from provenzoo.hub.catalogue import published

    found = published()
    assert next(found) == "hf:someone/first" and len(hub.seen) == 1
    assert list(found) == ["hf:someone/second", "hf:someone/third"]
    assert execute("list", "checkpoints", "--hub", "*/*ir*") == 0
    lines = capsys.readouterr().out.split()
    assert lines == ["hf:someone/first", "hf:someone/third"]
    assert provenzoo.load(lines[1]).provenance["recipe"] == "small"
    assert execute("list", "checkpoints", "--hub", "second", "--json") == 0
    assert json.loads(capsys.readouterr().out) == ["hf:someone/second"]
    assert execute("list", "models", "--hub") == 2


def test_info_tells_paper_size_digest_numbers_and_licence_without_fetching_weights(
    hub: HubServer, shared: str, capsys
) -> None:
    hub.seen.clear()
    about = provenzoo.info(f"hf:{REPO}")
    assert about["license"] == "apache-2.0" and about["revision"] == hub.head(REPO) and about["seeds"] == [0, 1]
    assert about["bytes"] == len(hub.files(REPO)["model.safetensors"])
    assert set(about["numbers"]) == {"tune", "judge.in", "judge.noisy"}
    assert [place for place, *_ in hub.seen if place == "cdn"] == []
    assert about["digest"] == provenzoo.load(shared).provenance["digest"]
    assert execute("info", f"hf:{REPO}") == 0 and "judge.noisy" in capsys.readouterr().out
    shipped = provenzoo.info("positional-vit-mini.quickstart")
    assert (
        shipped["paper"] == "arXiv:2210.09221" and shipped["numbers"]["permuted"]["accuracy"] and shipped["bytes"] > 1e5
    )


def test_pull_names_the_commit_and_the_folder(shared: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute("pull", f"hf:{REPO}") == 0
    reference, folder = capsys.readouterr().out.strip().split("\t")
    assert (
        reference == shared
        and (Path(folder) / "model.safetensors").is_file()
        and list((Path(folder) / "figures").glob("*.png"))
    )
    assert execute("pull", "positional-vit-mini.quickstart") == 0


def test_offline_the_catalogue_says_so(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert execute("list", "checkpoints", "--hub") == 1
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err


def test_a_recipe_starts_from_a_checkpoint_on_the_hub(hub: HubServer, shared: str, tmp_path: Path) -> None:
    recipe = {
        "recipe": "further",
        "seeds": 2,
        "stages": {
            "more": {"stage": "finetune", "from": shared, "freeze": ["body"], "steps": 3, "metrics": ["accuracy"]}
        },
    }
    done = provenzoo.run(recipe, out=tmp_path / "run")
    assert done.record["status"] == "complete" and provenzoo.verify(done.path).holds


def test_the_public_functions_are_there() -> None:
    assert (
        {"publish", "load", "verify", "info"} <= set(provenzoo.__all__) and issubclass(UsageError, ZooError) and cli.app
    )
