"""Vision transformers: timm's own, and the same with attention by positions alone.

Dosovitskiy et al. 2021 (arXiv:2010.11929) as timm builds it; positional attention is Definition 3.2 of
Jelassi, Sander, Li 2022 (arXiv:2210.09221). One P (`pos_embed`) is the input embedding and the source of
every layer's scores.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor

from provenzoo.draws import Permute, cell_permutation
from provenzoo.errors import ZooError
from provenzoo.models.base import Count, Groups, Model, Rate, timm_vit_groups
from provenzoo.models.positional_attention import Kept, PositionalAttention, positional_scores

VANILLA_GROUPS = timm_vit_groups()
POSITIONAL_GROUPS = {
    "attention": ["pos_embed", "blocks.*.attn.[qk].*"],
    "value": ["blocks.*.attn.v.*", "blocks.*.attn.proj.*"],
    "embedding": ["patch_embed.*", "cls_token"],
    "mlp": VANILLA_GROUPS["mlp"],
    "head": ["head.*"],
}


class ViT(Model, VisionTransformer):
    """timm's `VisionTransformer`, with `vanilla` or `positional` attention.

    A vanilla one has timm's state dict and logits. The group `attention` is all that the scores depend on
    beside the tokens: the q and k rows of the fused qkv, or P and every W_Q and W_K of a positional one,
    whose scores therefore stay as they are when it is frozen.

    `pool` is the mean over the patches or the class token. `permute` moves the rows of P as `Permute` moves
    the cells of an image, so that permuted images give the logits of the images as they were.
    """

    groups: Groups = VANILLA_GROUPS
    adaptable: ClassVar[tuple[str, ...]] = ("permute",)
    refits: ClassVar[tuple[str, ...]] = ("num_classes", "image_size")
    split: ClassVar[dict[str, tuple[int, ...]]] = {"blocks.*.attn.qkv": (2, 1)}

    row_order: Tensor | None

    def __init__(
        self,
        *,
        image_size: Count,
        channels: Count,
        num_classes: Count,
        patch: Count = 4,
        dim: Count = 64,
        depth: Count = 4,
        heads: Count = 4,
        mlp_ratio: Annotated[float, Field(gt=0)] = 4.0,
        pool: Literal["mean", "token"] = "mean",
        attention: Literal["vanilla", "positional"] = "vanilla",
        qkv_bias: bool = True,
        drop_path: Rate = 0.0,
        weight_init: Literal["timm", "torch"] = "timm",
        permute: Permute | None = None,
    ) -> None:
        _check_sizes(image_size, patch, dim, heads)
        super().__init__(
            img_size=image_size,
            patch_size=patch,
            in_chans=channels,
            num_classes=num_classes,
            embed_dim=dim,
            depth=depth,
            num_heads=heads,
            mlp_ratio=mlp_ratio,
            global_pool="avg" if pool == "mean" else "token",
            class_token=pool == "token",
            qkv_bias=qkv_bias,
            drop_path_rate=drop_path,
            attn_layer=PositionalAttention if attention == "positional" else Attention,
        )
        if weight_init == "torch":
            self._draw_as_torch()
        self.attention = attention
        self.groups = self.groups_for({"attention": attention})
        self._kept_scores = Kept()
        order = _row_order(image_size, patch, permute, self.num_prefix_tokens) if permute else None
        self.register_buffer("row_order", order, persistent=False)

    @classmethod
    def groups_for(cls, args: Mapping[str, Any]) -> Groups:
        """The groups that the argument `attention` decides."""
        return POSITIONAL_GROUPS if args.get("attention") == "positional" else VANILLA_GROUPS

    def encodings(self) -> Tensor:
        """P, a row a token, in the order in which the tokens come `[N (+ 1 for the class token), C]`."""
        rows = cast(Tensor, self.pos_embed)[0]
        return rows if self.row_order is None else rows[self.row_order]

    def scores(self) -> Tensor:
        """The attention scores of a positional ViT `[L, H, N, N]`, which no image changes."""
        layers = [cast(PositionalAttention, block.attn) for block in self._layers()]
        sources = [weight for layer in layers for weight in (layer.q.weight, layer.k.weight)]
        return self._kept_scores.get(
            [cast(Tensor, self.pos_embed), *sources], lambda: positional_scores(self.encodings(), layers)
        )

    def forward_features(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Images `[B, channels, H, W]` -> normalised tokens `[B, N, C]`."""
        if self.attention == "vanilla":
            return super().forward_features(x, attn_mask, is_causal)
        x = self._pos_embed(self.patch_embed(x))
        for block, scores in zip(self._layers(), self.scores().unbind(), strict=True):
            x = block(x, attn_mask=scores)
        return self.norm(x)

    def named_tensors(self) -> dict[str, Tensor]:
        """`positional_encodings` `[N, C]` (patches, before `permute`), `attention_scores` if positional."""
        encodings = cast(Tensor, self.pos_embed)[0, self.num_prefix_tokens :]
        tensors = {"positional_encodings": encodings}
        if self.attention == "positional":
            tensors["attention_scores"] = self.scores()
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def _draw_as_torch(self) -> None:
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                module.reset_parameters()

    def _layers(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def _pos_embed(self, x: Tensor) -> Tensor:
        if self.row_order is None:
            return super()._pos_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return x + self.encodings()


def _row_order(image_size: int, patch: int, permute: Permute, prefix: int) -> Tensor:
    """The row of P that each token of a permuted image takes: that of the patch which was moved there."""
    if permute.cell % patch:
        raise ZooError(f"permute: cells of {permute.cell} pixels are no multiple of the patch ({patch})")
    moved = cell_permutation(image_size // patch, permute.cell // patch, permute.draw)
    return torch.cat([torch.arange(prefix, device="cpu"), moved + prefix])


def _check_sizes(image_size: int, patch: int, dim: int, heads: int) -> None:
    if image_size % patch:
        below = image_size - image_size % patch
        near = " and ".join(str(size) for size in (below, below + patch) if size)
        raise ZooError(
            f"image_size: patches of {patch} do not tile an image of {image_size}; the nearest to fit: {near}"
        )
    if dim % heads:
        raise ZooError(f"heads: {heads} heads do not divide dim {dim} evenly")
