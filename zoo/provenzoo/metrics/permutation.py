"""Whether a vision transformer is blind to the order of its patches (Jelassi et al. 2022, Section 6)."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from provenzoo.draws import cell_permutation

IMAGES = 100
"""How many of the set are looked at."""


def permutation_gap(model: Any, inputs: Tensor, *, cell: int, draw: int) -> Tensor:
    """The greatest change of a logit when cells of `cell` pixels and the rows of P are permuted alike: one number.

    `model` is a VisionTransformer of timm or of ours, whose patch divides the cell; `inputs` are images
    `[N, C, H, W]`, of which the first 100 are taken.
    """
    images = inputs[:IMAGES]
    patch, prefix = model.patch_embed.patch_size[0], model.num_prefix_tokens
    pixels = cell_permutation(images.shape[-1], cell, draw).to(images.device)
    patches = cell_permutation(images.shape[-1] // patch, cell // patch, draw).to(images.device)
    twin = copy.deepcopy(model)
    twin.pos_embed = nn.Parameter(torch.cat([model.pos_embed[:, :prefix], model.pos_embed[:, prefix:][:, patches]], 1))
    moved = images.flatten(2)[..., pixels].view_as(images)
    return (twin(moved) - model(images)).abs().max()
