"""`import provenzoo.timm` gives timm the positional ViT, so that timm builds and loads what we publish.

    import provenzoo.timm
    timm.create_model("hf-hub:user/repo", pretrained=True)

A ViT with vanilla attention needs no import: timm has it.
"""

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from provenzoo.hub.timm_fields import POSITIONAL
from provenzoo.models.vit import ViT

__all__ = ["provenzoo_positional_vit"]

default_cfgs = generate_default_cfgs({POSITIONAL: {"first_conv": "patch_embed.proj", "classifier": "head"}})


class _PositionalViT(ViT):
    """Our positional ViT under timm's names of the arguments."""

    def __init__(
        self,
        *,
        img_size: int | tuple[int, int] = 28,
        patch_size: int = 4,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 64,
        depth: int = 4,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        global_pool: str = "avg",
        class_token: bool = False,
        **unused: Any,
    ) -> None:
        super().__init__(
            image_size=img_size if isinstance(img_size, int) else img_size[0],
            channels=in_chans,
            num_classes=num_classes,
            patch=patch_size,
            dim=embed_dim,
            depth=depth,
            heads=num_heads,
            mlp_ratio=mlp_ratio,
            pool="token" if class_token else "mean",
            qkv_bias=qkv_bias,
            attention="positional",
        )


@register_model
def provenzoo_positional_vit(pretrained: bool = False, **kwargs: Any) -> ViT:
    """A ViT whose attention depends on positions alone (Jelassi, Sander, Li 2022, Definition 3.2)."""
    return build_model_with_cfg(_PositionalViT, POSITIONAL, pretrained, **kwargs)
