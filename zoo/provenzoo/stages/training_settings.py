"""The settings of the stages that train, and what can be said of them before anything is built."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from provenzoo import components, registry
from provenzoo.datasets.base import Dataset
from provenzoo.errors import UsageError
from provenzoo.metrics.measure import is_vector
from provenzoo.models.base import groups_of
from provenzoo.plain import did_you_mean
from provenzoo.settings import Settings
from provenzoo.stages.evaluate import SetNode
from provenzoo.training import population
from provenzoo.training.execution import Execution
from provenzoo.training.mixing import Mixing
from provenzoo.training.optim import Optim
from provenzoo.training.precision import PrecisionName

Positive = Annotated[int, Field(ge=1, le=10**9)]


class Train(Settings):
    """Settings that both kinds of training stage have."""

    model: dict[str, Any]
    data: dict[str, Any]
    optim: Optim = Optim()
    loss: str | None = None
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    mixup: Annotated[float, Field(ge=0, le=100)] = 0.0
    """The alpha of mixup's shares, Beta(alpha, alpha); with `cutmix` too, each example draws one of the two."""
    cutmix: Annotated[float, Field(ge=0, le=100)] = 0.0
    """That of cutmix's, of images (training/mixing.py)."""
    steps: Positive | None = None
    epochs: Positive | None = None
    batch: Positive = 64
    accumulate: Positive = 1
    """Micro-batches that each batch is split into, to need less memory; their gradients add up to the batch's.

    BatchNorm's statistics, however, are those of a micro-batch, and its running ones move once for each.
    """
    dtype: Literal["float32", "float64"] = "float32"
    precision: PrecisionName = "float32"
    """That of the passes forward and backward; weights, losses and what is measured stay float32."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The decay of an exponential moving average of the weights (buffers are copied).

    The averages are what is measured, saved as the checkpoint and so evaluated; the losses are those of the weights.
    """
    compile: bool = False
    """torch.compile in the steps alone; the checkpoint's names and what is measured are those without it."""
    channels_last: bool = False
    """Convolutions over images as `[B, H, W, C]` in memory, in the steps alone."""
    metrics: Annotated[list[str], Field(min_length=1)]
    log_every: Positive | None = None
    """Steps between two measurements on the held-out split; by default a tenth of the stage."""
    seeds: Annotated[int, Field(ge=1, le=10_000)] | None = None
    sets: dict[str, SetNode] = {}
    """Overlays of `data`: other held-out splits on which the metrics are measured as training goes on."""

    @model_validator(mode="after")
    def _one_length(self) -> "Train":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("either `steps` or `epochs` is needed, not both")
        if self.accumulate > self.batch:
            raise ValueError(f"`accumulate` ({self.accumulate}) is more than `batch` ({self.batch}); give at most that")
        if self.precision != "float32" and self.dtype != "float32":
            raise ValueError(
                f"`precision: {self.precision}` is of float32, not of `dtype: {self.dtype}`; give one alone"
            )
        return self

    @property
    def execution(self) -> Execution:
        """How the steps are computed."""
        return Execution(self.precision, self.ema, self.compile, self.channels_last)


class Pretrain(Train):
    """Settings of a pretrain stage: a model drawn anew."""

    stage: Literal["pretrain"]
    population: bool = False
    """Exact gradient descent on the population loss in the place of batches (training/population.py)."""


class Finetune(Train):
    """Settings of a finetune stage: `reset` groups are drawn anew, `freeze` groups stay as they are, to the bit."""

    stage: Literal["finetune"]
    from_: Annotated[str, Field(alias="from")]
    reset: list[str] = []
    freeze: list[str] = []


def check(settings: Train, where: str) -> None:
    """What is wrong with the names, arguments, groups and metrics, before anything runs."""
    model = components.check("models", settings.model, f"{where}.model")
    if getattr(model.builder, "only_evaluated", False):
        raise UsageError(f"{where}.model: {model.entry.name} is for `evaluate`; write `from: CHECKPOINT` to train on")
    components.check("datasets", settings.data, f"{where}.data")
    for label, node in settings.sets.items():
        components.check("datasets", node.data, f"{where}.sets.{label}.data")
        if node.model != settings.model:
            raise UsageError(f"{where}.sets.{label}: a stage that trains has one model; overlay `data` alone")
    if getattr(settings, "population", False):
        if settings.accumulate > 1:
            raise UsageError(f"{where}.accumulate: `population: true` has no batches to split; leave it out")
        if settings.mixup or settings.cutmix:
            key = "mixup" if settings.mixup else "cutmix"
            raise UsageError(f"{where}.{key}: `population: true` has no batches to mix; leave it out")
        if settings.compile:
            raise UsageError(f"{where}.compile: `population: true` has no forward pass to compile; leave it out")
        population.check(settings, where)
    for name in settings.metrics:
        if name != "loss":
            registry.entry("metrics", name)
    if settings.loss:
        registry.entry("metrics", settings.loss)
    groups = list(groups_of(model.builder, model.args))
    named = {"optim.groups": list(settings.optim.groups)}
    if isinstance(settings, Finetune):
        named |= {"reset": settings.reset, "freeze": settings.freeze}
    for key, wanted in named.items():
        for group in wanted:
            if groups and group not in groups and not any(mark in group for mark in "*.?["):
                known = f"; the groups of {model.entry.name} are: {', '.join(groups)}"
                raise UsageError(f"{where}.{key}: no group {group!r}{did_you_mean(group, groups) or known}")
    if groups and set(named.get("freeze", ())) >= set(groups):
        raise UsageError(f"{where}.freeze: everything is frozen, so there is nothing to train")


def mixing(settings: Train, data: Dataset, loss: str) -> Mixing:
    """How the examples of a batch are mixed; a UsageError where they or the loss cannot be."""
    key, shapes = "cutmix" if settings.cutmix else "mixup", data.shapes
    if loss != "cross-entropy" or "num_classes" not in shapes:
        raise UsageError(f"{key}: mixes classes, for the loss cross-entropy; leave it out with {loss}")
    if settings.cutmix and "image_size" not in shapes:
        raise UsageError("cutmix: cuts boxes out of images, which this data has none of; take `mixup` alone")
    return Mixing(settings.mixup, settings.cutmix, shapes["num_classes"], data.structure.get("pixel_permutation"))


def expected(settings: Train, mentioned: set[int]) -> list[tuple[str, str, int | None]]:
    """The numbers that the stage will give. With `epochs`, the steps are known only once the data is read."""
    steps = logged_steps(settings.steps, settings.log_every) if settings.steps else sorted({0} | mentioned)
    scalars = [name for name in settings.metrics if not is_vector(name)]
    labels = ["", *settings.sets]
    rows: list[tuple[str, str, int | None]] = [
        (label, name, step) for label in labels for name in scalars for step in [*steps, None]
    ]
    if getattr(settings, "freeze", None):
        rows.append(("", "frozen-unchanged", None))
    return rows


def log_interval(steps: int, log_every: int | None) -> int:
    """The steps between two measurements; a tenth of the stage where nothing is written."""
    return log_every or math.ceil(steps / 10)


def logged_steps(steps: int, log_every: int | None) -> list[int]:
    """0, every `log_every` steps, and the end."""
    return sorted({*range(0, steps, log_interval(steps, log_every)), steps})


def alike(settings: Train) -> Train | None:
    """What settings have in common with those that may train at once with them, which is all but the learning rate.

    None where the rate is more than a factor of a step, or where replicas cannot be stacked.
    """
    if not settings.optim.rate_is_a_factor or settings.precision == "fp16" or settings.channels_last:
        return None
    return settings.model_copy(update={"optim": settings.optim.model_copy(update={"lr": 1.0})})
