"""Models: timm's where they are timm's, the paper's where they are the paper's, grouped without gaps."""

import copy
import inspect
import pickle

import pytest
import timm
import torch
import torchvision
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F

from provenzoo.draws import Permute, cell_permutation
from provenzoo.errors import ZooError
from provenzoo.models.base import groups_of, members, model_groups
from provenzoo.models.mlp import MLP
from provenzoo.models.small_cnn import SmallCNN
from provenzoo.models.vit import ViT

SMALL = {"image_size": 12, "channels": 2, "num_classes": 3, "dim": 16, "depth": 2, "heads": 2}
MINI = {"image_size": 28, "channels": 1, "num_classes": 10, "mlp_ratio": 2.0}


def positional(**args) -> ViT:
    return ViT(**SMALL | {"attention": "positional"} | args)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# --- vanilla ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_a_vanilla_vit_takes_timms_weights_and_gives_timms_logits(pool):
    pooling = {"global_pool": "avg", "class_token": False} if pool == "mean" else {}
    own = VisionTransformer(12, 4, 2, 3, embed_dim=16, depth=2, num_heads=2, **pooling)
    ours = ViT(**SMALL, pool=pool)
    ours.load_state_dict(own.state_dict(), strict=True)
    images = torch.randn(5, 2, 12, 12)
    assert torch.equal(ours(images), own(images))


def test_vit_tiny_and_small_are_timms_by_shape():
    for name, dim, heads in [("tiny", 192, 3), ("small", 384, 6)]:
        with torch.device("meta"):
            own = timm.create_model(f"vit_{name}_patch16_224")
            sizes = {"image_size": 224, "channels": 3, "num_classes": 1000, "patch": 16, "depth": 12}
            ours = ViT(**sizes, dim=dim, heads=heads, pool="token")
        shapes = [{n: t.shape for n, t in m.state_dict().items()} for m in (own, ours)]
        assert shapes[0] == shapes[1]


def test_the_mini_vits_have_the_published_numbers_of_parameters():
    assert count(ViT(**MINI)) == 138_890
    assert count(ViT(**MINI, attention="positional")) == 138_378


# --- positional attention -----------------------------------------------------------------------------------


def definition_3_2(model: ViT, images: torch.Tensor) -> torch.Tensor:
    """A positional ViT's logits in float64, a head and an image at a time."""
    encodings = model.pos_embed[0].double()
    width = encodings.shape[1] // SMALL["heads"]
    logits = []
    for image in images.double():
        x = model.patch_embed(image[None])
        x = x[0] if model.cls_token is None else torch.cat([model.cls_token[0], x[0]])
        x = x + encodings
        for block in model.blocks:
            tokens, heads = block.norm1(x), []
            for h in range(SMALL["heads"]):
                rows = slice(h * width, (h + 1) * width)
                w_q, w_k = block.attn.q.weight[rows].T, block.attn.k.weight[rows].T
                scores = ((encodings @ w_q) @ (encodings @ w_k).T / width**0.5).softmax(-1)
                heads.append(scores @ (tokens @ block.attn.v.weight[rows].T + block.attn.v.bias[rows]))
            x = x + block.attn.proj(torch.cat(heads, -1))
            x = x + block.mlp(block.norm2(x))
        x = model.norm(x)
        pooled = x[0] if model.cls_token is not None else model.fc_norm(x.mean(0))
        logits.append(model.head(pooled))
    return torch.stack(logits)


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_positional_attention_is_definition_3_2(pool):
    model = positional(pool=pool).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    images = torch.randn(3, 2, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(model(images), definition_3_2(model, images))
    expected = torch.autograd.grad(definition_3_2(model, images).square().sum(), list(model.parameters()))
    found = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected)


def edit_in_place(model: ViT) -> None:
    with torch.no_grad():
        model.blocks[1].attn.k.weight.mul_(3)


def edit_the_encodings(model: ViT) -> None:
    with torch.inference_mode():
        model.pos_embed.neg_().add_(1)
        model.pos_embed[0, 0] = 5


def load_others(model: ViT) -> None:
    model.load_state_dict({name: t + torch.randn_like(t) for name, t in model.state_dict().items()})


def assign_others(model: ViT) -> None:
    state = {name: t + torch.randn_like(t) for name, t in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def replace_data(model: ViT) -> None:
    model.pos_embed.data = torch.randn_like(model.pos_embed)


def take_a_step(model: ViT) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(2, 2, 12, 12)).square().sum().backward()
    optimiser.step()


def average_in_others(model: ViT) -> None:
    """As a moving average of weights does it."""
    with torch.no_grad():
        parameters = list(model.parameters())
        torch._foreach_lerp_(parameters, [torch.randn_like(p) for p in parameters], 0.5)


@pytest.mark.parametrize(
    "change",
    [edit_in_place, edit_the_encodings, load_others, assign_others, replace_data, take_a_step, average_in_others],
)
def test_scores_that_were_kept_are_computed_anew_when_what_they_depend_on_changes(change):
    model = positional().eval()
    with torch.no_grad():
        before = model.scores().clone()
        assert model.scores() is model.scores()
    change(model)
    fresh = positional().eval()
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.scores(), fresh.scores())
        assert not torch.equal(model.scores(), before)


def test_scores_follow_the_weights_to_another_precision_and_back():
    model = positional().eval()
    with torch.no_grad():
        before = model.scores().clone()
        assert model.double().scores().dtype == torch.float64
        assert model.bfloat16().scores().dtype == torch.bfloat16
        rounded = model.float().scores()
    assert rounded.dtype == torch.float32 and not torch.equal(rounded, before)


def test_kept_scores_hold_no_graph_and_are_not_used_while_their_weights_learn():
    model = positional()
    with torch.inference_mode():
        model(torch.randn(2, 2, 12, 12))
    model(torch.randn(2, 2, 12, 12)).sum().backward()
    assert model.pos_embed.grad is not None and model.blocks[0].attn.q.weight.grad is not None
    with torch.no_grad():
        assert not model.scores().requires_grad


def test_frozen_scores_are_kept_through_training_to_the_bit():
    model = positional()
    parameters = dict(model.named_parameters())
    for name in members(model, "attention"):
        parameters[name].requires_grad_(False)
    with torch.inference_mode():
        model(torch.randn(2, 2, 12, 12))
    before = model.scores()
    model(torch.randn(2, 2, 12, 12)).sum().backward()
    optimiser = torch.optim.AdamW([p for p in parameters.values() if p.requires_grad], lr=0.1, fused=True)
    optimiser.step()
    assert model.scores() is before
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model).scores(), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_keeps_scores_of_its_own(copied):
    model = positional().eval()
    with torch.no_grad():
        before = model.scores()
        twin = copied(model)
        assert torch.equal(twin.scores(), before) and twin.scores() is not before
        edit_in_place(twin)
        assert not torch.equal(twin.scores(), before) and model.scores() is before


def test_scores_are_as_precise_under_autocast_as_without():
    model = positional().eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits, scores = model(torch.randn(2, 2, 12, 12)), model.scores()
    assert scores.dtype == torch.float32 and logits.isfinite().all()
    assert torch.equal(scores, copy.deepcopy(model).named_tensors()["attention_scores"])


# --- permuted images ----------------------------------------------------------------------------------------


def permuted(images: torch.Tensor, permute: Permute) -> torch.Tensor:
    order = cell_permutation(images.shape[-1], permute.cell, permute.draw)
    return images.flatten(2)[:, :, order].view(images.shape)


@pytest.mark.parametrize("attention", ["vanilla", "positional"])
@pytest.mark.parametrize("pool", ["mean", "token"])
@pytest.mark.parametrize("cell", [4, 8])
def test_encodings_permuted_as_the_images_are_give_the_same_logits(attention, pool, cell):
    sizes = SMALL | {"image_size": 24, "attention": attention, "pool": pool}
    plain, moved = ViT(**sizes), ViT(**sizes, permute=Permute(cell=cell, draw=1))
    plain, moved = plain.double(), moved.double()
    for parameter in plain.parameters():
        nn.init.normal_(parameter, std=0.3)
    moved.load_state_dict(plain.state_dict(), strict=True)
    images = torch.randn(3, 2, 24, 24, dtype=torch.float64)
    shuffled = permuted(images, Permute(cell=cell, draw=1))
    torch.testing.assert_close(moved(shuffled), plain(images), atol=1e-10, rtol=0)
    assert (plain(shuffled) - plain(images)).abs().max() > 1e-3
    assert torch.equal(moved.named_tensors()["positional_encodings"], plain.pos_embed[0, plain.num_prefix_tokens :])


@pytest.mark.parametrize("attention", ["vanilla", "positional"])
@pytest.mark.parametrize("pool", ["mean", "token"])
def test_training_on_permuted_images_with_the_encodings_permuted_alike_is_the_same_training(attention, pool):
    sizes = SMALL | {"attention": attention, "pool": pool}
    plain, moved = ViT(**sizes).double(), ViT(**sizes, permute=Permute(cell=4, draw=1)).double()
    moved.load_state_dict(plain.state_dict())
    images, targets = torch.randn(12, 2, 12, 12, dtype=torch.float64), torch.arange(12) % 3
    both = ((plain, images), (moved, permuted(images, Permute(cell=4, draw=1))))
    for model, inputs in both:
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, fused=True)
        for _ in range(10):
            optimiser.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimiser.step()
    before, after = (model.eval()(inputs) for model, inputs in both)
    torch.testing.assert_close(after, before, atol=1e-9, rtol=0)


def test_cells_that_cut_patches_are_an_error():
    with pytest.raises(ZooError, match="no multiple of the patch"):
        positional(permute=Permute(cell=6))


# --- sizes and groups ---------------------------------------------------------------------------------------


def test_an_image_that_the_patch_does_not_tile_is_an_error_that_says_which_would_do():
    with pytest.raises(ZooError, match="12 and 16") as error:
        positional(image_size=14)
    assert "\n" not in str(error.value)


def test_heads_that_do_not_divide_the_width_are_an_error():
    with pytest.raises(ZooError, match="heads"):
        positional(heads=3)


@pytest.mark.parametrize(
    "model",
    [
        positional(pool="token"),
        positional(),
        SmallCNN(channels=1, num_classes=3),
        MLP(features=4, num_classes=2),
        torchvision.models.resnet18(),
        timm.create_model("resnet18"),
    ],
    ids=["positional-token", "positional-mean", "small-cnn", "mlp", "torchvision", "timm"],
)
def test_the_groups_of_a_model_are_disjoint_and_cover_it(model):
    found = [name for group in model_groups(model) for name in members(model, group)]
    assert sorted(found) == sorted(name for name, _ in model.named_parameters())
    assert "head" in model_groups(model)


def test_the_groups_are_known_before_building():
    assert groups_of(ViT, {"attention": "positional"}) == positional().groups
    assert "positions" in groups_of(ViT, {}) and "positions" in groups_of(ViT, {"attention": "vanilla"})
    assert list(groups_of(MLP, {"features": 3})) == ["body", "head"]


def test_a_group_is_also_a_parameters_own_name_or_pattern():
    assert members(positional(), "blocks.0.norm1.*") == ["blocks.0.norm1.weight", "blocks.0.norm1.bias"]


@pytest.mark.parametrize("group", ["attention", "nothing", "layer9.*"])
def test_a_group_that_a_model_lacks_is_an_error_that_lists_those_it_has(group):
    with pytest.raises(ZooError, match="features, head"):
        members(SmallCNN(channels=1, num_classes=3), group)


@pytest.mark.parametrize("builder", [ViT, SmallCNN, MLP])
def test_builders_have_typed_keyword_arguments_only(builder):
    arguments = list(inspect.signature(builder).parameters.values())
    assert all(p.kind is p.KEYWORD_ONLY and p.annotation is not p.empty for p in arguments)


# --- small models -------------------------------------------------------------------------------------------


def test_the_small_cnn_has_its_published_size_and_takes_images_of_any_size():
    model = SmallCNN(channels=1, num_classes=10)
    assert count(model) == 24_930
    assert model(torch.randn(2, 1, 28, 28)).shape == model(torch.randn(2, 1, 33, 40)).shape == (2, 10)


def test_an_mlp_is_linear_layers_with_relu_between():
    model = MLP(features=4, num_classes=2, hidden=[5, 6])
    plain = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    plain.load_state_dict(dict(zip(plain.state_dict(), model.state_dict().values(), strict=True)))
    inputs = torch.randn(7, 4)
    assert torch.equal(model(inputs), plain(inputs))


def test_an_mlp_is_initialised_as_linear_layers_are():
    torch.manual_seed(3)
    model = MLP(features=4, num_classes=2, hidden=5)
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2))
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(ours, other) for ours, other in pairs)


def test_replicas_of_an_mlp_compute_what_each_does_alone():
    alone = [MLP(features=4, num_classes=2, hidden=[5, 6]) for _ in range(3)]
    stacked = copy.deepcopy(alone[0])
    for name, _ in list(stacked.named_parameters()):
        module, _, own = name.rpartition(".")
        whole = torch.stack([model.get_parameter(name).detach() for model in alone])
        setattr(stacked.get_submodule(module), own, nn.Parameter(whole))
    inputs = torch.randn(3, 7, 4)
    expected = torch.stack([model(x) for model, x in zip(alone, inputs, strict=True)])
    torch.testing.assert_close(stacked(inputs), expected)
    F.relu(stacked(inputs)).sum().backward()
    assert all(p.grad is not None and len(p.grad) == 3 for p in stacked.parameters())


def test_kept_scores_are_computed_anew_after_a_fused_optimisers_step():
    """A fused step changes parameters without raising their version."""
    model = positional().eval()
    images = torch.randn(2, 2, 12, 12)
    with torch.no_grad():
        model(images)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, fused=True)
    model(images).square().sum().backward()
    optimiser.step()
    with torch.no_grad():
        after = model(images)
        model.load_state_dict(copy.deepcopy(model.state_dict()))
        assert torch.equal(after, model(images))
