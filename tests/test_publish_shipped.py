"""Shipped checkpoints and teachers are published by name: what arrives loads, teaches and verifies as what is shipped."""

from pathlib import Path

import pytest
import torch
from hubserver import HubServer
from huggingface_hub import ModelCard
from small_run import execute

import provenzoo
from provenzoo import checkpoint, create_teacher, fetch, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.publish import publish
from provenzoo.pipeline.recipe import compose, plain_recipe

TEACHER, STUDENT, VIT = "bilinear.zhang2026-conv", "position-attention.zhang2026-conv", "positional-vit-mini.quickstart"


def same(reference: str, name: str) -> bool:
    theirs, ours = (provenzoo.load(place).state_dict() for place in (reference, name))
    return checkpoint.digest(theirs) == checkpoint.digest(ours)


@pytest.mark.parametrize("name", [TEACHER, STUDENT, VIT])
def test_what_is_published_by_name_loads_and_verifies_from_a_folder(name: str, tmp_path: Path) -> None:
    done = publish(name, f"local:{tmp_path}/there")
    assert set(done.changes.added) == {"LICENSE", "README.md", "config.json", "model.safetensors"}
    assert same(done.reference, name) and fetch.config(done.reference)["digest"] == fetch.config(name)["digest"]
    found = provenzoo.verify(done.reference)
    shipped = provenzoo.verify(name)
    numbers = {row.metric: row.recomputed for row in shipped.rows if row.where.endswith(".held-out")}
    again = {row.metric: row.recomputed for row in found.rows if row.where == "held-out"}
    assert found.holds and again == numbers and any(row.where.startswith("card: ") for row in found.rows)
    assert not publish(name, f"local:{tmp_path}/there").changes


def test_a_published_teacher_teaches_from_the_hub_and_its_card_names_it(hub: HubServer) -> None:
    done = publish(TEACHER, "someone/teacher", tag="v1")
    assert {"LICENSE", "README.md", "config.json", "model.safetensors"} <= set(hub.files("someone/teacher"))
    assert provenzoo.verify(done.reference).holds and same(done.reference, TEACHER)
    taught, drawn = create_teacher("bilinear", **{"from": done.reference}), create_teacher("conv-pool", seed=0)
    x = torch.randn(3, 10, 36)
    torch.testing.assert_close(taught(x), drawn(x))
    card = ModelCard(hub.files("someone/teacher")["README.md"].decode())
    assert 'teacher: {name: bilinear, from: "hf:someone/teacher@v1"}' in card.text
    results = {result.metric_type: result.metric_value for result in card.data.eval_results or []}
    assert results["score-distance"] == 0 and results["cosine-to-truth"] == pytest.approx(1)


def test_a_number_on_the_card_that_is_off_is_told(tmp_path: Path) -> None:
    reference = publish(TEACHER, f"local:{tmp_path}").reference
    card = tmp_path / "README.md"
    card.write_text(card.read_text().replace("| loss | 179.8 |", "| loss | 17.98 |"))
    off = [row.metric for row in provenzoo.verify(reference).rows if not row.agrees]
    assert off == ["loss (mean)"]


def test_one_seed_of_a_registered_checkpoint_of_several_and_its_default(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine/registry/checkpoints"
    (folder / "mlp.mine").mkdir(parents=True)
    for name in ("config.json", "metrics.json", "model.safetensors"):
        (folder / "mlp.mine" / name).write_bytes((reference / "stages/train" / name).read_bytes())
    digest = fetch.config(str(reference / "stages/train"))["digest"]
    (folder / "mlp.mine.yaml").write_text(f"{{summary: mine, license: apache-2.0, seed: 1, digest: {digest}}}")
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path / "mine"))
    both, one = (publish("mlp.mine", f"local:{tmp_path}/{seed}", seed=seed) for seed in (None, 1))
    assert provenzoo.load(both.reference).provenance["seed"] == 1
    assert "by default 1, the manifest's" in (tmp_path / "None/README.md").read_text()
    assert fetch.config(one.reference)["seeds"] == [1] and same(one.reference, both.reference)
    assert provenzoo.verify(one.reference).holds and provenzoo.verify(both.reference).holds
    (folder / "mlp.mine.yaml").write_text(f"{{summary: mine, license: mit, seed: 1, digest: {digest}}}")
    registry._read_entry.cache_clear()
    publish("mlp.mine", f"local:{tmp_path}/mit")
    assert "MIT License" in (tmp_path / "mit/LICENSE").read_text()
    assert "license: mit" in (tmp_path / "mit/README.md").read_text()
    with pytest.raises(ZooError, match="has the licence mit, and is published under no other"):
        publish("mlp.mine", f"local:{tmp_path}/other", license="apache-2.0")


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("bilinear.zhang2026-con", {}, "no run's folder and no shipped checkpoint's name; did you mean 'bilinear.zh"),
        ("nothing", {}, "no run's folder and no shipped checkpoint's name; see `provenzoo list checkpoints`"),
        (TEACHER, {"stage": "train"}, "a shipped checkpoint has no stages; leave --stage"),
        (TEACHER, {"teacher": True}, "no stages; leave --stage and --teacher out"),
        (TEACHER, {"seed": 3}, "no seed 3; it has 0"),
    ],
)
def test_what_cannot_be_published_says_why(name: str, words: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        publish(name, f"local:{tmp_path}/there", **words)
    assert not (tmp_path / "there").exists()


def test_a_checkpoints_folder_is_told_to_be_one(tmp_path: Path) -> None:
    publish(TEACHER, f"local:{tmp_path}/there")
    with pytest.raises(UsageError, match="is a checkpoint's folder; name the run that it is in"):
        publish(tmp_path / "there", f"local:{tmp_path}/again")


def test_the_command_publishes_a_teacher_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute("publish", TEACHER, f"local:{tmp_path}/there") == 0
    assert capsys.readouterr().out.endswith(f"loads as\tlocal:{tmp_path}/there\n")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of a student of graph convolutions, one a seed."""
    short = ["seeds=2", "stages.train.steps=20", "stages.train.log_every=10"]
    config = plain_recipe(compose("zhang2026/graph-relu", short)) | {"claims": {}, "figures": {}}
    return provenzoo.run(config, out=tmp_path_factory.mktemp("taught") / "run").path


@pytest.mark.parametrize("seed", [None, 1])
def test_the_teacher_of_a_stage_is_published_in_its_students_place(
    taught: Path, seed: int | None, tmp_path: Path
) -> None:
    done = publish(taught, f"local:{tmp_path}/there", teacher=True, seed=seed)
    assert provenzoo.verify(done.reference).holds
    for known in (0, 1) if seed is None else (seed,):
        drawn = create_teacher("graph-conv", seed=known)
        kept = create_teacher("bilinear", seed=known, **{"from": done.reference})
        assert torch.equal(kept.value, drawn.value) and torch.equal(kept.attention, drawn.attention)
    assert fetch.config(done.reference)["seeds"] == ([0, 1] if seed is None else [seed])


def test_another_student_learns_from_a_published_teacher(taught: Path, tmp_path: Path) -> None:
    teacher = publish(taught, f"local:{tmp_path}/there", teacher=True).reference
    config = plain_recipe(compose(taught / "config.yaml"))
    config["stages"]["train"]["data"]["teacher"] = {"name": "bilinear", "from": teacher}
    again = provenzoo.run(config | {"recipe": "again"}, out=tmp_path / "run")
    before = checkpoint.load(taught / "stages/train/model.safetensors")[0]
    assert checkpoint.digest(checkpoint.load(again.path / "stages/train/model.safetensors")[0]) == checkpoint.digest(
        before
    )


def test_data_without_a_ground_truth_has_no_teacher_to_publish(reference: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no teacher with a ground truth; its data is gaussian-clusters"):
        publish(reference, f"local:{tmp_path}/there", stage="train", teacher=True)
