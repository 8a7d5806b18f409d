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
from provenzoo.models.split import load_merged
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
    load_merged(model, state, assign=True)
    if _is_whole(model):
        return model
    model = build_drawn(builder, args, state, seed, where)
    load_merged(model, state, assign=True)
    return model


def build_empty(
    builder: Callable[..., nn.Module], args: Mapping[str, Any], state: Mapping[str, Tensor], where: str
) -> nn.Module:
    """The module on the meta device, or drawn where its builder cannot do without numbers."""
    check_integers(args, state, where)
    try:
        with bounded(len(state), where), torch.device("meta"), _Undrawn():
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


_DRAWING = {
    f"{name}_"
    for name in [
        "normal",
        "uniform",
        "trunc_normal",
        "bernoulli",
        "fill",
        "zero",
        "zeros",
        "ones",
        "constant",
        "erfinv",
    ]
}
_DRAWING |= {f"{name}_" for name in ["mul", "add", "sub", "div", "clamp", "copy", "kaiming_uniform", "kaiming_normal"]}
_DRAWING |= {f"{name}_" for name in ["xavier_uniform", "xavier_normal", "orthogonal"]}


class _Undrawn(TorchFunctionMode):
    """Inside, what would only change the numbers of a tensor on the meta device, which has none, is left out."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _DRAWING and args and isinstance(args[0], Tensor) and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


def _is_whole(model: nn.Module) -> bool:
    """Whether nothing of a filled model is left on the meta device."""
    return not any(t.is_meta for tensors in (model.parameters(), model.buffers()) for t in tensors)
