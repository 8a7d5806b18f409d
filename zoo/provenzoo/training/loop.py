"""The one loop: replicas, a feed, a loss and an optimiser for so many steps, exactly resumable at any."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from provenzoo.draws import derive
from provenzoo.errors import ZooError
from provenzoo.models.split import load_merged, merged_state
from provenzoo.training import optim as optimisers
from provenzoo.training import parallel
from provenzoo.training.averages import Averages
from provenzoo.training.batchnorm import OverAllRows
from provenzoo.training.execution import PLAIN, Execution
from provenzoo.training.feed import AnyFeed
from provenzoo.training.optim import Optim
from provenzoo.training.precision import Precision
from provenzoo.training.replicas import Replicas
from provenzoo.training.runtime import Every, Progress, say
from provenzoo.training.state import Divergence, State

CHECK_EVERY = 50
"""Steps between two looks at the losses: reading a number from the device stops it."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs `[..., B, ...]` and targets `[..., B, ...]` to one number a replica `[...]`."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a training gives beside the replicas' parameters.

    `train_loss` is `[R, steps]` float32, the loss of each batch before its update; NaN where it did not run.
    """

    train_loss: Tensor
    diverged: dict[int, Divergence]
    stopped: bool = False
    processes: tuple[int, ...] = (1,)
    """How many processes trained, and again where that changed on the way."""
    skipped: int = 0
    """Steps that fp16 left out, since their gradients were not finite."""


def train(
    replicas: Replicas,
    feed: AnyFeed,
    loss: Loss,
    optim: Optim,
    steps: int,
    *,
    rates: Sequence[float] | None = None,
    accumulate: int = 1,
    execution: Execution = PLAIN,
    gradient: Callable[[nn.Module], Tensor] | None = None,
    frozen: Iterable[str] = (),
    log_every: int | None = None,
    measure: Callable[[int], None] | None = None,
    watch: Callable[[int, list[float] | None], None] | None = None,
    save: Callable[[State], None] | None = None,
    save_seconds: float = 10.0,
    resume: State | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> Result:
    """Train the replicas in place; with `execution.ema` they have the averages of their weights in the end.

    `rates` gives stacked replicas a learning rate each, in the place of `optim.lr`, where `optim.rate_is_a_factor`.
    `accumulate` is the number of micro-batches that a batch is split into, the last of them maybe smaller.
    `execution` says how steps are computed and whether weights are averaged. What is measured is float32 (or float64)
    whatever it says, and the averages where there are any.
    `gradient` sets the parameters' gradients and gives the losses `[...]`, in the place of feed and loss.
    `frozen` parameters, by name, stay as they are. `measure(step)` is called in eval mode, without gradients,
    at step 0, every `log_every` steps and at the end. `save` is given the state every `save_seconds`, when
    `stop()` becomes true (then training ends) and at the end; with `resume` it goes on from there, and what
    was measured up to it is not measured again. After every measurement `watch` is given the step and each
    replica's mean loss over the batches since the last one (None at step 0).

    Losses are looked at every 50 steps and where something is measured. A replica that is not finite is
    noted; others stacked beside it go on unharmed, and if none is left the remaining steps are skipped,
    though not their measurements. Everything frozen is a ZooError.

    Several processes (training/parallel.py) each call this with the same arguments; only process 0's `stop` is heard.
    """
    freeze(replicas.module, frozen)
    parallel.same_start(replicas.module)
    training = _Training(replicas, feed, loss, optim, steps, rates, gradient, accumulate, execution)
    if resume:
        training.restore(resume)
    with (
        _own_draws(replicas.device),
        training.precision.set(),
        training.norms,
        progress or contextlib.nullcontext(),
    ):
        stopped = _run(
            training, log_every or steps, measure or (lambda _: None), watch, save, save_seconds, stop, progress
        )
    training.leave()
    return Result(
        training.losses.cpu(), training.diverged, stopped, training.processes, skipped=training.precision.skipped
    )


def _run(
    training: "_Training",
    log_every: int,
    measure: Callable[[int], None],
    watch: Callable[[int, list[float] | None], None] | None,
    save: Callable[[State], None] | None,
    save_seconds: float,
    stop: Callable[[], bool],
    progress: Progress | None,
) -> bool:
    """The steps that are left; whether it was told to stop before the last."""
    steps = training.steps
    time_to_save, time_to_show = Every(save_seconds), Every(0.5)
    if training.done == 0:
        training.measured(measure)
        if watch:
            watch(0, None)
    while training.done < steps:
        if training.lost:
            training.done += 1
        else:
            training.advance()
        step = training.done
        logged = step % log_every == 0 or step == steps
        if (logged or step % CHECK_EVERY == 0) and not training.lost:
            training.check()
        if logged:
            training.measured(measure)
            if watch:
                watch(step, training.mean_losses((step - 1) // log_every * log_every))
        if progress and progress.live and time_to_show():
            progress.update(step, training.last_loss())
        stopping = step < steps and parallel.agreed(stop())
        if save and (stopping or step == steps or time_to_save()):
            save(training.state())
            time_to_save.restart()
        if stopping:
            return True
    return False


class _Training:
    """A training after `done` steps: everything that changes as it goes on."""

    def __init__(
        self,
        replicas: Replicas,
        feed: AnyFeed,
        loss: Loss,
        optim: Optim,
        steps: int,
        rates: Sequence[float] | None,
        gradient: Callable[[nn.Module], Tensor] | None,
        accumulate: int,
        execution: Execution,
    ) -> None:
        self.replicas, self.module, self.feed, self.loss = replicas, replicas.module, feed, loss
        self.gradient = gradient or self._backward
        self.rates = None if rates is None else torch.tensor(rates, device=replicas.device)
        self.optim = optim if rates is None else optim.model_copy(update={"lr": 1.0})
        self.steps, self.done, self.accumulate = steps, 0, accumulate
        execution.check(self.module, replicas.device, replicas.stacked)
        self.execution, self.precision = execution, Precision(execution.precision, replicas.device)
        execution.lay_out(self.module)
        self.forward = execution.forward(self.module)
        self.optimiser = optimisers.build(self.optim, self.module, replicas.stacked)
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        self.averages = Averages(execution.ema, self.module, self.parameters) if execution.ema else None
        self.losses = torch.full((len(replicas), steps), torch.nan, device=replicas.device)
        self.diverged: dict[int, Divergence] = {}
        self.processes: tuple[int, ...] = (parallel.world(),)
        self._checked = 0
        self._pending: list[Tensor] = []
        self._factor: float | None = None
        self._draws: bool | None = None
        self._is_mean = accumulate == 1 and parallel.world() == 1
        self._sum = parallel.GradientSum(self.parameters)
        self.norms = OverAllRows(self.module)
        set_mode(self.module)

    @property
    def lost(self) -> bool:
        """Whether every replica has diverged."""
        return len(self.diverged) == len(self.replicas)

    def advance(self) -> None:
        """One step of the optimiser."""
        value = self.gradient(self.module)
        self.precision.unscale(self.optimiser)
        if self.optim.own.normalised:
            optimisers.normalise_gradients(self.parameters, self.replicas.stacked)
        if self.optim.clip:
            optimisers.clip_gradients(self.parameters, self.optim.clip, self.replicas.stacked)
        if self.rates is not None:
            optimisers.scale_gradients(self.parameters, self.rates)
        factor = self.optim.schedule.factor(self.done, self.steps)
        if factor != self._factor:
            optimisers.set_factor(self.optimiser, factor)
            self._factor = factor
        self.precision.step(self.optimiser)
        if self.averages:
            self.averages.update()
        self._pending.append(value.detach())
        self.done += 1

    def _backward(self, module: nn.Module) -> Tensor:
        """The loss of the step's batch, and its gradients by autograd."""
        inputs, targets = self.feed.batch(self.done)
        for parameter in self.parameters:
            parameter.grad = None
        if self.accumulate == 1 and parallel.world() == 1:
            value = self.loss(self._outputs(inputs), targets)
            self.precision.scaled(value).backward(torch.ones_like(value) if self.replicas.stacked else None)
            return value
        return self._in_parts(inputs, targets)

    def _in_parts(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The same from this process's rows, in micro-batches, each weighted by its share of the batch.

        The draws of a micro-batch go on from those of the last.
        """
        axis = 1 if self.replicas.stacked else 0
        size = self.feed.batch_size if self.feed.dealt else inputs.shape[axis]
        rows, part = parallel.own_rows(size)
        if not self.feed.dealt:
            inputs, targets = (t.narrow(axis, rows.start, rows.stop - rows.start) for t in (inputs, targets))
        self.norms.counts = part > 0
        count = min(self.accumulate, max(1, size // parallel.world()))
        own = [inputs.tensor_split(count, axis), targets.tensor_split(count, axis)]
        total, seen = torch.zeros(()), []
        for number, (x, y) in enumerate(zip(*own, strict=True)):
            outputs = self._outputs(x, first=number == 0)
            value = self.loss(outputs, y) * (x.shape[axis] / size if part else 0.0)
            self.precision.scaled(value).backward(torch.ones_like(value) if self.replicas.stacked else None)
            total = value.detach() if number == 0 else total + value.detach()
            if not self._is_mean:
                seen.append(outputs.detach())
        total = self._sum(total)
        if not self._is_mean:
            whole = [parallel.of_all(part, size, axis) for part in (torch.cat(seen, axis), targets)]
            _check_mean(self.loss(*whole), total)
            self._is_mean = True
        return total

    def _outputs(self, inputs: Tensor, first: bool = True) -> Tensor:
        """What the model gives; one that draws (dropout) does so from (seed, "step", step), and a process's number.

        Whether it draws is seen in the first step: seeding torch each time would slow a tiny model.
        """
        if self._draws is False or not first:
            return self.precision.outputs(self.forward, inputs)
        torch.manual_seed(derive(self.replicas.seeds[0], "step", self.done, *parallel.own_number()))
        before = None if self._draws else _generator_states(inputs.device)
        outputs = self.precision.outputs(self.forward, inputs)
        if before is not None:
            self._draws = not all(map(torch.equal, before, _generator_states(inputs.device)))
        if self._draws and self.replicas.stacked:
            raise ZooError("a model that draws as it trains (dropout) cannot train its seeds at once")
        return outputs

    def measured(self, measure: Callable[[int], None]) -> None:
        """Measure what would be saved, in eval mode, and go back to training."""
        self.module.eval()
        averaged = self.averages.in_place() if self.averages else contextlib.nullcontext()
        with torch.no_grad(), averaged, self.execution.as_saved(self.module):
            measure(self.done)
        set_mode(self.module)

    def leave(self) -> None:
        """Leave the model as it is to be saved."""
        if self.averages:
            self.averages.swap()
        self.execution.put_back(self.module)

    def last_loss(self) -> float:
        """The mean loss of the last step."""
        last = self._pending[-1] if self._pending else self.losses[:, self.done - 1]
        return last.mean().item()

    def mean_losses(self, since: int) -> list[float]:
        """Each replica's mean loss over the steps from `since` on."""
        self._flush()
        return self.losses[:, since : self.done].mean(-1).tolist()

    def check(self) -> None:
        """Note the replicas that are not finite: by their losses, and at the end by their parameters too."""
        self.precision.check()
        self._flush()
        going = [r for r in range(len(self.replicas)) if r not in self.diverged]
        finite = self.losses[going, self._checked : self.done].isfinite()
        at_end = self.done == self.steps
        if at_end or not finite.all():
            broken = self.replicas.broken()
            for r, row in zip(going, finite.tolist(), strict=True):
                if not all(row) or (at_end and r in broken):
                    step = self.done if all(row) else self._checked + row.index(False)
                    self.diverged[r] = Divergence(step, broken.get(r, "loss"))
        self._checked = self.done

    def _flush(self) -> None:
        if self._pending:
            self.losses[:, self.done - len(self._pending) : self.done] = torch.stack(self._pending, -1)
            self._pending.clear()

    def state(self) -> State:
        """A copy of all that going on needs."""
        self._flush()
        return State(
            step=self.done,
            model=_copies(merged_state(self.module)),
            optimiser=_copies(optimisers.optimiser_state(self.optimiser, self.module)),
            losses=self.losses[:, : self.done].to("cpu", copy=True),
            diverged=dict(self.diverged),
            processes=self.processes,
            precision=self.precision.state(),
            average=_copies(self.averages.state()) if self.averages else {},
        )

    def restore(self, state: State) -> None:
        """Go on from a state."""
        if self.averages:
            self.averages.restore(state.average)
        load_merged(self.module, state.model)
        optimisers.restore_optimiser(self.optimiser, self.module, state.optimiser)
        self.losses[:, : state.step] = state.losses.to(self.losses.device)
        self.precision.restore(state.precision)
        self.done, self.diverged = state.step, dict(state.diverged)
        if state.processes[-1] != parallel.world():
            say(
                f"{parallel.world()} processes go on from step {state.step} where {state.processes[-1]} trained: "
                "as exact, but the last bits of sums differ"
            )
            self.processes = (*state.processes, parallel.world())
        else:
            self.processes = state.processes


def _check_mean(whole: Tensor, added: Tensor) -> None:
    """A ZooError where a batch's loss is not what its parts' weighted losses add up to."""
    if not torch.allclose(added, whole, rtol=1e-3, atol=1e-6, equal_nan=True):
        raise ZooError(
            "the loss is no mean over a batch's examples, so parts of a batch do not add up to it; "
            "leave out `accumulate` and train in one process"
        )


def freeze(model: nn.Module, names: Iterable[str]) -> None:
    """Keep the named parameters as they are; nothing left to train is a ZooError."""
    names = set(names)
    for name, parameter in model.named_parameters():
        if name in names:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ZooError("everything is frozen, so there is nothing to train; freeze fewer groups")


def set_mode(model: nn.Module) -> None:
    """Training mode, but eval mode for modules whose every parameter is frozen.

    So the running statistics of a frozen BatchNorm stay, and a frozen block has no dropout.
    """
    model.train()
    for module in model.modules():
        trains = [parameter.requires_grad for parameter in module.parameters()]
        if trains and not any(trains):
            module.eval()


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    whole = {"copy": True, "memory_format": torch.contiguous_format}
    return {name: tensor.detach().to("cpu", **whole) for name, tensor in tensors.items()}


@contextlib.contextmanager
def _own_draws(device: torch.device) -> Iterator[None]:
    """Leave torch's global generators as they were found."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def _generator_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state()]
