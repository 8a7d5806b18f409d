"""A training that goes on from a state of one that was to have another number of steps."""

from typing import NamedTuple

from provenzoo.errors import ZooError
from provenzoo.metrics.measure import Value
from provenzoo.stages.training_settings import logged_steps

Logged = list[dict[str, list[Value]]]
"""Metric -> its value at each logged step, a mapping a replica."""


class Length(NamedTuple):
    """A training's number of steps, and those between two measurements."""

    steps: int
    log_every: int


class Change(NamedTuple):
    """From step `step` on, the schedule is that of `now` steps; it was that of `was`."""

    step: int
    was: int
    now: int

    def __str__(self) -> str:
        return f"goes on from step {self.step} under the schedule of {self.now} steps; up to there it was of {self.was}"


def change(step: int, was: Length, now: Length) -> Change | None:
    """What changes at a step, if anything; what cannot be gone on from is a ZooError."""
    if was.log_every != now.log_every:
        raise ZooError(
            f"what was measured up to step {step} is every {was.log_every} steps; write `log_every: {was.log_every}`"
        )
    if was.steps == now.steps:
        return None
    if step >= now.steps:
        raise ZooError(f"{step} steps are done, and the recipe has {now.steps}; give more, or start anew with --fresh")
    return Change(step, was.steps, now.steps)


def up_to(step: int, length: Length, logged: Logged) -> Logged:
    """What a training of this length would have logged: the measurement at another's end may be one more."""
    count = sum(at <= step for at in logged_steps(*length))
    return [{name: values[:count] for name, values in each.items()} for each in logged]
