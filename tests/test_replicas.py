"""Replicas: which seeds train at once, and that a seed's result is its own."""

import pytest
import torch
from torch import nn

from provenzoo.datasets.gaussian_clusters import GaussianClusters
from provenzoo.draws import seeded
from provenzoo.metrics.classification import cross_entropy
from provenzoo.models.mlp import MLP
from provenzoo.training.feed import Feed
from provenzoo.training.loop import train
from provenzoo.training.optim import read_optim
from provenzoo.training.replicas import Replicas, at_once_pays

SIZES = {"features": 8, "num_classes": 3}


def mlp_of_seed(seed: int) -> MLP:
    with seeded(seed, "init"):
        return MLP(**SIZES, hidden=[16, 12])


def trained(seeds: list[int], steps: int = 20, **optim) -> list[dict[str, torch.Tensor]]:
    replicas = Replicas([mlp_of_seed(seed) for seed in seeds], seeds)
    feed = Feed([GaussianClusters(seed=seed, train=100, **SIZES).train for seed in seeds], seeds, batch=32)
    train(replicas, feed, cross_entropy, read_optim({"lr": 0.01, **optim}, "optim"), steps)
    return replicas.states()


@pytest.mark.parametrize("optim", [{}, {"clip": 0.5}, {"name": "sgd", "lr": 0.1, "momentum": 0.9}])
def test_a_seed_trained_with_others_at_once_is_as_trained_alone(optim):
    together = trained([3, 4, 5], **optim)
    for seed, state in zip([3, 4, 5], together, strict=True):
        [alone] = trained([seed], **optim)
        for name, tensor in alone.items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-6)


def test_one_seed_has_no_replica_axis():
    model = mlp_of_seed(0)
    replicas = Replicas([model], [0])
    assert replicas.module is model and not replicas.stacked
    assert replicas.states()[0].keys() == model.state_dict().keys()


def test_stacking_and_unstacking_give_the_models_back():
    models = [mlp_of_seed(seed) for seed in (0, 1)]
    before = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in models]
    replicas = Replicas(models, [0, 1])
    assert replicas.module.head.weight.shape == (2, 3, 12)
    for state, old in zip(replicas.states(), before, strict=True):
        assert all(torch.equal(state[name], old[name]) for name in old)


def test_single_models_have_the_parameters_as_they_are_now():
    replicas = Replicas([mlp_of_seed(seed) for seed in (0, 1)], [0, 1])
    inputs = torch.randn(2, 7, 8)
    with torch.no_grad():
        for parameter in replicas.module.parameters():
            parameter.mul_(1.5)
        at_once = replicas.module(inputs)
        for model, rows, outputs in zip(replicas.singles(), inputs, at_once, strict=True):
            torch.testing.assert_close(model(rows), outputs)


def test_tied_parameters_stay_tied_when_stacked():
    def tied() -> nn.Module:
        block = nn.Linear(4, 4)
        return nn.Sequential(block, block)

    module = Replicas([tied(), tied()], [0, 1]).module
    assert module[0].weight is module[1].weight and len(list(module.parameters())) == 2


def test_seeds_train_at_once_only_where_the_model_can_and_size_says_that_it_pays():
    assert at_once_pays(MLP, parameters=3_000, batch=256)
    assert not at_once_pays(MLP, parameters=300_000, batch=256)
    assert not at_once_pays(nn.Linear, parameters=10, batch=1)


def test_the_first_parameter_that_is_not_finite_is_found_for_each_replica():
    replicas = Replicas([mlp_of_seed(seed) for seed in range(3)], range(3))
    with torch.no_grad():
        replicas.module.head.bias[1, 0] = torch.nan
        replicas.module.body[1].weight[1, 2, 2] = torch.inf
        replicas.module.head.bias[2, 1] = torch.nan
    assert replicas.broken() == {1: "body.1.weight", 2: "head.bias"}
