"""The precision of a training's forward and backward passes: float32, TF32, bfloat16 or float16.

Parameters, gradients, the optimiser and its state, outputs and losses are float32 throughout; so is what is measured.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from provenzoo.errors import UsageError, ZooError
from provenzoo.metrics.measure import tf32

PrecisionName = Literal["float32", "tf32", "bf16", "fp16"]

LEAST_SCALE = 1e-4
"""The factor of a loss below which fp16 has given up; it starts at 65,536, and a skipped step halves it."""


def check(name: PrecisionName, device: torch.device, stacked: bool) -> None:
    """A UsageError where the device has no such precision, or where replicas trained at once cannot share it."""
    if name == "fp16" and stacked:
        raise UsageError(
            "precision: fp16 scales one loss, and replicas of so small a model train at once; write bf16 or float32"
        )
    if name == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)):
        raise UsageError(f"precision: tf32 is of CUDA devices from 8.0 (Ampere) on, not of {device}; write float32")
    if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UsageError(f"precision: {torch.cuda.get_device_name(device)} has no bf16; write fp16 or float32")


class Precision:
    """How the passes of one training are computed; `scale` and what belongs to it are of fp16 alone.

    In fp16 the loss is multiplied by a scale, so that small gradients do not vanish, and the gradients are divided by
    it again. A step whose gradients are not finite changes nothing but the scale, which it halves; 2,000 steps without
    one double it (Micikevicius et al. 2018, arXiv:1710.03740; torch.amp.GradScaler).
    """

    def __init__(self, name: PrecisionName, device: torch.device) -> None:
        self.name, self.device = name, device
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self._scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None
        self._scale = self._scaler.get_scale() if self._scaler else 1.0
        self.skipped = 0
        """Steps whose gradients were not finite."""

    @contextlib.contextmanager
    def set(self) -> Iterator[None]:
        """Inside, CUDA's products and convolutions are in TF32 if that is the precision, and else are not."""
        with tf32(self.name == "tf32", self.device):
            yield

    def outputs(self, model: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """What a model gives, in float32 where torch.autocast lowers what is on the way to it."""
        if self._dtype is None:
            return model(inputs)
        with torch.autocast(self.device.type, self._dtype):
            return model(inputs).float()

    def scaled(self, loss: Tensor) -> Tensor:
        """What to go backward from."""
        return self._scaler.scale(loss) if self._scaler else loss

    def unscale(self, optimiser: torch.optim.Optimizer) -> None:
        """Make the gradients the loss's own."""
        if self._scaler:
            self._scaler.unscale_(optimiser)

    def step(self, optimiser: torch.optim.Optimizer) -> None:
        """A step of the optimiser, or none where the gradients, before they were clipped, were not finite."""
        if self._scaler is None:
            optimiser.step()
            return
        # left to skip by itself, torch's fused SGD takes a momentum that was never set for its first
        optimiser._step_supports_amp_scaling = False  # pyright: ignore[reportAttributeAccessIssue]
        self._scaler.step(optimiser)
        self._scaler.update()
        before, self._scale = self._scale, self._scaler.get_scale()
        self.skipped += self._scale < before

    def check(self) -> None:
        """A ZooError where the scale has become so small that no step will be taken any more."""
        if self._scale < LEAST_SCALE:
            raise ZooError(
                f"precision: fp16 has no finite gradients, {self.skipped} steps were skipped; write bf16 or float32"
            )

    def state(self) -> dict[str, float]:
        """What going on needs."""
        return {**self._scaler.state_dict(), "skipped": self.skipped} if self._scaler else {}

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a state."""
        if self._scaler:
            self._scaler.load_state_dict(state)
            self._scale, self.skipped = state["scale"], int(state["skipped"])
