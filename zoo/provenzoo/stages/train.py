"""`pretrain` and `finetune`: one function. Finetune starts from a checkpoint, draws groups anew, freezes others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from provenzoo import checkpoint, components, plain
from provenzoo.datasets.base import Dataset, Split
from provenzoo.draws import seeded
from provenzoo.errors import ZooError
from provenzoo.metrics.measure import Measure, Value, loss_function, metric_functions
from provenzoo.models.base import members, model_groups, model_split, named_tensors
from provenzoo.models.split import merged_state, split_fused, split_state
from provenzoo.stages.evaluate import check_shapes
from provenzoo.stages.other_length import Change, Length, change, up_to
from provenzoo.stages.training_settings import Finetune, Pretrain, Train, log_interval, logged_steps, mixing
from provenzoo.stages.work import Ground, Measured, Outcome, Rehearsed, Stopped, Work, data_for, has_parent
from provenzoo.training import optim as optimisers
from provenzoo.training import parallel, population, runtime
from provenzoo.training.feed import AnyFeed, Repeated, make_feed
from provenzoo.training.frozen import Still
from provenzoo.training.loop import Result, freeze
from provenzoo.training.loop import train as train_loop
from provenzoo.training.mixing import MixedFeed
from provenzoo.training.replicas import Replicas, at_once_pays
from provenzoo.training.state import State

# --- before it runs -----------------------------------------------------------------------------------------------


def rehearse(settings: Pretrain | Finetune, ground: Ground, origin: Rehearsed | None) -> Rehearsed | None:
    """Build data, model and optimiser of one seed; what does not fit, or a group that is not there, is an error."""
    if has_parent(settings.data):
        return None
    seed = ground.seeds[0]
    node = data_for(settings.data, origin.data if origin else None)
    data = components.check("datasets", node, "data").build(seed=seed)
    bound = components.check("models", settings.model, "model")
    filled = bound.fill(data.shapes)
    model = bound.build(seed=seed, **filled)
    state = {name: tensor.to("meta") for name, tensor in merged_state(model).items()}
    stacked = len(ground.seeds) > 1 and _pays_at_once(model, settings)
    settings.execution.check(model, ground.device, stacked)
    split_where_named(model, settings)
    if settings.mixup or settings.cutmix:
        mixing(settings, data, settings.loss or data.loss)
    if isinstance(settings, Finetune):
        _kept_from(model, origin.state if origin else state, settings.reset)
    freeze(model, frozen_parameters(model, settings))
    optimisers.build(settings.optim, model)
    for label, part in settings.sets.items():
        if not has_parent(part.data):
            check_shapes(filled, components.check("datasets", part.data, "data").build(seed=seed).shapes, label)
    return Rehearsed(filled, state, node | data.resolved())


def split_where_named(model: nn.Module, settings: Train) -> None:
    """Split what is fused where `reset`, `freeze` or `optim.groups` names a part of it."""
    named = {*getattr(settings, "reset", []), *getattr(settings, "freeze", []), *settings.optim.groups}
    if model_split(model) and {"attention", "value"} & named:
        split_fused(model)


def frozen_parameters(model: nn.Module, settings: Train) -> list[str]:
    """The names of the parameters that `freeze` keeps as they are."""
    return [name for group in getattr(settings, "freeze", []) for name in members(model, group)]


# --- the stage ----------------------------------------------------------------------------------------------------


@dataclass
class Trained:
    """What one seed's replica leaves."""

    state: dict[str, Tensor]
    values: dict[str, Value]
    logged: dict[str, list[Value]]
    losses: Tensor
    named: dict[str, Tensor]
    named_at_start: dict[str, Tensor]
    structure: dict[str, Tensor]
    splits: dict[str, Split]
    """The held-out split of each set; that of the stage's own data at ""."""
    filled: dict[str, int]
    frozen_unchanged: bool | None
    diverged: dict[str, Any] | None
    processes: tuple[int, ...]
    skipped: int
    """Steps that fp16 left out."""
    lengths: list[Change]
    """Where it went on under another number of steps."""


def train(settings: Pretrain | Finetune, work: Work) -> Outcome:
    """Train one replica a seed, at once or in turn, and measure them on the held-out split."""
    stage = _Stage(settings, work)
    trained: list[Trained] = []
    for seeds in stage.groups_of_seeds():
        trained += _Group([stage], seeds).train()
    return stage.outcome(trained)


def at_once(settings: Pretrain | Finetune, work: Work) -> bool:
    """Whether a stage's replicas are small enough to train at once."""
    return _Stage(settings, work).trains_at_once


def train_at_once(points: Sequence[tuple[Pretrain | Finetune, Work]]) -> list[Outcome]:
    """Train stages that are `alike`, each with its learning rate and the seeds of all, in one loop."""
    stages = [_Stage(settings, work) for settings, work in points]
    seeds = list(stages[0].work.seeds)
    trained = _Group(stages, seeds).train()
    return [stage.outcome(trained[i * len(seeds) : (i + 1) * len(seeds)]) for i, stage in enumerate(stages)]


class _Stage:
    """What all groups of seeds of a stage share."""

    def __init__(self, settings: Pretrain | Finetune, work: Work) -> None:
        self.settings, self.work = settings, work
        self.model = components.check("models", settings.model, "model")
        self.origin = work.fetch(settings.from_) if isinstance(settings, Finetune) else None
        data = data_for(settings.data, self.origin.config["data"] if self.origin else None)
        self.data = components.check("datasets", data, "data")
        self.sets = {
            label: components.check("datasets", node.data, f"sets.{label}.data")
            for label, node in settings.sets.items()
        }
        self.dtype = getattr(torch, settings.dtype)
        self.reset = settings.reset if isinstance(settings, Finetune) else []
        self.freeze = settings.freeze if isinstance(settings, Finetune) else []
        self._datasets: dict[int, Dataset] = {}

    def dataset(self, seed: int) -> Dataset:
        """The data of a seed; only the last seed's is kept."""
        if seed not in self._datasets:
            self._datasets = {seed: self.build_data(seed)}
        return self._datasets[seed]

    def build_data(self, seed: int) -> Dataset:
        """The data of a seed, built anew."""
        return self.data.build(self.work.fetch, seed=seed)

    def build_sets(self, seed: int) -> dict[str, Dataset]:
        """The data of each set for a seed."""
        return {label: bound.build(self.work.fetch, seed=seed) for label, bound in self.sets.items()}

    @cached_property
    def loss_name(self) -> str:
        return self.settings.loss or self.dataset(self.work.seeds[0]).loss

    @property
    def trains_at_once(self) -> bool:
        """Whether replicas train at once."""
        model, _ = self.fresh(self.work.seeds[0])
        return _pays_at_once(model, self.settings)

    def groups_of_seeds(self) -> list[list[int]]:
        """Which seeds train at once."""
        return [list(self.work.seeds)] if self.trains_at_once else [[seed] for seed in self.work.seeds]

    def fresh(self, seed: int) -> tuple[nn.Module, dict[str, int]]:
        """A model drawn anew for a seed, and the arguments that the data filled in."""
        filled = self.model.fill(self.dataset(seed).shapes)
        with seeded(seed, "init"):
            return self.model.build(self.work.fetch, seed=seed, **filled), filled

    def starting(self, seed: int) -> tuple[nn.Module, dict[str, int]]:
        """The model that training starts from: fresh, or the checkpoint's with the `reset` groups fresh."""
        model, filled = self.fresh(seed)
        split_where_named(model, self.settings)
        if self.origin is not None:
            kept = _kept_from(model, self.origin.state(seed), self.reset)
            model.load_state_dict(model.state_dict() | kept)
        return model.to(self.work.device, self.dtype), filled

    def outcome(self, trained: list[Trained]) -> Outcome:
        """All seeds' results together."""
        first = trained[0]
        diverged = {seed: t.diverged for seed, t in zip(self.work.seeds, trained, strict=True) if t.diverged}
        data = self.data.node | self.dataset(self.work.seeds[0]).resolved()
        nodes = {"": data} | {label: part.node for label, part in self.sets.items()}
        config = {
            "model": self.model.node,
            "filled": first.filled,
            "data": data,
            "seeds": list(self.work.seeds),
            "reset": self.reset,
            "frozen": self.freeze,
            **self.settings.execution.plain(),
            **self._told(trained),
        }
        series = {"train-loss": torch.stack([t.losses for t in trained])}
        for prefix, part in (("tensors", "named"), ("tensors@0", "named_at_start"), ("structure", "structure")):
            for name in getattr(first, part):
                series[f"{prefix}/{name}"] = torch.stack([getattr(t, part)[name].cpu() for t in trained])
        return Outcome(
            sets={label: self._measured(label, node, trained) for label, node in nodes.items()},
            tensors=checkpoint.stack([t.state for t in trained]),
            config=config,
            logged={name: _by_step([t.logged[name] for t in trained]) for name in first.logged},
            steps=logged_steps(len(first.losses), self.settings.log_every),
            series=series,
            frozen_unchanged=all(t.frozen_unchanged for t in trained) if self.freeze else None,
            diverged=diverged,
            processes=tuple(dict.fromkeys(count for t in trained for count in t.processes)),
        )

    def _told(self, trained: list[Trained]) -> dict[str, dict[str, Any]]:
        """What of each seed's training was not as the settings have it; nothing where there is nothing to tell."""
        by_seed = dict(zip(map(str, self.work.seeds), trained, strict=True))
        told = {
            "lengths": {seed: [change._asdict() for change in t.lengths] for seed, t in by_seed.items() if t.lengths},
            "skipped_steps": {seed: t.skipped for seed, t in by_seed.items() if t.skipped},
        }
        return {name: seeds for name, seeds in told.items() if seeds}

    def _measured(self, label: str, data: dict[str, Any], trained: list[Trained]) -> Measured:
        """The numbers of one set at the end."""
        return Measured(
            model=self.settings.model,
            data=data,
            values={name: [t.values[_at(label, name)] for t in trained] for name in self.settings.metrics},
            n=len(trained[0].splits[label]),
            digests=[t.splits[label].digest for t in trained],
            loss=self.loss_name,
            dtype=self.settings.dtype,
            seeds=self.work.seeds,
        )


def _pays_at_once(model: nn.Module, settings: Train) -> bool:
    return at_once_pays(type(model), sum(p.numel() for p in model.parameters()), settings.batch)


def _at(label: str, metric: str) -> str:
    """The key of a metric of a set among what is logged."""
    return f"{label}.{metric}" if label else metric


def _by_step(by_seed: list[list[Value]]) -> list[list[Value]]:
    return [list(row) for row in zip(*by_seed, strict=True)]


def _kept_from(model: nn.Module, state: dict[str, Tensor], reset: list[str]) -> dict[str, Tensor]:
    """What a model takes from a checkpoint's state: all but the groups to draw anew."""
    anew = {name for group in reset for name in members(model, group)}
    old = split_state(model, state)
    own = {name: tensor.shape for name, tensor in model.state_dict().items() if name not in anew}
    if wrong := [name for name, shape in own.items() if name not in old or old[name].shape != shape]:
        groups = ", ".join(sorted(model_groups(model)))
        raise ZooError(
            f"the checkpoint does not fit at {wrong[0]}{f' and {len(wrong) - 1} more' if len(wrong) > 1 else ''}; "
            f"`reset` the groups that change (groups: {groups})"
        )
    return {name: old[name] for name in own}


class _Group:
    """The replicas that one loop trains: one, or several seeds at once, of stages that differ in the learning rate.

    The replicas of a stage follow one another; those of a seed share its data.
    """

    def __init__(self, stages: list[_Stage], seeds: list[int]) -> None:
        self.stages, stage = stages, stages[0]
        self.stage = stage
        self.seeds, self.times = seeds, len(stages)
        self.rates = [each.settings.optim.lr for each in stages for _ in seeds] if len(stages) > 1 else None
        self.key = f"seed-{seeds[0]}" if len(seeds) == 1 else f"seeds-{seeds[0]}-{seeds[-1]}"
        if self.rates:
            self.key += f"-rates-{plain.digest(self.rates)[:12]}"
        self.datasets = [stage.build_data(k) if len(seeds) > 1 else stage.dataset(k) for k in seeds]
        models, self.filled = zip(*(stage.starting(seed) for _ in stages for seed in seeds), strict=True)
        self.at_start = [_named(model) for model in models]
        self.replicas = Replicas(models, seeds * len(stages))
        self.still = Still(self.replicas.module, frozen_parameters(self.replicas.module, stage.settings))
        settings, device = stage.settings, stage.work.device
        feed: AnyFeed = make_feed([d.train for d in self.datasets], seeds, settings.batch, device, stage.dtype)
        if settings.mixup or settings.cutmix:
            feed = MixedFeed(feed, mixing(settings, self.datasets[0], stage.loss_name))
        self.feed = Repeated(feed, self.times) if self.rates else feed
        self.steps = settings.steps or self.feed.steps(settings.epochs or 0)
        self.length = Length(self.steps, log_interval(self.steps, settings.log_every))
        self.lengths: list[Change] = []
        self.judged = [{"": data} | stage.build_sets(seed) for data, seed in zip(self.datasets, seeds, strict=True)]
        functions = metric_functions(settings.metrics, loss_function(stage.loss_name))
        self.measures = [
            {label: Measure(functions, data, data.test, device, stage.dtype) for label, data in judged.items()}
            for judged in self.judged
        ] * self.times
        self.logged: list[dict[str, list[Value]]] = [
            {_at(label, name): [] for label in self.judged[0] for name in functions} for _ in models
        ]

    def train(self) -> list[Trained]:
        """Run the loop, from a kept state if there is one."""
        settings, work = self.stage.settings, self.stage.work
        smoothing = {"label_smoothing": settings.label_smoothing} if settings.label_smoothing else {}
        label = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        label += f", {self.times} learning rates" if self.rates else ""
        result = train_loop(
            self.replicas,
            self.feed,
            loss_function(self.stage.loss_name, **smoothing),
            settings.optim,
            self.steps,
            rates=self.rates,
            accumulate=settings.accumulate,
            execution=settings.execution,
            gradient=self._population() if getattr(settings, "population", False) else None,
            frozen=self.still.parameters,
            log_every=self.length.log_every,
            measure=self._measure,
            watch=self._watch,
            save=self._save if parallel.leads() else None,
            resume=self._kept(),
            stop=work.stopping,
            progress=work.progress(label, self.steps),
        )
        if result.stopped:
            raise Stopped
        models = self.replicas.singles()
        return [self._trained(index, model, result) for index, model in enumerate(models)]

    def _measure(self, step: int) -> None:
        for model, measures, logged in zip(self.replicas.singles(), self.measures, self.logged, strict=True):
            for label, measure in measures.items():
                for name, value in measure(model).items():
                    logged[_at(label, name)].append(value)

    def _watch(self, step: int, losses: list[float] | None) -> None:
        """Tell the trackers of each replica's loss, its learning rate and what was last measured."""
        for index, logged in enumerate(self.logged):
            which, seed = divmod(index, len(self.seeds))
            optim = self.stages[which].settings.optim
            rate = optim.lr * optim.schedule.factor(max(step - 1, 0), self.steps)
            values = {name: values[-1] for name, values in logged.items()} | {"learning-rate": rate}
            if losses:
                values["train-loss"] = losses[index]
            self.stages[which].work.track(self.seeds[seed], step, values)

    def _population(self) -> population.PopulationGradient:
        truths = [data.structure for data in self.datasets] * self.times
        gradient = population.PopulationGradient(truths, self.stage.work.device, self.stage.dtype)
        gradient.check(self.replicas.module)
        return gradient

    def _save(self, state: State) -> None:
        tensors, numbers = state.plain()
        more = {"logged": self.logged, "length": self.length, "lengths": self.lengths}
        self.stage.work.save(self.key, (tensors, numbers | more))

    def _kept(self) -> State | None:
        kept = self.stage.work.load(self.key)
        if kept is None:
            return None
        tensors, numbers = kept
        self.lengths = [Change(*each) for each in numbers.get("lengths", [])]
        if found := change(numbers["step"], Length(*numbers.get("length", self.length)), self.length):
            runtime.say(f"{self.stage.work.name}: {found}")
            self.lengths.append(found)
        self.logged = up_to(numbers["step"], self.length, numbers["logged"])
        return State.of(tensors, numbers)

    def _trained(self, index: int, model: nn.Module, result: Result) -> Trained:
        seed, at = index % len(self.seeds), result.diverged.get(index)
        return Trained(
            state=merged_state(model),
            values={name: values[-1] for name, values in self.logged[index].items()},
            logged=self.logged[index],
            losses=result.train_loss[index],
            named=_named(model),
            named_at_start=self.at_start[index],
            structure=self.datasets[seed].structure,
            splits={label: judged.test for label, judged in self.judged[seed].items()},
            filled=self.filled[index],
            frozen_unchanged=self.still.unchanged() if self.stage.freeze else None,
            diverged=at._asdict() if at else None,
            processes=result.processes,
            skipped=result.skipped,
            lengths=self.lengths,
        )


def _named(model: nn.Module) -> dict[str, Tensor]:
    """The model's named tensors."""
    model.eval()
    return named_tensors(model)
