"""One run over several processes, as `torchrun` and `accelerate launch` start them: data parallel.

Every process does the same at the same time, each on its rows of every batch; gradients are summed, so that a step is
that of one process on the whole batch, up to rounding. Process 0 alone reads and writes the run folder, and decides
when to stop. Within one process every function here does nothing.
"""

import atexit
import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from provenzoo.errors import UsageError, ZooError

T = TypeVar("T")
PATIENCE = timedelta(hours=2)
"""How long processes wait for one another, such as for process 0 that writes a report."""

_rank, _world = 0, 1
_told: Any = None  # the group in which process 0 tells: of CPU tensors, whatever the gradients are on


def wanted() -> int:
    """How many processes torchrun or accelerate started; 1 without them."""
    count = os.environ.get("WORLD_SIZE", "1")
    return int(count) if count.isdecimal() and "RANK" in os.environ else 1


def world() -> int:
    """How many processes the run has."""
    return _world


def leads() -> bool:
    """Whether this is the process that reads and writes the run folder."""
    return _rank == 0


def own_number() -> tuple[int, ...]:
    """What tells this process's draws from those of the first: its number, and nothing in the first."""
    return (_rank,) if _rank else ()


def speaks() -> bool:
    """Whether this process prints what all would print, also before they joined and after."""
    return wanted() == 1 or os.environ["RANK"] == "0"


def only_one(what: str) -> None:
    """A UsageError for what cannot be done by several processes."""
    if wanted() > 1:
        raise UsageError(f"torchrun is for one run of one recipe; start {what} without it")


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Inside, the processes that were started with this one are one run."""
    global _rank, _world
    if wanted() == 1 or _world > 1:
        yield
        return
    _take_device(device)
    _meet(device)
    _rank, _world = dist.get_rank(), dist.get_world_size()
    try:
        yield
    finally:
        _rank, _world = 0, 1


def _meet(device: torch.device) -> None:
    """Make the groups, unless they were made before; they last as long as the process."""
    global _told
    if _told is not None:
        return
    try:
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
            atexit.register(_part)
        _told = dist.new_group(backend="gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise ZooError(f"the processes of this run did not find one another: {str(error).splitlines()[0]}") from None


def _part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _take_device(device: torch.device) -> None:
    """Make `cuda` this process's own GPU."""
    if device.type == "mps":
        raise UsageError("device: mps is one device, which several processes cannot share; take device=cpu")
    if device.type == "cuda":
        place, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= there:
            raise UsageError(f"this machine has {there} GPUs for more processes; start at most {there} on it")
        torch.cuda.set_device(place)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Inside, processes wait for one another; a ZooError where another is gone."""
    try:
        yield
    except RuntimeError as error:
        raise ZooError(
            f"process {_rank}: another process of this run ended, for what it said itself; run again to go on"
        ) from error


# --- what process 0 tells -----------------------------------------------------------------------------------------


def share(value: T) -> T:
    """Process 0's value, in every process."""
    if _world == 1:
        return value
    held = [value if _rank == 0 else None]
    with together():
        dist.broadcast_object_list(held, src=0, group=_told)
    return held[0]  # pyright: ignore[reportReturnType]  # process 0's


def agreed(flag: bool) -> bool:
    """Process 0's flag, in every process; much faster than `share`."""
    if _world == 1:
        return flag
    held = torch.tensor([flag], dtype=torch.uint8)
    with together():
        dist.broadcast(held, src=0, group=_told)
    return bool(held.item())


def same_start(module: nn.Module) -> None:
    """Give every process the parameters and buffers of process 0."""
    if _world > 1:
        with together(), torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                held = tensor.contiguous()
                dist.broadcast(held, src=0)
                tensor.copy_(held)


# --- rows of a batch ----------------------------------------------------------------------------------------------


def own_rows(size: int) -> tuple[slice, float]:
    """This process's rows of a batch of `size`, and their share of it.

    Where there are fewer rows than processes, those left without take the first row, and it counts nothing.
    """
    base, more = divmod(size, _world)
    start = _rank * base + min(_rank, more)
    count = base + (_rank < more)
    return (slice(start, start + count), count / size) if count else (slice(0, 1), 0.0)


def of_all(rows: Tensor, size: int, axis: int = 0) -> Tensor:
    """Every process's `own_rows` along an axis, in their order: `size` rows, without a gradient."""
    if _world == 1:
        return rows
    shape = list(rows.shape)
    shape[axis] = size
    whole = rows.new_zeros(shape)
    own, part = own_rows(size)
    if part:
        whole.narrow(axis, own.start, own.stop - own.start).copy_(rows.detach())
    with together():
        dist.all_reduce(whole)
    return whole


def in_turns(batches: int) -> slice:
    """Which of so many batches this process takes: its own of those that are dealt out, or all if they are too few."""
    return slice(_rank, None, _world) if 1 < _world <= batches else slice(None)


def dealt(outputs: Sequence[Tensor], size: int, batch: int) -> Tensor:
    """The outputs `[size, ...]` of all batches of `batch` items, of which this process has those of `in_turns`."""
    if in_turns(-(-size // batch)) == slice(None):
        return torch.cat(list(outputs))
    whole = outputs[0].new_zeros(size, *outputs[0].shape[1:])
    for part, rows in zip(outputs, whole.split(batch)[_rank::_world], strict=True):
        rows.copy_(part)
    with together():
        dist.all_reduce(whole)
    return whole


# --- gradients ----------------------------------------------------------------------------------------------------


class GradientSum:
    """The gradients of the whole batch from those of each process's rows.

    They go as one tensor once the backward pass is done. A parameter that no process has a gradient of keeps none.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._used: list[bool] | None = None

    def __call__(self, loss: Tensor) -> Tensor:
        """Set the gradients, and give the loss `[...]`, of the whole batch: sums of each process's weighted ones."""
        if _world == 1:
            return loss
        if self._used is None:
            self._used = self._used_by_any(loss.device)
        used = [p for p, has in zip(self._parameters, self._used, strict=True) if has]
        if stray := [p for p, has in zip(self._parameters, self._used, strict=True) if p.grad is not None and not has]:
            raise ZooError(f"a parameter {list(stray[0].shape)} has no gradient in some steps; train in one process")
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in used]
        flat = torch.cat([piece.reshape(-1) for piece in [*pieces, loss.detach().to(pieces[0].dtype)]])
        with together():
            dist.all_reduce(flat)
        *sums, total = flat.split([*(piece.numel() for piece in pieces), loss.numel()])
        for parameter, piece, summed in zip(used, pieces, sums, strict=True):
            parameter.grad = piece.copy_(summed.view(piece.shape))
        return total.view(loss.shape)

    def _used_by_any(self, device: torch.device) -> list[bool]:
        has = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.float32, device=device)
        with together():
            dist.all_reduce(has)
        return [count > 0 for count in has.tolist()]
