"""The training loop: as fast as a hand-written one, exact to resume, honest when it diverges."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from provenzoo.training.feed import Feed
from provenzoo.training.optim import Optim, clip_gradients, optimiser_state, parameter_groups, restore_optimiser
from provenzoo.training.replicas import is_stochastic, seed_step, train_mode

CHECK_EVERY = 50
"""Steps between two looks at the losses for values that are not finite."""
SAVE_SECONDS = 10.0
SHOW_SECONDS = 0.1


class Progress(Protocol):
    """What the loop tells of its advance."""

    def update(self, step: int, loss: float | None) -> None:
        """Show a step and, now and then, its loss."""
        ...


@dataclass
class State:
    """Where training stands after `step` steps: what a resumed loop starts from."""

    step: int
    tensors: dict[str, Tensor]
    """`model/<name>`, `optim/<key>/<name>` and `train-loss` `[R, step]`."""
    diverged: dict[int, tuple[int, str]]


@dataclass
class Result:
    """What a loop gives: losses `[R, steps]` (NaN after a lone replica diverged), and whether it was stopped."""

    losses: Tensor
    diverged: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Replica -> (step, parameter) of the first value that was not finite."""
    stopped: bool = False


@dataclass
class Loop:
    """One model (or several, stacked) trained on a feed."""

    model: nn.Module
    feed: Feed
    loss: Callable[[Tensor, Tensor], Tensor]
    optim: Optim
    steps: int
    log_steps: Sequence[int]
    measure: Callable[[int], None] = lambda step: None
    """Called at each logged step, with the model as it is after so many steps."""
    save: Callable[[State], None] | None = None
    stopping: Callable[[], bool] = lambda: False
    progress: Progress | None = None
    save_seconds: float = SAVE_SECONDS

    def __post_init__(self) -> None:
        self.replicas = len(self.feed.seeds)
        self.replicated = self.replicas > 1
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimiser = self.optim.build(parameter_groups(self.model, self.optim, self.replicated))
        self.rates = [(group, group["lr"]) for group in self.optimiser.param_groups]
        self.losses = torch.full((self.replicas, self.steps), float("nan"))
        self.diverged: dict[int, tuple[int, str]] = {}
        self.step = 0
        self._pending: list[Tensor] = []
        self._saved = self._shown = time.monotonic()

    def run(self, resume: State | None = None) -> Result:
        """Train to the end, or until told to stop; then the state was saved."""
        if resume:
            self._restore(resume)
        stochastic = is_stochastic(self.model)
        train_mode(self.model)
        with torch.random.fork_rng() if stochastic else nullcontext():
            if not resume and 0 in self.log_steps:
                self.measure(0)
            for end in self._ends():
                self._advance(end, stochastic)
                self._settle()
                if self.step == end and end in self.log_steps:
                    self.measure(end)
                if self.stopping() and self.step < self.steps:
                    self._keep()
                    return Result(self.losses, self.diverged, stopped=True)
                if time.monotonic() - self._saved > self.save_seconds:
                    self._keep()
        self._keep()
        return Result(self.losses, self.diverged)

    def _ends(self) -> Iterator[int]:
        """The steps at which the losses are looked at: they depend on the settings alone, so a resumed run has the same."""
        ends = {*range(0, self.steps, CHECK_EVERY), *self.log_steps, self.steps}
        return iter(sorted(end for end in ends if end > self.step))

    def _advance(self, end: int, stochastic: bool) -> None:
        model, feed, loss, optimiser = self.model, self.feed, self.loss, self.optimiser
        schedule, clip, stopping, pending = self.optim.schedule, self.optim.clip, self.stopping, self._pending
        varying = schedule.name != "constant" or schedule.warmup > 0
        ones = torch.ones(self.replicas, device=self.parameters[0].device) if self.replicated else None
        if len(self.diverged) == self.replicas:
            self.step = end
            return
        while self.step < end and not stopping():
            if varying:
                factor = schedule.factor(self.step, self.steps)
                for group, rate in self.rates:
                    group["lr"] = rate * factor
            if stochastic:
                seed_step(feed.seeds[0], self.step)
            inputs, targets = feed(self.step)
            for parameter in self.parameters:
                parameter.grad = None
            value = loss(model(inputs), targets)
            value.backward(ones)
            if clip is not None:
                clip_gradients(self.parameters, clip, self.replicated)
            optimiser.step()
            pending.append(value.detach())
            self.step += 1
            now = time.monotonic()
            if now - self._shown > SHOW_SECONDS:
                self._show(now)
            if now - self._saved > self.save_seconds and self.step < end:
                self._settle()
                self._keep()

    def _settle(self) -> None:
        """Move the losses of the last steps into place and look for values that are not finite."""
        first = self.step - len(self._pending)
        if self._pending:
            block = torch.stack(self._pending).to("cpu", torch.float32).view(len(self._pending), self.replicas).T
            self.losses[:, first : self.step] = block
            self._pending.clear()
            for replica in torch.nonzero(~block.isfinite().all(dim=1)).flatten().tolist():
                at = first + int(torch.nonzero(~block[replica].isfinite())[0])
                self.diverged.setdefault(replica, (at, self._not_finite(replica) or "loss"))
        if self.step in self.log_steps:
            for replica in range(self.replicas):
                if replica not in self.diverged and (name := self._not_finite(replica)):
                    self.diverged[replica] = (self.step, name)

    def _not_finite(self, replica: int) -> str | None:
        """The first parameter of a replica that is not finite."""
        for name, parameter in self.model.named_parameters():
            values = parameter[replica] if self.replicated else parameter
            if not bool(values.isfinite().all()):
                return name
        return None

    def _show(self, now: float) -> None:
        self._shown = now
        if self.progress:
            self.progress.update(self.step, float(self._pending[-1].mean()) if self._pending else None)

    # --- state ----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        self._saved = time.monotonic()
        if self.save:
            tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
            tensors |= {f"optim/{n}": t for n, t in optimiser_state(self.optimiser, self.model).items()}
            tensors["train-loss"] = self.losses[:, : self.step].clone()
            self.save(State(self.step, tensors, dict(self.diverged)))

    def _restore(self, state: State) -> None:
        def part(prefix: str) -> dict[str, Any]:
            return {n.removeprefix(prefix): t for n, t in state.tensors.items() if n.startswith(prefix)}

        self.model.load_state_dict(part("model/"))
        restore_optimiser(self.optimiser, self.model, part("optim/"))
        self.losses[:, : state.step] = state.tensors["train-loss"]
        self.diverged = dict(state.diverged)
        self.step = state.step
