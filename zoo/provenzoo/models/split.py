"""Fused parameters cut into named parts while they train, and merged when they are saved.

timm keeps q, k and v in one `qkv` whose rows `[3C, C]` are q, k, v in turn. To freeze q and k, or to give
them a learning rate of their own, they must be a parameter of their own: a gradient mask would let weight
decay move them. Checkpoints hold the fused names alone.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from provenzoo.errors import ZooError
from provenzoo.models.base import model_split

_PART = re.compile(r"(?P<module>.*)\.parametrizations\.(?P<tensor>\w+)\.original(?P<part>\d+)")


class Rows(nn.Module):
    """A tensor as the parts of its rows, in the given proportions; joining them is exact."""

    def __init__(self, proportions: tuple[int, ...]) -> None:
        super().__init__()
        self.proportions = proportions

    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts)

    def right_inverse(self, whole: Tensor) -> tuple[Tensor, ...]:
        unit = len(whole) // sum(self.proportions)
        return tuple(part.clone() for part in whole.split([unit * share for share in self.proportions]))


def split_fused(model: nn.Module) -> None:
    """Cut every fused parameter of a model into its parts, in place, unless that was done.

    `blocks.0.attn.qkv.weight` becomes `blocks.0.attn.qkv.parametrizations.weight.original0` (q and k, `[2C,
    C]`) and `...original1` (v, `[C, C]`), which the groups `attention` and `value` name.
    """
    for name, module in list(model.named_modules()):
        for pattern, proportions in model_split(model).items():
            if fnmatchcase(name, pattern) and not parametrize.is_parametrized(module):
                for tensor in [tensor for tensor, _ in module.named_parameters(recurse=False)]:
                    parametrize.register_parametrization(module, tensor, Rows(proportions))


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of a model, split or not, under the names of the unsplit one."""
    parts: dict[str, list[Tensor]] = {}
    for name, tensor in model.state_dict().items():
        parts.setdefault(_whole(name), []).append(tensor)
    return {name: found[0] if len(found) == 1 else torch.cat(found) for name, found in parts.items()}


def load_merged(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state under unsplit names into a model, split or not; all names and shapes must agree."""
    _check(merged_state(model), state)
    model.load_state_dict(split_state(model, state))


def assign_merged(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Make the tensors of a state an unsplit model's own, type and all, without a copy; what is tied stays tied."""
    _check(model.state_dict(), state)
    modules = dict(model.named_modules(remove_duplicate=False))
    made: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # of each that was seen, kept alive, what takes its place
    for name, tensor in state.items():
        path, _, key = name.rpartition(".")
        old = getattr(modules[path], key)
        if isinstance(old, nn.Parameter):
            if id(old) not in made:
                new = nn.Parameter(tensor, requires_grad=old.requires_grad)
                made |= {id(old): (old, new), id(new): (new, new)}
            modules[path].register_parameter(key, made[id(old)][1])
        else:
            modules[path].register_buffer(key, tensor)


def split_state(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state under unsplit names as the names that the model has now; what the state lacks is left out."""
    own: dict[str, Tensor] = {}
    taken: dict[str, int] = {}
    for name, tensor in model.state_dict().items():
        whole = _whole(name)
        if whole not in state:
            continue
        start = taken.get(whole, 0)
        own[name] = state[whole] if whole == name else state[whole][start : start + len(tensor)]
        taken[whole] = start + (0 if whole == name else len(tensor))
    return own


def _whole(name: str) -> str:
    """The unsplit name of a parameter or of a part of one."""
    part = _PART.fullmatch(name)
    return f"{part['module']}.{part['tensor']}" if part else name


def _check(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    shapes = [
        f"{name} {list(state[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in state and state[name].shape != tensor.shape
    ]
    kinds = [
        f"{name} {_type(state[name])}, not {_type(tensor)}"
        for name, tensor in expected.items()
        if name in state and state[name].is_floating_point() != tensor.is_floating_point()
    ]
    faults = {
        "missing": [name for name in expected if name not in state],
        "unknown": [name for name in state if name not in expected],
        "of another shape": shapes,
        "of another kind of number": kinds,
    }
    if any(faults.values()):
        told = "; ".join(f"{fault}: {_few(names)}" for fault, names in faults.items() if names)
        raise ZooError(f"the weights do not fit the model: {told}")


def _type(tensor: Tensor) -> str:
    """The type of a tensor's numbers, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")


def _few(names: Iterable[str], most: int = 4) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
