"""The teacher my-skeleton."""

from pathlib import Path

import pytest
import torch

import provenzoo

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.setenv("PROVENZOO_PATH", str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT))


def test_it_gives_the_part_along_its_direction():
    teacher = provenzoo.create_teacher("my-skeleton", features=3)
    assert torch.allclose(teacher.truth["value"].norm(), torch.tensor(1.0))
    assert torch.allclose(teacher(torch.eye(3)), teacher.truth["value"])


def test_a_seed_repeats_it_and_another_gives_another():
    first, again, other = (provenzoo.create_teacher("my-skeleton", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.value, again.value) and not torch.equal(first.value, other.value)
