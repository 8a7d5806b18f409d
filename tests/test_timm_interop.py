"""timm loads what we publish, and we load what timm saves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from hubserver import HubServer
from huggingface_hub import HfApi, constants
from small_run import IMAGES, SHORT, execute
from timm.models import save_for_hf

import provenzoo
from provenzoo import fetch
from provenzoo.draws import generator
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.publish import publish
from provenzoo.models.loaded import loaded

RECIPE = {
    "recipe": "vits",
    "seeds": 2,
    "device": "cpu",
    "publish": "plain",
    "stages": {
        name: {
            "stage": "pretrain",
            "model": {"name": "vit", "dim": 16, "depth": 2, "heads": 2, "patch": 7, **more},
            "data": IMAGES,
            "metrics": ["accuracy"],
            **SHORT,
        }
        for name, more in {
            "plain": {},
            "token": {"pool": "token"},
            "positional": {"attention": "positional"},
            "positional-token": {"attention": "positional", "pool": "token"},
        }.items()
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tiny ViTs, two seeds each."""
    return provenzoo.run(RECIPE, out=tmp_path_factory.mktemp("vits") / "run").path


def images(size: int = 28, channels: int = 1) -> torch.Tensor:
    return torch.randn(3, channels, size, size, generator=generator(0, "test"))


def same_logits(ours: torch.nn.Module, theirs: torch.nn.Module, x: torch.Tensor) -> None:
    with torch.inference_mode():
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-5, atol=1e-5)


# --- timm loads ours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["plain", "token"])
def test_timm_loads_a_published_vit_from_the_hub_and_from_a_folder(
    hub: HubServer, run: Path, tmp_path: Path, stage: str
) -> None:
    done = publish(run, "someone/vit", stage=stage, seed=1)
    publish(run, f"local:{tmp_path}/vit", stage=stage, seed=1)
    ours = provenzoo.load(done.reference)
    for name in ("hf-hub:someone/vit", f"local-dir:{tmp_path}/vit"):
        theirs = timm.create_model(name, pretrained=True)
        assert type(theirs).__module__ == "timm.models.vision_transformer"
        state = ours.state_dict()
        assert all(torch.equal(state[key], value) for key, value in theirs.state_dict().items()) and len(state) == len(
            theirs.state_dict()
        )
        same_logits(ours, theirs, images())


@pytest.mark.parametrize("stage", ["positional", "positional-token"])
def test_timm_loads_a_positional_vit_after_one_import(hub: HubServer, run: Path, stage: str) -> None:
    publish(run, "someone/positional", stage=stage, seed=0)
    program = (
        "import sys, timm, torch, huggingface_hub.constants as constants\n"
        "try: timm.create_model('hf-hub:someone/positional', pretrained=True)\n"
        "except Exception as error: assert 'provenzoo_positional_vit' in str(error), error\n"
        "else: raise AssertionError('timm knows it')\n"
        "import provenzoo.timm\n"
        "model = timm.create_model('hf-hub:someone/positional', pretrained=True).eval()\n"
        "torch.save(model(torch.load(sys.argv[1])).detach(), sys.argv[1])\n"
    )
    file = run / "images.pt"
    torch.save(images(), file)
    env = os.environ | {"HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": constants.HF_HUB_CACHE}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", program, file], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with torch.inference_mode():
        expected = provenzoo.load("hf:someone/positional")(images())
    torch.testing.assert_close(torch.load(file), expected, rtol=1e-5, atol=1e-5)


def test_timm_gives_it_another_head(run: Path, tmp_path: Path) -> None:
    publish(run, f"local:{tmp_path}/vit", stage="plain", seed=1)
    assert timm.create_model(f"local-dir:{tmp_path}/vit", pretrained=True, num_classes=9)(images()).shape == (3, 9)


def test_the_fields_of_timm_go_along_with_one_seed_of_a_vit_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seed, has in (("all", None, False), ("one", 1, True)):
        done = publish(run, f"local:{tmp_path}/{name}", stage="plain", seed=seed)
        assert ("architecture" in json.loads((tmp_path / name / "config.json").read_text())) is has
        assert ("timm.create_model" in (tmp_path / name / "README.md").read_text()) is has and bool(
            done.note
        ) is not has
    assert execute("publish", run, f"local:{tmp_path}/told", "--dry-run") == 0
    assert "timm loads a file of one seed and this one has 2; with --seed 0 timm" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["plain", "positional"])
def test_the_snippet_for_timm_on_the_card_runs(hub: HubServer, run: Path, tmp_path: Path, stage: str) -> None:
    done = publish(run, "someone/vit", stage=stage, seed=1, tag="v1")
    card = hub.files("someone/vit")["README.md"].decode()
    [snippet] = [text for text in re.findall(r"```python\n(.*?)```", card, re.DOTALL) if "create_model" in text]
    assert "hf-hub:someone/vit@v1" in snippet and ("import provenzoo.timm" in snippet) is (stage == "positional")
    (tmp_path / "snippet.py").write_text(f"{snippet}\nimport sys, torch\ntorch.save(model.state_dict(), sys.argv[1])\n")
    env = os.environ | {"HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": constants.HF_HUB_CACHE}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    words = [sys.executable, tmp_path / "snippet.py", tmp_path / "state.pt"]
    finished = subprocess.run(words, env=env, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    theirs = torch.load(tmp_path / "state.pt")
    ours = provenzoo.load(done.reference).state_dict()
    assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)


# --- we load timm's -----------------------------------------------------------------------------------------------

MODELS = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 64, "num_classes": 7, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
    "convnext_atto": {"depths": (1, 1, 1, 1), "in_chans": 1},
}


def saved(folder: Path, name: str) -> torch.nn.Module:
    """A model of timm's, drawn and saved as timm does it."""
    torch.manual_seed(0)
    model = timm.create_model(name, **MODELS[name]).eval()
    save_for_hf(model, folder, safe_serialization=True)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_and_a_repository_of_timms_load_as_they_are(hub: HubServer, tmp_path: Path, name: str) -> None:
    theirs = saved(tmp_path / "timm", name)
    HfApi().create_repo("someone/timm")
    HfApi().upload_folder(repo_id="someone/timm", folder_path=tmp_path / "timm")
    x = images(MODELS[name].get("img_size", 64), MODELS[name].get("in_chans", 3))
    for reference in (f"local:{tmp_path}/timm", "hf:someone/timm"):
        ours = provenzoo.load(reference)
        assert all(
            torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
        )
        same_logits(ours, theirs, x)
    assert ours.provenance["architecture"] == name and ours.provenance["revision"] == hub.head("someone/timm")


def test_a_repository_of_timms_is_pulled_ahead_of_going_offline(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = saved(tmp_path / "timm", "vit_tiny_patch16_224")
    HfApi().create_repo("someone/timm")
    HfApi().upload_folder(repo_id="someone/timm", folder_path=tmp_path / "timm")
    model = {"name": "loaded", "source": "hf:someone/timm"}
    assert "not in the cache" in loaded.missing(source="hf:someone/timm")
    assert fetch.pull("hf:someone/timm")["reference"] == f"hf:someone/timm@{hub.head('someone/timm')}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert loaded.missing(source="hf:someone/timm") is None
    assert torch.equal(provenzoo.create_model(**model).pos_embed, theirs.pos_embed)


def test_what_may_change_of_timms_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, "vit_tiny_patch16_224")
    model = provenzoo.load(f"local:{tmp_path}", num_classes=5, image_size=96)
    assert model(images(96, 3)).shape == (3, 5)
    assert model.provenance["anew"] == ["head.weight", "head.bias"] and model.provenance["resized"] == ["pos_embed"]
    assert "drawn anew: head.weight, head.bias; resized: pos_embed" in capsys.readouterr().err
    with pytest.raises(ZooError, match="'depth' cannot change after training"):
        provenzoo.load(f"local:{tmp_path}", depth=3)
    with pytest.raises(UsageError, match="has no seeds"):
        provenzoo.load(f"local:{tmp_path}", seed=1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architecture": "os.system"}, "timm has no architecture 'os.system'"),
        ({"architecture": "provenzoo.timm:x"}, "timm has no architecture"),
        ({"model_args": {"checkpoint_path": "/etc/passwd"}}, "names a place to fetch from"),
        ({"model_args": {"pretrained": True}}, "model_args.pretrained is no argument of an architecture; refused"),
        ({"model_args": {"pretrained_cfg": {"hf_hub_filename": "evil.bin"}}}, "names a place to fetch from"),
        ({"model_args": {"depth": 10**9}}, "depth: 1000000000 is more than a file of"),
        ({"model_args": {"depth": 10**5}}, "more parameters than the file's"),
        ({"model_args": {"embed_dim": 3 * 10**5}}, "do not fit the model"),
        ({"model_args": {"num_heads": 7}}, "does not build (dim should be divisible by num_heads)"),
        ({"model_args": {"img_size": 10**6}}, "do not fit the model"),
        ({"model_args": [1]}, "must be mappings"),
        ({"pretrained_cfg": {"custom_load": "hf"}}, "names a place to fetch from or code to load with"),
        ({"pretrained_cfg": {"url": "https://example.org/x.pth"}}, "names a place to fetch from"),
        ({"pretrained_cfg": {"hf_hub_id": "evil/other"}}, "names a place to fetch from"),
        ({"pretrained_cfg": {"file": "/etc/passwd"}}, "names a place to fetch from"),
    ],
)
def test_a_hostile_config_of_timms_kind_is_refused(tmp_path: Path, change: dict, says: str) -> None:
    saved(tmp_path, "vit_tiny_patch16_224")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ZooError) as caught:
        provenzoo.load(f"local:{tmp_path}")
    assert says in str(caught.value) and "\n" not in str(caught.value)


# --- heads and sizes ----------------------------------------------------------------------------------------------


def test_a_head_for_7_classes_is_drawn_anew_and_all_else_is_the_checkpoints(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = str(run / "stages/plain")
    whole, model = provenzoo.load(reference), provenzoo.load(reference, num_classes=7)
    assert (
        model.provenance["anew"] == ["head.weight", "head.bias"]
        and "drawn anew: head.weight" in capsys.readouterr().err
    )
    assert model(images()).shape == (3, 7)
    state = model.state_dict()
    assert all(torch.equal(state[k], v) for k, v in whole.state_dict().items() if not k.startswith("head."))
    again = provenzoo.load(reference, num_classes=7).state_dict()
    assert torch.equal(again["head.weight"], state["head.weight"]) and not torch.equal(
        state["head.weight"], torch.zeros_like(state["head.weight"])
    )


@pytest.mark.parametrize("stage", ["plain", "token", "positional", "positional-token"])
def test_encodings_are_resized_alike_from_the_hub_a_folder_and_the_cache(
    hub: HubServer, run: Path, stage: str, monkeypatch
) -> None:
    done = publish(run, "someone/vit", stage=stage)
    places = [str(run / "stages" / stage), "hf:someone/vit", done.reference]
    models = [provenzoo.load(place, seed=0, image_size=42) for place in places]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    models.append(provenzoo.load(done.reference, seed=0, image_size=42))
    for model in models:
        assert model.provenance["resized"] == ["pos_embed"] and model.provenance["anew"] == []
        assert torch.equal(model.pos_embed, models[0].pos_embed) and model(images(42)).shape == (3, 3)
    tokens = int("token" in stage)
    from timm.layers import resample_abs_pos_embed

    expected = resample_abs_pos_embed(provenzoo.load(places[0], seed=0).pos_embed, [6, 6], num_prefix_tokens=tokens)
    torch.testing.assert_close(models[0].pos_embed, expected)


def test_what_cannot_change_is_listed(run: Path) -> None:
    with pytest.raises(
        ZooError, match="'depth' cannot change after training; vit can adapt: permute, num_classes, image_size"
    ):
        provenzoo.load(str(run / "stages/plain"), depth=3)
    with pytest.raises(ZooError, match="patches of 7 do not tile an image of 30"):
        provenzoo.load(str(run / "stages/plain"), image_size=30)
