"""The same on CUDA: the quickstart's claims, frozen attention, and resuming within a stated tolerance."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import provenzoo
from provenzoo import checkpoint
from provenzoo.plain import read_json

pytestmark = pytest.mark.cuda

SAVING = """
import sys
from provenzoo import cli
from provenzoo.training import loop, runtime
loop.Every = lambda seconds: runtime.Every(0)
sys.exit(cli.execute(sys.argv[1:]))
"""
"""The command, with the state saved at every step, so that the stage lasts and is in the middle once there is one."""


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> provenzoo.Run:
    return provenzoo.run("quickstart", ["device=cuda"], out=tmp_path_factory.mktemp("cuda") / "run")


def test_every_claim_of_the_quickstart_holds(quickstart: provenzoo.Run) -> None:
    assert [claim["id"] for claim in quickstart.claims if not claim["holds"]] == []
    assert quickstart.record["environment"]["device"].startswith("cuda")


def test_the_frozen_attention_is_unchanged_to_the_bit(quickstart: provenzoo.Run) -> None:
    stages = {stage["name"]: stage for stage in quickstart.record["stages"]}
    assert stages["finetune"]["frozen_unchanged"] is True
    before, after = (
        checkpoint.load(quickstart.path / f"stages/{s}/model.safetensors")[0] for s in ("pretrain", "finetune")
    )
    assert torch.equal(before["pos_embed"], after["pos_embed"])


def test_what_was_trained_on_cuda_verifies_on_the_cpu_and_on_cuda(quickstart: provenzoo.Run) -> None:
    assert provenzoo.verify(quickstart.path, "cuda").holds
    off = [row for row in provenzoo.verify(quickstart.path, "cpu").rows if not row.agrees and "digest" in row.metric]
    assert off == []


def test_a_stage_that_was_stopped_goes_on_to_the_weights_of_an_uninterrupted_one(
    quickstart: provenzoo.Run, tmp_path: Path
) -> None:
    """To 1e-4 of each tensor's largest value: CUDA's kernels may add in another order."""
    run = Path(shutil.copytree(quickstart.path, tmp_path / "run"))
    shutil.rmtree(run / "stages" / "pretrain")
    words = [sys.executable, "-c", SAVING, "run", "quickstart", "device=cuda", "--out", str(run)]
    process = subprocess.Popen(words, env=os.environ)
    while not list(run.glob("stages/pretrain/.*.state")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert read_json(run / "run.json")["status"] == "interrupted"
    assert list(run.glob("stages/pretrain/.*.state")), "the state was saved"
    again = provenzoo.run("quickstart", ["device=cuda"], out=run)
    assert read_json(again.path / "run.json")["status"] == "complete"
    states = [checkpoint.load(folder / "stages/pretrain/model.safetensors")[0] for folder in (quickstart.path, run)]
    for name, tensor in states[0].items():
        assert (tensor - states[1][name]).abs().max() <= 1e-4 * tensor.abs().max(), name
