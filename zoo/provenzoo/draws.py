"""Seeded draws: every random number is a pure function of (seed, purpose, index).

Nothing depends on a global generator or on what was drawn before, so feeds and orders need no saved state.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.errors import ZooError
from provenzoo.settings import Settings


class Permute(Settings):
    """One fixed permutation of the `cell` x `cell` pixel cells of an image (Jelassi et al. 2022, Sec. 6)."""

    cell: Annotated[int, Field(ge=1)]
    draw: Annotated[int, Field(ge=0)] = 0


def derive(seed: int, purpose: str, *index: int) -> int:
    """A seed of 63 bits for one purpose."""
    key = ":".join([str(seed), purpose, *map(str, index)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, purpose: str, *index: int, device: str | torch.device = "cpu") -> torch.Generator:
    """A fresh generator for one purpose."""
    return torch.Generator(device).manual_seed(derive(seed, purpose, *index))


@contextmanager
def seeded(seed: int, purpose: str, *index: int) -> Iterator[None]:
    """Inside, torch's global generators start from the seed of this purpose; afterwards they are as they were.

    They are those of the CPU and of the current CUDA device.
    """
    number, cuda = derive(seed, purpose, *index), torch.cuda.is_available()
    with torch.random.fork_rng([torch.cuda.current_device()] if cuda else []):
        torch.default_generator.manual_seed(number)
        if cuda:
            torch.cuda.manual_seed(number)
        yield


def cell_permutation(side: int, cell: int, draw: int) -> Tensor:
    """`[side * side]` int64: pixel `i` of the permuted image is pixel `out[i]` of the original.

    The permutation of the cells depends on their number and `draw` alone, not on a seed: it belongs to the distribution
    that a set is drawn from. A side that the cell does not divide is an error.
    """
    if side % cell:
        raise ZooError(f"permute: cells of {cell} x {cell} do not tile an image of {side} x {side}")
    count = side // cell
    order = torch.randperm(count * count, generator=generator(0, "permute", count, draw), device="cpu")
    pixels = (
        torch.arange(side * side, device="cpu")
        .view(count, cell, count, cell)
        .transpose(1, 2)
        .reshape(count * count, cell, cell)
    )
    moved = pixels[order].view(count, count, cell, cell).transpose(1, 2)
    return moved.reshape(side * side)
