"""The state of a training in the middle: all that going on needs, as tensors and plain data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from provenzoo import checkpoint


class Divergence(NamedTuple):
    """Where a replica ceased to be finite, and a parameter that was found so when it was noticed.

    `step` is the number of steps with a finite loss; `parameter` is `loss` where no parameter is off.
    """

    step: int
    parameter: str


@dataclass(frozen=True, eq=False)
class State:
    """A training after `step` steps. Orders and draws are functions of the step and need no state.

    `model` is a state dict under unsplit names (`[R, ...]` if stacked), `optimiser` holds
    `<what>/<parameter>`, `losses` is `[R, step]` float32. All on the CPU, apart from the live ones. `processes` has how
    many trained, and again where that changed on the way.
    """

    step: int
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    losses: Tensor
    diverged: dict[int, Divergence] = field(default_factory=dict)
    processes: tuple[int, ...] = (1,)
    precision: dict[str, float] = field(default_factory=dict)
    """The scale of a loss in fp16, and what belongs to it."""
    average: dict[str, Tensor] = field(default_factory=dict)
    """A state dict like `model` with the moving averages of what trains; empty where there are none."""

    def plain(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name and data for JSON, which `of` takes."""
        tensors = {f"model/{name}": tensor for name, tensor in self.model.items()}
        tensors |= {f"optimiser/{name}": tensor for name, tensor in self.optimiser.items()}
        tensors |= {f"average/{name}": tensor for name, tensor in self.average.items()}
        diverged = {str(r): list(where) for r, where in self.diverged.items()}
        numbers = {
            "step": self.step,
            "diverged": diverged,
            "processes": list(self.processes),
            "precision": self.precision,
        }
        return tensors | {"losses": self.losses}, numbers

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> "State":
        """The state that `plain` gave; other tensors and keys beside it are left alone."""
        return cls(
            step=data["step"],
            model=_below(tensors, "model/"),
            optimiser=_below(tensors, "optimiser/"),
            losses=tensors["losses"],
            diverged={int(r): Divergence(*where) for r, where in data["diverged"].items()},
            processes=tuple(data.get("processes", (1,))),
            precision=data.get("precision", {}),
            average=_below(tensors, "average/"),
        )

    def to_file(self, path: Path) -> None:
        """Write one safetensors file, whole or not at all."""
        tensors, data = self.plain()
        checkpoint.save(path, tensors, {"state": json.dumps(data)})

    @classmethod
    def from_file(cls, path: Path) -> "State":
        """Read what `to_file` wrote; a ZooError names a damaged file."""
        tensors, metadata = checkpoint.load(path)
        return cls.of(tensors, json.loads(metadata["state"]))


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
