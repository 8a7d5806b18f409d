"""Of several seeds in a file, the one that is loaded unless another is asked for: the median in the first claim."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from hubserver import HubServer
from small_run import RECIPE, copied, edit, recipe

import provenzoo
from provenzoo.errors import UsageError
from provenzoo.hub.publish import publish

REPO = "someone/small"


def accuracies(run: Path, stage: str = "train") -> list[float]:
    return json.loads((run / "stages" / stage / "metrics.json").read_text())["sets"][""]["values"]["accuracy"]


@pytest.mark.parametrize(
    ("seeds", "words"), [(2, "the lower of the two medians"), (3, "the median"), (4, "the lower of the two medians")]
)
def test_it_is_the_median_in_the_first_claim_and_the_card_says_so(
    hub: HubServer, tmp_path: Path, seeds: int, words: str
) -> None:
    small = {"steps": 3, "data": {"name": "gaussian-clusters", "train": 400, "test": 997}}
    run = provenzoo.run(recipe(tmp_path, train=small), [f"seeds={seeds}"], out=tmp_path / "run").path
    done = publish(run, REPO, stage="train")
    publish(run, f"local:{tmp_path}/out", stage="train")
    values = accuracies(run)
    assert len(set(values)) == seeds
    median = values.index(statistics.median_low(values))
    for place in (done.reference, f"hf:{REPO}", f"local:{tmp_path}/out", str(run / "stages/train")):
        assert provenzoo.load(place).provenance["seed"] == median, place
    for card in (hub.files(REPO)["README.md"].decode(), (tmp_path / "out/README.md").read_text()):
        assert f"by default {median}, {words} in the claim `learns`" in card
    assert provenzoo.load(f"hf:{REPO}", seed=1).provenance["seed"] == 1


def test_a_run_by_itself_has_the_same_default_and_its_draft_says_so(tmp_path: Path) -> None:
    data = json.loads(json.dumps(RECIPE)) | {"publish": "tune", "seeds": 3}
    run = provenzoo.run(data, out=tmp_path / "run").path
    values = accuracies(run)
    median = values.index(statistics.median_low(values))
    assert provenzoo.load(str(run)).provenance["seed"] == median
    draft = (run / "README.md").read_text()
    assert (
        f"Seeds 0, 1, 2 are in the file: `seed=` picks one, by default {median}, the median in the claim `learns`"
        in (draft)
    )
    assert "seed=0" not in draft


def test_it_is_never_a_seed_that_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from provenzoo.stages import train

    original = train._Stage.fresh

    def fresh(self: Any, seed: int) -> Any:
        model, filled = original(self, seed)
        if seed == 0:
            with torch.no_grad():
                next(model.parameters()).fill_(float("inf"))
        return model, filled

    monkeypatch.setattr(train._Stage, "fresh", fresh)
    plain = {key: value for key, value in json.loads(json.dumps(RECIPE)).items() if key != "claims"}
    plain["stages"] = {"train": plain["stages"]["train"]}
    claims = {"learns": {"says": "s", "metric": "train.accuracy", "over": "all", "holds": ">= 0"}}
    for name, more in {"none": {}, "one": {"claims": claims}}.items():
        run = provenzoo.run(plain | more | {"seeds": 3}, out=tmp_path / name).path
        values = accuracies(run)
        assert values[0] is None and None not in values[1:]
        lower = 1 + values[1:].index(min(values[1:]))
        publish(run, f"local:{tmp_path}/{name}-out")
        for place in (str(run / "stages/train"), f"local:{tmp_path}/{name}-out"):
            assert provenzoo.load(place).provenance["seed"] == (lower if more else 1), name


def test_without_a_claim_it_is_the_first(reference: Path, tmp_path: Path) -> None:
    plain = json.loads(json.dumps(RECIPE)) | {"claims": {}}
    run = provenzoo.run(plain, out=tmp_path / "run").path
    assert provenzoo.load(str(run / "stages/tune")).provenance["seed"] == 0
    publish(run, f"local:{tmp_path}/out", stage="tune")
    assert "by default 0, the first" in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize("stages", [None, 7, [None], [{"folder": "tune", "seed": "x"}], [{"folder": 3}]])
def test_a_run_record_of_any_kind_does_no_harm(reference: Path, tmp_path: Path, stages: object) -> None:
    run = copied(reference, tmp_path)
    edit(run / "run.json", lambda record: record.update(stages=stages))
    if isinstance(stages, list) and stages[0] and "seed" in stages[0]:
        with pytest.raises(UsageError, match="no seed x; it has 0, 1"):
            provenzoo.load(str(run / "stages/tune"))
    else:
        assert provenzoo.load(str(run / "stages/tune")).provenance["seed"] == 0
