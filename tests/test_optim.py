"""Optimisers and schedules by name: what a node may hold, who gets which rate, and state by name."""

import pytest
import torch
from torch import nn

from provenzoo.errors import ZooError
from provenzoo.models.mlp import MLP
from provenzoo.settings import Settings
from provenzoo.training import optim
from provenzoo.training.optim import AdamW, Optim, Schedule, read_optim
from provenzoo.training.replicas import Replicas


def small_mlp() -> MLP:
    return MLP(features=4, num_classes=3, hidden=5)


def groups_by_rate(node: dict, model: nn.Module, stacked: bool = False) -> list[tuple[float, float, int]]:
    built = optim.build(read_optim(node, "optim"), model, stacked)
    return [(g["lr"], g["weight_decay"], len(g["params"])) for g in built.param_groups]


def train_a_little(model: nn.Module, optimiser: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        model(inputs).square().mean().backward()
        optimiser.step()


def test_no_optimiser_named_is_adamw_at_one_thousandth_and_constant():
    default = read_optim({}, "optim")
    assert default == Optim() and isinstance(default.own, AdamW)
    assert (default.lr, default.schedule.factor(7, 10)) == (1e-3, 1.0)


def test_a_name_alone_is_enough():
    assert read_optim("sgd", "optim") == read_optim({"name": "sgd"}, "optim")
    assert read_optim({"schedule": "cosine"}, "optim").schedule == Schedule(name="cosine")


def test_a_stage_may_hold_the_node():
    class Stage(Settings):
        optim: Optim = Optim()

    assert Stage.model_validate({"optim": {"name": "sgd", "momentum": 0.5}}).optim.own.model_dump()["momentum"] == 0.5
    assert Stage.model_validate({"optim": "adam"}).optim.name == "adam"
    assert Stage().optim == Optim()


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"name": "adamv"}, ["adamv", "'adamw'"]),
        ({"name": "sgd", "momentun": 0.9}, ["momentun", "'momentum'"]),
        ({"name": "sgd", "betas": [0.9, 0.99]}, ["sgd", "betas"]),
        ({"learning_rate": 0.1}, ["learning_rate"]),
        ({"own": {}}, ["own"]),
        ({"lr": "fast"}, ["stage.optim.lr", "'fast'"]),
        ({"lr": True}, ["stage.optim.lr"]),
        ({"lr": 0}, ["stage.optim.lr"]),
        ({"lr": -1.0}, ["stage.optim.lr"]),
        ({"lr": 1e99}, ["stage.optim.lr", "1e+99"]),
        ({"weight_decay": -1}, ["stage.optim.weight_decay"]),
        ({"betas": [0.9]}, ["stage.optim.betas"]),
        ({"betas": [0.9, 1.0]}, ["stage.optim.betas.1"]),
        ({"clip": 0}, ["stage.optim.clip"]),
        ({"schedule": {"warmpu": 0.1}}, ["stage.optim.schedule", "'warmup'"]),
        ({"schedule": "cosin"}, ["stage.optim.schedule.name", "'cosin'"]),
        ({"groups": {"head": {"lrr": 1}}}, ["stage.optim.groups.head", "'lr'"]),
        ({"name": "sgd", "nesterov": True}, ["nesterov", "momentum"]),
        ({"name": "gradient-flow", "clip": 1.0}, ["gradient-flow", "leave out clip,"]),
        ({"name": "gradient-flow", "schedule": "cosine"}, ["leave out schedule,"]),
        ({"name": "gradient-flow", "weight_decay": 0.1}, ["leave out weight_decay,"]),
        ({"name": "gradient-flow", "groups": {"value": {"weight_decay": 0.1}}}, ["leave out weight_decay,"]),
    ],
)
def test_a_wrong_node_is_told_in_one_line_with_its_place(node, told):
    with pytest.raises(ZooError) as raised:
        read_optim(node, "stage.optim")
    message = str(raised.value)
    assert "\n" not in message and message.startswith("stage.optim")
    assert all(word in message for word in told), message


def test_a_group_has_its_own_rate_and_decay_and_the_rest_the_common_ones():
    node = {
        "name": "sgd",
        "lr": 0.5,
        "groups": {"head": {"lr": 2.0, "weight_decay": 0.1}},
        "decay_vectors": True,
    }
    assert groups_by_rate(node, small_mlp()) == [(2.0, 0.1, 2), (0.5, 0.0, 2)]


def test_vectors_are_not_decayed_unless_asked_for_and_the_replica_axis_does_not_count():
    two = Replicas([small_mlp(), small_mlp()], [0, 1])
    for model, stacked in ((small_mlp(), False), (two.module, True)):
        assert groups_by_rate({"weight_decay": 0.1}, model, stacked) == [(1e-3, 0.1, 2), (1e-3, 0.0, 2)]
    assert groups_by_rate({"weight_decay": 0.1, "decay_vectors": True}, small_mlp()) == [(1e-3, 0.1, 4)]


def test_frozen_parameters_are_not_given_to_the_optimiser():
    model = small_mlp()
    model.head.requires_grad_(False)
    assert groups_by_rate({"name": "sgd", "groups": {"head": {"lr": 1.0}}}, model) == [(1e-3, 0.0, 2)]


def test_a_group_that_the_model_lacks_is_an_error_that_lists_those_it_has():
    with pytest.raises(ZooError, match=r"'tail'.*body, head"):
        optim.build(read_optim({"groups": {"tail": {"lr": 1.0}}}, "optim"), small_mlp())


def test_a_parameter_in_two_groups_is_an_error():
    with pytest.raises(ZooError, match=r"head\.weight is in both"):
        optim.build(read_optim({"groups": {"head": {}, "*.weight": {}}}, "optim"), small_mlp())


def test_cosine_is_torchs_cosine():
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(reference, T_max=40, eta_min=0.1)
    schedule = Schedule(name="cosine", floor=0.1)
    for step in range(40):
        assert schedule.factor(step, 40) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9)
        reference.step()
        scheduler.step()


def test_warm_up_rises_evenly_to_one_and_the_cosine_starts_there():
    schedule = Schedule(name="cosine", warmup=0.25)
    assert [schedule.factor(step, 12) for step in range(4)] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert schedule.factor(8, 13) == pytest.approx(0.5)  # half-way from step 3 to 13


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_an_optimiser_does_what_torchs_plain_one_does(name):
    theirs = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name]
    own = {"momentum": 0.9, "nesterov": True} if name == "sgd" else {"betas": [0.8, 0.95]}
    ours, reference = small_mlp(), small_mlp()
    reference.load_state_dict(ours.state_dict())
    node = {"name": name, "lr": 0.05, "weight_decay": 0.1, "decay_vectors": True, **own}
    train_a_little(ours, optim.build(read_optim(node, "optim"), ours), 10)
    own = {key: tuple(value) if key == "betas" else value for key, value in own.items()}
    train_a_little(reference, theirs(reference.parameters(), lr=0.05, weight_decay=0.1, foreach=False, **own), 10)
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "node", [{"name": "adamw"}, {"name": "adam"}, {"name": "sgd", "momentum": 0.9}, {"name": "sgd"}]
)
def test_a_restored_optimiser_goes_on_to_the_bit(node):
    settings = read_optim(node | {"lr": 0.05}, "optim")
    whole = small_mlp()
    optimiser = optim.build(settings, whole)
    train_a_little(whole, optimiser, 5)
    saved = {name: tensor.clone() for name, tensor in optim.optimiser_state(optimiser, whole).items()}
    again = small_mlp()
    again.load_state_dict(whole.state_dict())
    train_a_little(whole, optimiser, 5, start=5)
    resumed = optim.build(settings, again)
    optim.restore_optimiser(resumed, again, saved)
    train_a_little(again, resumed, 5, start=5)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))


def test_state_is_named_by_parameter():
    model = small_mlp()
    optimiser = optim.build(Optim(), model)
    train_a_little(model, optimiser, 1)
    names = [name for name, _ in model.named_parameters()]
    state = optim.optimiser_state(optimiser, model)
    assert set(state) == {f"{what}/{name}" for what in ("step", "exp_avg", "exp_avg_sq") for name in names}


def test_each_replicas_gradient_is_clipped_by_its_own_norm():
    parameters = [nn.Parameter(torch.zeros(2, 3, 4)), nn.Parameter(torch.zeros(2))]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
        parameter.grad[0] *= 100
        parameter.grad[1] *= 0.01
    before = [parameter.grad.clone() for parameter in parameters]
    optim.clip_gradients(parameters, 1.0, stacked=True)
    norm = sum(p.grad[0].square().sum() for p in parameters).sqrt()
    assert norm.item() == pytest.approx(1, rel=1e-4)
    assert all(torch.equal(p.grad[1], old[1]) for p, old in zip(parameters, before, strict=True))


def test_a_normalised_step_has_the_length_of_the_rate_for_each_replica():
    one = read_optim({"name": "normalised-gd", "lr": 0.5}, "optim")
    replicas = Replicas([small_mlp(), small_mlp()], [0, 1])
    before = [{name: tensor.clone() for name, tensor in state.items()} for state in replicas.states()]
    scale = torch.tensor([1.0, 1e3]).view(2, 1, 1)
    optimiser = optim.build(one, replicas.module, stacked=True)
    (replicas.module(torch.ones(2, 6, 4)) * scale).square().sum().backward()
    optim.normalise_gradients([p for group in optimiser.param_groups for p in group["params"]], stacked=True)
    optimiser.step()
    for old, new in zip(before, replicas.states(), strict=True):
        moved = torch.cat([(new[name] - old[name]).flatten() for name in new])
        assert moved.norm().item() == pytest.approx(0.5, rel=1e-4)
