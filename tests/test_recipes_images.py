"""Every image recipe of Jelassi et al. 2022 takes a few steps and judges its claims; a pattern downloads nothing.

The twins run on real garments (the sample in the package), one in the place of every set, what is of the paper's scale on
generated data in the sets' own formats.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import stand_ins
import timm
import torch
from omegaconf import OmegaConf
from timm.models import save_for_hf

import provenzoo
from provenzoo import checkpoint, cli, registry
from provenzoo.datasets import imagenet, small_photos
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.plan import prepare
from provenzoo.pipeline.select import select
from provenzoo.untrusted import check_config

TWINS = ["fashion-mnist", "mnist", "permuted-mnist", "encodings", "transfer-images"]
PHOTOS = ["cifar10", "cifar100", "svhn", "permuted-cifar100"]
LARGE = ["imagenet", "imagenet-shifted", "positional-encodings-from-scratch"]
LOOKED_AT = ["positional-encodings", "positional-encodings-published"]
PUBLISHED = "hf:timm/vit_small_patch32_224.augreg_in21k_ft_in1k"
SMALL_VIT = {"dim": 24, "depth": 2, "heads": 2}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No set lies in the user's or the system's folders."""
    monkeypatch.setattr("provenzoo.datasets.places.cache", lambda: tmp_path / "no-cache")
    monkeypatch.setattr("provenzoo.datasets.mnist.SYSTEM", tmp_path / "no-system")
    small_photos._arrays.cache_clear()
    yield
    small_photos._arrays.cache_clear()


def composed(name: str) -> dict[str, Any]:
    data = OmegaConf.to_container(provenzoo.compose(f"jelassi2022/{name}"))
    assert isinstance(data, dict)
    return data  # pyright: ignore[reportReturnType]


def short(data: dict[str, Any], batch: int = 10) -> dict[str, Any]:
    """One seed and two steps a training."""
    for stage in data["stages"].values():
        if "batch" in stage:
            stage |= {"steps": 2, "batch": batch, "log_every": 2}
            stage.pop("epochs", None)
    return data | {"seeds": 1, "device": "cpu", "threads": 1}


def replaced(node: Any, change) -> Any:
    """A recipe with every component's node changed."""
    if isinstance(node, dict):
        node = change({key: replaced(value, change) for key, value in node.items()})
    return node


def assert_ran(name: str, data: dict[str, Any], out: Path) -> None:
    run = provenzoo.run(data, out=out)
    assert run.record["status"] == "complete"
    assert {claim["id"] for claim in run.claims} == set(composed(name)["claims"])
    assert all(claim["source"] and claim["says"] for claim in run.claims)
    assert {file.stem for file in out.rglob("figures/*.png")} == set(composed(name)["figures"])


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_a_twin_takes_a_few_steps_on_real_garments(name, tmp_path):
    def sample(node: dict[str, Any]) -> dict[str, Any]:
        return node | {"name": "fashion-mnist-mini"} if node.get("name") in ("fashion-mnist", "mnist") else node

    data = replaced(short(composed(name)), sample)
    for stage in data["stages"].values():
        if "data" in stage:
            stage["data"] |= {"limit": 40, **({"samples": 4} if "samples" in stage["data"] else {})}
        for axis in ("to", "source", "set"):
            for overlay in stage.get("grid", {}).get(axis, {}).values():
                if "data" in overlay:
                    overlay["data"] |= {"limit": 40, **({"samples": 4} if "samples" in overlay["data"] else {})}
        sizes = stage.get("grid", {}).get("data.permute.cell")
        if sizes:
            stage["grid"]["data.permute.cell"] = [4, 32]
    assert_ran(name, data, tmp_path)


@pytest.mark.parametrize("name", [*PHOTOS[:-1], pytest.param(PHOTOS[-1], marks=pytest.mark.slow)])
def test_a_recipe_on_small_photos_takes_a_few_steps_on_generated_ones(name, tmp_path, monkeypatch):
    root = tmp_path / "data"
    if name == "svhn":
        stand_ins.svhn(root, monkeypatch)
        stand_ins.numpys_scipy(monkeypatch)
    else:
        stand_ins.cifar(root, monkeypatch, classes=10 if name == "cifar10" else 100, each=1)

    def small(node: dict[str, Any]) -> dict[str, Any]:
        if node.get("name") in ("cifar10", "cifar100", "svhn"):
            return node | {"root": str(root), "limit": 12}
        return node | SMALL_VIT if "vit-cifar" in str(node.get("name")) else node

    data = replaced(short(composed(name), batch=4), small)
    if "data.permute.cell" in (grid := data["stages"]["train"]["grid"]):
        grid["data.permute.cell"] = [2, 32]
    assert_ran(name, data, tmp_path / "run")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in LARGE])
def test_a_recipe_on_imagenet_takes_a_few_steps_on_generated_images(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PROVENZOO_DATA", str(tmp_path / "data"))
    stand_ins.imagenet(tmp_path / "data" / "imagenet", monkeypatch)
    for of in (imagenet.ImageNetA, imagenet.ImageNetR, imagenet.ImageNetV2):
        stand_ins.shifted(tmp_path / "data" / of.key, of, list(of.folder_names()))

    def small(node: dict[str, Any]) -> dict[str, Any]:
        if node.get("name") == "timm/vit_small_patch32_224":
            return {"name": "positional-vit", "patch": 8, "pool": "token", **SMALL_VIT}
        if "vit-tiny" in str(node.get("name")):
            return node | SMALL_VIT | {"patch": 8, "image_size": 32}
        return node | {"size": 32} if str(node.get("name")).startswith("imagenet") else node

    data = replaced(short(composed(name), batch=4), small)
    if name == "imagenet-shifted":
        severities = data["stages"]["corrupted"]["grid"]["severity"]
        assert list(severities) == ["1", "2", "3", "4", "5"] and all(len(s["sets"]) == 6 for s in severities.values())
        for label in ("2", "3", "4"):
            del severities[label]
    assert_ran(name, data, tmp_path / "run")


@pytest.mark.parametrize("name", [*TWINS, *PHOTOS, *LARGE, *LOOKED_AT])
def test_a_recipe_resolves_as_it_stands(name):
    data, plan = prepare(f"jelassi2022/{name}")
    assert data.get("scale", "cpu") == ("gpu" if name in PHOTOS + LARGE else "cpu")
    assert plan.points and all(point.read_settings() for point in plan.points)


def test_the_papers_settings_stand_in_the_recipes():
    """Appendix A and Section 6 of the paper."""
    for name in PHOTOS:
        data = composed(name)
        train = data["stages"]["train"]
        optim = train["optim"]
        assert (train["epochs"], train["batch"], train["label_smoothing"]) == (200, 128, 0.1)
        assert (optim["name"], optim["lr"], optim["weight_decay"]) == ("adam", 1e-3, 5e-5)
        assert optim["schedule"]["warmup"] * train["epochs"] == 5
        assert optim["schedule"]["floor"] * optim["lr"] == pytest.approx(1e-5)
        assert train["model"].get("patch", 4) == (2 if name == "permuted-cifar100" else 4)
        assert data["seeds"] == (5 if name == "permuted-cifar100" else 10)
    train = composed("imagenet")["stages"]["train"]
    assert train["batch"] == 1024 and round(300 * 1_281_167 / 1024) == train["steps"]


def test_the_imagenet_recipe_trains_by_deits_table():
    """Touvron et al. 2021, arXiv:2012.12877, Table 9, the column of DeiT-B, which Ti shares but for its width."""
    train = composed("imagenet")["stages"]["train"]
    assert train["optim"]["name"] == "adamw" and train["optim"]["lr"] == 5e-4 * train["batch"] / 512
    assert train["optim"]["weight_decay"] == 0.05 and train["label_smoothing"] == 0.1
    assert train["optim"]["schedule"]["warmup"] * 300 == pytest.approx(5, abs=0.02)
    assert (train["mixup"], train["cutmix"]) == (0.8, 1.0)
    assert train["data"] == {
        "name": "imagenet", "augment": {"rand": {"magnitude": 9, "spread": 0.5}, "erase": 0.25}, "repeats": 3,
    }  # fmt: skip
    assert train["model"]["drop_path"] == 0.1


def test_a_pattern_leaves_out_what_needs_a_gpu_or_is_not_there_and_downloads_nothing(tmp_path, monkeypatch):
    def no_network(*_, **__):
        raise AssertionError("nothing is downloaded by a pattern")

    for reader in ("MNIST", "FashionMNIST", "CIFAR10", "SVHN"):
        monkeypatch.setattr(f"torchvision.datasets.{reader}.download", no_network)
    chosen, left_out = select("jelassi2022/*")
    for name in [*PHOTOS, *LARGE]:
        assert left_out[f"jelassi2022/{name}"] == "scale: gpu; ask for it by name"
    for name in TWINS:
        assert "mnist: not found; looked for" in left_out[f"jelassi2022/{name}"]
    assert "jelassi2022/realistic" in chosen


def test_a_pattern_of_which_all_is_left_out_exits_with_0(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["run", "jelassi2022/cifar*", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == [] and set(told["left_out"]) == {"jelassi2022/cifar10", "jelassi2022/cifar100"}


def test_every_image_recipe_is_listed():
    names = {name.partition("/")[2] for name in registry.list_names("recipes", "jelassi2022/*")}
    assert {name for name in names if _has_images(name)} == {*TWINS, *PHOTOS, *LARGE, *LOOKED_AT}


def _has_images(name: str) -> bool:
    """Whether a recipe names a data set of images."""
    words = json.dumps(composed(name)["stages"])
    return any(f'"name": "{key}' in words for key in ("fashion-mnist", "mnist", "cifar", "svhn", "imagenet"))


# --- encodings, looked at -----------------------------------------------------------------------------------------


def grid_encodings(side: int = 7, dim: int = 16) -> torch.Tensor:
    """Encodings of a grid in which the nearer two tokens are the more alike, and a class token's `[side^2 + 1, dim]`."""
    at = torch.cartesian_prod(torch.arange(side), torch.arange(side)) / side
    waves = torch.randn(2, dim, generator=torch.Generator().manual_seed(1)) * 3
    return torch.cat([torch.zeros(1, dim), torch.cos(at @ waves + torch.arange(dim))])


@pytest.fixture
def timms_folder(tmp_path):
    """A ViT in timm's own folder format, narrow and of one layer, with a trained one's kind of encodings."""
    vit = timm.create_model("vit_small_patch32_224", depth=1, embed_dim=16, num_heads=2)
    vit.pos_embed.data[0] = grid_encodings()
    save_for_hf(vit, tmp_path / "timm", safe_serialization=True)
    return tmp_path / "timm"


def test_the_encodings_of_our_twins_are_looked_at_without_training(tmp_path):
    data = composed("positional-encodings")
    data["stages"]["at-init"]["model"] = {"name": "timm/vit_tiny_patch16_224"}
    data["stages"]["at-init"]["data"]["size"] = 64
    run = provenzoo.run(data | {"seeds": 1}, out=tmp_path / "run")
    assert run.holds and {claim["id"] for claim in run.claims} == set(data["claims"])
    assert {file.stem for file in tmp_path.rglob("figures/*.png")} == set(data["figures"])
    shipped = provenzoo.load("vit-mini.fashion-mnist")
    series, _ = checkpoint.load(tmp_path / "run/stages/trained[of=vit-mini]/series.safetensors")
    assert torch.equal(series["tensors/positional_encodings"], shipped.pos_embed)


def test_published_weights_are_looked_at_as_timm_has_them(tmp_path, timms_folder):
    overrides = [f"stages.published.model.source=local:{timms_folder}", "seeds=1", "device=cpu"]
    run = provenzoo.run("jelassi2022/positional-encodings-published", overrides, out=tmp_path / "run")
    assert run.holds and "published-are-local" in {claim["id"] for claim in run.claims}
    series, _ = checkpoint.load(tmp_path / "run/stages/published/series.safetensors")
    assert torch.equal(series["tensors/positional_encodings"][0], grid_encodings()[1:])
    assert {file.stem for file in tmp_path.rglob("figures/*.png")} == set(composed("positional-encodings")["figures"])


def test_a_pattern_leaves_out_weights_that_are_not_there_in_one_line(tmp_path, timms_folder):
    pattern = "jelassi2022/positional-encodings*"
    chosen, left_out = select(pattern)
    assert chosen == ["jelassi2022/positional-encodings"]
    assert left_out["jelassi2022/positional-encodings-published"] == (
        f"{PUBLISHED}: its weights are not in the cache; ask for the recipe by name to fetch them"
    )
    name, key = "jelassi2022/positional-encodings-published", "stages.published.model.source"
    assert select(name, [f"{key}=local:{timms_folder}"])[0] == [name]
    assert "no checkpoint there" in select(name, [f"{key}=local:{tmp_path}/no"])[1][name]


def test_weights_that_are_not_there_are_named_before_anything_runs(tmp_path):
    with pytest.raises(ZooError, match=r"published: .*vit_small_patch32_224.* is not in the cache"):
        provenzoo.run("jelassi2022/positional-encodings-published", out=tmp_path / "run")
    assert not list(tmp_path.rglob("stages/*"))


def test_a_loaded_model_is_for_evaluation_alone(timms_folder):
    model = {"name": "loaded", "source": f"local:{timms_folder}"}
    stage = {"stage": "pretrain", "model": model, "data": {"name": "fashion-mnist-mini"}, "steps": 1}
    with pytest.raises(UsageError, match="loaded is for `evaluate`"):
        provenzoo.run({"stages": {"train": stage | {"metrics": ["accuracy"], "optim": {"name": "sgd", "lr": 0.1}}}})


def test_a_checkpoint_cannot_name_another_one_to_load():
    with pytest.raises(ZooError, match=r"model\.source names a place to fetch from"):
        check_config({"model": {"name": "loaded", "source": "hf:someone/else"}}, "config.json")
