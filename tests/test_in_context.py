"""Metrics of in-context regression against samples, exact values and corrected formulas."""

import math
from typing import Any

import pytest
import torch
from in_context_case import DIM, SPECTRUM, N, asked, data, known, measured, model, refusal
from torch import Tensor

import provenzoo
from provenzoo.metrics import in_context, wishart

# --- losses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loops", [1, 3])
@pytest.mark.parametrize("weights", ["matched", "identity"])
def test_integrating_w_and_the_query_out_gives_the_expected_sampled_loss(loops: int, weights: str) -> None:
    made = model(loops)
    sampled = known(made, data("prompts", weights=weights))
    whole = known(made, data("gram", weights=weights))
    errors = (sampled["outputs"] - sampled["targets"]).square()
    integrated = in_context.integrated(whole["outputs"], whole["targets"])
    spread = (errors.var() / len(errors) + integrated.var() / len(integrated)).sqrt()
    assert abs(errors.mean() - integrated.mean()) < 4 * spread
    assert integrated.var() < errors.var() / 5
    assert integrated.median() < integrated.mean()
    assert in_context.median_integrated_squared_error(whole["outputs"], whole["targets"]) == integrated.quantile(0.5)


def test_the_slowest_axis_out_of_distribution_loses_eleven_per_cent_a_loop_and_five_are_less_than_half() -> None:
    """What the claim of Figure 3 takes its bar from: `(1 - a* / 16)^2` a loop where n is vast; its differences of logs."""
    (step,), _ = wishart.looped_optimum(100, 10, 2)
    assert 1 - (1 - step / 16) ** 2 == pytest.approx(0.11, abs=0.005)
    found = data(n=10**9, spectrum=[1.0, 1.0, 1.0, 1 / 16], test=20)
    logs = [
        measured("log10-median-integrated-squared-error", model(k, diagonal=step, std=0.0), found) for k in (40, 41)
    ]
    assert logs[1] - logs[0] == pytest.approx(2 * math.log10(1 - step / 16), rel=1e-3)
    assert logs[1] - logs[0] < -0.0223 < math.log10(0.95)


def test_losses_keep_replicas_apart() -> None:
    found = data(test=50).test
    inputs, targets = found.inputs.double(), found.targets.double()
    outputs = torch.stack([model(2, seed=k)(inputs) for k in range(3)])
    together = in_context.integrated_squared_error(outputs, targets.expand(3, *targets.shape))
    alone = [in_context.integrated_squared_error(output, targets) for output in outputs]
    torch.testing.assert_close(together, torch.stack(alone))
    torch.testing.assert_close(
        in_context.squared_error(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2)), torch.tensor([2.5])
    )


@pytest.mark.parametrize("loops", [1, 2, 5])
def test_the_closed_form_is_the_loss_of_what_the_model_computes_also_with_a_large_u(loops: int) -> None:
    numbers = known(model(loops, diagonal=0.3, std=0.5), data(test=50))
    own = (numbers["inputs"], numbers["preconditioner"], numbers["shift"], numbers["targets"])
    expected = in_context.integrated(numbers["outputs"], numbers["targets"])
    torch.testing.assert_close(in_context.closed_form(*own, loops), expected)
    assert not torch.allclose(in_context.closed_form(own[0], own[1], -2 * own[2], own[3], loops), expected)


def test_the_closed_form_holds_for_any_a_and_the_printed_one_only_for_the_inverse_covariance() -> None:
    """Lemma 4.1 is stated for every A; outside A proportional to S^-1 it gives too little."""
    inverse = [0.6 / eigenvalue for eigenvalue in SPECTRUM]
    for diagonal, std, printed_holds in ((inverse, 0.0, True), (0.5, 0.1, False)):
        numbers = known(model(2, diagonal=diagonal, std=std), data("prompts"))
        assert asked(in_context.closed_form_error, numbers) < 4
        assert (asked(in_context.printed_form_error, numbers) < 4) is printed_holds
        assert (asked(in_context.printed_form_share, numbers) == pytest.approx(1)) is printed_holds
        assert asked(in_context.printed_form_share, numbers) < 1.0001


# --- the optimum --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loops", [1, 2, 5])
def test_the_excess_of_the_exact_optimum_is_zero_also_where_whitening_takes_it(loops: int) -> None:
    (step,), _ = wishart.looped_optimum(N, DIM, loops)
    best = model(loops, diagonal=[step / eigenvalue for eigenvalue in SPECTRUM], std=0.0)
    numbers = known(best, data(test=500))
    assert asked(in_context.excess_over_optimum, numbers) == pytest.approx(0, abs=1e-6)
    assert asked(in_context.preconditioner_scale, numbers) == pytest.approx(step)
    assert asked(in_context.preconditioner_distance, numbers) == pytest.approx(0, abs=1e-6)
    assert asked(in_context.excess_over_optimum, known(model(loops), data(test=500))) > 0.01


def test_the_excess_of_the_exact_layers_is_zero() -> None:
    steps, loss = wishart.layered_optimum(N, DIM, 3)
    made: Any = provenzoo.create_model("linear-attention-layers", dim=DIM, layers=3, form="symmetric", std=0.0).double()
    with torch.no_grad():
        made.query.copy_(torch.stack([step * torch.tensor(SPECTRUM).double().reciprocal().diag() for step in steps]))
    numbers = known(made, data())
    assert asked(in_context.excess_over_layered_optimum, numbers) == pytest.approx(0, abs=1e-9)
    assert asked(in_context.integrated_squared_error, numbers) == pytest.approx(loss, rel=0.05)


@pytest.mark.parametrize(("weights", "least", "most"), [("matched", -1e-9, 0.001), ("identity", 0.1, 1.0)])
def test_the_best_multiple_of_the_inverse_covariance_is_best_for_matched_weights_alone(
    weights: str, least: float, most: float
) -> None:
    """By how much a free step size an axis, found by L-BFGS, is below A = a* S^-1: for other weights by far."""
    (step,), _ = wishart.looped_optimum(8, DIM, 1)
    found = data(n=8, weights=weights, spectrum=[0.1, 0.1, 0.1, 3.0])
    gram, targets = found.test.inputs.double(), found.test.targets.double()
    best, zero = step * found.covariance.inverse(), torch.zeros(DIM).double()
    factors = torch.ones(DIM).double().requires_grad_()

    def loss() -> Tensor:
        factors.grad = None
        value = in_context.closed_form(gram, best * factors, zero, targets, 1).mean()
        value.backward()
        return value

    optimiser = torch.optim.LBFGS([factors], max_iter=50)
    before = loss().item()
    optimiser.step(loss)
    assert least <= 1 - loss().item() / before <= most


@pytest.mark.parametrize("name", ["excess-over-optimum", "excess-over-layered-optimum"])
def test_an_excess_for_weights_that_are_not_matched_is_refused(name: str) -> None:
    assert "weights: matched" in refusal(name, model(2), data(weights="identity", test=5))
    unmoved = data(weights="identity", spectrum=None, test=5)
    assert isinstance(measured(name, model(2), unmoved), float)


def layers(count: int) -> Any:
    return provenzoo.create_model("linear-attention-layers", dim=DIM, layers=count).double()


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("gram", "closed-form-error gradient-descent-gap printed-form-error printed-form-share squared-error"),
        ("prompts", "dominance-ratio dominance-shortfall excess-over-optimum excess-over-layered-optimum"),
        ("prompts", "integrated-squared-error median-integrated-squared-error"),
    ],
)
def test_a_metric_of_the_other_layout_says_which_it_reads(layout: str, names: str) -> None:
    other = {"gram": "prompts", "prompts": "gram"}[layout]
    for name in names.split():
        assert f"layout: {other}" in refusal(name, model(2), data(layout, spectrum=None, test=5))
        if name != "excess-over-layered-optimum":
            assert isinstance(measured(name, model(2), data(other, spectrum=None, test=5)), float)


def test_a_metric_of_one_looped_layer_refuses_layers() -> None:
    for layout, names in (
        ("gram", "dominance-ratio dominance-shortfall preconditioner-distance preconditioner-scale shift-norm"),
        ("prompts", "closed-form-error gradient-descent-gap printed-form-error printed-form-share"),
    ):
        for name in names.split():
            assert "not of 3 layers" in refusal(name, layers(3), data(layout, spectrum=None, test=5))


@pytest.mark.parametrize("name", ["dominance-ratio", "dominance-shortfall"])
def test_dominance_is_not_of_the_full_form_whose_loss_depends_on_p_too(name: str) -> None:
    assert "form: full" in refusal(name, model(2, form="full"), data(spectrum=None, test=5))


def test_the_theorem_on_dominance_is_for_the_identity_alone() -> None:
    assert "covariance I" in refusal("dominance-shortfall", model(2), data(test=5))


def test_distances_are_those_worked_out_by_hand() -> None:
    a, covariance = torch.tensor([[1.0, 2.0], [2.0, 5.0]]), torch.eye(2)
    assert in_context.preconditioner_scale(a, covariance) == 3
    assert in_context.preconditioner_distance(a, covariance).item() == pytest.approx(4 / math.sqrt(34))
    assert in_context.shift_norm(torch.tensor([3.0, 4.0])) == 5


# --- gradient descent ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loops", range(1, 11))
@pytest.mark.parametrize("compute", ["tokens", "residual"])
def test_the_forward_pass_is_gradient_descent(loops: int, compute: str) -> None:
    """Against torch's own gradient of the squared residuals."""
    numbers = known(model(loops, diagonal=0.3, std=0.03, compute=compute), data("prompts", test=50))
    assert asked(in_context.gradient_descent_gap, numbers) < 1e-12
    x, y, query = numbers["inputs"][:, :DIM, :N], numbers["inputs"][:, DIM, :N], numbers["inputs"][:, :DIM, N]
    v = -numbers["shift"].expand_as(query)
    for _ in range(loops):
        v = v.detach().requires_grad_()
        half = ((v[:, None] @ x).squeeze(1) - y).square().sum() / (2 * N)
        [gradient] = torch.autograd.grad(half, v)
        v = v - gradient @ numbers["preconditioner"]
    expected = ((v + numbers["shift"]) * query).sum(-1).detach()
    torch.testing.assert_close(numbers["outputs"], expected, rtol=0, atol=1e-12)


# --- the landscape ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "loops", "a"), [(100, 2, 0.3), (50, 1, 0.1), (100, 3, 0.4)])
def test_the_dominance_ratio_is_the_exact_one_of_a_multiple_of_the_identity(n: int, loops: int, a: float) -> None:
    """At A = aI the gradient is f'(a) / dim times the identity, f the loss polynomial."""
    polynomial = wishart.loss_polynomial(n, DIM, loops)
    loss = float(wishart.value(polynomial, wishart.Fraction(a)))
    slope = float(wishart.value(wishart.derivative(polynomial), wishart.Fraction(a)))
    numbers = known(model(loops, diagonal=a, std=0.0), data(n=n, spectrum=None))
    assert asked(in_context.dominance_ratio, numbers) == pytest.approx(
        slope**2 / DIM / loss ** ((2 * loops - 1) / loops), rel=0.05
    )
    assert asked(in_context.dominance_shortfall, numbers) == 0


def test_the_dominance_shortfall_speaks_only_far_from_the_optimum() -> None:
    (step,), loss = wishart.looped_optimum(100, DIM, 2)
    near = known(model(2, diagonal=step, std=0.0), data(n=100, spectrum=None))
    assert asked(in_context.dominance_ratio, near) < 1 / 16 and asked(in_context.dominance_shortfall, near) == 0
    elsewhere = near | {"context": torch.tensor(10**9)}
    shortfall = 1 / 16 - asked(in_context.dominance_ratio, near)
    assert asked(in_context.dominance_shortfall, elsewhere) == pytest.approx(shortfall) and loss > 0


def test_far_from_the_optimum_is_1_15_times_its_loss() -> None:
    """The optimum at n = 100, judged by those of more examples, which it is further and further above."""
    near = known(model(2, diagonal=wishart.looped_optimum(100, DIM, 2).steps[0], std=0.0), data(n=100, spectrum=None))
    loss = asked(in_context.integrated_squared_error, near)
    above = {n: loss / wishart.looped_optimum(n, DIM, 2).loss for n in range(95, 130)}
    assert min(above.values()) < 1.1 and max(above.values()) > 1.2
    for n, times in above.items():
        found = asked(in_context.dominance_shortfall, near | {"context": torch.tensor(n)})
        assert (found > 0) is (times >= 1.15)


def test_without_noise_dominance_has_the_factors_that_the_proof_drops() -> None:
    """n to infinity, A = aI: |grad|^2 = (2L)^2 d^-((L-1)/L) L(A)^((2L-1)/L); the proof has 1/16, with neither factor."""
    n, dim, loops, a = 10**14, 10, 2, 0.5
    polynomial = wishart.loss_polynomial(n, dim, loops)
    loss, slope = (float(wishart.value(p, wishart.Fraction(a))) for p in (polynomial, wishart.derivative(polynomial)))
    assert slope**2 / dim / loss**1.5 == pytest.approx(16 / math.sqrt(10), rel=1e-9)
