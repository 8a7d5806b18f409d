"""How a training is computed, apart from what it trains on what: `precision`, `ema`, `compile`, `channels_last`."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from provenzoo.errors import UsageError, ZooError
from provenzoo.training import precision
from provenzoo.training.precision import PrecisionName

BACKEND = "inductor"
"""What torch.compile compiles with."""

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Execution:
    """How the steps of a training are computed; what is measured and saved is neither compiled nor channels last."""

    precision: PrecisionName = "float32"
    ema: float | None = None
    """The decay of a moving average of the weights, which is what is measured and saved."""
    compile: bool = False
    channels_last: bool = False

    def plain(self) -> dict[str, Any]:
        """What a checkpoint's config tells of it: the precision, and else what is not by default."""
        more = {"ema": self.ema, "compile": self.compile, "channels_last": self.channels_last}
        return {"precision": self.precision} | {name: value for name, value in more.items() if value}

    def check(self, model: nn.Module, device: torch.device, stacked: bool) -> None:
        """A UsageError where the device, or a model of stacked replicas, cannot be trained so."""
        precision.check(self.precision, device, stacked)
        if self.channels_last and stacked:
            raise UsageError("channels_last: replicas of so small a model train at once, as `[R, ...]`; leave it out")
        if self.channels_last and not any(isinstance(module, nn.Conv2d) for module in model.modules()):
            raise UsageError(f"channels_last: {type(model).__name__} has no convolution over images; leave it out")

    def forward(self, model: nn.Module) -> Forward:
        """What computes the model's outputs in a step. The model itself, and the names in it, stay as they are."""
        forward = _compiled(model) if self.compile else model
        if not self.channels_last:
            return forward
        return lambda inputs: forward(inputs.contiguous(memory_format=torch.channels_last))

    def lay_out(self, model: nn.Module) -> None:
        """Bring the model's weights into the layout in which it trains."""
        if self.channels_last:
            _lay_out(model, torch.channels_last)

    def put_back(self, model: nn.Module) -> None:
        """Bring them back into the layout in which it is measured and saved."""
        if self.channels_last:
            _lay_out(model, torch.contiguous_format)

    @contextlib.contextmanager
    def as_saved(self, model: nn.Module) -> Iterator[None]:
        """Inside, the weights lie as they do where a checkpoint is evaluated: kernels go by it, and so do last bits."""
        self.put_back(model)
        try:
            yield
        finally:
            self.lay_out(model)


PLAIN = Execution()
"""In float32, as PyTorch does it by itself."""


def _compiled(model: nn.Module) -> Forward:
    """The model by torch.compile, a graph for each batch size.

    One that is for all sizes is made only once a second one was seen, so that a resumed training might have other bits.

    What was compiled for an earlier training goes first: dynamo counts versions by code, not by model, and after eight
    it runs the rest as it stands.
    """
    from torch._dynamo.exc import TorchDynamoException  # 1 s, which only those pay who compile

    torch.compiler.reset()
    forward = torch.compile(model, dynamic=False, backend=BACKEND)

    def call(inputs: Tensor) -> Tensor:
        try:
            return forward(inputs)
        except TorchDynamoException as error:
            why = str(error).partition("\n")[0]
            raise ZooError(f"compile: torch cannot compile the model here ({why}); leave it out") from error

    return call


def _lay_out(model: nn.Module, layout: torch.memory_format) -> None:
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.dim() == 4:
            tensor.data = tensor.data.clone(memory_format=layout)
