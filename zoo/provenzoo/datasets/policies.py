"""AutoAugment (Cubuk et al. 2018, arXiv:1805.09501) for whole batches, on any device.

The policies are torchvision's, the operations its functions. Each image draws its own part of the policy, whether each
of the two operations is done, and its sign; images that drew the same change are changed together.
"""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor
from torchvision.transforms import AutoAugment, AutoAugmentPolicy
from torchvision.transforms.v2 import functional as vision

Policy = Literal["cifar10", "imagenet", "svhn"]

LEVELS = 9
"""Magnitudes are whole numbers from 0 to this."""


def _affine(images: Tensor, x: float = 0.0, y: float = 0.0, shear: tuple[float, float] = (0.0, 0.0)) -> Tensor:
    centre = [0.0, 0.0] if any(shear) else None
    degrees = [math.degrees(math.atan(part)) for part in shear]
    return vision.affine(images, 0.0, [int(x), int(y)], 1.0, degrees, center=centre)


SIGNED: dict[str, tuple[float, Callable[[Tensor, float], Tensor]]] = {
    "ShearX": (0.3, lambda images, m: _affine(images, shear=(m, 0.0))),
    "ShearY": (0.3, lambda images, m: _affine(images, shear=(0.0, m))),
    "TranslateX": (150 / 331, lambda images, m: _affine(images, x=m * images.shape[-1])),
    "TranslateY": (150 / 331, lambda images, m: _affine(images, y=m * images.shape[-2])),
    "Rotate": (30.0, vision.rotate),
    "Brightness": (0.9, lambda images, m: vision.adjust_brightness(images, 1 + m)),
    "Color": (0.9, lambda images, m: vision.adjust_saturation(images, 1 + m)),
    "Contrast": (0.9, lambda images, m: vision.adjust_contrast(images, 1 + m)),
    "Sharpness": (0.9, lambda images, m: vision.adjust_sharpness(images, 1 + m)),
}
"""Operations of either sign, with their greatest magnitude."""
UNSIGNED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "Posterize": lambda images, level: vision.posterize(images, round(8 - level * 4 / LEVELS)),
    "Solarize": lambda images, level: vision.solarize(images, 255 * (1 - level / LEVELS)),
    "AutoContrast": lambda images, _: vision.autocontrast(images),
    "Equalize": lambda images, _: vision.equalize(images),
    "Invert": lambda images, _: vision.invert(images),
}


def change(images: Tensor, name: str, level: int, negative: bool) -> Tensor:
    """Images `[n, 3, H, W]` uint8 after one operation at a level of 0 to 9, in the negative direction if it has two."""
    if name in UNSIGNED:
        return UNSIGNED[name](images, level)
    most, operation = SIGNED[name]
    return operation(images, most * level / LEVELS * (-1 if negative else 1))


class OnPixels:
    """Changes of the pixels of images, uint8 or behind normalised ones.

    Of permuted ones (`permutation` `[H * W]`) the natural image behind is changed. `mean` and `std` `[C, 1, 1]` are
    those that normalised the images.
    """

    def __init__(self, mean: Tensor, std: Tensor, permutation: Tensor | None = None) -> None:
        self.mean, self.std = mean, std
        self.permutation = permutation

    def __call__(self, images: Tensor, draws: torch.Generator) -> Tensor:
        """A changed copy of a batch `[B, C, H, W]`."""
        if images.dtype == torch.uint8:
            return self._changed(images.clone(), draws)
        mean, std = self.mean.to(images), self.std.to(images)
        pixels = images.mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).byte()
        return self._changed(pixels, draws).to(images.dtype).div_(255).sub_(mean).div_(std)

    def _changed(self, pixels: Tensor, draws: torch.Generator) -> Tensor:
        """Images `[B, C, H, W]` uint8, changed in place or anew."""
        if self.permutation is not None:
            pixels = moved(pixels, self.permutation.argsort())
        pixels = self.changed(pixels, draws)
        return pixels if self.permutation is None else moved(pixels, self.permutation)

    def changed(self, pixels: Tensor, draws: torch.Generator) -> Tensor:
        """Pixels `[B, C, H, W]` uint8, which may be written into, after the change."""
        raise NotImplementedError


class AutoAugmenter(OnPixels):
    """A policy for whole batches."""

    def __init__(self, policy: Policy, mean: Tensor, std: Tensor, permutation: Tensor | None = None) -> None:
        super().__init__(mean, std, permutation)
        self.parts = AutoAugment(AutoAugmentPolicy(policy)).policies

    def changed(self, pixels: Tensor, draws: torch.Generator) -> Tensor:
        for (name, level, negative), places in self._drawn(len(pixels), draws):
            chosen = torch.tensor(places, device=pixels.device)
            pixels[chosen] = change(pixels[chosen], name, level, negative)
        return pixels

    def _drawn(self, batch: int, draws: torch.Generator) -> Iterator[tuple[tuple[str, int, bool], list[int]]]:
        """Each operation that images drew, with the places of those images; the first ones, then the second."""
        part = torch.randint(len(self.parts), (batch,), generator=draws, device=draws.device).tolist()
        done, sign = torch.rand(2, 2, batch, generator=draws, device=draws.device).tolist()
        for turn in range(2):
            groups: dict[tuple[str, int, bool], list[int]] = {}
            for place in range(batch):
                name, probability, level = self.parts[part[place]][turn]
                if done[turn][place] <= probability:
                    negative = name in SIGNED and sign[turn][place] < 0.5
                    groups.setdefault((name, level or 0, negative), []).append(place)
            yield from groups.items()


def moved(images: Tensor, permutation: Tensor) -> Tensor:
    """Images `[B, C, H, W]` whose pixel i is pixel `permutation[i]` of those given."""
    return images.flatten(2)[..., permutation.to(images.device)].view_as(images)
