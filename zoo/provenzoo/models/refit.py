"""A checkpoint's tensors for a model of another number of classes or another size of image."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from torch import Tensor, nn

from provenzoo.models.base import members
from provenzoo.models.split import merged_state


@dataclass
class Refitted:
    """A state that fits, what of the model stays as it was drawn, and what was resized."""

    state: dict[str, Tensor]
    anew: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)


def refit(model: nn.Module, state: Mapping[str, Tensor], changed: Iterable[str]) -> Refitted:
    """The state with its head left out where `num_classes` changed, and its encodings resized where `image_size` did.

    Tensors of another shape for another reason stay as they are, to be found by who loads them.
    """
    head = set(members(model, "head")) if "num_classes" in changed else set()
    found = Refitted(dict(state))
    for name, own in merged_state(model).items():
        if name not in state or own.shape == state[name].shape:
            continue
        if name in head:
            found.anew.append(name)
            del found.state[name]
        elif name == "pos_embed" and "image_size" in changed and _is_vit(model):
            found.state[name] = resized_encodings(model, state[name])
            found.resized.append(name)
    return found


def _is_vit(model: nn.Module) -> bool:
    """Whether a model is one of timm's `VisionTransformer` class, ours included."""
    from timm.models.vision_transformer import VisionTransformer

    return isinstance(model, VisionTransformer)


def resized_encodings(model: nn.Module, encodings: Tensor) -> Tensor:
    """Positional encodings `[1, N, C]` of another square grid, by timm's bicubic rule; those of prefix tokens stay."""
    from timm.layers.pos_embed import resample_abs_pos_embed
    from timm.models.vision_transformer import VisionTransformer

    vit = cast(VisionTransformer, model)
    prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
    size = cast(tuple[int, int], vit.patch_embed.grid_size)
    return resample_abs_pos_embed(encodings, new_size=list(size), num_prefix_tokens=prefix)
