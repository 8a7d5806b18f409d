"""Replicas: the seeds of a stage that one loop trains, alone or several at once."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from provenzoo import checkpoint
from provenzoo.models.split import merged_state

AT_ONCE = 1_000_000
"""Parameters times batch up to which seeds train at once (see `at_once_pays`)."""


def at_once_pays(model_class: type, parameters: int, batch: int) -> bool:
    """Whether replicas of these sizes train faster at once than one after another.

    It pays while a step's time is mostly overhead: where one replica's parameters times the batch are at
    most 10^6. Measured on one CPU thread (`mlp`, AdamW, CPU time of R steps alone over a step of R at once):

        parameters x batch    R = 3         R = 10
        2e4 .. 2e5            1.9 .. 2.4    4.9 .. 6.2
        3e5 .. 7e5            1.7 .. 2.5    2.3 .. 4.4
        1e6 .. 4e6            0.7 .. 1.5    0.5 .. 1.8
        above 5e6             0.6 .. 1.4    0.8 .. 1.6

    The rule knows sizes only, so that a resumed run groups its seeds as the first did.
    """
    return getattr(model_class, "replicable", False) and parameters * batch <= AT_ONCE


class Replicas:
    """One model a seed, and the `module` that trains: the model itself, or all of them stacked.

    One seed alone has no replica axis, which would cost 10-16 %. Several are one module whose parameters and
    buffers are `[R, ...]`; its class must be `replicable`. The models are taken over.
    """

    def __init__(self, models: Sequence[nn.Module], seeds: Sequence[int]) -> None:
        self.seeds = tuple(seeds)
        self.stacked = len(self.seeds) > 1
        self.module = _stack(models) if self.stacked else models[0]
        self._models = list(models)

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.module.parameters()).device

    def states(self) -> list[dict[str, Tensor]]:
        """The state dict of each seed under unsplit names, without a replica axis."""
        state = merged_state(self.module)
        return [checkpoint.pick(state, r) for r in range(len(self))] if self.stacked else [state]

    def singles(self) -> list[nn.Module]:
        """A model for each seed, without a replica axis, with its parameters as they are now."""
        if self.stacked:
            for model, state in zip(self._models, self.states(), strict=True):
                model.load_state_dict(state)
        return self._models

    def broken(self) -> dict[int, str]:
        """Replica -> its first parameter that is not finite, for those that have one."""
        names, parameters = zip(*self.module.named_parameters(), strict=True)
        each = [p.detach() if self.stacked else p.detach().unsqueeze(0) for p in parameters]
        finite = torch.stack([rows(tensor).isfinite().all(1) for tensor in each], 1).tolist()
        return {r: names[flags.index(False)] for r, flags in enumerate(finite) if not all(flags)}


def rows(tensor: Tensor) -> Tensor:
    """A replica a row: `[R, ...] -> [R, n]`, where n is 1 for `[R]`."""
    return tensor.unsqueeze(-1).flatten(1)


def _stack(models: Sequence[nn.Module]) -> nn.Module:
    """One module with the parameters and buffers of all; tied ones stay tied."""
    stacked = copy.deepcopy(models[0])
    made: dict[int, nn.Parameter] = {}
    for name, tensor in checkpoint.stack([model.state_dict() for model in models]).items():
        path, _, leaf = name.rpartition(".")
        owner = stacked.get_submodule(path)
        old = getattr(owner, leaf)
        if isinstance(old, nn.Parameter):
            tensor = made.setdefault(id(tensor), nn.Parameter(tensor, requires_grad=old.requires_grad))
        setattr(owner, leaf, tensor)
    return stacked
