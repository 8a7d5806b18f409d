"""Corruptions of images in [0, 1] with torchvision, after Hendrycks & Dietterich (arXiv:1903.12261).

| name       | parameter                     | severity 1 |   2 |   3 |   4 |   5 | taken from         |
|------------|-------------------------------|-----------:|----:|----:|----:|----:|--------------------|
| noise      | `sigma`, of white noise       |        .08 | .12 | .18 | .26 | .38 | ImageNet-C         |
| blur       | `sigma`, in pixels            |         .5 |   1 | 1.5 |   2 |   3 | ours, for 28 x 28  |
| brightness | `factor` on every value       |         .8 | .65 |  .5 | .35 |  .2 | ours: it gets dark |
| contrast   | `factor` about an image's mean|        .75 |  .5 |  .4 |  .3 | .15 | CIFAR-10-C         |
| inversion  | `amount` of 1 - x mixed in    |         .2 |  .4 |  .6 |  .8 |   1 | ours               |
| jpeg       | `quality`, 1 to 100           |         25 |  18 |  15 |  10 |   7 | ImageNet-C         |

Results are clipped to [0, 1].
"""

import math
import warnings
from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor
from torchvision.transforms.v2 import functional as vision

from provenzoo.draws import seeded
from provenzoo.settings import Settings

STRENGTHS: dict[str, tuple[str, tuple[float, ...]]] = {
    "noise": ("sigma", (0.08, 0.12, 0.18, 0.26, 0.38)),
    "blur": ("sigma", (0.5, 1.0, 1.5, 2.0, 3.0)),
    "brightness": ("factor", (0.8, 0.65, 0.5, 0.35, 0.2)),
    "contrast": ("factor", (0.75, 0.5, 0.4, 0.3, 0.15)),
    "inversion": ("amount", (0.2, 0.4, 0.6, 0.8, 1.0)),
    "jpeg": ("quality", (25, 18, 15, 10, 7)),
}


class Corrupt(Settings):
    """One corruption, as strong as `severity` or its own parameter says; `inversion` alone is a whole one."""

    name: Literal["noise", "blur", "brightness", "contrast", "inversion", "jpeg"]
    severity: Annotated[int, Field(ge=1, le=5)] | None = None
    sigma: Annotated[float, Field(gt=0)] | None = None
    factor: Annotated[float, Field(ge=0, le=1e6)] | None = None
    amount: Annotated[float, Field(ge=0, le=1)] | None = None
    quality: Annotated[int, Field(ge=1, le=100)] | None = None

    @model_validator(mode="after")
    def _one_strength(self) -> "Corrupt":
        own = STRENGTHS[self.name][0]
        given = [key for key in type(self).model_fields if key != "name" and getattr(self, key) is not None]
        for key in given:
            if key not in ("severity", own):
                raise ValueError(f"{self.name} has no {key!r}; it takes 'severity' or {own!r}")
        if len(given) == 2:
            raise ValueError(f"{self.name} takes 'severity' or {own!r}, not both")
        if not given and self.name != "inversion":
            raise ValueError(f"{self.name} needs 'severity' (1 to 5) or {own!r}")
        return self

    @property
    def strength(self) -> float:
        """The value of the corruption's own parameter."""
        own, table = STRENGTHS[self.name]
        if self.severity is not None:
            return table[self.severity - 1]
        value = getattr(self, own)
        return 1.0 if value is None else value


def apply(images: Tensor, how: Corrupt, seed: int, split: int) -> Tensor:
    """Corrupted images, `[N, C, H, W]` in [0, 1]; draws by (seed, "corrupt", split).

    An image's draw depends on its place in the split, not on how many follow it.
    """
    strength = how.strength
    match how.name:
        case "noise":
            return _noise(images, strength, seed, split)
        case "blur":
            radius = min(math.ceil(3 * strength), min(images.shape[-2:]) - 1)
            return vision.gaussian_blur(images, [2 * radius + 1] * 2, [float(strength)] * 2)
        case "brightness":
            return vision.adjust_brightness(images, strength)
        case "contrast":
            return vision.adjust_contrast(images, strength)
        case "inversion":
            return images.lerp(vision.invert(images), strength)
        case "jpeg":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torchvision 0.29, of its own JPEG codec
                return vision.jpeg((images * 255).round().byte(), int(strength)).float() / 255


def _noise(images: Tensor, sigma: float, seed: int, split: int) -> Tensor:
    """White noise, drawn for 16 images at a time: torch fills normals in blocks of 16 values."""
    padded = F.pad(images, (0, 0) * 3 + (0, -len(images) % 16))
    with seeded(seed, "corrupt", split):
        return vision.gaussian_noise(padded, sigma=sigma)[: len(images)]
