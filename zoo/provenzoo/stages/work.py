"""What a stage is given and what it gives back. A stage knows no run folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from provenzoo import components
from provenzoo.datasets.base import as_trained
from provenzoo.fetch import Checkpoint
from provenzoo.metrics.measure import Value
from provenzoo.plain import walk

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors and plain data of a stage in the middle."""


class Work(Protocol):
    """The surroundings of a stage."""

    name: str
    seeds: tuple[int, ...]
    device: torch.device

    def fetch(self, reference: str) -> Checkpoint:
        """The checkpoint that a `from` names."""
        ...

    def save(self, key: str, state: State) -> None:
        """Keep the state of a part of the stage (whole or not at all)."""
        ...

    def load(self, key: str) -> State | None:
        """The state that was last kept for a part of the stage."""
        ...

    def track(self, seed: int, step: int, values: Mapping[str, Any]) -> None:
        """Tell those who watch the numbers of a seed at a step."""
        ...

    def stopping(self) -> bool:
        """Whether the stage should save and leave."""
        ...

    def progress(self, label: str, steps: int) -> Any:
        """A progress display for so many steps."""
        ...


def data_for(node: dict[str, Any], trained: Mapping[str, Any] | None) -> dict[str, Any]:
    """A data node for a model that was trained on another (None: on none): labels and pixels mean the same in both."""
    return as_trained(components.check("datasets", node, "data").builder, node, trained) if trained else node


class Stopped(Exception):
    """The stage left because it was told to; what it had to save is saved."""


class Ground(NamedTuple):
    """What a stage will run on."""

    seeds: tuple[int, ...]
    device: torch.device


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """What is known of a checkpoint before its stage has run: arguments that the data fills in, tensors' shapes."""

    filled: dict[str, int]
    state: dict[str, Tensor]
    """A state of one seed under unsplit names, on the meta device."""
    data: dict[str, Any]
    """The data's node with what derives from its files."""


def has_parent(node: Mapping[str, Any]) -> bool:
    """Whether a node holds a `from` at any depth, so that it can be built only once that stage has run."""
    return any(path.rpartition(".")[2] == "from" for path, _ in walk(node))


def leave_if_told(work: Work) -> None:
    """Raise `Stopped` where the stage should leave and has nothing to save."""
    if work.stopping():
        raise Stopped


@dataclass(frozen=True)
class Measured:
    """A set's numbers at the end of a stage."""

    model: dict[str, Any]
    data: dict[str, Any]
    values: dict[str, list[Value]]
    n: int
    digests: list[str]
    loss: str
    dtype: str
    seeds: tuple[int, ...]

    def plain(self) -> dict[str, Any]:
        """The set's entry in metrics.json."""
        return {
            "model": self.model,
            "data": self.data,
            "metrics": list(self.values),
            "values": self.values,
            "loss": self.loss,
            "dtype": self.dtype,
            "seeds": list(self.seeds),
            "n": self.n,
            "digests": self.digests,
        }


@dataclass
class Outcome:
    """All that a stage leaves: numbers, series and, where it trains, a checkpoint's config and tensors `[R, ...]`."""

    sets: dict[str, Measured]
    tensors: dict[str, Tensor] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    logged: dict[str, list[list[Value]]] = field(default_factory=dict)
    """Metric -> logged step -> seed."""
    steps: list[int] = field(default_factory=list)
    series: dict[str, Tensor] = field(default_factory=dict)
    frozen_unchanged: bool | None = None
    diverged: dict[int, dict[str, Any]] = field(default_factory=dict)
    processes: tuple[int, ...] = (1,)
    """How many processes trained it; several where that changed on the way."""
