"""In-context linear regression: losses, distances to the optimum, gradient dominance (Gatmiry et al. 2024).

The linear-attention models give predictions on prompts and, on Gram matrices G, error maps `[..., B, dim + 1, dim]`:
the matrix M and, as its last row, c, so that the error of a prediction is `-(w^T M + c) x_q`.
"""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from provenzoo.errors import ZooError
from provenzoo.metrics import wishart

FAR = 1.15
"""The loss is far from its optimum where it is at least so many times loss*; nearer, the theory says nothing."""


# --- losses -------------------------------------------------------------------------------------------------------


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of predictions, `[..., N] -> [...]`."""
    if targets.dim() > outputs.dim() or outputs.dim() > 2:
        raise ZooError("squared-error is of predictions on prompts; use integrated-squared-error, or `layout: prompts`")
    return (outputs - targets).square().mean(-1)


def integrated(outputs: Tensor, targets: Tensor) -> Tensor:
    """`E_(w, x_q) ((w^T M + c) x_q)^2 = tr(M^T C M S) + c S c^T` of each prompt, `[..., N]`.

    `targets` `[..., N, 2, dim, dim]` are C and S, the covariances of w and x_q, the same for all N.
    """
    if targets.dim() < 4:
        raise ZooError("the integrated loss is of Gram matrices; use squared-error, or data of `layout: gram`")
    weights, covariance = targets[..., 0, :, :, :].unbind(-3)
    right = (outputs.flatten(-3, -2) @ covariance).view(outputs.shape)
    left = torch.einsum("...ij,...njk->...nik", weights, outputs[..., :-1, :])
    return (left * right[..., :-1, :]).sum((-2, -1)) + (outputs[..., -1, :] * right[..., -1, :]).sum(-1)


def integrated_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error with w and x_q integrated out, mean over the prompts' G."""
    return integrated(outputs, targets).mean(-1)


def median_integrated_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The same, median over the prompts: of heavy tails it tells what most prompts see."""
    return integrated(outputs, targets).quantile(0.5, -1)


def log10_median_integrated_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Its logarithm to base 10, whose differences are factors: 5 % off is -0.0223, however small the loss is."""
    return median_integrated_squared_error(outputs, targets).log10()


# --- the optimum --------------------------------------------------------------------------------------------------


def closed_form(gram: Tensor, preconditioner: Tensor, shift: Tensor, covariances: Tensor, loops: int) -> Tensor:
    """The loss for any A and u of each G `[..., N, dim, dim]`: `tr(C M S M^T) + c S c^T`, `[..., N]`.

    `M = (I - G A)^L`, `c = u^T (M - I)`; `covariances` are the `targets` of `integrated`. For u = 0 Lemma 4.1 prints
    `tr (I - A^(1/2) G A^(1/2))^(2L)` (`printed_form`): the same only where A is proportional to S^-1.
    """
    m = torch.linalg.matrix_power(_loop(gram, preconditioner), loops)
    u = shift.to(gram.dtype)
    return integrated(torch.cat([m, (u @ m - u).unsqueeze(-2)], -2), covariances)


def printed_form(gram: Tensor, preconditioner: Tensor, loops: int) -> Tensor:
    """Lemma 4.1 as printed, of each G: `tr (I - A^(1/2) G A^(1/2))^(2L) = tr (I - G A)^(2L)`."""
    power = torch.linalg.matrix_power(_loop(gram, preconditioner), 2 * loops)
    return power.diagonal(dim1=-2, dim2=-1).sum(-1)


def excess_over_optimum(
    outputs: Tensor,
    targets: Tensor,
    inputs: Tensor,
    covariance: Tensor,
    weight_covariance: Tensor,
    context: Tensor,
    loops: Tensor,
) -> Tensor:
    """The loss over that of `A = a* S^-1`, u = 0, on the same Gram matrices `inputs`, less 1.

    a* is exact for the population, so that a set of few prompts can lie below it. Weights must be matched to S: for
    others the optimum is no multiple of S^-1 (one axis may be steeper than another), and a ZooError says so.
    """
    _check_optimum(inputs, covariance, weight_covariance)
    (step,), _ = wishart.looped_optimum(int(context), len(covariance), int(loops))
    best = torch.linalg.matrix_power(_loop(inputs, step * covariance.inverse()), int(loops))
    return _excess(outputs, best, targets)


def excess_over_layered_optimum(
    outputs: Tensor,
    targets: Tensor,
    inputs: Tensor,
    covariance: Tensor,
    weight_covariance: Tensor,
    context: Tensor,
    loops: Tensor,
) -> Tensor:
    """The loss over that of the best layers `A_t = a_t S^-1`, u = 0, on the same Gram matrices, less 1; w matched."""
    _check_optimum(inputs, covariance, weight_covariance)
    steps, _ = wishart.layered_optimum(int(context), len(covariance), int(loops))
    layers = [_loop(inputs, step * covariance.inverse()) for step in steps]
    return _excess(outputs, functools.reduce(torch.matmul, layers), targets)


def _excess(outputs: Tensor, best: Tensor, targets: Tensor) -> Tensor:
    """The mean loss over that of the maps `best` `[..., N, dim, dim]`, less 1."""
    optimum = integrated_squared_error(F.pad(best, (0, 0, 0, 1)), targets)
    return integrated_squared_error(outputs, targets) / optimum - 1


def _loop(gram: Tensor, preconditioner: Tensor) -> Tensor:
    return torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device) - gram @ preconditioner.to(gram.dtype)


# --- parameters ---------------------------------------------------------------------------------------------------


def preconditioner_distance(preconditioner: Tensor, covariance: Tensor) -> Tensor:
    """`|S A - c I|_F / |S A|_F` with the best c: 0 where A is proportional to S^-1."""
    _check_block(preconditioner)
    whitened = covariance @ preconditioner.to(covariance)
    scale = whitened.diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(len(covariance), dtype=whitened.dtype, device=whitened.device)
    return (whitened - scale[..., None, None] * identity).norm(dim=(-2, -1)) / whitened.norm(dim=(-2, -1))


def preconditioner_scale(preconditioner: Tensor, covariance: Tensor) -> Tensor:
    """c of `S A = c I`, the step size: `tr(S A) / dim`."""
    _check_block(preconditioner)
    return (covariance @ preconditioner.to(covariance)).diagonal(dim1=-2, dim2=-1).mean(-1)


def shift_norm(shift: Tensor) -> Tensor:
    """`|u|` of one layer."""
    if shift.dim() > 1:
        raise ZooError(f"it is of one layer that is looped, not of {len(shift)} layers")
    return shift.norm(dim=-1)


# --- the landscape ------------------------------------------------------------------------------------------------


def dominance_ratio(
    inputs: Tensor, targets: Tensor, preconditioner: Tensor, loops: Tensor, value: Tensor | None = None
) -> Tensor:
    """`|grad_A L|^2 / L^((2 loops - 1) / loops)` at u = 0, on Gram matrices `inputs`; Theorem 3.4 has at least 1/16.

    The proof's last step (Hoelder) drops a factor `dim^-((loops - 1) / loops)`, and its gradient leaves out
    `(2 loops)^2`: with n to infinity and A = aI the ratio is the product of the two.
    """
    _check_block(preconditioner, value)
    _check_grams(inputs, preconditioner)
    return _loss_and_ratio(inputs, targets, preconditioner, loops)[1]


def dominance_shortfall(
    inputs: Tensor,
    targets: Tensor,
    preconditioner: Tensor,
    loops: Tensor,
    covariance: Tensor,
    context: Tensor,
    value: Tensor | None = None,
) -> Tensor:
    """How far the dominance ratio is below 1/16 where the loss is at least 1.15 loss*, else 0; for S = I alone."""
    _check_block(preconditioner, value)
    _check_grams(inputs, preconditioner)
    if not covariance.equal(torch.eye(len(covariance)).to(covariance)):
        raise ZooError("Theorem 3.4 is for examples of covariance I; leave out `covariance` and `spectrum`")
    loss, ratio = _loss_and_ratio(inputs, targets, preconditioner, loops)
    optimum = wishart.looped_optimum(int(context), len(covariance), int(loops)).loss
    return (1 / 16 - ratio).clamp(min=0) * (loss >= FAR * optimum)


def _loss_and_ratio(gram: Tensor, targets: Tensor, preconditioner: Tensor, loops: Tensor) -> tuple[Tensor, Tensor]:
    power = int(loops)
    with torch.enable_grad():
        a = preconditioner.detach().to(gram).requires_grad_()
        loss = closed_form(gram, a, torch.zeros_like(a[0]), targets, power).mean(-1)
        [gradient] = torch.autograd.grad(loss.sum(), a)
    loss = loss.detach()
    return loss, gradient.square().sum((-2, -1)) / loss ** ((2 * power - 1) / power)


# --- what the model computes --------------------------------------------------------------------------------------


def gradient_descent_gap(
    outputs: Tensor, inputs: Tensor, preconditioner: Tensor, shift: Tensor, loops: Tensor
) -> Tensor:
    """Largest difference between predictions and those of preconditioned gradient descent, run example by example.

    On each prompt `v <- v - A^T grad |X^T v - y|^2 / (2n)`, from v = -u, and the prediction is `(v + u)^T x_q`: with
    u = 0 Proposition 3.1, which leaves out the transpose and the 1/2.
    """
    _check_block(preconditioner)
    _check_prompts(inputs, preconditioner)
    x, y, query = inputs[..., :-1, :-1], inputs[..., -1, :-1], inputs[..., :-1, -1]
    u = shift.to(inputs)
    v = -u.expand_as(query)
    for _ in range(int(loops)):
        residual = (v.unsqueeze(-2) @ x).squeeze(-2) - y
        gradient = (x @ residual.unsqueeze(-1)).squeeze(-1) / y.shape[-1]
        v = v - gradient @ preconditioner.to(gradient)
    return (outputs - ((v + u) * query).sum(-1)).abs().amax(-1)


def closed_form_error(
    outputs: Tensor,
    targets: Tensor,
    inputs: Tensor,
    preconditioner: Tensor,
    shift: Tensor,
    covariance: Tensor,
    weight_covariance: Tensor,
    loops: Tensor,
) -> Tensor:
    """How many standard errors the sampled squared error of prompts is off the closed form on the same X."""
    _check_block(preconditioner)
    _check_prompts(inputs, preconditioner)
    covariances = torch.stack([weight_covariance, covariance])[None].to(outputs)
    expected = closed_form(_grams(inputs), preconditioner, shift, covariances, int(loops))
    return _standard_errors(outputs, targets, expected)


def printed_form_error(
    outputs: Tensor,
    targets: Tensor,
    inputs: Tensor,
    preconditioner: Tensor,
    loops: Tensor,
    value: Tensor | None = None,
) -> Tensor:
    """The same for Lemma 4.1 as printed."""
    _check_block(preconditioner, value)
    _check_prompts(inputs, preconditioner)
    return _standard_errors(outputs, targets, printed_form(_grams(inputs), preconditioner, int(loops)))


def printed_form_share(
    inputs: Tensor,
    preconditioner: Tensor,
    covariance: Tensor,
    weight_covariance: Tensor,
    loops: Tensor,
    value: Tensor | None = None,
) -> Tensor:
    """Lemma 4.1 as printed over the closed form for any A, u = 0, both averaged over the same prompts."""
    _check_block(preconditioner, value)
    _check_prompts(inputs, preconditioner)
    gram = _grams(inputs)
    covariances = torch.stack([weight_covariance, covariance])[None].to(gram)
    whole = closed_form(gram, preconditioner, torch.zeros_like(covariance[0]), covariances, int(loops)).mean(-1)
    return printed_form(gram, preconditioner, int(loops)).mean(-1) / whole


def _grams(prompts: Tensor) -> Tensor:
    """G of prompts `[..., dim + 1, n + 1]`."""
    x = prompts[..., :-1, :-1]
    return x @ x.mT / x.shape[-1]


def _standard_errors(outputs: Tensor, targets: Tensor, expected: Tensor) -> Tensor:
    gap = (outputs - targets).square() - expected
    return gap.mean(-1).abs() / (gap.std(-1) / gap.shape[-1] ** 0.5)


# --- what a metric is not of --------------------------------------------------------------------------------------


def _check_block(preconditioner: Tensor, value: Tensor | None = None) -> None:
    """Refuse layers with weights of their own and, where the caller passes P as `value`, the form `full`."""
    if preconditioner.dim() > 2:
        raise ZooError(f"it is of one layer that is looped, not of {len(preconditioner)} layers")
    if value is not None:
        raise ZooError("it is of the forms `theory` and `symmetric`; with `form: full` the loss is another function")


def _check_grams(inputs: Tensor, like: Tensor) -> None:
    if inputs.shape[-2:] != like.shape[-2:]:
        raise ZooError("it is of Gram matrices; give the data `layout: gram`")


def _check_prompts(inputs: Tensor, like: Tensor) -> None:
    if inputs.shape[-2] != like.shape[-1] + 1:
        raise ZooError("it is of prompts; give the data `layout: prompts`")


def _check_optimum(inputs: Tensor, covariance: Tensor, weight_covariance: Tensor) -> None:
    """Refuse what the exact optimum is not of: prompts, and weights whose covariance is not S^-1 (to rounding)."""
    _check_grams(inputs, covariance)
    off = covariance @ weight_covariance - torch.eye(len(covariance)).to(covariance)
    if off.norm() > 1e-5 * covariance.norm() * weight_covariance.norm():
        raise ZooError("the exact optimum is known for `weights: matched` alone; leave out `weights: identity`")
