"""Inputs that a teacher gives targets to: `Y = f*(X) + s E` (Zhang, Zhao, Gu, Cao, Sec. 3), or `Y = B X + s E`."""

from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, Dataset, Split, SplitName, Stream, law_digest
from provenzoo.draws import generator
from provenzoo.errors import ZooError
from provenzoo.teachers.base import Teacher


class Taught(Dataset):
    """The inputs of a data set with the outputs of a teacher, and `noise` times standard normal noise, as targets.

    `response: linear` puts `B X` in the place of the teacher's outputs, for targets that the teacher does not explain
    (Sec. 3, after Theorem 3.2); B `[M, d]` is standard normal, drawn by (seed, "response"). The structure holds what
    that of the inputs holds, the teacher's ground truth as `true_<name>`, and `response`; the held-out split names the
    teacher's own outputs, `teacher_outputs`. Noise is drawn by (seed, "noise", block of steps) and, of a fixed split,
    by (seed, "noise-of", split).
    """

    def __init__(
        self,
        *,
        inputs: Dataset,
        teacher: Teacher,
        seed: int = 0,
        noise: Annotated[float, Field(ge=0)] = 0.0,
        response: Literal["teacher", "linear"] = "teacher",
    ) -> None:
        self.seed, self.inputs, self.teacher, self.noise = seed, inputs, teacher, noise
        teacher.check_inputs(inputs.shapes)
        if response == "linear" and not teacher.truth:
            raise ZooError("taught: `response: linear` needs a teacher of token matrices, such as graph-conv")
        self.response = self._drawn_response() if response == "linear" else None
        self.loss = "half-squared-error" if teacher.truth else self._loss_by_shape()

    def _loss_by_shape(self) -> str:
        outputs = self.teacher(self.inputs.test.inputs[:1])
        return "half-squared-error-of-vectors" if outputs.dim() == 2 else "half-squared-error"

    def _drawn_response(self) -> Tensor:
        shape = (int(self.shapes["features"]), self.inputs.shapes["dim"])
        return torch.randn(shape, generator=generator(self.seed, "response"))

    @property
    def shapes(self) -> dict[str, Any]:
        return {**self.inputs.shapes, **self.teacher.shapes}

    @property
    def structure(self) -> dict[str, Tensor]:
        truth = {f"true_{name}": tensor for name, tensor in self.teacher.truth.items()}
        response = {} if self.response is None else {"response": self.response}
        return {**self.inputs.structure, **truth, **response}

    @cached_property
    def train(self) -> Split | Stream:
        source = self.inputs.train
        if isinstance(source, Split):
            return self.prepare("train")
        return Stream(lambda block, size: self._drawn(source, block, size), source.block)

    def prepare(self, split: SplitName) -> Split:
        source = self.inputs.test if split == "test" else self.inputs.train
        assert isinstance(source, Split)
        targets = self._targets(source.inputs, generator(self.seed, "noise-of", SPLITS.index(split)))
        named = {"teacher_outputs": self.teacher(source.inputs)} if split == "test" else {}
        law = (self.seed, split, self.noise, self.response is None, source.digest, *self.teacher.law)
        drawn = self.teacher.truth.get("attention", torch.zeros(0))
        return Split(source.inputs, targets, named=named, made_from=law_digest("taught", *law, drawn=drawn))

    def _drawn(self, source: Stream, block: int, size: int) -> tuple[Tensor, Tensor]:
        inputs, _ = source.draw(block, size)
        return inputs, self._targets(inputs, generator(self.seed, "noise", block))

    def _targets(self, inputs: Tensor, draws: torch.Generator) -> Tensor:
        clean = self.teacher(inputs) if self.response is None else self.response @ inputs
        return clean.add(torch.randn(clean.shape, generator=draws), alpha=self.noise) if self.noise else clean
