"""The models of the image experiments: torchvision's and timm's up to the changes that are told, and positional twins."""

import pytest
import timm
import torch
import torchvision
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F

import provenzoo
from provenzoo import to_positional
from provenzoo.components import create_model
from provenzoo.errors import ZooError
from provenzoo.models.base import members, model_groups
from provenzoo.models.convolutional import VGG19BN, ResNet18
from provenzoo.models.split import split_fused
from provenzoo.models.to_positional import PositionalTwin
from provenzoo.models.vit import ViT

CIFAR = {"image_size": 32, "channels": 3, "num_classes": 10}
SIZES = {"img_size": 12, "patch_size": 4, "num_classes": 3, "embed_dim": 16, "depth": 2, "num_heads": 2}


def shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# --- by name --------------------------------------------------------------------------------------------------


def test_resnet18_is_torchvisions_but_for_its_stem():
    with torch.device("meta"):
        theirs = shapes(torchvision.models.resnet18(num_classes=100))
        ours = shapes(ResNet18(channels=3, num_classes=100))
    assert ours.pop("conv1.weight") == (64, 3, 3, 3) and theirs.pop("conv1.weight") == (64, 3, 7, 7)
    assert ours == theirs


def test_resnet18_keeps_a_small_images_resolution_until_its_second_layer():
    model = ResNet18(channels=1, num_classes=5).eval()
    sides = {}
    for name in ("maxpool", "layer1", "layer4"):
        model.get_submodule(name).register_forward_hook(lambda _, __, out, n=name: sides.update({n: out.shape[-1]}))
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 5)
    assert sides == {"maxpool": 32, "layer1": 32, "layer4": 4}


def test_vgg19_has_torchvisions_features_and_one_head():
    with torch.device("meta"):
        theirs = torchvision.models.vgg19_bn()
        ours = VGG19BN(**CIFAR)
    assert shapes(ours.features) == shapes(theirs.features)
    assert shapes(ours.head) == {"weight": (10, 512), "bias": (10,)}
    with pytest.raises(ZooError, match=r"28 x 28.*`size` to 32"):
        VGG19BN(**CIFAR | {"image_size": 28})


def test_vgg19_computes_its_layers_in_turn():
    model = VGG19BN(**CIFAR).eval()
    images = torch.randn(1, 3, 32, 32)
    expected = F.linear(model.features(images).flatten(1), model.head.weight, model.head.bias)
    torch.testing.assert_close(model(images), expected)


def test_vit_cifar_has_the_published_size():
    """The code that the paper uses counts 6.3 M parameters; patch 2 changes the patches and positions alone."""
    with torch.device("meta"):
        coarse, fine = (create_model("vit-cifar", **CIFAR, **more) for more in ({}, {"patch": 2}))
    width, tokens = 384, 64
    layer = 4 * (width * width + width) + 2 * (width * width + width) + 4 * width
    whole = 7 * layer + (48 + 1 + tokens) * width + 2 * width + (width + 1) * 10
    assert count(coarse) == whole and round(whole / 1e5) == 63
    assert count(fine) - count(coarse) == ((256 - 64) - (48 - 12)) * width
    assert coarse.num_prefix_tokens == 0 and coarse.global_pool == "avg"


@pytest.mark.parametrize("name", ["vit-cifar", "vit-tiny-patch16-224"])
def test_a_positional_one_has_the_vanilla_ones_parameters_but_for_the_biases_of_q_and_k(name):
    args = CIFAR if name == "vit-cifar" else {"channels": 3, "num_classes": 1000}
    with torch.device("meta"):
        vanilla, positional = create_model(name, **args), create_model(f"positional-{name}", **args)
    assert count(vanilla) - count(positional) == len(vanilla.blocks) * 2 * vanilla.embed_dim


def test_vit_tiny_patch16_224_is_timms():
    with torch.device("meta"):
        theirs = timm.create_model("vit_tiny_patch16_224")
        assert shapes(create_model("vit-tiny-patch16-224", channels=3, num_classes=1000)) == shapes(theirs)


@pytest.mark.parametrize("model", [ResNet18(channels=1, num_classes=3), VGG19BN(**CIFAR)], ids=["resnet18", "vgg19"])
def test_the_groups_cover_the_model(model):
    found = [name for group in model_groups(model) for name in members(model, group)]
    assert sorted(found) == sorted(name for name, _ in model.named_parameters())


# --- to_positional --------------------------------------------------------------------------------------------


def reference(vit: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
    """The twin's logits by Definition 3.2, block by block from the original's own weights."""
    rows = vit.pos_embed[0]
    if vit.no_embed_class:
        rows = torch.cat([rows.new_zeros(vit.num_prefix_tokens, rows.shape[1]), rows])
    x = vit.norm_pre(vit._pos_embed(vit.patch_embed(images)))
    for block in vit.blocks:
        q, k, v = block.attn.qkv.weight.chunk(3)
        bias = 0 if block.attn.qkv.bias is None else block.attn.qkv.bias.chunk(3)[2]
        values = block.norm1(x) @ v.T + bias
        heads, width = block.attn.num_heads, block.attn.head_dim
        out = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = ((rows @ q[part].T) @ (rows @ k[part].T).T / width**0.5).softmax(-1)
            out.append(scores @ values[..., part])
        x = x + block.ls1(block.attn.proj(torch.cat(out, -1)))
        x = x + block.ls2(block.mlp(block.norm2(x)))
    return vit.forward_head(vit.norm(x))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"global_pool": "avg", "class_token": False, "qkv_bias": False},
        {"no_embed_class": True, "reg_tokens": 2, "init_values": 0.1, "pre_norm": True},
    ],
    ids=["token", "mean", "registers"],
)
def test_the_twin_of_a_timm_vit_attends_by_its_positions_with_its_weights(options):
    vit = VisionTransformer(**SIZES, **options).double().eval()
    nn.init.normal_(vit.pos_embed)
    twin, left_out = to_positional(vit)
    images = torch.randn(4, 3, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(twin(images), reference(vit, images), atol=1e-12, rtol=0)
    bias = options.get("qkv_bias", True)
    assert left_out == ([f"blocks.{i}.attn.qkv.bias (q and k)" for i in range(2)] if bias else [])


def test_what_has_no_place_in_the_twin_is_named():
    vit = VisionTransformer(**SIZES, qkv_bias=False, qk_norm=True, scale_attn_norm=True)
    _, left_out = to_positional(vit)
    parts = ["q_norm.weight", "q_norm.bias", "k_norm.weight", "k_norm.bias", "norm.weight", "norm.bias"]
    assert sorted(left_out) == sorted(f"blocks.{i}.attn.{part}" for i in range(2) for part in parts)


def test_the_original_is_left_as_it_was_and_shares_no_memory():
    vit = VisionTransformer(**SIZES)
    before = {name: tensor.clone() for name, tensor in vit.state_dict().items()}
    twin, _ = to_positional(vit)
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    assert all(torch.equal(before[name], tensor) for name, tensor in vit.state_dict().items())


@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_the_twin_of_a_zoo_vit_is_the_zoos_positional_vit(split):
    args = {"image_size": 12, "channels": 2, "num_classes": 3, "dim": 16, "depth": 2, "heads": 2}
    vit = ViT(**args, pool="token").eval()
    if split:
        split_fused(vit)
    twin, _ = to_positional(vit)
    ours = ViT(**args, pool="token", attention="positional").eval()
    ours.load_state_dict(twin.state_dict(), strict=True)
    images = torch.randn(3, 2, 12, 12)
    assert torch.equal(twin(images), ours(images)) and isinstance(twin, ViT)
    assert model_groups(twin) == model_groups(ours)


def test_the_twins_groups_cover_it_and_its_scores_are_a_distribution():
    twin, _ = to_positional(VisionTransformer(**SIZES, no_embed_class=True))
    assert isinstance(twin, PositionalTwin)
    found = [name for group in model_groups(twin) for name in members(twin, group)]
    assert sorted(found) == sorted(name for name, _ in twin.named_parameters())
    named = twin.named_tensors()
    assert named["positional_encodings"].shape == (9, 16) and named["attention_scores"].shape == (2, 2, 10, 10)
    torch.testing.assert_close(named["attention_scores"][:, :, 0], torch.full((2, 2, 10), 0.1))


@pytest.mark.parametrize(
    "model",
    [nn.Linear(2, 2), VisionTransformer(**SIZES, pos_embed="none"), VisionTransformer(**SIZES, dynamic_img_size=True)],
    ids=["no-vit", "no-positions", "any-size"],
)
def test_what_has_no_twin_is_an_error(model):
    with pytest.raises(ZooError, match="to_positional"):
        provenzoo.to_positional(model)
