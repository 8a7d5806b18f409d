"""`provenzoo doctor`: what is here, what is wrong, and no secret."""

import json
import socket
from pathlib import Path

import pytest

from provenzoo import cli


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.execute(["doctor", *words])
    return code, capsys.readouterr().out


def test_it_tells_what_is_here(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROVENZOO_DATA", str(tmp_path / "data"))
    code, out = asked(capsys, "--json")
    told = json.loads(out)
    assert code == 0 and told["problems"] == []
    assert {"provenzoo", "python", "torch", "timm"} <= told["versions"].keys()
    assert told["devices"][0].startswith("cpu") and told["disk"]["folder"] == str(tmp_path) and told["disk"]["free"] > 0
    assert told["data-roots"][str(tmp_path / "data")] is False
    assert told["datasets"]["fashion-mnist-mini"] is None and "root" in told["datasets"]["image-folder"]
    assert not any(tmp_path.iterdir())


def test_plain_it_is_one_line_a_thing_with_the_name_first(capsys):
    code, out = asked(capsys)
    names = [line.partition("\t")[0] for line in out.splitlines()]
    assert code == 0 and all("\t" in line for line in out.splitlines())
    assert {"provenzoo", "torch", "device", "memory", "disk", "fashion-mnist-mini", "content", "hub-token"} <= {*names}


def test_what_is_wrong_with_the_content_is_named_and_gives_three(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path / "gone"))
    code, out = asked(capsys)
    assert code == 3 and f"problem\tPROVENZOO_PATH ({tmp_path / 'gone'}): no such folder" in out.splitlines()


def test_a_builder_that_does_not_import_is_told_of_its_data_set(capsys, tmp_path, monkeypatch):
    file = Path(tmp_path, "registry", "datasets", "mine.yaml")
    file.parent.mkdir(parents=True)
    file.write_text("builder: no_such_module:Mine\n")
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))
    assert "does not import" in json.loads(asked(capsys, "--json")[1])["datasets"]["mine"]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_token_is_told_of_but_never_shown_and_no_server_is_asked(words, capsys, monkeypatch):
    def no_network(*_: object) -> None:
        raise AssertionError("doctor opened a connection")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_real_one")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    _, out = asked(capsys, *words)
    assert "hf_not_a_real_one" not in out and "https://hub.example" in out
    assert json.loads(out)["hub"]["token"] if words else "hub-token\tset" in out.splitlines()
