"""The kinds of stage that a recipe is made of, in a closed table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from provenzoo.settings import Settings
from provenzoo.stages import evaluate, train
from provenzoo.stages.work import Outcome, Rehearsed, Work

Expected = Iterable[tuple[str, str, int | None]]
"""(set, metric, step) of each number that a stage will give."""


@dataclass(frozen=True)
class Stage:
    """One kind of stage: its settings, its checks before it runs, what it will measure, and the stage itself.

    `check` builds nothing. `rehearse` builds data and model of one seed, to find what does not fit, from what is known
    of the checkpoint that the stage starts from (None where it is there already), and gives the same for its own.
    """

    settings: type[Settings]
    check: Callable[[Any, str], None]
    expected: Callable[[Any, set[int]], Expected]
    rehearse: Callable[[Any, int, Rehearsed | None], Rehearsed | None]
    run: Callable[[Any, Work], Outcome]
    trains: bool


STAGES = {
    "pretrain": Stage(train.Pretrain, train.check, train.expected, train.rehearse, train.train, trains=True),
    "finetune": Stage(train.Finetune, train.check, train.expected, train.rehearse, train.train, trains=True),
    "evaluate": Stage(
        evaluate.Evaluate, evaluate.check, evaluate.expected, evaluate.rehearse, evaluate.evaluate, trains=False
    ),
}
