"""Exponential moving averages of a training's weights (Polyak and Juditsky 1992, doi:10.1137/0330046)."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from provenzoo.models.split import load_merged, merged_state


class Averages:
    """The moving averages of what trains: `a <- decay a + (1 - decay) w` after each step, from the first weights on.

    Frozen parameters have none, and buffers (BatchNorm's running statistics) are the model's own. Stacked replicas are
    averaged each alone, as the average is elementwise.
    """

    def __init__(self, decay: float, module: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        self.module = module
        self.parameters: list[Tensor] = list(parameters)
        self.averages = [parameter.detach().clone() for parameter in self.parameters]
        self._update = get_ema_multi_avg_fn(decay)

    def update(self) -> None:
        """Move towards the weights as they are after a step."""
        self._update(self.averages, self.parameters, None)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model has the averages for its weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        """Exchange weights and averages, by copies, which caches of what depends on a weight see."""
        with torch.no_grad():
            for parameter, average in zip(self.parameters, self.averages, strict=True):
                held = parameter.clone()
                parameter.copy_(average)
                average.copy_(held)

    def state(self) -> dict[str, Tensor]:
        """The state dict of the model with the averages for its weights, under unsplit names."""
        with self.in_place():
            return {name: tensor.detach().clone() for name, tensor in merged_state(self.module).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from the averages of a state; the model's own weights are loaded after it."""
        load_merged(self.module, state)
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            average.copy_(parameter.detach())
