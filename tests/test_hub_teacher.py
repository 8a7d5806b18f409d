"""A student goes to the Hub with its teacher: both load, and the student's numbers are recomputed over what it was taught."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hubserver import HubServer
from huggingface_hub import constants
from torch import Tensor

import provenzoo
from provenzoo import checkpoint, fetch, registry
from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName
from provenzoo.draws import generator
from provenzoo.errors import ZooError
from provenzoo.fetch import Checkpoint
from provenzoo.hub.publish import publish
from provenzoo.models.load import restore

REPO = "someone/student"
RECIPE = {
    "recipe": "taught",
    "seeds": 2,
    "device": "cpu",
    "publish": "student",
    "stages": {
        "teacher": {
            "stage": "pretrain",
            "model": {"name": "mlp", "hidden": 4},
            "data": {"name": "gaussian-clusters", "features": 6, "num_classes": 3, "train": 200, "test": 50},
            "steps": 20,
            "metrics": ["accuracy"],
        },
        "student": {
            "stage": "pretrain",
            "model": {"name": "mlp", "hidden": 8},
            "data": {"name": "labelled-by", "from": "teacher"},
            "steps": 20,
            "metrics": ["accuracy"],
        },
        "judge": {
            "stage": "evaluate",
            "from": "student",
            "metrics": ["accuracy"],
            "sets": {"in": {}, "wide": {"data": {"scale": 3.0}}},
        },
    },
    "claims": {"learns": {"says": "it learns", "metric": "student.accuracy", "over": "all", "holds": ">= 0.1"}},
}


class LabelledBy(Dataset):
    """Normal inputs, labelled by the model of a checkpoint, whose first weights are the ground truth."""

    def __init__(self, *, checkpoint: Checkpoint, scale: float = 1.0, seed: int = 0) -> None:
        self.teacher, self.scale, self.seed = restore(checkpoint, seed).eval(), scale, seed

    @property
    def shapes(self) -> dict[str, int]:
        return {"features": 6, "num_classes": 3}

    @property
    def structure(self) -> dict[str, Tensor]:
        return {"true_value": self.teacher.body[0].weight.detach()}

    def prepare(self, split: SplitName) -> Split:
        inputs = self.scale * torch.randn(100, 6, generator=generator(self.seed, "taught", SPLITS.index(split)))
        with torch.no_grad():
            return Split(inputs, self.teacher(inputs).argmax(-1))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    provenzoo.register("datasets", "labelled-by")(LabelledBy)
    try:
        yield provenzoo.run(RECIPE, out=tmp_path_factory.mktemp("taught") / "run").path
    finally:
        del registry._registered["datasets", "labelled-by"]


def test_the_teacher_goes_along_and_loads_like_a_model(hub: HubServer, run: Path) -> None:
    done = publish(run, REPO)
    assert {"teacher/config.json", "teacher/model.safetensors"} < set(hub.files(REPO))
    for seed in (0, 1):
        theirs = provenzoo.load(f"{done.reference}#teacher", seed=seed)
        ours = provenzoo.load(str(run / "stages/teacher"), seed=seed)
        assert checkpoint.digest(theirs.state_dict()) == checkpoint.digest(ours.state_dict())
    assert provenzoo.verify(f"{done.reference}#teacher").holds


@pytest.mark.parametrize("seed", [None, 1])
def test_the_students_numbers_are_recomputed_over_what_it_was_taught(
    hub: HubServer, run: Path, seed: int | None
) -> None:
    found = provenzoo.verify(publish(run, REPO, seed=seed).reference)
    assert found.holds and {"student", "judge.in", "judge.wide"} <= {row.where for row in found.rows}


def test_the_ground_truth_comes_back_with_the_data(hub: HubServer, run: Path) -> None:
    done = publish(run, REPO)
    found = fetch.fetch(done.reference)
    data = provenzoo.create_dataset(**found.config["data"], seed=1)
    series, _ = checkpoint.load(run / "stages/student/series.safetensors")
    assert torch.equal(data.structure["true_value"], series["structure/true_value"][1])


@pytest.mark.parametrize("place", ["hf:someone/teacher", "pinned", "local"])
def test_a_teacher_from_elsewhere_goes_along_under_its_own_licence(
    hub: HubServer, run: Path, tmp_path: Path, place: str
) -> None:
    shared = publish(run, "someone/teacher", stage="teacher", license="mit")
    publish(run, f"local:{tmp_path}/teacher", stage="teacher", license="mit")
    origin = {"pinned": shared.reference, "local": f"local:{tmp_path}/teacher"}.get(place, place)
    stages = {name: RECIPE["stages"][name] for name in ("student", "judge")}
    stages["student"] = stages["student"] | {"data": {"name": "labelled-by", "from": origin}}
    other = provenzoo.run(RECIPE | {"stages": stages}, out=tmp_path / "run").path
    done = publish(other, REPO)
    hub.repos.pop("someone/teacher")
    assert provenzoo.load(done.reference).provenance["stage"] == "student"
    assert provenzoo.verify(done.reference).holds
    assert (provenzoo.info(done.reference)["license"], provenzoo.info(f"{done.reference}#teacher")["license"]) == (
        "apache-2.0",
        "mit",
    )


def test_a_pulled_student_verifies_offline_and_from_a_folder(
    hub: HubServer, run: Path, tmp_path: Path, monkeypatch
) -> None:
    done = publish(run, REPO)
    fetch.pull(done.reference)
    publish(run, f"local:{tmp_path}/student")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert provenzoo.verify(done.reference).holds
    assert provenzoo.verify(f"local:{tmp_path}/student").holds
    assert provenzoo.load(f"local:{tmp_path}/student/teacher", seed=0).provenance["stage"] == "teacher"


def test_another_teacher_is_other_data_and_said_so(hub: HubServer, run: Path) -> None:
    publish(run, REPO)
    tensors = checkpoint.load(run / "stages/teacher/model.safetensors")[0]
    tensors["body.0.weight"] = tensors["body.0.weight"].flip(1)
    config = hub.files(REPO)["teacher/config.json"].decode()
    swapped = config.replace(fetch.config(f"hf:{REPO}#teacher")["digest"], checkpoint.digest(tensors))
    files = {"teacher/config.json": swapped.encode(), "teacher/model.safetensors": checkpoint.packed(tensors)}
    hub.repos[REPO].commit("main", "another teacher", add=files)
    found = provenzoo.verify(f"hf:{REPO}")
    assert not found.holds and {row.metric for row in found.rows if row.where == "student"} == {"data-digest"}


def test_a_teacher_that_is_missing_is_named(hub: HubServer, run: Path) -> None:
    publish(run, REPO)
    hub.repos[REPO].commit("main", "gone", delete=["teacher/config.json"])
    with pytest.raises(ZooError, match=r"no teacher/config\.json there"):
        provenzoo.verify(f"hf:{REPO}")
