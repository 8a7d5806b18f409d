"""Checkpoints as teachers: a kept ground truth, the first layer of a trained CNN, or any registered model."""

from typing import Any

import torch
from pydantic_core import to_jsonable_python
from torch import Tensor, nn

from provenzoo import components
from provenzoo.draws import seeded
from provenzoo.errors import ZooError
from provenzoo.fetch import Checkpoint
from provenzoo.models.bilinear import Bilinear
from provenzoo.models.load import restore
from provenzoo.models.pooled_cnn import PooledCNN
from provenzoo.plain import canonical, did_you_mean
from provenzoo.settings import bind, parameters
from provenzoo.teachers.base import BilinearTeacher, Teacher


class FirstLayer(BilinearTeacher):
    """The convolution and average pooling of a trained `pooled-cnn` (Sec. 4.2), with the activation that follows it.

    `from` names the stage or checkpoint that trained it; `layer` is the convolution's name in it.
    """

    def __init__(self, *, checkpoint: Checkpoint | None = None, seed: int = 0, layer: str = "conv") -> None:
        if checkpoint is None:
            raise ZooError("first-layer: `from` is needed: the stage or checkpoint that trained the network")
        network = restore(checkpoint, seed)
        if not isinstance(network, PooledCNN) or layer != "conv":
            name = checkpoint.config["model"]["name"]
            raise ZooError(f"first-layer: {checkpoint.reference} ({name}) has no pooled convolution {layer!r}")
        truth = network.named_tensors()
        super().__init__(truth["value"], truth["attention"], network.activation, network.leak)
        self.law += (checkpoint.config["digest"],)


class Saved(BilinearTeacher):
    """A teacher whose ground truth was kept as a checkpoint of the model `bilinear`; `from` names it."""

    def __init__(self, *, checkpoint: Checkpoint | None = None, seed: int = 0) -> None:
        if checkpoint is None:
            raise ZooError("bilinear: `from` is needed: the checkpoint that holds the teacher")
        model = restore(checkpoint, seed)
        if not isinstance(model, Bilinear):
            raise ZooError(f"bilinear: {checkpoint.reference} holds a {checkpoint.config['model']['name']}, no teacher")
        super().__init__(model.value.detach(), model.attention.detach(), model.activation, model.leak)
        self.law += (checkpoint.config["digest"],)


class Network(Teacher):
    """A registered model as teacher: its outputs, or those of its submodule `layer`.

    Its weights are those that `from` names, or fresh ones of `model: {name: ..., argument: ...}`, drawn by (seed,
    "teacher"). Its ground truth is not known.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        checkpoint: Checkpoint | None = None,
        model: dict[str, Any] | None = None,
        layer: str | None = None,
    ) -> None:
        if (checkpoint is None) == (model is None):
            raise ZooError("network: either `from` (a stage or checkpoint) or `model` is needed, not both")
        if checkpoint is not None:
            self.network, known = restore(checkpoint, seed), checkpoint.config["digest"]
        else:
            bound = components.check("models", model, "network.model")
            self.network, known = _fresh(bound, seed), _spelled(bound)
        self.network.eval().requires_grad_(False)
        self.layer, self.name = _submodule(self.network, layer or ""), layer
        self.law = (known, layer or "")

    def __call__(self, inputs: Tensor) -> Tensor:
        held: list[Any] = []
        with torch.no_grad(), self.layer.register_forward_hook(lambda *call: held.append(call[-1])):
            try:
                self.network(inputs)
            except (RuntimeError, ValueError, IndexError, AssertionError) as error:
                reason = str(error).partition("\n")[0]
                raise ZooError(f"network: it takes no inputs of shape {list(inputs.shape[1:])}: {reason}") from error
        if len(held) != 1 or not isinstance(held[0], Tensor):
            given = f"is called {len(held)} times" if len(held) != 1 else f"gives a {type(held[0]).__name__}"
            raise ZooError(
                f"network: the layer {self.name!r} {given}, where one tensor is needed; name another `layer`"
            )
        return held[0]


def _fresh(bound: components.Bound, seed: int) -> nn.Module:
    with seeded(seed, "teacher"):
        return bound.build(seed=seed)


def _spelled(bound: components.Bound) -> str:
    """A model's builder and all of its arguments, defaults too: one text however a recipe spells the model."""
    builder = getattr(bound.builder, "func", bound.builder)  # of a partial, which holds a library's own name
    own = getattr(bound.builder, "args", ())
    defaults = {name: p.default for name, p in parameters(bound.builder).items() if p.default is not p.empty}
    args = {**defaults, **bind(bound.builder, bound.args, bound.where, partial=True)}
    return canonical([f"{builder.__module__}:{builder.__qualname__}", *own, to_jsonable_python(args)])


def _submodule(network: nn.Module, name: str) -> nn.Module:
    known = dict(network.named_modules())
    if name not in known:
        raise ZooError(f"network: no layer {name!r}{did_you_mean(name, [inner for inner in known if inner])}")
    return known[name]
