"""Whether positional encodings know which patches are neighbours (after Jelassi et al. 2022, Figure 1).

Encodings are centred over the tokens and compared by cosine. In each row the similarities to the other tokens
are ranked from 0 (least) to 1 (most alike, ties share their mean rank), and the ranks of the tokens that
touch, corners included, are averaged: 1/2 for encodings that know nothing of the grid. The z score sets that
mean rank against those of the same encodings with the tokens relabelled at random.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from provenzoo.draws import generator
from provenzoo.errors import ZooError

RELABELLINGS = 500


def encodings_locality_rank(positional_encodings: Tensor) -> Tensor:
    """Mean rank of the neighbours in [0, 1]: encodings of a square grid `[..., N, C] -> [...]`, float64.

    NaN where the encodings are not finite. A grid below 3 x 3, where all tokens touch, is a ZooError.
    """
    return _means(positional_encodings, torch.arange(positional_encodings.shape[-2]).unsqueeze(0)).squeeze(-1)


def encodings_locality(positional_encodings: Tensor) -> Tensor:
    """z score of the mean rank against 500 relabellings of the tokens: `[..., N, C] -> [...]`.

    The relabellings are always the same. NaN where the encodings are not finite or all alike.
    """
    tokens = positional_encodings.shape[-2]
    draws = torch.rand(RELABELLINGS, tokens, generator=generator(0, "locality", tokens))
    null = _means(positional_encodings, draws.argsort(-1))
    return (encodings_locality_rank(positional_encodings) - null.mean(-1)) / null.std(-1)


def encodings_locality_unpermuted(positional_encodings: Tensor, pixel_permutation: Tensor) -> Tensor:
    """The z score with the encodings put back where their patches are in the natural image (Figure 5c).

    Encodings `[..., N, C]` of a model of permuted images; `pixel_permutation` `[H * W]` is the images' (pixel i is
    pixel `[i]` of the natural one). A patch that holds pixels of several patches of the natural image is a ZooError.
    """
    return encodings_locality(unpermuted(positional_encodings, pixel_permutation))


def unpermuted(encodings: Tensor, pixel_permutation: Tensor) -> Tensor:
    """Encodings `[..., N, C]` of the tokens of permuted images in the order of the natural image's patches."""
    side, grid = math.isqrt(len(pixel_permutation)), math.isqrt(encodings.shape[-2])
    patch = side // grid
    pixels = torch.arange(side * side, device=pixel_permutation.device)
    of_pixel = pixels // side // patch * grid + pixels % side // patch
    rows = of_pixel[pixel_permutation].view(grid, patch, grid, patch).transpose(1, 2).reshape(grid * grid, -1)
    if (rows != rows[:, :1]).any():
        raise ZooError(f"the permutation cuts patches of {patch} x {patch}; no patch is one of the natural image")
    return encodings[..., rows[:, 0].argsort(), :]


def _means(encodings: Tensor, labels: Tensor) -> Tensor:
    """Mean rank of the neighbours under each relabelling `[D, N]`: `[..., N, C] -> [..., D]`."""
    tokens = encodings.shape[-2]
    first, second = neighbours(tokens)
    pairs = labels[:, first] * tokens + labels[:, second]
    means = _ranks(encodings.double()).flatten(-2)[..., pairs.to(encodings.device)].mean(-1)
    finite = encodings.isfinite().all(-1).all(-1)
    return means.masked_fill(~finite.unsqueeze(-1), math.nan)


def neighbours(tokens: int) -> tuple[Tensor, Tensor]:
    """The ordered pairs of tokens of a square grid, row by row, at Chebyshev distance 1."""
    side = math.isqrt(tokens)
    if side * side != tokens or side < 3:
        raise ZooError(f"{tokens} tokens are no square grid of 3 x 3 or more")
    place = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    distance = (place.unsqueeze(1) - place).abs().amax(-1)
    first, second = (distance == 1).nonzero(as_tuple=True)
    return first, second


def _ranks(encodings: Tensor) -> Tensor:
    """Rank in [0, 1] of each token's likeness to each other: `[..., N, C] -> [..., N, N]`, diagonal 0."""
    unit = F.normalize(encodings - encodings.mean(-2, keepdim=True), dim=-1)
    similar = unit @ unit.mT
    tokens = similar.shape[-1]
    others = ~torch.eye(tokens, dtype=torch.bool, device=similar.device)
    values = similar[..., others].unflatten(-1, (tokens, tokens - 1)).contiguous()
    ordered = values.sort(-1).values
    below = torch.searchsorted(ordered, values)
    up_to = torch.searchsorted(ordered, values, right=True)
    ranks = torch.zeros_like(similar)
    ranks[..., others] = ((below + up_to - 1).double() / (2 * (tokens - 2))).flatten(-2)
    return ranks
