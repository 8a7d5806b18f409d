"""What a run runs on: threads as the recipe says, the device, the environment that is written down."""

import pytest
import torch

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.training import runtime

STAGE = {
    "stage": "evaluate",
    "model": {"name": "mlp"},
    "data": {"name": "gaussian-clusters", "test": 20},
    "metrics": ["accuracy"],
    "sets": {"in": {}},
}


def test_threads_are_as_the_recipe_says_while_it_runs_and_as_before_afterwards(tmp_path) -> None:
    before = torch.get_num_threads()
    recipe = {"recipe": "threads", "device": "cpu", "threads": 2, "stages": {"judge": STAGE}}
    done = provenzoo.run(recipe, out=tmp_path / "run")
    assert done.record["environment"]["threads"] == 2 and torch.get_num_threads() == before


def test_deterministic_kernels_are_asked_for_inside_only(monkeypatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with runtime.deterministic(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    assert not torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.benchmark


@pytest.mark.parametrize("value", [0, -1, "many", 2.5, True])
def test_a_wrong_number_of_threads_is_an_error(value: object) -> None:
    with pytest.raises(ZooError, match="threads"):
        provenzoo.compose({"recipe": "threads", "threads": value, "stages": {"judge": STAGE}})


def test_the_environment_names_versions_and_threads() -> None:
    found = runtime.environment()
    assert found["torch"] == torch.__version__.partition("+")[0] and found["threads"] == torch.get_num_threads()
    assert {"python", "torchvision", "timm"} <= found.keys()
