"""Measuring: registered tensor functions resolved by the names of their parameters, on one set and one replica."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from provenzoo import registry
from provenzoo.datasets.base import Dataset, Deferred, Split, as_dtype
from provenzoo.datasets.packed import Packed
from provenzoo.errors import ZooError
from provenzoo.models.base import named_tensors
from provenzoo.training import parallel

BATCH = 500
"""Items in an evaluation batch: fixed, since the last bits of a result depend on it."""

Function = Callable[..., Tensor]

Value = float | list[float | None] | None
"""A metric's value for one replica: null where the replica was not finite.

In a list, an entry alone is null where the metric says nothing of it (a class that the set lacks).
"""


def loss_function(name: str, **settings: Any) -> Function:
    """A registered loss with settings (such as `label_smoothing`) bound; one that it does not take is an error."""
    found = registry.entry("metrics", name)
    function = found.load()
    for key in settings:
        if key not in inspect.signature(function).parameters:
            raise ZooError(f"loss: {name!r} takes no {key!r}")
    return partial(function, **found.args, **settings)


def metric_functions(names: Sequence[str], loss: Function) -> dict[str, Function]:
    """The functions of a stage's metrics; `loss` is the stage's own."""
    functions: dict[str, Function] = {}
    for name in names:
        if name == "loss":
            functions[name] = loss
        else:
            found = registry.entry("metrics", name)
            functions[name] = partial(found.load(), **found.args)
    return functions


def is_vector(name: str) -> bool:
    """Whether a metric gives several numbers a replica, so that no claim can name it."""
    return name != "loss" and registry.entry("metrics", name).vector


@contextlib.contextmanager
def tf32(wanted: bool, device: torch.device) -> Iterator[None]:
    """Inside, products and convolutions of float32 on CUDA round their factors to TF32, or do not."""
    if device.type != "cuda":
        yield
        return
    places: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = wanted
        yield
    finally:
        for place, allowed in zip(places, before, strict=True):
            place.allow_tf32 = allowed


def predict(model: nn.Module, inputs: Tensor | Packed | Deferred) -> Tensor:
    """The outputs of a model in eval mode on a whole set `[N, ...]`.

    Of several processes each takes some of the batches, whole ones, so that all have one process's outputs to the bit.
    """
    own = parallel.in_turns(math.ceil(len(inputs) / BATCH))
    with torch.inference_mode():
        batches = inputs.split(BATCH)[own] if isinstance(inputs, Tensor) else inputs.split(BATCH, own)
        return parallel.dealt([model(batch) for batch in batches], len(inputs), BATCH)


class Measure:
    """The metrics of a stage on one split of one seed's data; parameter names are resolved once."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        dataset: Dataset,
        split: Split,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.functions = functions
        self.asked = {name: _asked(function) for name, function in functions.items()}
        self.inputs = split.kept.to(device, dtype)
        if isinstance(self.inputs, Packed) and any("inputs" in asked for asked in self.asked.values()):
            self.inputs = self.inputs.whole()
        self.targets = as_dtype(split.targets, device, dtype)
        self.known: dict[str, Any] = {"inputs": self.inputs, "targets": self.targets}
        self.known |= {name: as_dtype(tensor, device, dtype) for name, tensor in split.named.items()}
        self.known |= {name: as_dtype(tensor, device, dtype) for name, tensor in dataset.structure.items()}

    def __call__(self, model: nn.Module) -> dict[str, Value]:
        """Every metric of a model (one replica). A replica whose outputs are not finite gives null."""
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            with tf32(False, self.inputs.device):
                return self._values(model)
        finally:
            for module, training in modes:
                module.training = training

    def _values(self, model: nn.Module) -> dict[str, Value]:
        everything = {name for asked in self.asked.values() for name in asked}
        own: dict[str, Tensor] = {"outputs": predict(model, self.inputs)} if "outputs" in everything else {}
        if everything - self.known.keys() - own.keys() - {"model"}:
            own |= named_tensors(model)
        broken = {name for name, tensor in own.items() if not tensor.isfinite().all()}
        known = self.known | own | {"model": model}
        return {name: self._value(name, known, broken) for name in self.functions}

    def _value(self, name: str, known: dict[str, Any], broken: set[str]) -> Value:
        """One metric; null where what it asks of the model is `broken`, that is, not finite."""
        asked = self.asked[name]
        for parameter, needed in asked.items():
            if needed and parameter not in known:
                raise ZooError(
                    f"metric {name!r} asks for {parameter!r}, which neither model nor data gives; leave it out"
                )
        if broken & asked.keys():
            return None
        arguments = {parameter: known[parameter] for parameter in asked if parameter in known}
        try:
            with torch.no_grad():
                return _finite(self.functions[name](**arguments).tolist())
        except ZooError as error:
            raise ZooError(f"metric {name!r}: {error}") from None


def _finite(value: Any) -> Any:
    """A number, or the numbers of a list, with null for each that is not finite."""
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if math.isfinite(value) else None


def _asked(function: Function) -> dict[str, bool]:
    """Parameter -> whether it is needed."""
    return {
        name: parameter.default is inspect.Parameter.empty
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or parameter.default is inspect.Parameter.empty
    }
