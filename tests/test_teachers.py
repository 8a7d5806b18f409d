"""Teachers: their ground truth, what they compute, and what cannot be one."""

import shutil

import pytest
import torch

from provenzoo import checkpoint, create_dataset, create_model, create_teacher, fetch, load, registry, verify
from provenzoo.components import check
from provenzoo.errors import ZooError
from provenzoo.models.activations import activate
from provenzoo.models.pooled_cnn import pooling_groups, pooling_scores
from provenzoo.plain import read_json, write_json

NAMES = ["conv-pool", "graph-conv", "sparse-token", "group-sparse"]


@pytest.mark.parametrize("name", NAMES)
def test_every_column_of_the_true_scores_is_a_mean_over_k_tokens(name):
    attention = create_teacher(name).attention
    group = {"conv-pool": 4, "graph-conv": 3, "sparse-token": 4, "group-sparse": 1}[name]
    assert torch.equal((attention > 0).sum(0), torch.full((len(attention),), group))
    torch.testing.assert_close(attention.sum(0), torch.ones(len(attention)))


@pytest.mark.parametrize("name", NAMES)
def test_a_teacher_is_drawn_for_its_seed_alone(name):
    first, again, other = (create_teacher(name, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.value, again.value) and torch.equal(first.attention, again.attention)
    assert not (torch.equal(first.value, other.value) and torch.equal(first.attention, other.attention))


def test_a_convolution_pools_its_patches_before_the_activation():
    teacher = create_teacher("conv-pool", tokens=6, dim=3, features=2, group=2)
    x = torch.randn(5, 3, 6)
    patches = torch.einsum("md,bdi->bmi", teacher.value, x)
    pooled = patches.view(5, 2, 3, 2).mean(-1).clamp(min=0)
    torch.testing.assert_close(teacher(x), pooled.repeat_interleave(2, -1))


def test_a_graph_convolution_is_the_normalised_adjacency_with_self_loops():
    square = create_teacher("graph-conv", tokens=4, dim=2, features=2, edges=[[0, 1], [1, 2], [2, 3], [3, 0]])
    adjacency = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1.0]])
    degree = torch.diag(adjacency.sum(0) ** -0.5)
    torch.testing.assert_close(square.attention, degree @ adjacency @ degree)


def test_a_graph_is_a_cycle_an_edge_list_or_an_adjacency():
    edges = [[i, (i + 1) % 5] for i in range(5)]
    adjacency = [[int(abs(i - j) in (1, 4)) for j in range(5)] for i in range(5)]
    given = [{}, {"edges": edges}, {"adjacency": adjacency}]
    cycle, listed, matrix = (create_teacher("graph-conv", tokens=5, **how).attention for how in given)
    assert torch.equal(cycle, listed) and torch.equal(cycle, matrix)


def test_sparse_token_selection_gives_every_position_the_same_mean():
    teacher = create_teacher("sparse-token", tokens=7, dim=3, group=2)
    chosen = (teacher.attention[:, 0] > 0).nonzero().flatten()
    x = torch.randn(4, 3, 7)
    torch.testing.assert_close(teacher(x), x[:, :, chosen].mean(-1, keepdim=True).expand(4, 3, 7))


@pytest.mark.parametrize(("activation", "below"), [("identity", -2.0), ("relu", 0.0), ("leaky-relu", -0.2)])
def test_activations(activation, below):
    teacher = create_teacher("graph-conv", activation=activation)
    torch.testing.assert_close(activate(torch.tensor([-2.0, 0.0, 3.0]), teacher.slope), torch.tensor([below, 0.0, 3.0]))


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("graph-conv", {"tokens": 3, "edges": [[0, 1], [1, 2]]}, "not regular: node 0 has degree 1, node 1 has 2"),
        ("graph-conv", {"tokens": 3, "edges": [[0, 3]]}, r"edge \[0, 3\] names a node that is not among the 3"),
        ("graph-conv", {"tokens": 2, "adjacency": [[0, 1], [0, 0]]}, "not symmetric"),
        ("graph-conv", {"tokens": 2, "adjacency": [[0, 1], [1, 0]], "edges": [[0, 1]]}, "both given; give one"),
        ("graph-conv", {"tokens": 3, "adjacency": [[0, 1], [1, 0]]}, "is not 3 x 3"),
        ("conv-pool", {"tokens": 36, "group": 5}, "groups of 5 do not divide 36 tokens"),
        ("sparse-token", {"tokens": 3, "group": 4}, "4 of 3 tokens cannot be selected"),
        ("first-layer", {}, "`from` is needed"),
        ("network", {}, "either `from`"),
        (
            "network",
            {"model": {"name": "mlp", "features": 2, "num_classes": 2}, "layer": "bodies"},
            "did you mean 'body'",
        ),
    ],
)
def test_what_cannot_be_a_teacher_says_why(name, args, message):
    with pytest.raises(ZooError, match=message):
        create_teacher(name, **args)


def test_any_registered_model_can_teach_by_its_outputs_or_a_layers():
    model = {"name": "mlp", "features": 6, "num_classes": 3, "hidden": 5}
    outputs, layer = (create_teacher("network", model=model, **at) for at in ({}, {"layer": "body.0"}))
    x = torch.randn(4, 6)
    assert outputs(x).shape == (4, 3) and layer(x).shape == (4, 5)
    with torch.no_grad():
        torch.testing.assert_close(outputs(x), outputs.network(x))
        torch.testing.assert_close(layer(x), outputs.network.body[0](x))


def test_one_network_is_one_teacher_however_it_is_spelled():
    vit = {"name": "positional-vit-mini", "image_size": 28, "channels": 1, "num_classes": 3}
    written = {
        **registry.entry("models", "positional-vit-mini").args,
        "name": "positional-vit-mini",
        "num_classes": 3,
        "channels": 1,
    }
    written |= {"image_size": 28, "mlp_ratio": 2}
    known = create_teacher("network", model=vit).law
    assert create_teacher("network", model=written, layer="").law == known
    others = [
        {"model": vit | {"num_classes": 4}},
        {"model": vit | {"name": "vit-mini"}},
        {"model": vit, "layer": "head"},
    ]
    assert len({known, *(create_teacher("network", **other).law for other in others)}) == 4


def test_two_spellings_of_a_network_give_data_of_one_digest():
    inputs = {"name": "fashion-mnist-mini", "limit": 6}
    short = {"name": "small-cnn", "channels": 1, "num_classes": 4}
    turned = {key: short[key] for key in ("num_classes", "name", "channels")}
    digests = [
        create_dataset("taught", inputs=inputs, teacher={"name": "network", "model": model, **layer}).test.digest
        for model, layer in ((short, {}), (turned, {"layer": ""}), ({**short, "num_classes": 5}, {}))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_misspelt_layer_is_never_told_the_name_of_none():
    model = {"name": "mlp", "features": 2, "num_classes": 2}
    with pytest.raises(ZooError, match=r"no layer 'x'; there are: body, body\.0, head$"):
        create_teacher("network", model=model, layer="x")
    with pytest.raises(ZooError) as raised:
        create_teacher("network", model=model, layer="bodies")
    assert "''" not in str(raised.value)


def test_a_checkpoint_of_any_model_can_teach_by_its_outputs_or_a_layers():
    name = "positional-vit-mini.quickstart"
    trained = load(name)
    outputs, layer = (create_teacher("network", **{"from": name}, **at) for at in ({}, {"layer": "norm"}))
    images = torch.randn(2, 1, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(outputs(images), trained(images))
        torch.testing.assert_close(trained.forward_head(layer(images)), trained(images))


@pytest.mark.parametrize(
    ("model", "layer", "message"),
    [
        ({"name": "mlp", "features": 5, "num_classes": 3}, None, r"takes no inputs of shape \[6\]: mat1 and mat2"),
        ({"name": "vit-mini", "image_size": 28, "channels": 1, "num_classes": 3}, None, r"takes no inputs of shape"),
        ({"name": "mlp", "features": 6, "num_classes": 3}, "body", "'body' is called 0 times"),
    ],
)
def test_a_network_that_cannot_teach_on_such_inputs_says_why(model, layer, message):
    with pytest.raises(ZooError, match=message):
        create_teacher("network", model=model, layer=layer)(torch.randn(4, 6))


def test_average_pooling_is_a_mean_over_each_pool_of_patches():
    assert pooling_groups(4, 2).tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    maps = torch.randn(1, 2, 6, 6)
    pooled = torch.nn.functional.avg_pool2d(maps, 3).repeat_interleave(3, -1).repeat_interleave(3, -2)
    torch.testing.assert_close(maps.flatten(2) @ pooling_scores(6, 3), pooled.flatten(2))


def test_the_pooled_cnn_is_convolution_pooling_activation_and_a_linear_layer():
    network = create_model("pooled-cnn", image_size=18, channels=2, num_classes=4, width=5)
    images = torch.randn(3, 2, 18, 18)
    hidden = torch.nn.functional.avg_pool2d(network.conv(images), 3).relu()
    torch.testing.assert_close(network(images), network.head(hidden.flatten(1)))


def test_the_pooled_cnns_first_layer_is_a_teacher_of_its_patches():
    network = create_model("pooled-cnn", image_size=9, channels=1, num_classes=4, width=5, activation="leaky-relu")
    truth, images = network.named_tensors(), torch.randn(3, 1, 9, 9)
    patches = torch.nn.functional.unfold(images, 3, stride=3)
    hidden = activate(truth["value"] @ patches @ truth["attention"], 0.1)
    logits = network.head(hidden.view(3, 5, 3, 3)[:, :, 0, 0].flatten(1))
    torch.testing.assert_close(network(images), logits)


def test_an_image_that_pools_do_not_tile_is_an_error():
    with pytest.raises(ZooError, match="choose a `size` that 9 divides"):
        create_model("pooled-cnn", image_size=28, channels=1, num_classes=10)


def test_inputs_that_do_not_fit_a_teacher_are_an_error():
    node = {"name": "taught", "inputs": {"name": "gaussian-tokens", "tokens": 36}, "teacher": {"name": "graph-conv"}}
    with pytest.raises(ZooError, match="the teacher has tokens 20, its inputs have tokens 36"):
        check("datasets", node, "data").build(seed=0)


def test_a_kept_teacher_teaches_as_the_one_that_was_drawn():
    kept = create_teacher("bilinear", **{"from": "bilinear.zhang2026-graph"})
    drawn = create_teacher("graph-conv", seed=0)
    x = torch.randn(4, 10, 20)
    assert torch.equal(kept.attention, drawn.attention) and kept.activation == drawn.activation
    torch.testing.assert_close(kept(x), drawn(x))
    torch.testing.assert_close(load("bilinear.zhang2026-graph")(x), drawn(x))


def test_verify_measures_a_kept_teacher_against_the_ground_truth_drawn_anew(tmp_path):
    kept, name = tmp_path / "kept", "bilinear.zhang2026-conv"
    shutil.copytree(fetch.folder(name), kept)
    assert {row.metric: row.recomputed for row in verify(kept).rows if row.metric.endswith("-distance")} == {
        "value-distance": 0,
        "score-distance": 0,
    }
    tensors, _ = checkpoint.load(kept / "model.safetensors")
    tensors["value"][0, 2, 3] += 0.75
    tensors["attention"][0, 0, 1] += 0.25
    checkpoint.save(kept / "model.safetensors", tensors)
    with pytest.raises(ZooError, match="not the tensors that were saved"):
        verify(kept)
    config = read_json(kept / "config.json")
    write_json(kept / "config.json", config | {"digest": checkpoint.digest(tensors)})
    off = {row.metric: row.recomputed for row in verify(kept).rows if not row.agrees}
    assert off["value-distance"] == pytest.approx(0.75) and off["score-distance"] == pytest.approx(0.25)
    assert off["cosine-to-truth"] < 1 and off["loss"] > 0


def test_a_checkpoint_that_holds_no_teacher_is_refused():
    with pytest.raises(ZooError, match="holds a positional-vit-mini, no teacher"):
        create_teacher("bilinear", **{"from": "positional-vit-mini.quickstart"})
