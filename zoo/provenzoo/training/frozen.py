"""What a training must leave as it was, compared bit for bit."""

import torch
from torch import Tensor, nn

from provenzoo import checkpoint


class Still:
    """Frozen parameters and the buffers of modules that are frozen whole, to compare bit for bit."""

    def __init__(self, model: nn.Module, parameters: list[str]) -> None:
        self.model, self.parameters = model, parameters
        held = set(parameters)
        buffers: dict[str, None] = {}
        for path, module in model.named_modules():
            at = f"{path}." if path else ""
            own = {at + name for name, _ in module.named_parameters()}
            if own and own <= held:
                buffers |= dict.fromkeys(at + name for name, _ in module.named_buffers())
        self.names = [*parameters, *buffers]
        self.before = self._bits()

    def _bits(self) -> dict[str, Tensor]:
        tensors = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return {name: checkpoint.bits(tensors[name]).clone() for name in self.names}

    def unchanged(self) -> bool:
        """Whether every bit is as it was at the start."""
        return all(torch.equal(bits, self.before[name]) for name, bits in self._bits().items())
