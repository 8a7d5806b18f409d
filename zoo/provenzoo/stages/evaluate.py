"""`evaluate`: the metrics of a checkpoint, or of an untrained model, in and out of distribution."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from provenzoo import components, registry
from provenzoo.draws import seeded
from provenzoo.errors import ZooError
from provenzoo.metrics.measure import Measure, is_vector, loss_function, metric_functions
from provenzoo.models.base import named_tensors
from provenzoo.models.load import check_adaptable, restore
from provenzoo.settings import Settings
from provenzoo.stages.work import Ground, Measured, Outcome, Rehearsed, Work, data_for, has_parent, leave_if_told


class SetNode(Settings):
    """A set: the whole data and model nodes, as the plan resolved them."""

    data: dict[str, Any] = {}
    model: dict[str, Any] = {}


class Evaluate(Settings):
    """Settings of an evaluate stage."""

    stage: Literal["evaluate"]
    from_: Annotated[str | None, Field(alias="from")] = None
    model: dict[str, Any] = {}
    data: dict[str, Any] = {}
    sets: Annotated[dict[str, SetNode], Field(min_length=1)]
    metrics: Annotated[list[str], Field(min_length=1)]
    loss: str | None = None
    dtype: Literal["float32", "float64"] = "float32"
    seeds: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _has_a_model(self) -> "Evaluate":
        if not self.model:
            raise ValueError("`from: stage` (or `model:`, for one with nothing to train) is needed")
        return self


def check(settings: Evaluate, where: str) -> None:
    """What is wrong with the names, arguments and metrics, before anything runs."""
    for label, node in settings.sets.items():
        components.check("datasets", node.data, f"{where}.sets.{label}.data")
        components.check("models", node.model, f"{where}.sets.{label}.model")
        check_adaptable(settings.model, node.model, f"{where}.sets.{label}.model")
    for name in settings.metrics:
        if name != "loss":
            registry.entry("metrics", name)
    if settings.loss:
        registry.entry("metrics", settings.loss)


def expected(settings: Evaluate, mentioned: set[int]) -> list[tuple[str, str, int | None]]:
    """The numbers that the stage will give."""
    scalars = [name for name in settings.metrics if not is_vector(name)]
    return [(label, metric, None) for label in settings.sets for metric in scalars]


def rehearse(settings: Evaluate, ground: Ground, origin: Rehearsed | None) -> None:
    """Build every set and, where nothing was trained, the model for it; what does not fit is an error."""
    seed = ground.seeds[0]
    for label, node in settings.sets.items():
        if has_parent(node.data):
            continue
        data = data_for(node.data, origin.data if origin else None)
        shapes = components.check("datasets", data, f"sets.{label}.data").build(seed=seed).shapes
        if origin:
            check_shapes(origin.filled, shapes, label)
        elif not settings.from_:
            model = components.check("models", node.model, f"sets.{label}.model")
            model.build(seed=seed, **model.fill(shapes))


def check_shapes(filled: dict[str, int], shapes: dict[str, int], label: str) -> None:
    """Raise a ZooError where a set's shapes are not those that the model was built for."""
    for name, size in filled.items():
        if shapes.get(name, size) != size:
            raise ZooError(f"sets.{label}: the model has {name} {size}, the data {shapes[name]}")


def evaluate(settings: Evaluate, work: Work) -> Outcome:
    """Every metric of every set, seed by seed; of a single set also the model's tensors that metrics ask for."""
    rows = {label: [measure_seed(settings, label, seed, work) for seed in work.seeds] for label in settings.sets}
    sets = {label: _measured(settings, label, rows[label], work) for label in settings.sets}
    (first, *others) = rows.values()
    names = [] if others else first[0].tensors
    return Outcome(sets=sets, series={f"tensors/{n}": torch.stack([row.tensors[n] for row in first]) for n in names})


def _measured(settings: Evaluate, label: str, rows: "list[SeedRow]", work: Work) -> Measured:
    node = settings.sets[label]
    values: dict[str, list[Any]] = {name: [] for name in settings.metrics}
    for row in rows:
        for name, value in row.values.items():
            values[name].append(value)
    digests = [row.digest for row in rows]
    return Measured(node.model, rows[0].data, values, rows[0].n, digests, rows[0].loss, settings.dtype, work.seeds)


@dataclass(frozen=True)
class SeedRow:
    """One seed's numbers on one set, and the model's tensors that they are of."""

    values: dict[str, Any]
    data: dict[str, Any]
    n: int
    digest: str
    loss: str
    tensors: dict[str, Tensor]


def measure_seed(settings: Evaluate, label: str, seed: int, work: Work) -> SeedRow:
    """One seed's model on one set. Also what `verify` does again. Told to stop, it leaves before the next batch."""
    node, dtype = settings.sets[label], getattr(torch, settings.dtype)
    data = data_for(node.data, work.fetch(settings.from_).config["data"] if settings.from_ else None)
    dataset = components.check("datasets", data, "data").build(work.fetch, seed=seed)
    model, filled = _model(settings, node, dataset.shapes, seed, work)
    check_shapes(filled, dataset.shapes, label)
    loss = settings.loss or dataset.loss
    functions = metric_functions(settings.metrics, loss_function(loss))
    measure = Measure(functions, dataset, dataset.test, work.device, dtype)
    model.register_forward_pre_hook(lambda *_: leave_if_told(work))
    values = measure(model.to(work.device, dtype))
    asked = {name for wanted in measure.asked.values() for name in wanted}
    tensors = {name: tensor.cpu() for name, tensor in named_tensors(model).items() if name in asked}
    return SeedRow(values, data, len(dataset.test), dataset.test.digest, loss, tensors)


def _model(
    settings: Evaluate, node: SetNode, shapes: dict[str, int], seed: int, work: Work
) -> tuple[Any, dict[str, Any]]:
    if settings.from_:
        found = work.fetch(settings.from_)
        return restore(found, seed, node.model), found.config["filled"]
    bound = components.check("models", node.model, "model")
    filled = bound.fill(shapes)
    with seeded(seed, "init"):
        return bound.build(work.fetch, seed=seed, **filled), filled
