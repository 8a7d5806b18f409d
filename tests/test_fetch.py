"""Checkpoints by name and folder: found, checked, built; what is damaged or does not fit is named."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import provenzoo
from provenzoo import checkpoint, fetch
from provenzoo.draws import seeded
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import write_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of two seeds of an MLP."""
    states = [provenzoo.create_model("mlp", seed=k, features=4, num_classes=3, hidden=5).state_dict() for k in (0, 1)]
    tensors = checkpoint.stack(states)
    place = tmp_path / "made"
    checkpoint.save(place / "model.safetensors", tensors)
    config = {
        "format": 1,
        "recipe": "test",
        "stage": "train",
        "model": {"name": "mlp", "hidden": 5},
        "filled": {"features": 4, "num_classes": 3},
        "data": {"name": "gaussian-clusters"},
        "seeds": [0, 1],
        "digest": checkpoint.digest(tensors),
        "version": "0",
    }
    write_json(place / "config.json", config)
    return place


def change(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | values)


def test_a_folder_loads_as_the_module_that_was_saved_in_eval_mode(folder: Path) -> None:
    for seed in (0, 1):
        model = provenzoo.load(f"local:{folder}", seed=seed)
        saved = provenzoo.create_model("mlp", seed=seed, features=4, num_classes=3, hidden=5)
        assert all(
            torch.equal(a, b) for a, b in zip(model.state_dict().values(), saved.state_dict().values(), strict=True)
        )
        assert not model.training and model.provenance["seed"] == seed and model.provenance["recipe"] == "test"


def test_loading_draws_nothing_from_the_global_generator(folder: Path) -> None:
    with seeded(0, "test"):
        before = torch.get_rng_state()
        provenzoo.load(str(folder))
        assert torch.equal(torch.get_rng_state(), before)


def test_a_flipped_bit_is_found(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ZooError, match=r"model\.safetensors: not the tensors that were saved"):
        provenzoo.load(str(folder))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"filled": {"features": 4, "num_classes": 7}}, "of another shape: head.weight"),
        ({"model": {"name": "mlp", "hidden": [5, 5]}}, "missing: body.1.weight"),
        ({"model": {"name": "mpl"}}, "did you mean 'mlp'"),
        ({"seeds": 5}, "config.json: not a provenzoo checkpoint's config"),
        ({"seeds": ["a"]}, "config.json: seeds is ['a']; a list of whole numbers is needed"),
        ({"model": 5}, "config.json: not a provenzoo checkpoint's config"),
        ({"format": 99}, "this version reads 1; upgrade provenzoo"),
        ({"model": {"name": "mlp", "_target_": "os.system"}}, "model._target_ would name code to call; refused"),
    ],
)
def test_a_config_that_does_not_fit_is_an_error_never_a_fresh_layer(folder: Path, values: dict, says: str) -> None:
    change(folder, **values)
    with pytest.raises(ZooError) as caught:
        provenzoo.load(str(folder))
    assert says in str(caught.value)


def test_a_registered_checkpoint_needs_the_digest_in_its_manifest(folder: Path, monkeypatch) -> None:
    place = folder.parent / "registry" / "checkpoints"
    place.mkdir(parents=True)
    folder.rename(place / "mlp.made")
    (place / "mlp.made.yaml").write_text("summary: no digest\n")
    monkeypatch.setenv("PROVENZOO_PATH", str(place.parents[1]))
    with pytest.raises(ZooError, match=r"mlp\.made\.yaml: `digest:` of the tensors is needed"):
        provenzoo.load("mlp.made")


def test_a_relative_folder_is_the_callers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert provenzoo.load("local:made").provenance["recipe"] == "test"


def test_only_what_the_model_declares_adaptable_can_change(folder: Path) -> None:
    with pytest.raises(ZooError, match="'hidden' cannot change after training; mlp can adapt: num_classes"):
        provenzoo.load(str(folder), hidden=6)


def test_a_path_is_a_name_too_and_what_is_neither_is_told(folder: Path) -> None:
    assert provenzoo.load(folder).provenance["reference"] == str(folder)
    for name in (None, 7, b"x", ["a"], "a\nb", "local:a\0b", ""):
        with pytest.raises(UsageError, match="no checkpoint") as caught:
            provenzoo.load(name)  # pyright: ignore[reportArgumentType]
        assert "\n" not in str(caught.value)
    with pytest.raises(ZooError, match=r"aaa\.\.\.aaa.*: cannot be read \(File name too long\)"):
        provenzoo.load("local:" + "a" * 5000)


@pytest.mark.parametrize("seed", [True, False, 1.0, "1", [0], -1, 10**30])
def test_a_seed_that_is_no_whole_number_is_refused(folder: Path, seed: object) -> None:
    with pytest.raises(UsageError, match="it has 0, 1"):
        provenzoo.load(folder, seed=seed)  # pyright: ignore[reportArgumentType]


def test_a_seed_may_be_numpys(folder: Path) -> None:
    seed = provenzoo.load(folder, seed=np.arange(2)[1]).provenance["seed"]
    assert seed == 1 and type(seed) is int


def test_a_published_folder_that_lost_its_weights_is_no_run(folder: Path) -> None:
    write_json(folder / "run.json", {"stages": []})
    (folder / "model.safetensors").unlink()
    with pytest.raises(ZooError, match=r"made: no checkpoint there \(no model.safetensors\)"):
        provenzoo.load(folder)


@pytest.mark.parametrize("kind", [torch.int32, torch.bool, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused(folder: Path, kind: torch.dtype) -> None:
    tensors = {name: tensor.to(kind) for name, tensor in checkpoint.load(folder / "model.safetensors")[0].items()}
    checkpoint.save(folder / "model.safetensors", tensors)
    change(folder, digest=checkpoint.digest(tensors))
    with pytest.raises(ZooError, match=r"of another kind of number: body\.0\.weight .*, not float32"):
        provenzoo.load(folder)


@pytest.mark.parametrize(
    ("filled", "says"),
    [
        ({"features": 4, "num_classes": 3, "builder": 1}, "no argument 'builder'"),
        ({"features": 4, "num_classes": 3, "seed": 1}, "no argument 'seed'"),
        ({"features": "4", "num_classes": 3}, "features: must be a whole number"),
        ({"features": -4, "num_classes": 3}, "features: must be greater than or equal to 1"),
        ({"features": [4], "num_classes": 3}, "features: must be a whole number"),
    ],
)
def test_what_the_data_filled_in_is_checked_like_what_was_written(folder: Path, filled: dict, says: str) -> None:
    change(folder, filled=filled)
    with pytest.raises(ZooError, match=says):
        provenzoo.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_file_that_is_no_regular_one_is_not_read(folder: Path, name: str, kind: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name) if kind == "pipe" else (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ZooError, match=r"is no regular file|no checkpoint there"):
        provenzoo.load(folder)


def test_a_seed_or_a_folder_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no seed 5; it has 0, 1"):
        provenzoo.load(str(folder), seed=5)
    with pytest.raises(ZooError, match="no checkpoint there"):
        provenzoo.load(f"local:{tmp_path}/nothing")
    with pytest.raises(UsageError, match="no checkpoint 'nothing'"):
        provenzoo.load("nothing")


def test_a_run_loads_as_the_stage_that_its_recipe_publishes_and_else_asks_which(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("train", "tune%2Fx"):
        shutil.copytree(folder, run / "stages" / name)
    shutil.copytree(folder, run / "stages" / "stale")
    stages = [{"name": "train", "folder": "train"}, {"name": "tune[x=a/b]", "folder": "tune%2Fx"}]
    write_json(run / "run.json", {"stages": stages})
    (run / "config.yaml").write_text("recipe: r\npublish: tune\n")
    assert fetch.folder(str(run)) == run / "stages" / "tune%2Fx"
    (run / "config.yaml").write_text("recipe: r\n")
    with pytest.raises(ZooError, match=r"which stage\? .* with a checkpoint: train, tune\[x=a/b\]$"):
        fetch.folder(str(run))
