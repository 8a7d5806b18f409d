"""One-layer students: what they compute, their gradient, and that they learn what they should."""

import pytest
import torch

from provenzoo import create_dataset, create_model
from provenzoo.metrics.recovery import half_squared_error
from provenzoo.models.activations import activate
from provenzoo.models.one_layer import bilinear
from provenzoo.training.replicas import Replicas

SIZES = {"dim": 3, "tokens": 5, "features": 4}


def filled(name: str, seed: int = 0, **args):
    """A student whose weights are not zero."""
    model = create_model(name, seed=seed, **SIZES, **args)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws))
    return model


@pytest.mark.parametrize("name", ["position-attention", "self-attention"])
def test_a_student_starts_at_zero_and_its_encodings_are_orthonormal(name):
    model = create_model(name, **SIZES)
    assert not any(parameter.any() for parameter in model.parameters())
    torch.testing.assert_close(model.positions.T @ model.positions, torch.eye(5))
    exact = create_model(name, **SIZES).double().positions
    torch.testing.assert_close(exact.T @ exact, torch.eye(5).double(), atol=1e-15, rtol=0)


def test_one_hot_positions_are_the_identity():
    model = create_model("position-attention", positions="one-hot", **SIZES)
    assert torch.equal(model.positions, torch.eye(5)) and torch.equal(model.double().positions, torch.eye(5).double())


def test_position_attention_is_equation_2_4():
    model, x = filled("position-attention", activation="leaky-relu"), torch.randn(6, 3, 5)
    p = model.positions
    scores = torch.softmax(p.T @ model.attention @ p / 5**0.5, dim=0)
    for item, output in zip(x, model(x), strict=True):
        torch.testing.assert_close(output, activate(model.value @ item @ scores, 0.1))


def test_self_attention_is_equation_2_3():
    model, x = filled("self-attention"), torch.randn(6, 3, 5)
    for item, output in zip(x, model(x), strict=True):
        z = torch.cat([item, model.positions])
        scores = torch.softmax(z.T @ model.attention @ z / 5**0.5, dim=0)
        torch.testing.assert_close(output, (model.value @ z @ scores).relu())


def test_self_attention_whose_tokens_score_nothing_is_attention_over_positions():
    full, alone, x = create_model("self-attention", **SIZES), filled("position-attention"), torch.randn(6, 3, 5)
    full.load_state_dict(full.state_dict() | {"positions": alone.positions})
    with torch.no_grad():
        full.attention[3:, 3:], full.value[:, :3] = alone.attention, alone.value
        torch.testing.assert_close(full(x), alone(x))
        full.attention[0, 4] = 3.0
        assert not torch.allclose(full(x), alone(x))


def test_the_gradient_of_self_attention_is_that_of_finite_differences():
    model, x = filled("self-attention").double(), torch.randn(2, 3, 5, dtype=torch.float64)
    state = {name: tensor.detach().clone().requires_grad_() for name, tensor in model.named_parameters()}
    names = list(state)

    def outputs(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, tensors, strict=True)), (x,))

    assert torch.autograd.gradcheck(outputs, [*state.values()])


@pytest.mark.parametrize("slope", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("replicas", [(), (3,)])
def test_the_gradient_by_hand_is_autograds(slope, replicas):
    sizes = [(7, 3, 5), (4, 3), (5, 5)]
    tensors = [torch.randn(*replicas, *size, dtype=torch.float64, requires_grad=True) for size in sizes]
    x, value, scores = tensors
    plain = activate(value.unsqueeze(-3) @ x @ scores.unsqueeze(-3), slope)
    outer = torch.randn_like(plain)
    ours, theirs = (torch.autograd.grad(out, tensors, outer) for out in (bilinear(*tensors, slope), plain))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_from_zero_weights_the_value_has_a_gradient_where_relus_would_have_none():
    model = create_model("position-attention", **SIZES)
    half_squared_error(model(torch.randn(6, 3, 5)), torch.ones(6, 4, 5)).backward()
    assert model.value.grad.any() and not torch.relu(torch.zeros(1, requires_grad=True)).backward()


@pytest.mark.parametrize("name", ["position-attention", "self-attention"])
def test_replicas_compute_what_each_does_alone(name):
    models = [filled(name, seed) for seed in range(3)]
    x = torch.randn(3, 6, 3, 5)
    alone = torch.stack([model(part) for model, part in zip(models, x, strict=True)])
    together = Replicas(models, range(3)).module(x)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_students_missing_arguments_come_from_data_and_teacher():
    inputs, teacher = {"name": "gaussian-tokens"}, {"name": "graph-conv", "activation": "leaky-relu", "leak": 0.2}
    dataset = create_dataset("taught", inputs=inputs, teacher=teacher)
    assert dataset.shapes == {"dim": 10, "tokens": 20, "features": 10, "activation": "leaky-relu", "leak": 0.2}
