"""The checkpoints that were trained on all of Fashion-MNIST: their numbers are those of the weights."""

import pytest
from small_run import execute

import provenzoo
from provenzoo.datasets.mnist import FashionMNIST

NAMES = ["positional-vit-mini.fashion-mnist", "vit-mini.fashion-mnist"]


@pytest.mark.skipif(FashionMNIST.missing() is not None, reason="needs the whole of Fashion-MNIST")
@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_computed_again_on_all_held_out_images(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute("verify", name) == 0
    told = capsys.readouterr().out
    assert "4 numbers recomputed, all agree" in told and "accuracy" in told


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_back_by_name_as_the_kind_of_vit_that_it_is(name: str) -> None:
    model = provenzoo.load(name)
    assert model.attention == ("positional" if name.startswith("positional") else "vanilla")
