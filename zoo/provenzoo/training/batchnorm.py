"""BatchNorm over the rows of all processes, so that a step is that of one process on the whole batch.

torch's own SyncBatchNorm works on GPUs alone.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from provenzoo.errors import ZooError
from provenzoo.training import parallel


class _Sum(torch.autograd.Function):
    """The sum over processes. Every process's loss depends on it, so its gradient is summed too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return _summed(tensor)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        return _summed(outer[0])


def _summed(tensor: Tensor) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    with parallel.together():
        dist.all_reduce(total)
    return total


class OverAllRows:
    """A model's BatchNorm, in training mode, over the rows of all processes, inside.

    `counts` is whether this process's rows are rows of the batch at all (`parallel.own_rows`). A BatchNorm with a
    forward of its own, which this cannot take the place of, is a ZooError.
    """

    def __init__(self, model: nn.Module) -> None:
        self.counts = True
        self._norms = [m for m in model.modules() if isinstance(m, _BatchNorm)] if parallel.world() > 1 else []
        for norm in self._norms:
            if type(norm).forward is not _BatchNorm.forward:
                raise ZooError(
                    f"{type(norm).__name__} takes its statistics over the rows of one process alone; "
                    "train this model in one process"
                )

    def __enter__(self) -> None:
        for norm in self._norms:
            norm.forward = torch.compiler.disable(partial(self._forward, norm))  # pyright: ignore[reportAttributeAccessIssue]  # an untyped wrapper

    def __exit__(self, *exception: object) -> None:
        for norm in self._norms:
            del norm.forward

    def _forward(self, norm: _BatchNorm, input: Tensor) -> Tensor:
        """`[B, C, ...]`, this process's rows, to the same."""
        if not norm.training:
            return _BatchNorm.forward(norm, input)
        dims, shape = [0, *range(2, input.dim())], [1, -1, *[1] * (input.dim() - 2)]
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        own = wide.new_full((1,), input.numel() // input.shape[1])
        counted = float(self.counts)
        count = _summed(own * counted)
        mean = _Sum.apply(wide.sum(dims) * counted) / count  # pyright: ignore[reportOptionalOperand]
        centred = wide - mean.view(shape)
        variance = _Sum.apply(centred.square().sum(dims) * counted) / count  # pyright: ignore[reportOptionalOperand]
        _follow(norm, mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        out = centred * (variance + norm.eps).rsqrt().view(shape)
        if norm.affine:
            out = out * norm.weight.view(shape) + norm.bias.view(shape)
        return out.to(input.dtype)


@torch.no_grad()
def _follow(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics as torch does."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    rate = 1 / norm.num_batches_tracked.item() if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.to(norm.running_mean), rate)
    norm.running_var.lerp_(variance.to(norm.running_var), rate)
