"""Every model of timm and torchvision: built by its name, without memory for its weights, and in groups.

Without `--whole` one of each family: the first name of each of the libraries' modules.
"""

import warnings
from collections.abc import Iterable

import pytest
import timm
import torch
import torchvision
from timm.models.vision_transformer import VisionTransformer

from provenzoo.components import create_model
from provenzoo.errors import ZooError
from provenzoo.models.base import members, model_groups
from provenzoo.models.split import merged_state, split_fused
from provenzoo.registry import list_names

NO_ATTENTION = {"ParallelThingsBlock", "ParallelScalingBlock", "DiffParallelScalingBlock"}
"""timm's blocks whose attention is no parameter of its own: several a block, or one projection for it and the MLP."""


def modules(names: Iterable[str]) -> dict[str, list[str]]:
    """The module of a library -> the names of the models in it."""
    found: dict[str, list[str]] = {}
    for name in names:
        library, _, architecture = name.partition("/")
        builder = (
            timm.model_entrypoint(architecture)
            if library == "timm"
            else torchvision.models.get_model_builder(architecture)
        )
        found.setdefault(builder.__module__, []).append(name)
    return found


EVERY = modules([*list_names("models", "timm/*"), *list_names("models", "torchvision/*")])


def check(name: str) -> None:
    """Build a model for seven classes, and put every parameter of it in one group."""
    on_meta = not name.startswith("torchvision/regnet")  # these compute their sizes with tensors
    with warnings.catch_warnings(), torch.device("meta" if on_meta else "cpu"):
        warnings.simplefilter("ignore")
        model = create_model(name, num_classes=7)
    names = list(model.state_dict())
    split_fused(model)
    groups = model_groups(model)
    assert sorted(n for group in groups for n in members(model, group)) == sorted(
        n for n, _ in model.named_parameters()
    )
    assert list(merged_state(model)) == names
    if isinstance(model, VisionTransformer):
        own = {type(block).__name__ for block in model.blocks}
        assert ("attention" in groups) == (not own & NO_ATTENTION), own
    if "attention" not in groups:
        with pytest.raises(ZooError, match="no parameters in a group 'attention'; the model's groups are: "):
            members(model, "attention")


@pytest.mark.parametrize("module", EVERY)
def test_the_first_model_of_a_family_builds_and_its_parameters_are_in_groups(module: str) -> None:
    check(EVERY[module][0])


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for names in EVERY.values() for name in names])
def test_a_model_builds_and_its_parameters_are_in_groups(name: str) -> None:
    check(name)
