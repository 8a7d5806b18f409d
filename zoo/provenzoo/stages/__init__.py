"""The kinds of stage that a recipe is made of, in a closed table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from provenzoo.settings import Settings
from provenzoo.stages import evaluate, train, training_settings
from provenzoo.stages.work import Ground, Outcome, Rehearsed, Work

Expected = Iterable[tuple[str, str, int | None]]
"""(set, metric, step) of each number that a stage will give."""


@dataclass(frozen=True)
class Together:
    """How points of a stage run at once: those whose settings are `alike` (and not None), where it `pays`."""

    alike: Callable[[Any], Any]
    pays: Callable[[Any, Work], bool]
    run: Callable[[Sequence[tuple[Any, Work]]], list[Outcome]]


RATES = Together(training_settings.alike, train.at_once, train.train_at_once)


@dataclass(frozen=True)
class Stage:
    """One kind of stage: its settings, its checks before it runs, what it will measure, and the stage itself.

    `check` builds nothing. `rehearse` builds data and model of one seed, to find what does not fit, from what is known
    of the checkpoint that the stage starts from (None where it is there already), and gives the same for its own.
    """

    settings: type[Settings]
    check: Callable[[Any, str], None]
    expected: Callable[[Any, set[int]], Expected]
    rehearse: Callable[[Any, Ground, Rehearsed | None], Rehearsed | None]
    run: Callable[[Any, Work], Outcome]
    trains: bool
    together: Together | None = None


STAGES = {
    "pretrain": Stage(
        training_settings.Pretrain,
        training_settings.check,
        training_settings.expected,
        train.rehearse,
        train.train,
        trains=True,
        together=RATES,
    ),
    "finetune": Stage(
        training_settings.Finetune,
        training_settings.check,
        training_settings.expected,
        train.rehearse,
        train.train,
        trains=True,
        together=RATES,
    ),
    "evaluate": Stage(
        evaluate.Evaluate, evaluate.check, evaluate.expected, evaluate.rehearse, evaluate.evaluate, trains=False
    ),
}
