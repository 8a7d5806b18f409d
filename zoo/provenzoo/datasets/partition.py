"""Partitions of patches into sets of one size, S_1 .. S_L (Jelassi et al. 2022, Definition 2.1)."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from provenzoo.draws import generator
from provenzoo.errors import ZooError

Partition = Literal["local", "random"] | list[list[int]]
"""`local`: square blocks of a square grid; `random`: drawn; or the sets themselves, by indices of patches."""


def make_partition(partition: Partition, patches: int, set_size: int, seed: int, draw: int) -> Tensor:
    """The sets as indices of patches, `[L, C]` int64. One that does not cover the patches is a ZooError.

    A random one is drawn by (seed, "partition", draw).
    """
    if isinstance(partition, list):
        return _given(partition, patches, set_size)
    if set_size > patches:
        raise ZooError(f"partition: sets of {set_size} patches, but there are only {patches}; lower `set_size`")
    if patches % set_size:
        raise ZooError(f"partition: sets of {set_size} do not cover {patches} patches; one must divide the other")
    if partition == "random":
        order = torch.randperm(patches, generator=generator(seed, "partition", draw))
        return order.view(-1, set_size).sort(-1).values
    return _local(patches, set_size)


def _local(patches: int, set_size: int) -> Tensor:
    side, block = math.isqrt(patches), math.isqrt(set_size)
    if side * side != patches or block * block != set_size or side % block:
        raise ZooError(
            f"partition: local sets are square blocks of a square grid; {set_size} of {patches} patches are not: "
            "use `partition: random`"
        )
    grid = torch.arange(patches).view(side // block, block, side // block, block)
    return grid.transpose(1, 2).reshape(-1, set_size)


def _given(sets: Sequence[Sequence[int]], patches: int, set_size: int) -> Tensor:
    held = sorted(patch for members in sets for patch in members)
    if held != list(range(patches)):
        missing = sorted(set(range(patches)) - set(held))
        odd = [patch for patch in held if held.count(patch) > 1 or not 0 <= patch < patches]
        fault = f"patch {missing[0]} is in none" if missing else f"patch {odd[0]} is in two sets or does not exist"
        raise ZooError(f"partition: the sets do not cover patches 0 to {patches - 1} once each ({fault})")
    if any(len(members) != set_size for members in sets):
        raise ZooError(f"partition: every set needs `set_size` patches, {set_size}")
    return torch.tensor(sets)
