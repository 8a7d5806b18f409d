"""The simplified ViT and its kin: their formula, their gradients, the constructions of the paper."""

import itertools

import pytest
import torch
from torch.func import functional_call

import provenzoo
from provenzoo.datasets.patch_structured import PatchCounts, PatchStructured
from provenzoo.errors import ZooError
from provenzoo.metrics.patch_association import alpha, disjoint_association, gamma, pairs, patch_association, rho
from provenzoo.models.patch_attention import (
    DisplacedPatchAttention,
    IdealizedPatchAttention,
    PatchAttention,
    PatchAttentionScalars,
    PatchwiseLinear,
)
from provenzoo.training.replicas import Replicas

SIZES = {"patches": 16, "dim": 16}


def by_loops(x: torch.Tensor, a: torch.Tensor, v: torch.Tensor, power: int, nu: float) -> torch.Tensor:
    """F of Eq. (T) for one point `[D, d]`, as it is written."""
    total = x.new_zeros(())
    for i in range(len(x)):
        weights = [a[i, j].exp() for j in range(len(x))]
        score = sum(w * (v @ x[j]) for j, w in enumerate(weights)) / sum(weights)
        total = total + score**power + nu * score
    return total


@pytest.mark.parametrize("power", [3, 5, 7])
def test_the_model_and_its_gradient_are_those_of_the_formula(power):
    model = PatchAttention(patches=9, dim=4, power=power, nu=0.2, sigma_a=1.5, omega=0.7).double()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    y = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    torch.nn.functional.softplus(-y * model(x)).mean().backward()
    a = model.attention_matrix().detach().requires_grad_()
    v = model.value.detach().requires_grad_()
    outputs = torch.stack([by_loops(point, a, v, power, 0.2) for point in x])
    torch.testing.assert_close(model(x), outputs)
    torch.log1p((-y * outputs).exp()).mean().backward()
    off_diagonal = ~torch.eye(9, dtype=torch.bool)
    torch.testing.assert_close(model.attention.grad, a.grad * off_diagonal)
    torch.testing.assert_close(model.value.grad, v.grad)


def test_the_diagonal_stays_sigma_a_whatever_is_trained():
    model = PatchAttention(**SIZES, sigma_a=2.5)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.5)
    model(torch.randn(5, 16, 16)).sum().backward()
    optimiser.step()
    assert (model.attention_matrix().diagonal() == 2.5).all()


@pytest.mark.parametrize(
    "build",
    [
        lambda: PatchAttention(**SIZES, omega=0.5),
        lambda: PatchwiseLinear(**SIZES),
        lambda: PatchAttentionScalars(patches=16, set_size=4),
    ],
)
def test_replicas_at_once_give_what_each_gives_alone(build):
    models = [build() for _ in range(3)]
    for model in models:
        for parameter in model.parameters():
            parameter.data += torch.randn_like(parameter)
    counts = isinstance(models[0], PatchAttentionScalars)
    x = torch.randint(3, (3, 5, 4, 2)).float() if counts else torch.randn(3, 5, 16, 16)
    alone = torch.stack([model(points) for model, points in zip(models, x, strict=True)])
    together = Replicas(models, [0, 1, 2]).module(x)
    torch.testing.assert_close(together, alone)
    together.square().sum(-1).backward(torch.ones(3))


def test_the_linear_model_is_linear_in_every_patch():
    model = PatchwiseLinear(patches=3, dim=2)
    model.value.data = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    assert model(torch.tensor([[[1.0, 5.0], [7.0, 1.0], [1.0, 1.0]]])).tolist() == [1 + 2 + 6]


def test_the_idealized_start_is_along_the_feature_of_its_own_seed():
    for seed in (0, 4):
        data = {"name": "patch-structured", "patches": 16}
        model = provenzoo.create_model("patch-attention-idealized", seed=seed, data=data, **SIZES)
        feature = PatchStructured(seed=seed, patches=16).feature
        torch.testing.assert_close(model.value.data, 0.1**0.5 * feature)
        assert torch.equal(model.attention_matrix(), 3.0 * torch.eye(16))


def test_the_scalars_and_the_whole_model_are_one_function():
    data = PatchStructured(patches=16, q=0.5, partition="random", test=200)
    counts = PatchCounts(patches=16, q=0.5, partition="random", test=200)
    scalars = PatchAttentionScalars(patches=16, set_size=4, sigma_a=2.0)
    scalars.value.data.fill_(1.3)
    scalars.attention.data = torch.tensor([0.9, -0.4]) * scalars.lengths
    named = scalars.named_tensors()
    whole = IdealizedPatchAttention(data=data, **SIZES, sigma_a=2.0)
    whole.value.data = 1.3 * data.feature
    same = (data.partition.flatten().argsort() // 4).unsqueeze(0) == (
        data.partition.flatten().argsort() // 4
    ).unsqueeze(1)
    whole.attention.data = torch.where(same, 0.9, -0.4)
    torch.testing.assert_close(scalars(counts.test.inputs), whole(data.test.inputs), rtol=1e-4, atol=1e-4)
    parts = {"attention_matrix": whole.attention_matrix(), "partition": data.partition}
    assert gamma(**parts).item() == pytest.approx(named["gamma"].item(), abs=1e-6) == 0.9
    assert rho(**parts).item() == pytest.approx(named["rho"].item(), abs=1e-6) == -0.4
    assert alpha(whole.value.data, data.feature).item() == pytest.approx(named["alpha"].item(), rel=1e-5)


def every_point(data: PatchStructured) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The whole law of 4 patches in 2 sets with q = 1 and no noise: deltas by set `[N, 2, 2]`, inputs, labels."""
    signs = (1.0, -1.0)
    found = [
        ([[y, y], [a, b]] if signal == 0 else [[a, b], [y, y]], y)
        for y, signal, a, b in itertools.product(signs, (0, 1), signs, signs)
    ]
    by_set = torch.tensor([deltas for deltas, _ in found])
    deltas = by_set.flatten(1)[:, data.partition.flatten().argsort()]
    return by_set, deltas.unsqueeze(-1) * data.feature, torch.tensor([y for _, y in found])


def test_a_gradient_step_on_the_scalars_is_that_on_every_entry():
    """On the whole law each entry of a class has one gradient (Lemma 4.1), and the scalars step by it."""
    data = PatchStructured(patches=4, set_size=2, partition="random", dim=4, q=1.0, noise=0.0)
    by_set, points, labels = every_point(data)
    counts = torch.stack([(by_set > 0).sum(-1), (by_set < 0).sum(-1)], -1).double()
    whole = IdealizedPatchAttention(data=data, patches=4, dim=4, sigma_a=1.0).double()
    scalars = PatchAttentionScalars(patches=4, set_size=2, sigma_a=1.0).double()
    whole.value.data = 0.1**0.5 * data.feature.double()
    scalars.value.data.fill_(0.1**0.5)
    for model, inputs in ((whole, points.double()), (scalars, counts)):
        for _ in range(3):
            loss = torch.nn.functional.softplus(-labels.double() * model(inputs)).mean()
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                parameter.data -= 20 * gradient
    within, beyond = pairs(data.partition)
    named = scalars.named_tensors()
    entries = whole.attention_matrix().detach()
    torch.testing.assert_close(entries[within], named["gamma"].expand(4), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(entries[beyond], named["rho"].expand(8), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(whole.value.data, named["alpha"] * data.feature.double(), rtol=1e-6, atol=1e-7)
    assert named["gamma"].abs() > 1e-3


def test_rows_that_score_another_set_sum_to_the_same_function():
    data = PatchStructured(patches=36, partition="random", test=50)
    twins = [DisplacedPatchAttention(data=data, patches=36, dim=36, shift=shift) for shift in (0, 1, 4)]
    outputs = [model(data.test.inputs) for model in twins]
    for model, other in zip(twins[1:], outputs[1:], strict=True):
        torch.testing.assert_close(other, outputs[0], rtol=1e-4, atol=1e-3)
        assert disjoint_association(model.attention_matrix(), data.partition) == 1
        assert patch_association(model.attention_matrix(), data.partition) == 0
    assert patch_association(twins[0].attention_matrix(), data.partition) == 1


@pytest.mark.parametrize("power", [2, 4, 1])
def test_an_even_or_small_power_is_refused(power):
    with pytest.raises(ZooError, match=r"power: must be (odd|greater than or equal to 3)"):
        provenzoo.create_model("patch-attention", **SIZES, power=power)


def test_data_without_a_feature_is_refused():
    data = {"name": "gaussian-clusters"}
    with pytest.raises(ZooError, match="GaussianClusters has no feature"):
        provenzoo.create_model("patch-attention-idealized", data=data, **SIZES)


def test_the_model_runs_under_vmap_and_functional_call():
    model = PatchAttention(**SIZES)
    x = torch.randn(4, 16, 16)
    torch.testing.assert_close(functional_call(model, dict(model.named_parameters()), (x,)), model(x))


@pytest.mark.parametrize("name", ["patch-attention-idealized", "patch-attention-displaced"])
@pytest.mark.parametrize("size", [{"patches": 36, "dim": 16}, {"patches": 16, "dim": 8}])
def test_data_of_another_size_than_the_models_is_refused(name, size):
    data = {"name": "patch-structured", "patches": 16}
    with pytest.raises(ZooError, match=r"data: (patches|dim) is 16 in the model's data"):
        provenzoo.create_model(name, data=data, **size)


def test_the_scalars_refuse_points():
    with pytest.raises(ZooError, match="needs the counts"):
        PatchAttentionScalars(patches=16, set_size=4)(torch.zeros(3, 16, 16))
