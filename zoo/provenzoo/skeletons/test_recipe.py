"""The recipe my-skeleton."""

from pathlib import Path

import pytest

import provenzoo

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.setenv("PROVENZOO_PATH", str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT))


def test_every_claim_holds(tmp_path):
    done = provenzoo.run("my-skeleton", out=tmp_path / "run")
    assert done.holds, done.claims
