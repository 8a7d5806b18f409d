"""The activations of the teacher-student theory: piecewise linear, with slope 1 at zero.

Zhang, Zhao, Gu, Cao, "Transformers trained via gradient descent can provably learn a class of teacher models", start
from W_V = 0, where every preactivation is zero. PyTorch's `relu` has slope 0 there and would never learn.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

Activation = Literal["identity", "relu", "leaky-relu"]
Leak = Annotated[float, Field(ge=0, le=1)]


def slope_of(activation: Activation, leak: float) -> float:
    """The slope below zero: 1 for the identity, 0 for ReLU, `leak` for Leaky ReLU."""
    return {"identity": 1.0, "relu": 0.0, "leaky-relu": leak}[activation]


def activate(z: Tensor, slope: float | Tensor) -> Tensor:
    """`z` where z >= 0 and `slope * z` elsewhere, elementwise."""
    if isinstance(slope, float) and slope == 1.0:
        return z
    return torch.where(z >= 0, z, slope * z)


def activation_slope(z: Tensor, slope: float) -> Tensor:
    """The derivative of `activate`: 1 where z >= 0 and `slope` elsewhere."""
    return torch.where(z >= 0, 1.0, slope).to(z.dtype)
