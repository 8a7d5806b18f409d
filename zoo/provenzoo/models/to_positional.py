"""Any of timm's VisionTransformers with attention by positions alone (Jelassi et al. 2022, Definition 3.2)."""

import copy
from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from provenzoo.errors import ZooError
from provenzoo.models.base import Groups, Model, timm_vit_groups
from provenzoo.models.positional_attention import Kept, PositionalAttention, positional_scores
from provenzoo.models.split import merged_state
from provenzoo.models.vit import POSITIONAL_GROUPS, ViT


class Twin(NamedTuple):
    """A model with positional attention, and the names of the original's weights that have no place in it."""

    model: nn.Module
    left_out: list[str]


class PositionalTwin(Model, nn.Module):
    """A VisionTransformer of timm around positional attention; what it holds is `vit`, prefix of its parameters' names.

    A token without a positional encoding of its own (a register, a class token that is joined afterwards) has the
    encoding 0: it attends to all tokens alike.
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.vit = vit
        self.groups = _groups(vit)
        self._kept_scores = Kept()

    def encodings(self) -> Tensor:
        """P, a row a token `[N, C]`."""
        rows = cast(Tensor, self.vit.pos_embed)[0]
        without = self.vit.num_prefix_tokens if self.vit.no_embed_class else 0
        return F.pad(rows, (0, 0, without, 0))

    def scores(self) -> Tensor:
        """The attention scores `[L, H, N, N]`, which no image changes."""
        layers = [cast(PositionalAttention, block.attn) for block in _blocks(self.vit)]
        weights = [weight for layer in layers for weight in (layer.q.weight, layer.k.weight)]
        sources = [cast(Tensor, self.vit.pos_embed), *weights]
        return self._kept_scores.get(sources, lambda: positional_scores(self.encodings(), layers))

    def forward(self, x: Tensor) -> Tensor:
        """Images `[B, channels, H, W]` -> what the original gives for a batch, such as logits `[B, num_classes]`."""
        vit = self.vit
        x = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(x))))
        for block, scores in zip(_blocks(vit), self.scores().unbind(), strict=True):
            x = block(x, attn_mask=scores)
        return vit.forward_head(vit.norm(x))

    def named_tensors(self) -> dict[str, Tensor]:
        """`positional_encodings` `[N, C]` of the patches and `attention_scores` `[L, H, N, N]`."""
        encodings = self.encodings()[self.vit.num_prefix_tokens :]
        tensors = {"positional_encodings": encodings, "attention_scores": self.scores()}
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def to_positional(model: nn.Module) -> Twin:
    """The positional-attention twin of a VisionTransformer of timm's or of ours, with weights of its own.

    W_Q, W_K, W_V and all around the attention are the original's; so is P, the source of the scores. The biases of q
    and k, their norms and whatever else the attention had are left out, and named. What is no such model, or has no
    positional encodings for a fixed grid, is a ZooError.
    """
    _check(model)
    vit = cast(VisionTransformer, copy.deepcopy(model))
    for block in _blocks(vit):
        block.attn = _positional(cast(Attention, block.attn))
    twin = _as_ours(vit) if isinstance(vit, ViT) else PositionalTwin(vit)
    twin.train(model.training)
    return Twin(twin, _left_out(merged_state(model), vit))


def _check(model: nn.Module) -> None:
    name = type(model).__name__
    if not isinstance(model, VisionTransformer) or not all(type(b.attn) is Attention for b in _blocks(model)):
        raise ZooError(f"to_positional: {name} is no VisionTransformer of timm with its own Attention in every block")
    if model.pos_embed is None or model.dynamic_img_size:
        raise ZooError(f"to_positional: {name} has no positional encodings for one grid of patches to attend by")


def _blocks(vit: VisionTransformer) -> list[Block]:
    return cast(list[Block], list(cast(Iterable, vit.blocks)))


def _positional(attention: Attention) -> PositionalAttention:
    """The attention with the rows of the fused qkv apart."""
    dim = attention.qkv.in_features
    if attention.attn_dim != dim:
        raise ZooError(f"to_positional: heads that are {attention.attn_dim} wide together for a width of {dim}")
    bias = cast(Tensor | None, attention.qkv.bias)
    new = PositionalAttention(dim, attention.num_heads, qkv_bias=bias is not None)
    new.proj = attention.proj
    with torch.no_grad():
        for part, rows in zip((new.q, new.k, new.v), attention.qkv.weight.chunk(3), strict=True):
            part.weight = nn.Parameter(rows.clone(), attention.qkv.weight.requires_grad)
        if bias is not None:
            new.v.bias = nn.Parameter(bias.chunk(3)[2].clone(), bias.requires_grad)
    return new


def _as_ours(vit: ViT) -> ViT:
    vit.attention, vit.groups = "positional", POSITIONAL_GROUPS
    return vit


def _left_out(names: Iterable[str], vit: nn.Module) -> list[str]:
    """The names of what has no place in the twin; of the fused bias those are the rows of q and k."""
    kept = vit.state_dict()
    left = [name for name in names if name not in kept and not name.endswith("attn.qkv.weight")]
    return [f"{name} (q and k)" if name.endswith("attn.qkv.bias") else name for name in left]


def _groups(vit: VisionTransformer) -> Groups:
    own = {
        **timm_vit_groups(),
        "attention": POSITIONAL_GROUPS["attention"],
        "value": POSITIONAL_GROUPS["value"],
    }
    del own["positions"]
    return {group: [f"vit.{pattern}" for pattern in patterns] for group, patterns in own.items()}
