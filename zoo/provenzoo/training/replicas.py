"""Replicas: one model a seed, trained alone or, stacked into one module with a leading `[R]`, at once."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from provenzoo.draws import derive
from provenzoo.errors import ZooError

AT_ONCE = 2**21
"""Parameters times batch of a replica up to which training at once pays. An MLP of 2,762 parameters at batch 256
(0.7 M) trains 3 seeds at once in 0.6 of the time that they take in turn, one of 20,000 at batch 256 (5 M) in 1.0."""


def groups_of_seeds(model: nn.Module, seeds: Sequence[int], batch: int) -> list[list[int]]:
    """Which seeds train at once: all, where the model can and its size says that it pays, else each alone."""
    size = sum(p.numel() for p in model.parameters()) * batch
    at_once = getattr(model, "replicable", False) and len(seeds) > 1 and size <= AT_ONCE
    return [list(seeds)] if at_once else [[seed] for seed in seeds]


def stacked(models: Sequence[nn.Module]) -> nn.Module:
    """One module of several of the same kind: parameters and buffers `[R, ...]`. One model stays as it is."""
    if len(models) == 1:
        return models[0]
    whole = copy.deepcopy(models[0])
    with torch.no_grad():
        for name, parameter in list(whole.named_parameters()):
            parts = [dict(model.named_parameters())[name] for model in models]
            _put(whole, name, nn.Parameter(torch.stack([p.detach() for p in parts]), parameter.requires_grad))
    return whole


def unstacked(whole: nn.Module, like: Sequence[nn.Module]) -> list[nn.Module]:
    """The models of a stacked module, written into `like`."""
    if len(like) == 1:
        return [whole]
    for index, model in enumerate(like):
        model.load_state_dict({name: tensor[index] for name, tensor in whole.state_dict().items()})
    return list(like)


def _put(module: nn.Module, path: str, parameter: nn.Parameter) -> None:
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, parameter)


def freeze(model: nn.Module, names: Sequence[str]) -> None:
    """Take parameters out of training. Freezing all is an error."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in set(names))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ZooError("everything is frozen, so there is nothing to train")


def train_mode(model: nn.Module) -> None:
    """Training mode, but for modules whose every parameter is frozen: their buffers and their dropout stay still."""
    model.train()
    for module in frozen_modules(model):
        module.eval()


def frozen_modules(model: nn.Module) -> list[nn.Module]:
    """The modules that have parameters, all of them frozen."""
    return [
        module
        for module in model.modules()
        if (parameters := list(module.parameters())) and not any(p.requires_grad for p in parameters)
    ]


def frozen_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Copies of every frozen parameter and of the buffers of frozen modules, by name."""
    held = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    still = set(frozen_modules(model))
    for path, module in model.named_modules():
        if module in still:
            held |= {f"{path}.{name}": b for name, b in module.named_buffers(recurse=False)}
    return {name: tensor.detach().clone() for name, tensor in held.items()}


def same_bits(before: dict[str, Tensor], after: dict[str, Tensor]) -> bool:
    """Whether two sets of tensors are equal bit for bit."""
    return before.keys() == after.keys() and all(
        torch.equal(_bits(tensor), _bits(after[name])) for name, tensor in before.items()
    )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def is_stochastic(model: nn.Module) -> bool:
    """Whether a forward pass in training draws random numbers (dropout, stochastic depth)."""
    rates = (getattr(module, name, 0) for module in model.modules() for name in ("p", "drop_prob"))
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def seed_step(seed: int, step: int) -> None:
    """Seed torch's global generators for one training step of a stochastic model."""
    torch.manual_seed(derive(seed, "step", step))
