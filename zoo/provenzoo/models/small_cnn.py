"""A small residual network, the convolutional counterpart of the small ViTs.

Basic blocks of He et al. 2016 (arXiv:1512.03385); the shortcut of a block that halves the image is a strided
3 x 3 convolution, which sees every pixel.
"""

from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from provenzoo.models.base import Count, Groups, Model


class SmallCNN(Model, nn.Module):
    """Three basic blocks of 8, 16 and 32 channels: 24,930 parameters at one channel and 10 classes."""

    groups: Groups = {"features": ["stem.*", "blocks.*"], "head": ["head.*"]}
    refits: ClassVar[tuple[str, ...]] = ("num_classes",)
    widths: ClassVar[tuple[int, ...]] = (8, 16, 32)

    def __init__(self, *, channels: Count, num_classes: Count) -> None:
        super().__init__()
        first = self.widths[0]
        self.stem = _convolution(channels, first)
        blocks = [BasicBlock(first, first)]
        blocks += [BasicBlock(a, b, stride=2) for a, b in pairwise(self.widths)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(self.widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images `[B, channels, H, W]` of any size -> logits `[B, num_classes]`."""
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, stride)
        self.second = _convolution(outputs, outputs)
        changes = inputs != outputs or stride != 1
        self.shortcut = _convolution(inputs, outputs, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs))
