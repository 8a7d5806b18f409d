"""The simplified ViT of Jelassi, Sander, Li 2022 (arXiv:2210.09221): one layer whose attention knows positions alone.

    F(X) = sum_i sigma(sum_j S_ij <v, X_j>),   S = softmax of A by rows,   sigma(x) = x^p + nu x

(Simplification 3.1 and Eq. (T).) Off the diagonal A is trained, as is v; the diagonal stays sigma_A. The text has a
factor D before the inner sum and divides A by sqrt(d) in its definitions, though not in Section 4: both are 1 here.
That loses nothing: a factor c equals c v with the rate of v times c^2, and sqrt(d) equals A, sigma_A and its rate
rescaled. Gradients are autograd's: written out by hand they save a bare loop a fifth to a third of its time (a row of
scripts/bench.py), while our loop, which gathers its batches ahead, takes 0.85 of a bare one's with autograd.
"""

from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from provenzoo.datasets.base import Dataset
from provenzoo.errors import ZooError
from provenzoo.models.base import Count, Groups, Model


def _odd(power: int) -> int:
    if power % 2 == 0:
        raise ValueError("must be odd, so that F changes its sign with the label")
    return power


Power = Annotated[int, Field(ge=3), AfterValidator(_odd)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Real = Annotated[float, Field(allow_inf_nan=False)]


class PatchAttention(Model, nn.Module):
    """A and v drawn as in the realistic case of Parametrization 3.1: normal of standard deviation `omega`."""

    groups: Groups = {"attention": ["attention"], "value": ["value"]}
    replicable: ClassVar[bool] = True
    diagonal: Tensor

    def __init__(
        self,
        *,
        patches: Count,
        dim: Count,
        power: Power = 5,
        nu: NotNegative = 0.1,
        sigma_a: Real = 3.5,
        omega: NotNegative = 0.01,
    ) -> None:
        super().__init__()
        self.power, self.nu, self.sigma_a = power, nu, sigma_a
        self.attention = nn.Parameter((omega * torch.randn(patches, patches)).fill_diagonal_(sigma_a))
        self.value = nn.Parameter(omega * torch.randn(dim))
        self.register_buffer("diagonal", torch.eye(patches, dtype=torch.bool), persistent=False)

    def attention_matrix(self) -> Tensor:
        """A with its fixed diagonal, `[D, D]` or `[R, D, D]`."""
        return self.attention.masked_fill(self.diagonal, self.sigma_a)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, D, d] -> [B]`, or with replicas `[R, B, D, d] -> [R, B]`."""
        projected = (self.value.unsqueeze(-2) @ x.flatten(-3, -2).mT).view(x.shape[:-1])
        return polynomial(projected @ self.attention_matrix().softmax(-1).mT, self.power, self.nu).sum(-1)

    def named_tensors(self) -> dict[str, Tensor]:
        return {"attention_matrix": self.attention_matrix().detach(), "value_vector": self.value.detach()}


class IdealizedPatchAttention(PatchAttention):
    """The idealized case of Parametrization 3.1: A = 0 off the diagonal and v = nu^(1/(p - 1)) w*, w* the data's."""

    def __init__(
        self,
        *,
        data: Dataset,
        patches: Count,
        dim: Count,
        power: Power = 3,
        nu: NotNegative = 0.1,
        sigma_a: Real = 3.0,
    ) -> None:
        super().__init__(patches=patches, dim=dim, power=power, nu=nu, sigma_a=sigma_a, omega=0.0)
        self.value.data = nu ** (1 / (power - 1)) * structure_of(data, "feature", patches=patches, dim=dim)


class DisplacedPatchAttention(PatchAttention):
    """A transformer that generalises without patch association: the construction for Theorem 3.2, nothing trained.

    The rows of S_l score the set S_((l + shift) mod L), with A_ij = `score` there and 0 elsewhere, and v = alpha w*.
    The sets of all rows together are those of the associated twin, `shift` 0, so that F is the same sum in another
    order, while Top_C of a row meets its own set nowhere.
    """

    def __init__(
        self,
        *,
        data: Dataset,
        patches: Count,
        dim: Count,
        shift: Annotated[int, Field(ge=0)] = 1,
        score: Annotated[float, Field(gt=0)] = 10.0,
        alpha: Real = 3.0,
        power: Power = 5,
        nu: NotNegative = 0.1,
    ) -> None:
        sets = structure_of(data, "partition", patches=patches, dim=dim)
        shift %= len(sets)
        super().__init__(patches=patches, dim=dim, power=power, nu=nu, sigma_a=0.0 if shift else score, omega=0.0)
        scores = torch.zeros(patches, patches)
        for own, scored in zip(sets, sets.roll(-shift, 0), strict=True):
            scores[own.unsqueeze(1), scored] = score
        self.attention.data = scores
        self.value.data = alpha * structure_of(data, "feature")


class PatchwiseLinear(Model, nn.Module):
    """The generalised linear model of Theorem 3.1: g(X) = sum_j <w_j, X_j>, a vector for each patch, drawn at 0."""

    groups: Groups = {"value": ["value"]}
    replicable: ClassVar[bool] = True

    def __init__(self, *, patches: Count, dim: Count) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(patches, dim))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, D, d] -> [B]`, or with replicas `[R, B, D, d] -> [R, B]`."""
        return (self.value.flatten(-2).unsqueeze(-2) @ x.flatten(-2).mT).squeeze(-2)


class PatchAttentionScalars(Model, nn.Module):
    """The three scalars that the idealized dynamics reduce to: alpha, gamma, rho of Lemmas 4.1 and 4.2.

    A is beta = sigma_A on the diagonal, gamma between patches of one set and rho between others, and v = alpha w*; so F
    depends on a point through its counts of +w* and -w* in each set (`patch-counts`) alone. gamma and rho are held in
    the orthonormal coordinates gamma sqrt(D (C - 1)) and rho sqrt(D (D - C)): a gradient step on these is that on every
    entry of A, with the same rate.
    """

    groups: Groups = {"attention": ["attention"], "value": ["value"]}
    replicable: ClassVar[bool] = True
    lengths: Tensor
    pairs_in_row: Tensor

    def __init__(
        self,
        *,
        patches: Count,
        set_size: Count,
        power: Power = 3,
        nu: NotNegative = 0.1,
        sigma_a: Real = 3.0,
    ) -> None:
        super().__init__()
        if not 1 < set_size < patches:
            raise ZooError(f"set_size {set_size} of {patches} patches: there must be pairs within a set and beyond it")
        self.set_size, self.power, self.nu, self.sigma_a = set_size, power, nu, sigma_a
        self.attention = nn.Parameter(torch.zeros(2))
        self.value = nn.Parameter(torch.tensor([nu ** (1 / (power - 1))]))
        pairs = torch.tensor([patches * (set_size - 1.0), patches * float(patches - set_size)])
        self.register_buffer("lengths", pairs.sqrt(), persistent=False)
        self.register_buffer("pairs_in_row", pairs / patches, persistent=False)

    def scores(self) -> Tensor:
        """Lambda, Gamma, Xi of Section 4.1: a row's score of itself, of its set, of any other, `[..., 3]`."""
        entries = (self.attention / self.lengths).exp()
        diagonal = torch.full_like(entries[..., :1], self.sigma_a).exp()
        return torch.cat([diagonal, entries], -1) / (diagonal + (entries * self.pairs_in_row).sum(-1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        """Counts of +w* and -w* in each set, `[B, L, 2] -> [B]`, or with replicas `[R, B, L, 2] -> [R, B]`."""
        if x.shape[-1] != 2:
            raise ZooError("patch-attention-scalars: needs the counts of `patch-counts` [L, 2], not points")
        diagonal, within, beyond = self.scores().unsqueeze(-2).unsqueeze(-2).unbind(-1)
        in_set = x[..., 0] - x[..., 1]
        others = within * in_set + beyond * (in_set.sum(-1, keepdim=True) - in_set)
        counts = torch.cat([x, self.set_size - x.sum(-1, keepdim=True)], -1)
        alpha = self.value.unsqueeze(-1)
        terms = [
            count * polynomial(alpha * (others + delta * (diagonal - within)), self.power, self.nu)
            for delta, count in zip((1, -1, 0), counts.unbind(-1), strict=True)
        ]
        return torch.stack(terms).sum(0).sum(-1)

    def named_tensors(self) -> dict[str, Tensor]:
        gamma, rho = (self.attention / self.lengths).detach().unbind(-1)
        return {"alpha": self.value.detach().squeeze(-1), "gamma": gamma, "rho": rho}


def polynomial(x: Tensor, power: int, nu: float) -> Tensor:
    """sigma(x) = x^p + nu x for odd p, as x ((x^2)^((p - 1) / 2) + nu): whole powers are cheap, `x ** 5` is not."""
    return x * ((x * x) ** ((power - 1) // 2) + nu)


def structure_of(data: Dataset, name: str, **sizes: int) -> Tensor:
    """A tensor that the data was drawn from; data without it, or of other sizes than the model's, is a ZooError."""
    if name not in data.structure:
        raise ZooError(f"data: {type(data).__name__} has no {name}; use patch-structured")
    for key, size in sizes.items():
        if (theirs := data.shapes.get(key)) != size:
            raise ZooError(
                f"data: {key} is {theirs} in the model's data and {size} in the model; give both the same data"
            )
    return data.structure[name]
