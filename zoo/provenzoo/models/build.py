"""A module that is about to be filled: built without drawing what the file holds, and no larger than the file.

On the meta device a module costs no memory and no draws, and a config that asks for more parameters than its file
has is found while it is built. What no file holds (buffers that are computed) is computed as ever.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from provenzoo.draws import seeded
from provenzoo.errors import ZooError
from provenzoo.models.split import assign_merged
from provenzoo.untrusted import integers


def build_filled(
    builder: Callable[..., nn.Module], args: Mapping[str, Any], state: Mapping[str, Tensor], seed: int, where: str
) -> nn.Module:
    """The module that `builder(**args)` gives with the tensors of a state, each with the bits and the type it has."""
    return fill(build_empty(builder, args, state, where), builder, args, state, seed, where)


def fill(
    model: nn.Module,
    builder: Callable[..., nn.Module],
    args: Mapping[str, Any],
    state: Mapping[str, Tensor],
    seed: int,
    where: str,
) -> nn.Module:
    """An empty module with the tensors of a state; where some of its buffers are no part of it, built once more."""
    assign_merged(model, state)
    if _is_whole(model):
        return model
    model = build_drawn(builder, args, state, seed, where)
    assign_merged(model, state)
    return model


def build_empty(
    builder: Callable[..., nn.Module], args: Mapping[str, Any], state: Mapping[str, Tensor], where: str
) -> nn.Module:
    """The module on the meta device, or drawn where its builder cannot do without numbers."""
    check_integers(args, state, where)
    try:
        with bounded(len(state), where), _Empty():
            return builder(**args)
    except ZooError:
        raise
    except Exception:  # a builder that asks for a number of a tensor that has none, in whatever way
        return build_drawn(builder, args, state, 0, where)


def build_drawn(
    builder: Callable[..., nn.Module], args: Mapping[str, Any], state: Mapping[str, Tensor], seed: int, where: str
) -> nn.Module:
    """The module drawn anew for a seed."""
    try:
        with bounded(len(state), where), seeded(seed, "init"):
            return builder(**args)
    except ZooError:
        raise
    except Exception as error:  # a library's builder, with arguments that others wrote
        words = str(error).partition("\n")[0] or type(error).__name__
        raise ZooError(f"{where}: does not build ({words})") from error


def check_integers(args: Mapping[str, Any], state: Mapping[str, Tensor], where: str) -> None:
    """An error where a whole number among plain arguments is beyond anything that the file could hold."""
    most = max(2**20, sum(tensor.numel() for tensor in state.values()))
    for path, value in integers(dict(args)):
        if abs(value) > most:
            raise ZooError(f"{where}.{path}: {value} is more than a file of {most} numbers could need; refused")


@contextmanager
def bounded(tensors: int, where: str) -> Iterator[None]:
    """Inside, this thread's modules may register about as many parameters as a file has tensors."""
    most, count, thread = 2 * tensors + 100, 0, threading.get_ident()

    def note(module: nn.Module, name: str, parameter: Any) -> None:
        nonlocal count
        count += threading.get_ident() == thread
        if count > most:
            raise ZooError(f"{where}: asks for more parameters than the file's {tensors} tensors; refused")

    handle = register_module_parameter_registration_hook(note)
    try:
        yield
    finally:
        handle.remove()


_FACTORIES = {torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full, torch.eye, torch.tensor}
_FACTORIES |= {torch.rand, torch.randn, torch.randint, torch.randperm, torch.arange, torch.linspace}
_DRAWING = {
    f"{name}_"
    for names in (
        "normal uniform trunc_normal bernoulli erfinv fill zero zeros ones constant copy mul add sub div clamp",
        "kaiming_uniform kaiming_normal xavier_uniform xavier_normal orthogonal",
    )
    for name in names.split()
}


class _Empty(TorchFunctionMode):
    """Inside, new tensors are on the meta device unless they are asked for elsewhere, and none is drawn or filled."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES:
            if kwargs.get("device") is None:
                kwargs = {**kwargs, "device": "meta"}
        elif getattr(func, "__name__", "") in _DRAWING:
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def _is_whole(model: nn.Module) -> bool:
    """Whether no buffer of a filled model, one that is no part of its state, is left on the meta device."""
    return not any(buffer.is_meta for buffer in model.buffers())
