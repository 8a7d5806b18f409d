"""Checkpoints: what is saved comes back, whole or not at all."""

import json

import pytest
import torch
from safetensors import safe_open
from torch import nn

from provenzoo import checkpoint
from provenzoo.errors import ZooError


def random_tensors() -> dict[str, torch.Tensor]:
    return {
        "b.weight": torch.randn(3, 4),
        "a": torch.arange(5),
        "half": torch.randn(2, 2).bfloat16(),
        "flag": torch.tensor(True),
        "empty": torch.zeros(0, 3),
    }


def test_tensors_and_metadata_come_back_as_they_were(tmp_path):
    tensors = random_tensors()
    checkpoint.save(tmp_path / "model.safetensors", tensors, {"note": "Ünïcödé"})
    loaded, metadata = checkpoint.load(tmp_path / "model.safetensors")
    assert metadata == {"note": "Ünïcödé"}
    assert list(loaded) == sorted(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor)


def test_tied_tensors_are_stored_once_and_come_back_as_one_object(tmp_path):
    block = nn.Linear(4, 4)
    looped = nn.ModuleDict({"first": block, "again": block, "other": nn.Linear(4, 4)})
    checkpoint.save(tmp_path / "w.safetensors", looped.state_dict())
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        assert len(file.keys()) == 4
    loaded, metadata = checkpoint.load(tmp_path / "w.safetensors")
    assert loaded["first.weight"] is loaded["again.weight"]
    assert metadata == {}
    looped.load_state_dict(loaded, strict=True)


def test_views_that_share_memory_but_differ_in_layout_keep_their_own_values(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    tensors = {"whole": whole, "transposed": whole.T, "row": whole[1], "flat": whole.view(12)}
    checkpoint.save(tmp_path / "w.safetensors", tensors)
    loaded, _ = checkpoint.load(tmp_path / "w.safetensors")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_channels_last_and_expanded_tensors_are_saved(tmp_path):
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    checkpoint.save(tmp_path / "w.safetensors", {"image": image, "row": torch.ones(1, 3).expand(5, 3)})
    loaded, _ = checkpoint.load(tmp_path / "w.safetensors")
    assert torch.equal(loaded["image"], image) and torch.equal(loaded["row"], torch.ones(5, 3))


@pytest.mark.parametrize("keep", [0, 7, 40, -1])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, keep):
    file = tmp_path / "cut.safetensors"
    checkpoint.save(file, random_tensors())
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ZooError, match=r"cut\.safetensors"):
        checkpoint.load(file)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ZooError, match=r"absent\.safetensors"):
        checkpoint.load(tmp_path / "absent.safetensors")


def test_a_pickle_is_refused_and_never_run(tmp_path):
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return open, (str(ran), "w")

    torch.save({"weight": Trap()}, tmp_path / "trap.safetensors")
    with pytest.raises(ZooError, match="no safetensors file"):
        checkpoint.load(tmp_path / "trap.safetensors")
    assert not ran.exists()


@pytest.mark.parametrize("aliases", ["[1]", "{", json.dumps({"b": "absent"})])
def test_a_damaged_alias_map_is_an_error_that_names_the_file(tmp_path, aliases):
    checkpoint.save(tmp_path / "odd.safetensors", {"a": torch.ones(1)}, {"aliases": aliases})
    with pytest.raises(ZooError, match=r"odd\.safetensors"):
        checkpoint.load(tmp_path / "odd.safetensors")


def test_the_digest_does_not_depend_on_order_layout_aliases_or_metadata(tmp_path):
    tensors = random_tensors() | {"image": torch.randn(2, 3, 4, 4)}
    tensors["tied"] = tensors["image"]
    expected = checkpoint.digest(tensors)
    other = {name: tensors[name].clone() for name in reversed(tensors)}
    other["image"] = other["image"].to(memory_format=torch.channels_last)
    assert checkpoint.digest(other) == expected
    for turn, metadata in enumerate([{}, {"a": "1", "b": "2", "c": "3"}]):
        checkpoint.save(tmp_path / f"{turn}.safetensors", other, metadata)
        assert checkpoint.digest(checkpoint.load(tmp_path / f"{turn}.safetensors")[0]) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"w": torch.tensor([1.0, 2.0000002])},
        {"w": torch.tensor([[1.0, 2.0]])},
        {"w": torch.tensor([1.0, 2.0]).view(torch.int32)},
        {"v": torch.tensor([1.0, 2.0])},
    ],
    ids=["bit", "shape", "dtype", "name"],
)
def test_the_digest_changes_with_a_bit_a_shape_a_dtype_or_a_name(change):
    assert checkpoint.digest(change) != checkpoint.digest({"w": torch.tensor([1.0, 2.0])})


def test_stacked_states_are_picked_apart_again(tmp_path):
    block = nn.Linear(2, 2)
    states = [{"a": torch.full((2,), float(r)), **nn.ModuleList([block, block]).state_dict()} for r in range(3)]
    stacked = checkpoint.stack(states)
    assert stacked["a"].shape == (3, 2) and stacked["0.weight"] is stacked["1.weight"]
    checkpoint.save(tmp_path / "w.safetensors", stacked)
    loaded, _ = checkpoint.load(tmp_path / "w.safetensors")
    for r, state in enumerate(states):
        assert all(torch.equal(checkpoint.pick(loaded, r)[name], tensor) for name, tensor in state.items())
