"""Patches with spatial structure: Assumption 1 of Jelassi, Sander, Li 2022 (arXiv:2210.09221)."""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.partition import Partition
from provenzoo.datasets.patches import Count, Index, Patches
from provenzoo.draws import generator

Probability = Annotated[float, Field(ge=0, le=1)]


class PatchStructured(Patches):
    """Points of D patches in L sets of C, one of which, the signal set, tells the label.

    Of a point `X` `[D, d]` with label y = +1 or -1, each patch is X_j = delta_j w* + xi_j. In the signal set, drawn
    evenly, delta_j = y; elsewhere it is +1 and -1 with probability q / 2 each, else 0. The noise xi_j is normal of
    variance (noise^2 / d) in the directions orthogonal to the feature w*, a unit vector. (The variance is the text's
    sigma^2 = 1 / d times noise^2.)

    `partition` and `draw` choose the sets, `feature` one of the seed's features, `samples` the size of the training set
    (none: a fresh batch every step). Labels and deltas come from one generator, the noise from another, so that
    `patch-counts` has the same deltas.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        patches: Count = 36,
        dim: Count | None = None,
        set_size: Count = 4,
        q: Probability = 0.3,
        partition: Partition = "local",
        draw: Index = 0,
        feature: Index = 0,
        noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0,
        samples: Count | None = None,
        test: Count = 10_000,
    ) -> None:
        dim = patches if dim is None else dim
        law = (patches, dim, set_size, q, str(partition), draw, feature, noise, test)
        super().__init__(seed, patches, dim, set_size, partition, draw, feature, samples, test, law)
        self.q, self.sigma = q, noise / math.sqrt(dim)

    def labelling_function(self, inputs: Tensor) -> Tensor:
        """f(X) = sum over sets of z where |z| > 0.9 C, z = sum over the set of <w*, X_i>: `[..., D, d] -> [...]`.

        The text's Threshold (Assumption 1) keeps z where |z| > 0.9 C, so that y = -1 has a label too.
        """
        return self._threshold((inputs @ self.feature)[..., self.partition].sum(-1))

    def _threshold(self, sums: Tensor) -> Tensor:
        return torch.where(sums.abs() > 0.9 * self.partition.shape[1], sums, 0.0).sum(-1)

    def points(self, size: int, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        deltas, labels = self.deltas(size, purpose, step)
        noise = generator(self.seed, f"{purpose} noise", step, self.feature_index)
        inputs = torch.randn(size * deltas.shape[1], self.dim, generator=noise).mul_(self.sigma)
        inputs.addr_(deltas.flatten() - inputs @ self.feature, self.feature)
        return inputs.view(size, -1, self.dim), labels

    def deltas(self, size: int, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        """delta `[N, D]` and labels `[N]`, drawn by (seed, purpose, step, feature)."""
        draws = generator(self.seed, purpose, step, self.feature_index)
        count, members = self.partition.shape
        labels = torch.randint(2, (size,), generator=draws) * 2.0 - 1
        signal = torch.randint(count, (size,), generator=draws)
        uniform = torch.rand(size, count, members, generator=draws)
        deltas = (uniform < self.q / 2).float() - (uniform > 1 - self.q / 2).float()
        deltas[torch.arange(size), signal] = labels.unsqueeze(-1)
        return deltas.flatten(1)[:, self.partition.flatten().argsort()], labels


class PatchCounts(PatchStructured):
    """What the scalars of Lemma 4.1 see of `patch-structured`: in each set, how many patches carry +w* and -w*.

    Inputs `[N, L, 2]`: the numbers of delta = +1 and of delta = -1 in each set, from the same draws as the points of
    `patch-structured` with the same arguments. The noise plays no part: the value vector is in the span of w*.
    """

    @property
    def shapes(self) -> dict[str, int]:
        return {"patches": self.partition.numel(), "set_size": self.partition.shape[1]}

    def points(self, size: int, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        deltas, labels = self.deltas(size, purpose, step)
        by_set = deltas[:, self.partition]
        return torch.stack([(by_set > 0).sum(-1), (by_set < 0).sum(-1)], -1).float(), labels

    def labelling_function(self, inputs: Tensor) -> Tensor:
        """f of Assumption 1 from the counts: `[..., L, 2] -> [...]`."""
        return self._threshold(inputs[..., 0] - inputs[..., 1])
