"""RandAugment (Cubuk et al. 2019, arXiv:1909.13719) and random erasing (Zhong et al. 2017, arXiv:1708.04896).

The operations and the meaning of a magnitude are timm's, "increasing", as DeiT trains with (Touvron et al. 2021,
arXiv:2012.12877, Table 9: magnitude 9, spread .5). What is drawn comes from the generator of the image or batch, not
from the global ones that timm's own classes draw from, which threads would share.
"""

import math
from functools import cache
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.policies import OnPixels, moved
from provenzoo.settings import Settings

LEVELS = 10.0
"""Magnitudes are cut to [0, 10]."""
SHIFTS = {"Rotate": 30.0, "ShearX": 0.3, "ShearY": 0.3, "TranslateXRel": 0.45, "TranslateYRel": 0.45}
"""Of operations in either direction, the greatest angle in degrees, slope or share of the side."""
BLENDS = ("ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing")
OPERATIONS = (
    *("AutoContrast", "Equalize", "Invert", "PosterizeIncreasing", "SolarizeIncreasing", "SolarizeAdd"),
    *BLENDS,
    *SHIFTS,
)
ERASED = (0.02, 1 / 3)
"""The share of an image that is erased, least and most."""
LOG_RATIO = math.log(0.3)
"""The least logarithm of the ratio of an erased rectangle's sides; the most is its negative."""


class Rand(Settings):
    """RandAugment: `layers` operations in turn, each done with `probability`.

    Its magnitude, of 0 to 10, is normal about `magnitude` with a deviation of `spread`.
    """

    magnitude: Annotated[float, Field(ge=0, le=LEVELS)] = 9.0
    spread: Annotated[float, Field(ge=0, le=LEVELS)] = 0.5
    layers: Annotated[int, Field(ge=1, le=16)] = 2
    probability: Annotated[float, Field(gt=0, le=1)] = 0.5


@cache
def _timm() -> ModuleType:
    """timm's operations; only who augments so waits for its import."""
    from timm.data import auto_augment

    return auto_augment


def change(image: Image.Image, name: str, level: float, negative: bool, **how: Any) -> Image.Image:
    """An RGB image after one of `OPERATIONS` at a level of 0 to 10, in the negative direction if it has two.

    `how` are `fillcolor`, of what comes in from outside, and `resample`.
    """
    sign = -1 if negative else 1
    if name in SHIFTS:
        arguments = (sign * SHIFTS[name] * level / LEVELS,)
    elif name in BLENDS:
        arguments = (max(0.1, 1 + sign * 0.9 * level / LEVELS),)
    else:
        of_level = _timm().LEVEL_TO_ARG[name]
        arguments = of_level(level, {}) if of_level else ()
    return _timm().NAME_TO_OP[name](image, *arguments, **how)


def rand_augment(image: Image.Image, how: Rand, fill: tuple[int, ...], draws: torch.Generator) -> Image.Image:
    """An RGB image after the operations that it draws."""
    for _ in range(how.layers):
        name = OPERATIONS[int(torch.randint(len(OPERATIONS), (), generator=draws))]
        done, negative, cubic = torch.rand(3, generator=draws).tolist()
        level = how.magnitude + how.spread * torch.randn((), generator=draws).item()
        if done < how.probability:
            resample = Image.Resampling.BICUBIC if cubic < 0.5 else Image.Resampling.BILINEAR
            level = min(max(level, 0.0), LEVELS)
            image = change(image, name, level, negative < 0.5, fillcolor=fill, resample=resample)
    return image


def fill_colour(mean: Tensor) -> tuple[int, ...]:
    """The colour of `mean` `[3, 1, 1]`, on the [0, 1] scale, as 0 to 255."""
    return tuple(min(255, round(255 * value)) for value in mean.flatten().tolist())


class RandAugmenter(OnPixels):
    """RandAugment for the images of a batch, one after another on the CPU."""

    def __init__(self, how: Rand, mean: Tensor, std: Tensor, permutation: Tensor | None = None) -> None:
        super().__init__(mean, std, permutation)
        self.how, self.fill = how, fill_colour(mean)

    def changed(self, pixels: Tensor, draws: torch.Generator) -> Tensor:
        images = [Image.fromarray(array) for array in pixels.permute(0, 2, 3, 1).cpu().numpy()]
        done = [np.asarray(rand_augment(image, self.how, self.fill, draws)) for image in images]
        return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2).to(pixels.device)


def erase(image: Tensor, draws: torch.Generator) -> None:
    """Write white noise into a random rectangle of a normalised image `[C, H, W]` on the CPU, unless none fits."""
    height, width = image.shape[-2:]
    for _ in range(10):
        share, ratio, down, across = torch.rand(4, generator=draws).tolist()
        pixels = height * width * (ERASED[0] + (ERASED[1] - ERASED[0]) * share)
        stretch = math.exp(LOG_RATIO * (0.5 - ratio))  # half of log(ratio), uniform
        high, wide = round(pixels**0.5 * stretch), round(pixels**0.5 / stretch)
        if high < height and wide < width:
            top, left = int(down * (height - high + 1)), int(across * (width - wide + 1))
            image[:, top : top + high, left : left + wide] = torch.randn(len(image), high, wide, generator=draws)
            return


class Eraser:
    """Random erasing for a batch: in a share `probability` of images a rectangle, of permuted ones the natural's."""

    def __init__(self, probability: float, permutation: Tensor | None = None) -> None:
        self.probability, self.permutation = probability, permutation

    def __call__(self, images: Tensor, draws: torch.Generator) -> Tensor:
        """A changed copy of normalised images `[B, C, H, W]`."""
        chosen = torch.rand(len(images), generator=draws) < self.probability
        places = chosen.nonzero()[:, 0].tolist()
        natural = images[places].cpu()
        if self.permutation is not None:
            natural = moved(natural, self.permutation.argsort())
        for image in natural:
            erase(image, draws)
        if self.permutation is not None:
            natural = moved(natural, self.permutation)
        images = images.clone()
        images[places] = natural.to(images)
        return images
