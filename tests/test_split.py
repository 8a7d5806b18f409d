"""Fused parameters in parts: exact to join, frozen to the bit, saved under the fused names."""

import copy

import pytest
import timm
import torch
from torch.nn import functional as F

from provenzoo.errors import ZooError
from provenzoo.models.base import members
from provenzoo.models.split import load_merged, merged_state, split_fused
from provenzoo.models.vit import ViT

SIZES = {"image_size": 8, "channels": 1, "num_classes": 3, "dim": 16, "depth": 2, "heads": 2, "pool": "token"}


def timm_vit() -> torch.nn.Module:
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", **sizes, in_chans=1, num_classes=3)


@pytest.fixture(params=[lambda: ViT(**SIZES), timm_vit], ids=["ours", "timm"])
def model(request):
    return request.param()


def train(model: torch.nn.Module, steps: int = 5) -> None:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(torch.randn(6, 1, 8, 8)), torch.randint(3, (6,))).backward()
        optimiser.step()


def test_a_split_model_computes_and_saves_what_it_did_whole(model):
    whole = copy.deepcopy(model)
    split_fused(model)
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(model(images), whole(images))
    merged, expected = merged_state(model), whole.state_dict()
    assert list(merged) == list(expected)
    assert all(torch.equal(merged[name], tensor) for name, tensor in expected.items())


def test_splitting_twice_changes_nothing(model):
    split_fused(model)
    names = [name for name, _ in model.named_parameters()]
    split_fused(model)
    assert [name for name, _ in model.named_parameters()] == names


def test_the_groups_of_a_split_model_are_disjoint_and_cover_it(model):
    split_fused(model)
    names = [name for name, _ in model.named_parameters()]
    groups = ["attention", "value", "positions", "embedding", "mlp", "head"]
    assert sorted(name for group in groups for name in members(model, group)) == sorted(names)


def test_frozen_q_and_k_stay_bit_equal_under_weight_decay_while_v_learns(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    split_fused(model)
    parameters = dict(model.named_parameters())
    for name in members(model, "attention"):
        parameters[name].requires_grad_(False)
    train(model)
    after = merged_state(model)
    for layer in range(2):
        name = f"blocks.{layer}.attn.qkv.weight"
        assert torch.equal(after[name][:32], before[name][:32])
        assert not torch.equal(after[name][32:], before[name][32:])


def test_trained_parts_load_into_timms_own_model_strictly(model):
    split_fused(model)
    train(model)
    images, own = torch.randn(4, 1, 8, 8), timm_vit()
    own.load_state_dict(merged_state(model), strict=True)
    assert torch.equal(own(images), model(images))


@pytest.mark.parametrize("split", [False, True])
def test_a_merged_state_loads_into_a_split_or_a_whole_model(model, split):
    target = copy.deepcopy(model)
    split_fused(model)
    train(model)
    if split:
        split_fused(target)
    load_merged(target, merged_state(model))
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(target(images), model(images))


def test_a_state_that_does_not_fit_is_an_error_that_says_what():
    model = ViT(**SIZES)
    state = merged_state(ViT(**SIZES | {"num_classes": 5}))
    state["extra"] = state.pop("pos_embed")
    with pytest.raises(ZooError) as error:
        load_merged(model, state)
    for part in ("missing: pos_embed", "unknown: extra", "head.weight [5, 16], not [3, 16]"):
        assert part in str(error.value)


def test_a_model_with_nothing_fused_stays_as_it_is():
    model = ViT(**SIZES, attention="positional")
    names = [name for name, _ in model.named_parameters()]
    split_fused(model)
    assert [name for name, _ in model.named_parameters()] == names
