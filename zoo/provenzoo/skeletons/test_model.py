"""The model my-skeleton."""

from pathlib import Path

import pytest
import torch

import provenzoo
from provenzoo.models.base import members

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.setenv("PROVENZOO_PATH", str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT))


def test_its_output_is_what_the_formula_gives():
    model = provenzoo.create_model("my-skeleton", features=3, num_classes=2, hidden=4)
    x = torch.randn(5, 3)
    a, b = model.body, model.head
    assert torch.allclose(model(x), torch.tanh(x @ a.weight.T + a.bias) @ b.weight.T + b.bias, atol=1e-6)


def test_every_parameter_is_in_one_group():
    model = provenzoo.create_model("my-skeleton", features=3, num_classes=2)
    grouped = [name for group in model.groups for name in members(model, group)]
    assert sorted(grouped) == sorted(name for name, _ in model.named_parameters())
