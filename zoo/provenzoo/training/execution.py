"""How a training is computed, apart from what it trains on what: a recipe's `precision` and `ema`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from provenzoo.training import precision
from provenzoo.training.precision import PrecisionName


@dataclass(frozen=True)
class Execution:
    """How the steps of a training are computed."""

    precision: PrecisionName = "float32"
    ema: float | None = None
    """The decay of a moving average of the weights, which is what is measured and saved."""

    def plain(self) -> dict[str, Any]:
        """What a checkpoint's config tells of it: the precision, and else what is not by default."""
        return {"precision": self.precision} | ({"ema": self.ema} if self.ema else {})

    def check(self, model: nn.Module, device: torch.device, stacked: bool) -> None:
        """A UsageError where the device, or a model of stacked replicas, cannot be trained so."""
        precision.check(self.precision, device, stacked)


PLAIN = Execution()
"""In float32, as PyTorch does it by itself."""
