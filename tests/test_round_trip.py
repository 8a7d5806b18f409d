"""Every kind of weights comes back from a file and from a checkpoint as it was, to the bit."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import provenzoo
from provenzoo import checkpoint
from provenzoo.draws import Permute
from provenzoo.models.build import build_filled
from provenzoo.plain import write_json


class Tied(nn.Module):
    """A head that is the embedding, and one block that is gone through twice."""

    def __init__(self, width: int = 8, loops: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, width)
        block = nn.Linear(width, width)
        self.blocks = nn.ModuleList([block] * loops)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(float(width)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x).relu()
        return self.head(self.norm(x) + self.scale)


def same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(checkpoint.bits(a), checkpoint.bits(b))


def through_file(state: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    checkpoint.save(folder / "w.safetensors", state)
    return checkpoint.load(folder / "w.safetensors")[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_tied_and_looped_weights_come_back_tied_in_every_type(tmp_path: Path, dtype: torch.dtype) -> None:
    model = Tied().to(dtype)
    built = build_filled(Tied, {"width": 8}, through_file(model.state_dict(), tmp_path), 0, "here")
    assert all(same(a, b) for a, b in zip(built.state_dict().values(), model.state_dict().values(), strict=True))
    assert built.head.weight is built.embed.weight and built.blocks[0] is built.blocks[1]
    assert len(list(built.parameters())) == len(list(model.parameters()))
    assert built.scale.tolist() == list(map(float, range(8)))  # no part of the state, so computed


def test_a_tied_model_that_was_loaded_trains_as_one(tmp_path: Path) -> None:
    models = [Tied(), Tied()]
    models[1].load_state_dict(models[0].state_dict())
    models[1] = build_filled(Tied, {}, through_file(models[1].state_dict(), tmp_path), 0, "here")
    for model in models:
        model.train()(torch.tensor([0, 1, 2])).square().sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).step()
    assert all(same(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


WRAPPED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": torch.compile,
    "compiled inside": lambda m: setattr(m, "norm", torch.compile(m.norm)) or m,
    "data parallel": lambda m: nn.DataParallel(m),
    "both": lambda m: torch.compile(nn.DataParallel(m)),
    "channels last": lambda m: m.to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_what_wraps_a_model_does_not_reach_the_file(tmp_path: Path, name: str) -> None:
    model = Tied()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    wrapped = WRAPPED[name](model)
    plain = checkpoint.plain_names(wrapped.state_dict())
    assert plain.keys() == state.keys() and all(same(plain[key], state[key]) for key in state)
    assert checkpoint.digest(through_file(plain, tmp_path)) == checkpoint.digest(state)


def test_a_distributed_model_does_not_reach_the_file(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = provenzoo.create_model("small-cnn", channels=1, num_classes=3)
        wrapped = torch.compile(nn.parallel.DistributedDataParallel(model))
        plain = checkpoint.plain_names(wrapped.state_dict())  # pyright: ignore[reportAttributeAccessIssue]
        assert checkpoint.digest(plain) == checkpoint.digest(model.state_dict())
    finally:
        torch.distributed.destroy_process_group()


def test_channels_last_weights_have_the_digest_and_the_bytes_of_plain_ones(tmp_path: Path) -> None:
    model = provenzoo.create_model("small-cnn", channels=1, num_classes=3)
    plain = checkpoint.packed(model.state_dict())
    last = model.to(memory_format=torch.channels_last).state_dict()
    assert checkpoint.packed(last) == plain and checkpoint.packed(dict(reversed(last.items()))) == plain


def folder_of(
    place: Path, name: str, seeds: int, dtype: torch.dtype, filled: dict, **args: object
) -> list[dict[str, Tensor]]:
    """A checkpoint folder of so many seeds of a model; their states."""
    models = [provenzoo.create_model(name, seed=k, **filled, **args).to(dtype) for k in range(seeds)]
    states = [model.state_dict() for model in models]
    tensors = checkpoint.stack(states)
    checkpoint.save(place / "model.safetensors", tensors)
    config = {"format": 1, "model": {"name": name, **args}, "filled": filled, "data": {"name": "gaussian-clusters"}}
    write_json(place / "config.json", config | {"seeds": list(range(seeds)), "digest": checkpoint.digest(tensors)})
    return states


IMAGE = {"image_size": 28, "channels": 1, "num_classes": 3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mlp", "small-cnn", "vit-mini", "positional-vit-mini"])
def test_a_checkpoint_of_every_family_and_type_loads_with_its_bits(
    tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    filled = (
        {"features": 6, "num_classes": 3}
        if name == "mlp"
        else {k: v for k, v in IMAGE.items() if "vit" in name or k != "image_size"}
    )
    states = folder_of(tmp_path, name, 2, dtype, filled)
    for seed, state in enumerate(states):
        loaded = provenzoo.load(f"local:{tmp_path}", seed=seed).state_dict()
        assert loaded.keys() == state.keys() and all(same(loaded[key], state[key]) for key in state)


def test_a_loaded_model_can_be_changed_without_its_file(tmp_path: Path) -> None:
    folder_of(tmp_path, "mlp", 1, torch.float32, {"features": 6, "num_classes": 3})
    before = (tmp_path / "model.safetensors").read_bytes()
    model = provenzoo.load(f"local:{tmp_path}")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert not same(next(provenzoo.load(f"local:{tmp_path}").parameters()), next(model.parameters()))


def test_an_adapted_model_is_built_empty_too(tmp_path: Path) -> None:
    folder_of(tmp_path, "positional-vit-mini", 1, torch.float32, IMAGE)
    model = provenzoo.load(f"local:{tmp_path}", permute={"cell": 4, "draw": 3})
    expected = provenzoo.create_model("positional-vit-mini", **IMAGE, permute=Permute(cell=4, draw=3).model_dump())
    assert torch.equal(model.row_order, expected.row_order) and not model.row_order.is_meta


def test_an_unknown_key_in_a_config_of_this_format_is_no_fault(tmp_path: Path) -> None:
    folder_of(tmp_path, "mlp", 1, torch.float32, {"features": 6, "num_classes": 3})
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", config | {"written_by_a_later_version": [1]})
    assert provenzoo.load(f"local:{tmp_path}").provenance["seed"] == 0
