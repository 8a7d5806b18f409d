"""Loading from the Hub: every file checked, pinned, cached; offline without a socket; damage refused, every time."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hubserver import HubServer
from huggingface_hub import constants
from safetensors import safe_open

import provenzoo
from provenzoo import checkpoint, fetch, remote
from provenzoo.draws import generator
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.publish import publish
from provenzoo.plain import dump_yaml

REPO = "someone/small"


@pytest.fixture
def shared(hub: HubServer, reference: Path) -> str:
    """The reference run's stage `tune` on the Hub: its pinned reference."""
    return publish(reference, REPO, stage="tune").reference


def fetched(hub: HubServer) -> list[str]:
    """The files that were asked for, but for questions about them."""
    return [path for place, method, path, _ in hub.seen if method == "GET" and (place == "cdn" or "/resolve/" in path)]


def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "other") -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / name))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch):
    """Offline as HF_HUB_OFFLINE=1 makes it, where a socket that would connect is an error."""

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    def go() -> None:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket.socket, "connect_ex", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)

    return go


# --- what is fetched ----------------------------------------------------------------------------------------------


def test_only_what_is_needed_is_fetched_and_only_once(hub: HubServer, shared: str) -> None:
    hub.seen.clear()
    provenzoo.load(shared)
    assert len(fetched(hub)) == 2
    hub.seen.clear()
    provenzoo.load(shared)
    assert hub.seen == []


def test_a_branch_is_resolved_and_what_it_stood_for_is_told(hub: HubServer, shared: str, reference: Path) -> None:
    first = provenzoo.load(f"hf:{REPO}").provenance["revision"]
    publish(reference, REPO, stage="train")
    second = provenzoo.load(f"hf:{REPO}").provenance
    assert second["revision"] == hub.head(REPO) != first and second["stage"] == "train"
    assert provenzoo.load(f"hf:{REPO}@{first}").provenance["stage"] == "tune"


def test_a_cut_download_goes_on_and_a_slow_answer_is_waited_for(
    hub: HubServer, shared: str, tmp_path: Path, monkeypatch
) -> None:
    empty_cache(tmp_path, monkeypatch)
    hub.faults.add("GET", "^/someone/small/[0-9a-f]{64}", cut=500, times=2)
    hub.faults.add("POST", "/paths-info/", wait=0.2)
    assert provenzoo.load(shared).provenance["recipe"] == "small"


def test_what_the_hub_says_is_told_in_one_line(hub: HubServer, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token("other"))
    cases = {
        "hf:someone/none": "no repository someone/none, or this account may not see it",
        f"hf:{REPO}@v9": "has no revision 'v9'",
        f"hf:{REPO}@{'0' * 40}": "has no revision",
        f"hf:{REPO}@main#none": "no none/config.json there",
    }
    for reference, says in cases.items():
        with pytest.raises(ZooError, match=says) as caught:
            provenzoo.load(reference)
        assert "\n" not in str(caught.value)
    hub.repos[REPO].gated = True
    with pytest.raises(ZooError, match="is gated; ask for access"):
        provenzoo.load(f"hf:{REPO}")
    hub.repos[REPO].gated, hub.repos[REPO].private = False, True
    with pytest.raises(ZooError, match="may not see it"):
        provenzoo.load(f"hf:{REPO}")


@pytest.mark.parametrize(
    "reference",
    [
        "hf:",
        "hf:one",
        "hf:a/b@",
        "hf:a/b@../x",
        "hf:a/b@-x",
        "hf:a/b#../x",
        "hf:a/b#/etc",
        "hf:a/b#c:/x",
        "hf:a--b/c",
        "hf:a/b.",
    ],
)
def test_a_reference_that_cannot_be_one_is_refused_before_anything_is_asked(hub: HubServer, reference: str) -> None:
    with pytest.raises(ZooError):
        provenzoo.load(reference)
    assert hub.seen == []


# --- damage -------------------------------------------------------------------------------------------------------


def positions(file: Path, count: int) -> list[int]:
    """So many places in the bytes of a file's tensors, in each tensor at least one."""
    size, header = file.stat().st_size, 8 + int.from_bytes(file.read_bytes()[:8], "little")
    with safe_open(file, "pt") as opened:
        names = opened.offset_keys() if hasattr(opened, "offset_keys") else list(opened.keys())
        lengths = [opened.get_tensor(name).numel() * opened.get_tensor(name).element_size() for name in names]
    starts = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    one_each = [header + int(start) + length // 2 for start, length in zip(starts, lengths, strict=True)]
    drawn = torch.randint(header, size, (count,), generator=generator(0, "test"))
    return [*one_each, *drawn.tolist()]


def test_a_flipped_bit_in_store_is_refused_every_time_at_100_places_and_in_every_tensor(
    hub: HubServer, shared: str, reference: Path
) -> None:
    file = reference / "stages/tune/model.safetensors"
    for turn, position in enumerate(positions(file, 100)):
        bit = 1 << turn % 8
        hub.flip(REPO, "model.safetensors", position, bit)
        for _ in range(1 + (turn == 0)):
            with pytest.raises(ZooError, match="another hash"):
                provenzoo.load(shared)
        hub.flip(REPO, "model.safetensors", position, bit)
    assert provenzoo.load(shared).provenance["recipe"] == "small"


def test_a_flipped_bit_in_the_cache_is_refused_every_time_at_100_places_and_in_every_tensor(shared: str) -> None:
    place = fetch.place(shared)
    provenzoo.load(shared)
    blob = place.file("model.safetensors").resolve()
    whole = blob.read_bytes()
    for turn, position in enumerate(positions(blob, 100)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << turn % 8
        blob.write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(ZooError, match="not the tensors that were saved"):
                provenzoo.load(shared)
    blob.write_bytes(whole)
    assert provenzoo.load(shared).provenance["recipe"] == "small"


def test_weights_whose_hash_and_config_were_both_changed_do_not_pass_a_manifest(
    hub: HubServer, shared: str, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = provenzoo.load(shared).provenance["digest"]
    second = publish(reference, REPO, stage="train").reference.partition("@")[2]
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))
    manifest(tmp_path, "mlp.pinned", digest=first, revision=second)
    with pytest.raises(ZooError, match="not the tensors that were saved"):
        provenzoo.load("mlp.pinned")


# --- pinned by a manifest -----------------------------------------------------------------------------------------


def manifest(folder: Path, name: str, **values: object) -> None:
    place = folder / "registry" / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.yaml").write_text(dump_yaml({"summary": "s", "license": "apache-2.0", "hub": REPO, **values}))


def test_a_manifest_pins_a_commit_and_the_digest(
    hub: HubServer, shared: str, reference: Path, tmp_path: Path, monkeypatch
) -> None:
    about = provenzoo.load(shared).provenance
    publish(reference, REPO, stage="train")
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))
    manifest(tmp_path, "mlp.pinned", digest=about["digest"], revision=about["revision"], seed=1)
    hub.seen.clear()
    found = provenzoo.load("mlp.pinned").provenance
    assert (found["revision"], found["stage"], found["seed"]) == (about["revision"], "tune", 1) and hub.seen == []
    assert provenzoo.verify("mlp.pinned").holds


@pytest.mark.parametrize("revision", ["main", "v1", "0123456", "G" * 40])
def test_a_manifest_without_a_full_commit_is_an_error(
    hub: HubServer, tmp_path: Path, monkeypatch, revision: str
) -> None:
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))
    manifest(tmp_path, "mlp.loose", digest="0" * 64, revision=revision)
    with pytest.raises(
        ZooError, match=r"mlp\.loose\.yaml: `hub: user/repo` and `revision:` \(a commit's 40 digits\) are needed"
    ):
        provenzoo.load("mlp.loose")


# --- offline ------------------------------------------------------------------------------------------------------


def test_offline_a_cached_commit_and_a_branch_last_seen_load_without_a_socket(shared: str, offline) -> None:
    provenzoo.load(f"hf:{REPO}")
    offline()
    for reference in (shared, f"hf:{REPO}", f"hf:{REPO}@main"):
        assert provenzoo.load(reference).provenance["recipe"] == "small"


def test_offline_what_is_missing_is_named_with_repo_revision_and_cache(
    shared: str, offline, tmp_path: Path, monkeypatch
) -> None:
    offline()
    empty_cache(tmp_path, monkeypatch)
    for revision in ("main", shared.partition("@")[2]):
        with pytest.raises(ZooError) as caught:
            provenzoo.load(f"hf:{REPO}@{revision}")
        told = str(caught.value)
        assert f"hf:{REPO}@{revision}" in told and str(tmp_path / "other") in told and "HF_HUB_OFFLINE" in told
        assert "provenzoo pull" in told and "\n" not in told


def test_what_was_pulled_loads_and_verifies_offline(hub: HubServer, shared: str, offline) -> None:
    pulled = fetch.pull(f"hf:{REPO}")
    assert pulled["reference"] == shared and (Path(pulled["folder"]) / "README.md").is_file()
    offline()
    assert provenzoo.load(shared).provenance["recipe"] == "small"
    assert provenzoo.verify(shared).holds


def test_a_new_process_offline_opens_no_socket(shared: str) -> None:
    provenzoo.load(shared)
    program = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('a socket was opened')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
        "import provenzoo\n"
        "print(provenzoo.load(sys.argv[1]).provenance['recipe'])\n"
    )
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": constants.HF_HUB_CACHE}
    done = subprocess.run([sys.executable, "-c", program, shared], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "small", done.stderr


def test_a_hub_that_does_not_answer_is_told_with_the_cache(
    shared: str, hub: HubServer, tmp_path: Path, monkeypatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    provenzoo.load(f"hf:{REPO}")
    monkeypatch.setattr(socket, "create_connection", broken)
    monkeypatch.setattr(socket.socket, "connect", broken)
    from huggingface_hub.utils import close_session

    close_session()
    assert provenzoo.load(f"hf:{REPO}").provenance["recipe"] == "small"
    empty_cache(tmp_path, monkeypatch)
    with pytest.raises(ZooError, match="the Hub does not answer"):
        provenzoo.load(f"hf:{REPO}")


# --- what is kept -------------------------------------------------------------------------------------------------


def test_a_cached_file_that_was_checked_is_not_read_through_again_until_it_is_touched(shared: str, monkeypatch) -> None:
    provenzoo.load(shared)
    counted: list[int] = []
    original = checkpoint.digest
    monkeypatch.setattr(checkpoint, "digest", lambda tensors: counted.append(1) or original(tensors))
    provenzoo.load(shared)
    assert counted == []
    blob = fetch.place(shared).file("model.safetensors").resolve()
    os.utime(blob, ns=(time.time_ns(), time.time_ns()))
    provenzoo.load(shared)
    assert counted == [1]


def test_a_cache_that_cannot_be_written_is_checked_each_time(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
    assert provenzoo.load(shared).provenance["recipe"] == "small"
    assert provenzoo.load(shared).provenance["recipe"] == "small"


def test_a_seed_that_is_not_there_is_named(shared: str) -> None:
    with pytest.raises(UsageError, match="no seed 5; it has 0, 1"):
        provenzoo.load(shared, seed=5)
