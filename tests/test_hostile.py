"""Hostile checkpoints, from the Hub and from folders: refused in one line, nothing imported, little memory used."""

import json
import pickle
import re
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hubserver import HubServer
from safetensors.torch import save

import provenzoo
from provenzoo import checkpoint
from provenzoo.errors import ZooError
from provenzoo.hub.publish import publish
from provenzoo.models.build import bounded
from provenzoo.untrusted import check_no_token, safe_name

REPO = "someone/evil"


@pytest.fixture(scope="module")
def good(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder."""
    folder = tmp_path_factory.mktemp("good") / "small"
    publish(reference, f"local:{folder}", stage="tune")
    return folder


@pytest.fixture(params=["local", "hub"])
def load_with(request: pytest.FixtureRequest, good: Path, tmp_path: Path) -> Callable[[dict[str, bytes]], Any]:
    """Load the folder with some files replaced, from a folder and from the Hub."""

    def load(changed: dict[str, bytes]) -> Any:
        files = {name: (good / name).read_bytes() for name in ("config.json", "model.safetensors")} | changed
        if request.param == "local":
            for name, content in files.items():
                (tmp_path / name).write_bytes(content)
            return provenzoo.load(f"local:{tmp_path}")
        hub: HubServer = request.getfixturevalue("hub")
        repo = hub.create(REPO)
        for name in list(files):
            if name.endswith(".safetensors") and len(files[name]) > 200:
                import hashlib

                oid = hashlib.sha256(files[name]).hexdigest()
                repo.object(oid).write_bytes(files[name])
                size = len(files[name])
                files[name] = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()
        repo.commit("main", "evil", add=files)
        return provenzoo.load(f"hf:{REPO}")

    return load


def changed(good: Path, change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    config = json.loads((good / "config.json").read_text())
    change(config)
    return {"config.json": json.dumps(config).encode()}


def refused(load: Callable[[], Any]) -> str:
    """What a refusal says: one line, with nothing imported and little memory used."""
    before = set(sys.modules)
    tracemalloc.start()
    try:
        with pytest.raises(ZooError) as caught:
            load()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in ("antigravity", "evil", "this")}
    assert peak < 150 * 2**20, peak
    return str(caught.value)


# --- configs ------------------------------------------------------------------------------------------------------

CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an import path": (lambda c: c["model"].update(name="antigravity:fly"), "no model 'antigravity:fly'"),
    "a module as the model": (lambda c: c["model"].update(name="this"), "no model 'this'"),
    "a builder": (lambda c: c["model"].update(builder="antigravity:fly"), "no argument 'builder'"),
    "a target": (lambda c: c["model"].update(_target_="antigravity.fly"), "would name code to call; refused"),
    "a target deep inside": (lambda c: c.update(more=[{"a": {"_target_": "this"}}]), "would name code to call"),
    "a resolver": (lambda c: c["model"].update(hidden="${oc.env:HOME}"), "holds a resolver"),
    "an import resolver": (lambda c: c.update(x={"y": "${import:this}"}), "holds a resolver"),
    "a url": (lambda c: c.update(url="http://example.org/x"), "names a place to fetch from"),
    "a file": (lambda c: c.update(pretrained_cfg={"file": "/etc/passwd"}), "names a place to fetch from"),
    "a source": (lambda c: c.update(pretrained_cfg={"source": "hf-hub"}), "names a place to fetch from"),
    "a custom load": (lambda c: c.update(pretrained_cfg={"custom_load": True}), "names a place to fetch from"),
    "another repository": (lambda c: c.update(pretrained_cfg={"hf_hub_id": "a/b"}), "names a place to fetch from"),
    "code of its own": (lambda c: c.update(auto_map={}) or c.update(auto_map="modeling.X"), "code to load with"),
    "a width of 1e9": (lambda c: c["model"].update(hidden=10**9), "more than a file of"),
    "a depth of 1e6": (lambda c: c["model"].update(hidden=[1] * 10**5), "more parameters than the file's"),
    "classes of 1e18": (lambda c: c["filled"].update(num_classes=10**18), "more than a file of"),
    "a number that is text": (lambda c: c["model"].update(hidden="64"), "hidden"),
    "a float depth": (lambda c: c["model"].update(hidden=1e9), "hidden"),
    "not a number": (lambda c: c["model"].update(hidden=float("nan")), "no finite number"),
    "infinite": (lambda c: c.update(x=float("inf")), "no finite number"),
    "nested 100 deep": (lambda c: c.update(x=json.loads("[" * 100 + "]" * 100)), "nested deeper than 40 levels"),
    "no seeds": (lambda c: c.update(seeds=[]), "a list of whole numbers is needed"),
    "seeds without end": (lambda c: c.update(seeds=list(range(9999))), "not one replica of each tensor for each"),
    "a newer format": (lambda c: c.update(format=2), "has format 2, this version reads 1; upgrade provenzoo"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_hostile_config_is_refused(load_with, good: Path, case: str) -> None:
    change, says = CONFIGS[case]
    assert says in refused(lambda: load_with(changed(good, change)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{" + b" " * 50 * 2**20 + b"}", "at most 1048576 can be read"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"[" * 200_000, "nested too deeply"),
        (b"\x80\x04.", "not valid JSON"),
        (b"null", "not a provenzoo checkpoint's config"),
        (b"9" * 10_000, "not valid JSON"),
        (b'{"format": 1e999}', "no finite number"),
    ],
    ids=["50 MB", "nested mappings", "nested lists", "a pickle", "null", "a long number", "an infinite one"],
)
def test_a_config_that_is_no_config_is_refused(load_with, content: bytes, says: str) -> None:
    assert says in refused(lambda: load_with({"config.json": content}))


def test_what_only_informs_is_ignored_and_never_followed(load_with, good: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["pretrained_cfg"] = {
            "origin_url": "http://example.org",
            "paper_ids": "arXiv:1",
            "custom_load": False,
            "url": "",
        }
        config["sets"] = {}

    assert load_with(changed(good, change)).provenance["recipe"] == "small"


def test_a_teacher_elsewhere_is_refused_from_the_hub(hub: HubServer, good: Path) -> None:
    config = changed(good, lambda c: c["data"].update(teacher={"name": "x", "from": "hf:evil/teacher"}))
    hub.create(REPO).commit("main", "evil", add=config | {"model.safetensors": b"x"})
    with pytest.raises(ZooError, match="names another place to fetch from"):
        provenzoo.load(f"hf:{REPO}")
    assert not [path for _, _, path, _ in hub.seen if "evil/teacher" in path]


@pytest.mark.parametrize(
    ("name", "filled", "change", "says"),
    [
        ("vit", {"image_size": 28, "channels": 1, "num_classes": 3}, {"depth": 10**9}, "more than a file of"),
        (
            "vit",
            {"image_size": 28, "channels": 1, "num_classes": 3},
            {"depth": 10**5},
            "more parameters than the file's",
        ),
        ("vit", {"image_size": 28, "channels": 1, "num_classes": 3}, {"depth": 3}, "do not fit the model: missing"),
        ("vit", {"image_size": 28, "channels": 1, "num_classes": 3}, {"dim": 10**6}, "more than a file of|do not fit"),
        ("looped-linear-attention", {"dim": 3}, {"loops": 10**9}, "more than a file of"),
    ],
)
def test_a_depth_that_the_file_does_not_have_is_refused(
    tmp_path: Path, name: str, filled: dict[str, int], change: dict[str, int], says: str
) -> None:
    small = {"dim": 8, "depth": 2, "heads": 2, "patch": 7} if name == "vit" else {"loops": 2}
    model = provenzoo.create_model(name, **filled, **small)
    tensors = checkpoint.stack([model.state_dict()])
    checkpoint.save(tmp_path / "model.safetensors", tensors)
    config = {"format": 1, "model": {"name": name, **small, **change}, "filled": filled, "data": {"name": "x"}}
    config |= {"seeds": [0], "digest": checkpoint.digest(tensors)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert re.search(says, refused(lambda: provenzoo.load(tmp_path)))


# --- weights ------------------------------------------------------------------------------------------------------


class Trap:
    """A pickle of this would make a file when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def header(size: int, text: bytes = b"{}") -> bytes:
    return struct.pack("<Q", size) + text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "a Git-LFS pointer, not the weights"),
        (b"PK\x03\x04" + b"\0" * 60, "a pickle of torch.save"),
        (header(2**40), "truncated, damaged or no safetensors file"),
        (header(20 * 2**20, b"{" + b" " * 20 * 2**20), "its header has 20971520 bytes"),
        (header(2, b"[]"), "truncated, damaged or no safetensors file"),
        (b"", "truncated"),
        (b"\0" * 7, "truncated"),
        (
            header(90, b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'.ljust(90)) + b"\0" * 4,
            "truncated, damaged",
        ),
    ],
    ids=[
        "an LFS pointer",
        "a zip",
        "a header of 1 TB",
        "a header of 20 MB",
        "a list",
        "empty",
        "7 bytes",
        "a shape that lies",
    ],
)
def test_what_is_no_safetensors_file_is_refused(load_with, content: bytes, says: str) -> None:
    assert says in refused(lambda: load_with({"model.safetensors": content}))


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_whatever_its_name_and_never_run(load_with, tmp_path: Path, protocol: int) -> None:
    ran = tmp_path / "ran"
    refused(lambda: load_with({"model.safetensors": pickle.dumps(Trap(str(ran)), protocol) + b"\0" * 300}))
    assert not ran.exists()


def test_a_truncated_file_is_refused_at_every_length(good: Path, tmp_path: Path) -> None:
    whole = (good / "model.safetensors").read_bytes()
    (tmp_path / "config.json").write_bytes((good / "config.json").read_bytes())
    for size in range(0, len(whole), 97):
        (tmp_path / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(ZooError):
            provenzoo.load(f"local:{tmp_path}")


def test_tensors_that_the_model_does_not_have_are_listed(good: Path, tmp_path: Path) -> None:
    tensors, _ = checkpoint.load(good / "model.safetensors")
    tensors["extra.weight"] = torch.zeros(2, 3)
    (tmp_path / "model.safetensors").write_bytes(save(tensors))
    config = changed(good, lambda c: c.update(digest=checkpoint.digest(tensors)))["config.json"]
    (tmp_path / "config.json").write_bytes(config)
    with pytest.raises(ZooError, match=r"do not fit the model: unknown: extra\.weight"):
        provenzoo.load(f"local:{tmp_path}")


def test_a_model_that_others_build_meanwhile_is_not_counted() -> None:
    import threading

    with bounded(0, "here"):
        thread = threading.Thread(
            target=lambda: provenzoo.create_model("vit-mini", image_size=28, channels=1, num_classes=5)
        )
        thread.start()
        thread.join()


# --- names and secrets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../x",
        "/etc/passwd",
        "c:/x",
        "C:\\x",
        "a\\b",
        "~/x",
        "",
        ".",
        "a/./b",
        "a//b",
        "x\0y",
        "a/..",
        "con .",
        "\\\\host\\x",
        None,
        7,
    ],
)
def test_a_file_name_that_could_leave_its_folder_is_refused(name: Any) -> None:
    with pytest.raises(ZooError, match="could leave its folder; refused"):
        safe_name(name, "here")


def test_a_run_record_that_points_elsewhere_is_refused(reference: Path, tmp_path: Path) -> None:
    from small_run import copied, edit

    run = copied(reference, tmp_path)
    edit(run / "run.json", lambda record: record["stages"][0].update(folder="../../elsewhere"))
    with pytest.raises(ZooError, match="could leave its folder"):
        provenzoo.load(f"local:{run}")


def test_a_token_is_found_wherever_it_stands_and_not_shown() -> None:
    token = b"hf_" + b"aB3" * 11
    for content in (token, b"x" + b"\n" * 3 + b"t=" + token, b"\0\1" + token + b"\xff"):
        with pytest.raises(ZooError, match="holds an access token") as caught:
            check_no_token("a.txt", content, "here")
        assert token.decode() not in str(caught.value)
    check_no_token("a.txt", b"hf_hub_download and hf_short are words", "here")
