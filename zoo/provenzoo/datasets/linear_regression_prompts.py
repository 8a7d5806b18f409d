"""Prompts of linear regression: n examples `(x_i, w^T x_i)` and a query (Gatmiry et al. 2024, Sec. 3.2 and 3.3)."""

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from provenzoo.datasets.base import SPLITS, Dataset, Recent, Split, SplitName, Stream, law_digest
from provenzoo.draws import derive, generator
from provenzoo.errors import ZooError

Count = Annotated[int, Field(ge=1)]
Context = Annotated[int, Field(ge=1, le=2**53)]
"""Context examples; beyond 2^53 a count is not exact in float64."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

TESTS = Recent()


class LinearRegressionPrompts(Dataset):
    """`x ~ N(0, S)`, `y = w^T x`, and `w ~ N(0, S^-1)` (`weights: matched`) or `N(0, I)` (`identity`).

    `layout` says what a model sees of a prompt:

    - `prompts`: `Z0 = [[X, x_q], [y^T, 0]]`, `[dim + 1, n + 1]`; the target is `y_q = w^T x_q`.
    - `gram`: `G = X X^T / n`, `[dim, dim]`, all that the loss depends on once w and x_q are integrated out; the target
      is the pair of covariances of w and of x_q, `[2, dim, dim]`. G is drawn by Bartlett's decomposition, exact in law.

    S is the identity, `covariance`, or has the eigenvalues `spectrum`, along the axes or, with `rotate`, in a basis
    drawn by (seed, "rotation"). `samples` training prompts are drawn once; without it each step draws its own.
    """

    loss = "squared-error"

    def __init__(
        self,
        *,
        seed: int = 0,
        n: Context,
        dim: Count = 10,
        layout: Literal["prompts", "gram"] = "prompts",
        covariance: list[list[Finite]] | None = None,
        spectrum: list[Positive] | None = None,
        rotate: bool = False,
        weights: Literal["matched", "identity"] = "matched",
        samples: Count | None = None,
        test: Count = 4000,
    ) -> None:
        self.seed, self.n, self.dim, self.layout = seed, n, dim, layout
        self.samples, self.count = samples, test
        self._law = (seed, n, dim, layout, str(covariance), str(spectrum), rotate, weights)
        self.covariance = self._covariance(covariance, spectrum, rotate)
        root = _root(self.covariance)
        identity = torch.eye(dim, dtype=torch.float64)
        self.weight_covariance = torch.cholesky_inverse(root) if weights == "matched" else identity
        self.roots = root.float(), _root(self.weight_covariance).float()
        self.covariances = torch.stack([self.weight_covariance, self.covariance]).float()
        tensors = (*self.roots, self.covariances)
        if not all(t.isfinite().all() and (t.diagonal(dim1=-2, dim2=-1) > 0).all() for t in tensors):
            raise ZooError(
                "linear-regression-prompts: the covariance of x or of w is outside float32 (about 1e-38 to 3e38); "
                "bring the eigenvalues nearer to 1"
            )
        if layout == "gram":
            self.loss = "integrated-squared-error"  # pyright: ignore[reportAttributeAccessIssue]

    def _covariance(self, covariance: list[list[float]] | None, spectrum: list[float] | None, rotate: bool) -> Tensor:
        if covariance is not None and spectrum is not None:
            raise ZooError("linear-regression-prompts: `covariance` or `spectrum`, not both")
        if rotate and spectrum is None:
            raise ZooError("linear-regression-prompts: `rotate` turns a `spectrum`; write one, or leave it out")
        if covariance is not None:
            return _checked(covariance, self.dim)
        eigenvalues = torch.tensor([1.0] * self.dim if spectrum is None else spectrum, dtype=torch.float64)
        if len(eigenvalues) != self.dim:
            raise ZooError(f"linear-regression-prompts: spectrum has {len(eigenvalues)} values, but dim is {self.dim}")
        if not rotate:
            return eigenvalues.diag()
        basis = _rotation(self.dim, generator(self.seed, "rotation"))
        return basis @ eigenvalues.diag() @ basis.mT

    @property
    def shapes(self) -> dict[str, int]:
        return {"dim": self.dim}

    @property
    def structure(self) -> dict[str, Tensor]:
        """Covariances of x and of w `[dim, dim]` float64, and the number of context examples n."""
        return {
            "covariance": self.covariance,
            "weight_covariance": self.weight_covariance,
            "context": torch.tensor(self.n),
        }

    def stream(self) -> Stream | None:
        return (
            Stream(lambda step, size: self._prompts(*self._draws(size, "fresh", step)))
            if self.samples is None
            else None
        )

    def prepare(self, split: SplitName) -> Split:
        if split == "test":
            return TESTS.get((*self._law, self.count), lambda: self._split("test", self.count))
        return self._split("train", self.samples or self.count)

    def _split(self, split: SplitName, count: int) -> Split:
        index = SPLITS.index(split)
        witness = torch.randint(2**31, (16,), generator=generator(self.seed, "prompts", index))
        made_from = law_digest(type(self).__name__, split, count, *self._law, drawn=witness)
        return Split(*self._prompts(*self._draws(count, "prompts", index)), made_from=made_from)

    def _draws(self, count: int, purpose: str, index: int) -> tuple[Tensor, ...]:
        """Bartlett's factors, or white examples with the query `[count, dim, n + 1]` and weights `[count, 1, dim]`."""
        if self.layout == "gram":
            return (bartlett(count, self.dim, self.n, derive(self.seed, purpose, index)),)
        draws = generator(self.seed, purpose, index)
        return tuple(torch.randn(count, *shape, generator=draws) for shape in ((self.dim, self.n + 1), (1, self.dim)))

    def _prompts(self, drawn: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and targets of draws: G and covariances, or Z0 and y_q."""
        root, weight_root = self.roots
        if weights is None:
            factor = drawn.mT @ root.mT
            return factor.mT @ factor / self.n, self.covariances.expand(len(drawn), -1, -1, -1)
        x = root @ drawn
        y = weights @ weight_root.mT @ x
        targets = y[:, 0, -1].clone()
        y[:, 0, -1] = 0
        return torch.cat([x, y], 1), targets


def bartlett(count: int, dim: int, n: int, seed: int) -> Tensor:
    """T `[count, dim, min(dim, n)]`: `T T^T` has the law of `X X^T`, X `[dim, n]` standard normal.

    X = T Q, its LQ decomposition: `T_ii^2 ~ chi^2(n - i)`, the entries below are standard normal (Bartlett 1933). It
    takes dim^2 draws where X takes dim n.
    """
    width = min(dim, n)
    factor = torch.randn(count, dim, width, generator=torch.Generator().manual_seed(seed)).tril_(-1)
    squares = np.random.default_rng(seed).chisquare(n - np.arange(width), (count, width))
    factor.diagonal(dim1=-2, dim2=-1).copy_(torch.from_numpy(squares).sqrt_())
    return factor


def _rotation(dim: int, draws: torch.Generator) -> Tensor:
    """A rotation or reflection drawn uniformly, `[dim, dim]` float64."""
    q, r = torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64, generator=draws))
    return q * r.diagonal().sign()


def _root(covariance: Tensor) -> Tensor:
    """Its Cholesky factor in float64; a covariance that rounding has made singular is a ZooError."""
    root, info = torch.linalg.cholesky_ex(covariance)
    if info:
        raise ZooError("linear-regression-prompts: the eigenvalues of the covariance are too far apart for float64")
    return root


def _checked(rows: list[list[float]], dim: int) -> Tensor:
    """A written covariance; one of another size, not symmetric or not positive definite is a ZooError."""
    sizes = sorted({len(rows), *map(len, rows)})
    if sizes != [dim]:
        given = f"{len(rows)} rows of {', '.join(str(s) for s in sorted(set(map(len, rows)))) or 'nothing'}"
        raise ZooError(f"linear-regression-prompts: covariance has {given}, but dim is {dim}")
    matrix = torch.tensor(rows, dtype=torch.float64)
    if not matrix.equal(matrix.mT):
        i, j = (matrix != matrix.mT).nonzero()[0].tolist()
        raise ZooError(f"linear-regression-prompts: covariance is not symmetric: at {i}, {j} it differs from {j}, {i}")
    if torch.linalg.cholesky_ex(matrix).info:
        least = torch.linalg.eigvalsh(matrix)[0].item()
        raise ZooError(f"linear-regression-prompts: covariance is not positive definite (least eigenvalue {least:.3g})")
    return matrix
