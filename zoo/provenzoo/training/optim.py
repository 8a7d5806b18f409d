"""Optimisers and schedules by name, with a learning rate and a weight decay for each parameter group of a model."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from provenzoo.errors import ZooError
from provenzoo.models.base import members
from provenzoo.plain import did_you_mean
from provenzoo.settings import Settings, read

LearningRate = Annotated[float, Field(gt=0, le=1e30)]
Decay = Annotated[float, Field(ge=0, le=1e30)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Schedule(Settings):
    """The factor on every learning rate: linear warm-up, then constant or a cosine down to `floor`."""

    name: Literal["constant", "cosine"] = "constant"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the steps."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0

    def factor(self, step: int, steps: int) -> float:
        """The factor at a step of so many; a pure function, so that resuming needs no state."""
        warm = round(self.warmup * steps)
        if step < warm:
            return (step + 1) / warm
        if self.name == "constant":
            return 1.0
        done = (step - warm) / max(1, steps - warm)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done))


class Group(Settings):
    """What a model's parameter group has of its own."""

    lr: LearningRate | None = None
    weight_decay: Decay | None = None


class Optim(Settings):
    """What every optimiser has. Weight decay leaves vectors (biases, norms) alone unless `decay_vectors`."""

    lr: LearningRate
    weight_decay: Decay = 0.0
    decay_vectors: bool = False
    groups: dict[str, Group] = {}
    schedule: Schedule = Schedule()
    clip: Annotated[float, Field(gt=0)] | None = None
    """Largest norm of a replica's gradient."""

    kind: ClassVar[type[torch.optim.Optimizer]]

    def arguments(self) -> dict[str, Any]:
        """The optimiser's own arguments beside the rates."""
        return {}

    def build(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimiser over parameter groups; fused, which is faster and on one device as deterministic."""
        return self.kind(groups, lr=self.lr, fused=True, **self.arguments())  # pyright: ignore[reportCallIssue]


class AdamW(Optim):
    """Adam with decoupled weight decay (Loshchilov, Hutter 2019, arXiv:1711.05101)."""

    name: Literal["adamw"] = "adamw"
    lr: LearningRate = 1e-3
    weight_decay: Decay = 0.01
    betas: Annotated[list[Beta], Field(min_length=2, max_length=2)] = [0.9, 0.999]
    eps: Annotated[float, Field(gt=0)] = 1e-8

    kind: ClassVar[type[torch.optim.Optimizer]] = torch.optim.AdamW

    def arguments(self) -> dict[str, Any]:
        return {"betas": tuple(self.betas), "eps": self.eps}


class Adam(AdamW):
    """Adam (Kingma, Ba 2015, arXiv:1412.6980); its weight decay is added to the gradient."""

    name: Literal["adam"] = "adam"  # pyright: ignore[reportIncompatibleVariableOverride]  # the name is what differs
    weight_decay: Decay = 0.0

    kind: ClassVar[type[torch.optim.Optimizer]] = torch.optim.Adam


class SGD(Optim):
    """Gradient descent on batches, with momentum."""

    name: Literal["sgd"] = "sgd"
    lr: LearningRate = 0.1
    momentum: Beta = 0.0
    nesterov: bool = False

    kind: ClassVar[type[torch.optim.Optimizer]] = torch.optim.SGD

    def arguments(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "nesterov": self.nesterov}


OPTIMISERS: dict[str, type[Optim]] = {"adamw": AdamW, "adam": Adam, "sgd": SGD}


def read_optim(node: Mapping[str, Any], where: str) -> Optim:
    """The settings of a recipe's `optim:` node; AdamW where no name is given."""
    name = node.get("name", "adamw")
    if name not in OPTIMISERS:
        raise ZooError(f"{where}: no optimiser {name!r}{did_you_mean(str(name), OPTIMISERS)}")
    return read(OPTIMISERS[name], node, where)


def parameter_groups(model: nn.Module, optim: Optim, replicated: bool = False) -> list[dict[str, Any]]:
    """torch's parameter groups of the trainable parameters: one for each pair of rate and decay."""
    own: dict[str, Group] = {}
    for group, settings in optim.groups.items():
        own |= dict.fromkeys(members(model, group), settings)
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            settings = own.get(name, Group())
            lr = optim.lr if settings.lr is None else settings.lr
            decay = optim.weight_decay if settings.weight_decay is None else settings.weight_decay
            vector = parameter.dim() - replicated < 2 and not optim.decay_vectors
            found.setdefault((lr, 0.0 if vector else decay), []).append(parameter)
    return [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in found.items()]


def optimiser_state(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's tensors by parameter name: `exp_avg/<name>` and so on."""
    return {
        f"{key}/{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put tensors from `optimiser_state` back."""
    parameters = dict(model.named_parameters())
    for path, value in state.items():
        key, _, name = path.partition("/")
        parameter = parameters[name]
        like = value if key == "step" else value.to(parameter.device)
        optimiser.state[parameter][key] = like.clone()


def clip_gradients(parameters: list[nn.Parameter], limit: float, replicated: bool) -> None:
    """Scale each replica's gradient to a norm of at most `limit`."""
    if not replicated:
        nn.utils.clip_grad_norm_(parameters, limit)
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    scale = (limit / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
