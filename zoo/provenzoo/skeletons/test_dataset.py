"""The data set my-skeleton."""

from pathlib import Path

import pytest
import torch

import provenzoo

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.setenv("PROVENZOO_PATH", str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT))


def test_without_noise_its_points_lie_on_the_circles_of_their_labels():
    data = provenzoo.create_dataset("my-skeleton", noise=0.0)
    assert data.train.inputs.shape == (400, data.shapes["features"])
    assert torch.allclose(data.train.inputs.norm(dim=-1), data.structure["radii"][data.train.targets], atol=1e-6)


def test_a_seed_repeats_its_data_and_another_gives_other():
    first, again, other = (provenzoo.create_dataset("my-skeleton", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert not torch.equal(first.train.inputs, other.train.inputs)
    assert not torch.equal(first.train.inputs[:200], first.test.inputs)
