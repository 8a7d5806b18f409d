"""Hostile numbers: what others wrote in config.json, run.json and the card is verified or refused in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_run import copied

import provenzoo
from provenzoo import fetch
from provenzoo.errors import ZooError
from provenzoo.hub.publish import publish


@pytest.fixture(scope="module")
def good(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder."""
    folder = tmp_path_factory.mktemp("good") / "small"
    publish(reference, f"local:{folder}", stage="tune")
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(good, tmp_path / "small"))


def in_json(file: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(file.read_text())
    data = change(data) or data
    file.write_text(json.dumps(data))


def in_sets(**values: Any) -> Callable[[Any], Any]:
    """A change of every set: a key that is given, or with `...` taken out."""

    def change(config: Any) -> None:
        for node in config["sets"].values():
            for key, value in values.items():
                node.pop(key) if value is ... else node.update({key: value})

    return change


def in_data(**values: Any) -> Callable[[Any], Any]:
    def change(config: Any) -> None:
        for node in config["sets"].values():
            node["data"].update(values)

    return change


def refused(folder: Path) -> str:
    """What a refusal says, on one line."""
    with pytest.raises(ZooError) as caught:
        provenzoo.verify(f"local:{folder}")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    return str(caught.value)


CONFIGS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sets that are a number": (lambda c: c.update(sets=7), "sets must be a mapping"),
    "sets that are a list": (lambda c: c.update(sets=[1]), "sets must be a mapping"),
    "a set that is a number": (lambda c: c.update(sets={"a": 7}), "sets.a: a whole number where a mapping is needed"),
    **{
        f"no {key}": (in_sets(**{key: ...}), f"sets.tune: '{key}' is missing")
        for key in ("model", "data", "metrics", "values", "loss", "dtype", "seeds", "n", "digests")
    },
    "no digest": (in_sets(digests=[]), "a digest is not told once for each of its seeds"),
    "digests that are numbers": (in_sets(digests=[1, 2]), "digests.0: must be text"),
    "values that are a number": (in_sets(values=7), "values: must be a mapping"),
    "no values": (in_sets(values={"loss": [], "accuracy": []}), "'loss' is not told once for each of its seeds"),
    "a metric without values": (in_sets(metrics=["class-accuracy"]), "'class-accuracy' is not told once for each"),
    "seeds again and again": (
        in_sets(seeds=[0] * 9000, digests=[""] * 9000, metrics=[], values={}),
        "a digest is not told once",
    ),
    "no seeds at all": (in_sets(seeds=[]), "seeds: "),
    "a seed that is not there": (in_sets(seeds=[-1, -2]), "no seed -1; it has 0, 1"),
    "no examples": (in_sets(n=0), "n: must be greater than or equal to 1"),
    "a number of examples that is text": (in_sets(n="x"), "n: must be a whole number"),
    "examples without end": (in_data(test=10**9), "data.test: 1000000000 is more than the 16777216 that is drawn"),
    "features without end": (in_data(features=10**12), "data.features: 1000000000000 is more than"),
    "another type of number": (in_sets(dtype="float8"), "dtype: must be 'float32' or 'float64'"),
    "code as a loss": (in_sets(loss="os.system"), "no metric 'os.system'"),
    "another model": (in_sets(model={"name": "vit"}), "the checkpoint holds 'mlp', not 'vit'"),
    "a place of data that is not there": (in_sets(data={"name": "image-folder", "root": "/nothing/there"}), "/nothing"),
    "another number of features": (in_data(features=7), "the model has features 32, the data 7"),
    "files that are a number": (lambda c: c.update(files=7), "files is no list of names"),
    "files that are no names": (lambda c: c.update(files=[None]), "files is no list of names"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_whose_numbers_are_none_is_refused(folder: Path, case: str) -> None:
    change, says = CONFIGS[case]
    in_json(folder / "config.json", change)
    assert says in refused(folder)


def test_a_model_that_breaks_on_the_data_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("mat1 and mat2\nshapes")

    monkeypatch.setattr("provenzoo.pipeline.verify.measure_seed", broken)
    assert "tune: cannot be computed again (RuntimeError: mat1 and mat2)" in refused(folder)


RECORDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "claims that are a number": (lambda r: r.update(claims=7), "claims: must be a list"),
    "a claim that is a number": (lambda r: r.update(claims=[7]), "claims.0: must be a mapping"),
    "a claim of nothing": (lambda r: r.update(claims=[{}]), "claims.0: 'id' is missing"),
    "a value that is text": (lambda r: r["claims"][0].update(value="x"), "claims.0.value: must be"),
    "no seeds": (lambda r: {key: value for key, value in r.items() if key != "seeds"}, "'seeds' is missing"),
    "a list": (lambda _: [1], "a list where a mapping is needed"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_record_that_is_none_is_refused(folder: Path, case: str) -> None:
    change, says = RECORDS[case]
    in_json(folder / "run.json", change)
    assert says in refused(folder)


@pytest.mark.parametrize("holds_if", ["import os", ">= x", ""])
def test_a_claim_that_cannot_be_read_is_left_to_the_run(folder: Path, holds_if: str) -> None:
    in_json(folder / "run.json", lambda r: r["claims"][0].update(metric="tune.accuracy", holds_if=holds_if))
    assert "learns" in provenzoo.verify(f"local:{folder}").left


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: b"\xff\xfe\x00", "its results cannot be read"),
        (
            lambda card: card.replace(b"---\n", b"---\nx: !!python/name:os.system\n", 1),
            "could not determine a constructor",
        ),
        (lambda card: card.replace(b"model-index:\n", b"model-index: [7]\nx:\n"), "its results cannot be read"),
        (lambda _: b" " * (2**22 + 1), "at most 4194304 can be read"),
        (None, "README.md: the card is not there"),
    ],
    ids=["no text", "a tag of Python's", "an index of numbers", "4 MB", "gone"],
)
def test_a_card_that_is_none_is_refused(folder: Path, change: Callable[[bytes], bytes] | None, says: str) -> None:
    card = (folder / "README.md").read_bytes()
    (folder / "README.md").write_bytes(change(card)) if change else (folder / "README.md").unlink()
    assert says in refused(folder)


def test_files_of_a_hostile_list_are_not_pulled(hub, good: Path) -> None:
    files = {name: (good / name).read_bytes() for name in ("config.json", "model.safetensors")}
    for listed, says in ((7, "files is no list"), (["../x"], None)):
        config = json.loads(files["config.json"]) | {"files": listed}
        repo = hub.repos.get("someone/evil") or hub.create("someone/evil")
        repo.commit("main", "evil", add=files | {"config.json": json.dumps(config).encode()})
        if says:
            with pytest.raises(ZooError, match=says):
                fetch.pull("hf:someone/evil")
        else:
            assert Path(fetch.pull("hf:someone/evil")["folder"]).is_dir()


@pytest.mark.parametrize("sets", [7, [1], {"a": 7}, {"a": {"values": {"accuracy": ["x"]}}}])
def test_info_of_sets_that_are_none_is_one_line(folder: Path, sets: Any) -> None:
    in_json(folder / "config.json", lambda config: config.update(sets=sets))
    with pytest.raises(ZooError, match="sets") as caught:
        provenzoo.info(f"local:{folder}")
    assert "\n" not in str(caught.value)


# --- what a card says too much ------------------------------------------------------------------------------------


def off(folder: Path) -> set[tuple[str, str]]:
    return {(row.where, row.metric) for row in provenzoo.verify(f"local:{folder}").rows if not row.agrees}


def in_card(folder: Path, old: str, new: str) -> None:
    card = (folder / "README.md").read_text()
    assert card.count(old) == 1, card
    (folder / "README.md").write_text(card.replace(old, new))


def test_a_claim_that_is_none_of_the_runs_is_found(folder: Path) -> None:
    in_card(
        folder,
        "\n\nThe value is the worst",
        "\n| ✅ holds | it is best | 0.99 | &gt;= 0.9 | – |\n\nThe value is the worst",
    )
    assert off(folder) == {("card: claims", "no claim of run.json")}


def test_a_result_that_is_none_of_a_set_is_found(folder: Path) -> None:
    in_card(folder, "\n\nMean, standard", "\n| best | accuracy | 0.99 | 0 | 0.99 | 0.99 | 203 |\n\nMean, standard")
    assert off(folder) == {("card", "no number of a set: best")}


def test_what_a_person_wrote_around_our_block_is_not_taken_for_it(folder: Path) -> None:
    mine = "## Claims\n\n| a | b |\n|---|---|\n| mine | 1 |\n\n## Results in and out of distribution\n\n| x | 2 |\n\n"
    in_card(folder, "<!-- provenzoo: begin", mine + "<!-- provenzoo: begin")
    assert off(folder) == set()


def test_words_of_a_claim_do_not_hide_it(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path / "words")
    in_json(run / "run.json", lambda record: record["claims"][0].update(says="it holds if | ## Claims ✅ |"))
    publish(run, f"local:{tmp_path}/out", stage="tune")
    assert off(tmp_path / "out") == set()
    in_card(tmp_path / "out", "every seed | 0.", "every seed | 0.9")
    assert off(tmp_path / "out") == {("card: claims", "learns (told)")}


def test_a_claim_without_a_value_is_told_and_verified(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path / "lost")
    in_json(run / "run.json", lambda record: record["claims"][0].update(value=None, holds=False))
    publish(run, f"local:{tmp_path}/out", stage="tune")
    assert "| not finite |" in (tmp_path / "out/README.md").read_text() and off(tmp_path / "out") == set()


def test_a_run_whose_record_leaves_stages_out_does_not_verify(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    in_json(run / "run.json", lambda record: record.update(stages=record["stages"][:1]))
    rows = [row for row in provenzoo.verify(run).rows if not row.agrees]
    assert [(row.where, row.metric) for row in rows] == [(name, "its place in run.json") for name in ("tune", "judge")]


@pytest.mark.parametrize("content", ["[1]", "{}", '{"sets": 7}', '{"sets": {"in": 7}}'])
def test_a_stage_whose_numbers_are_none_is_one_line(reference: Path, tmp_path: Path, content: str) -> None:
    run = copied(reference, tmp_path)
    (run / "stages/judge/metrics.json").write_text(content)
    for place in (run, run / "stages/judge"):
        with pytest.raises(ZooError, match=r"metrics\.json.*must be a mapping|metrics\.json.*a mapping is needed"):
            provenzoo.verify(place)
