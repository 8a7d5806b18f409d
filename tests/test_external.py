"""timm's and torchvision's models by name: theirs unchanged, fitted to the data or refused in one line."""

import warnings

import pytest
import timm
import torch
import torchvision
import yaml
from safetensors.torch import load_file

import provenzoo
from provenzoo.components import create_model
from provenzoo.describe import info
from provenzoo.errors import UsageError, ZooError
from provenzoo.models.base import members, model_groups
from provenzoo.models.external import torchvision_model
from provenzoo.models.split import merged_state, split_fused
from provenzoo.registry import list_names

VIT = "timm/vit_tiny_patch16_224"
TWO_STAGES = f"""
stages:
  pretrain:
    stage: pretrain
    model: {{name: {VIT}}}
    data: {{name: fashion-mnist-mini, size: 32, limit: 24}}
    steps: 3
    batch: 8
    metrics: [loss, accuracy]
  finetune:
    stage: finetune
    from: pretrain
    reset: [head]
    freeze: [attention]
    steps: 3
    batch: 8
    metrics: [loss, accuracy]
claims:
  still: {{says: frozen, metric: finetune.frozen-unchanged, holds: "== 1"}}
"""


def test_both_libraries_are_listed_under_their_prefix():
    assert VIT in list_names("models", "timm/vit_tiny*")
    assert "torchvision/resnet18" in list_names("models", "torchvision/*")
    assert not [name for name in list_names("models") if "/" in name]
    assert "torchvision/fasterrcnn_resnet50_fpn" not in list_names("models", "torchvision/*")


@pytest.mark.parametrize(
    ("name", "near"),
    [("timm/vit_tiny_patch16_22", "vit_tiny_patch16_224"), ("torchvision/resnet1", "resnet18")],
)
def test_an_unknown_name_offers_the_nearest(name, near):
    with pytest.raises(UsageError, match=f"no model .*did you mean .*{near!r}"):
        create_model(name)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("timm/resnet18", lambda: timm.create_model("resnet18", num_classes=4)),
        ("torchvision/resnet18", lambda: torchvision.models.resnet18(num_classes=4)),
    ],
)
def test_a_model_has_the_librarys_own_names_and_logits(name, own):
    model, theirs = create_model(name, num_classes=4, image_size=32), own()
    assert model.training
    theirs.load_state_dict(model.state_dict(), strict=True)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(model.eval()(images), theirs.eval()(images))


def test_a_model_is_drawn_by_its_seed():
    first, again, other = (create_model("timm/resnet10t", seed=seed, image_size=32) for seed in (0, 0, 1))
    assert torch.equal(first.conv1[0].weight, again.conv1[0].weight)
    assert not torch.equal(first.conv1[0].weight, other.conv1[0].weight)


def test_image_size_and_channels_reach_a_vit():
    model = create_model(VIT, image_size=32, channels=1, num_classes=5)
    assert model.pos_embed.shape == (1, 5, 192)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 5)
    assert create_model(VIT).pos_embed.shape == (1, 197, 192)
    assert create_model("torchvision/vit_b_16", image_size=32).encoder.pos_embedding.shape == (1, 5, 768)


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        (VIT, {"image_size": 28, "channels": 1}, "patches of 16 do not tile an image of 28; .* 16 or 32"),
        (VIT, {"image_size": 8}, "patches of 16 do not tile an image of 8; set the data's `size` to 16$"),
        ("torchvision/resnet18", {"image_size": 28, "channels": 1}, "takes images of 3 channels, not 1"),
        ("torchvision/alexnet", {"image_size": 28}, "takes no images of 28 x 28"),
        ("torchvision/vit_b_16", {"image_size": 30}, "does not build with .*image_size 30"),
        ("timm/vgg11", {"drop_path": 0.1}, "does not build with .*drop_path_rate 0.1"),
        ("timm/resnet18", {"drop_path": 1.5}, "drop_path: must be less than 1"),
        ("timm/resnet18", {"img_size": 32}, "no argument 'img_size'; did you mean 'image_size'"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(name, args, words):
    with pytest.raises(ZooError, match=words) as error:
        create_model(name, **args)
    assert "\n" not in str(error.value)


def test_a_model_with_auxiliary_classifiers_gives_only_its_logits_as_it_trains():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = torchvision_model("googlenet", num_classes=3, image_size=64)
    assert model.train()(torch.randn(2, 3, 64, 64)).shape == (2, 3)


@pytest.mark.parametrize(
    ("architecture", "has_attention"),
    [
        ("deit_tiny_distilled_patch16_224", True),
        ("vit_wee_patch16_reg1_gap_256", True),
        ("vit_dwee_patch16_reg1_gap_256", True),
        ("vit_pwee_patch16_reg1_gap_256", False),  # one projection for attention and MLP
        ("vit_small_patch16_18x2_224", False),  # two attentions a block
        ("swin_tiny_patch4_window7_224", False),
        ("convnext_tiny", False),
    ],
)
def test_the_groups_of_timms_models_are_disjoint_and_cover_them(architecture, has_attention):
    with torch.device("meta"):
        model = timm.create_model(architecture)
    split_fused(model)
    found = [name for group in model_groups(model) for name in members(model, group)]
    assert sorted(found) == sorted(name for name, _ in model.named_parameters())
    assert ("attention" in model_groups(model)) == has_attention
    assert list(merged_state(model)) == list(timm.create_model(architecture).state_dict())


def run(folder, text: str):
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(yaml.safe_load(text)))
    return provenzoo.run(recipe, out=folder / "run")


def test_a_vit_of_timms_is_pretrained_and_tuned_with_its_attention_frozen(tmp_path):
    done = run(tmp_path, TWO_STAGES)
    assert done.record["claims"][0]["holds"]
    before, after = (
        {name: tensor[0] for name, tensor in load_file(done.path / "stages" / stage / "model.safetensors").items()}
        for stage in ("pretrain", "finetune")
    )
    theirs = timm.create_model("vit_tiny_patch16_224", img_size=32, in_chans=1, num_classes=10)
    theirs.load_state_dict(after, strict=True)
    name = "blocks.0.attn.qkv.weight"
    assert torch.equal(after[name][:384], before[name][:384])
    assert not torch.equal(after[name][384:], before[name][384:])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size: 32", "size: 28", "patches of 16 do not tile an image of 28"),
        (VIT, "torchvision/resnet18", "takes images of 3 channels, not 1"),
        ("freeze: [attention]", "freeze: [attentions]", "no parameters in a group 'attentions'.* attention, value"),
        (VIT, "timm/resnet10t", "no parameters in a group 'attention'; the model's groups are: head, body"),
    ],
)
def test_what_does_not_fit_is_found_before_anything_trains(tmp_path, old, new, words):
    with pytest.raises(ZooError, match=words):
        run(tmp_path, TWO_STAGES.replace(old, new))
    assert not list(tmp_path.rglob("model.safetensors"))


def test_info_tells_what_a_librarys_model_takes():
    told = info(VIT)
    assert set(told["arguments"]) >= {"num_classes", "image_size", "channels", "drop_path"}
