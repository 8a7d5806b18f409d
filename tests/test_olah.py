"""A second opinion: olah, a Hub mirror that we did not write, in front of the tests' server."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hubserver import HubServer

import provenzoo
from provenzoo.hub.publish import publish


def command() -> str | None:
    """olah's command: on the path, or in the environment of its own that OLAH names."""
    return os.environ.get("OLAH") or shutil.which("olah-cli")


pytestmark = pytest.mark.skipif(
    command() is None, reason="needs PyPI's olah in a venv of its own: OLAH=/venv/bin/olah-cli"
)


@pytest.fixture
def mirror(hub: HubServer, tmp_path: Path) -> Iterator[str]:
    """olah as a read proxy of the server; its endpoint."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    hub_netloc, cdn_netloc = (url.partition("://")[2] for url in (hub.endpoint, hub.cdn))
    words = ["--host", "127.0.0.1", "--port", str(port), "--hf-scheme", "http", "--hf-netloc", hub_netloc]
    words += ["--hf-lfs-netloc", cdn_netloc, "--mirror-scheme", "http", "--mirror-netloc", f"127.0.0.1:{port}"]
    words += ["--mirror-lfs-netloc", f"127.0.0.1:{port}", "--has-lfs-site"]
    words += ["--repos-path", str(tmp_path / "olah"), "--log-path", str(tmp_path / "logs")]
    own = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "PYTHON"))}
    with open(tmp_path / "olah.log", "wb") as log:
        child = subprocess.Popen([str(command()), *words], stdout=log, stderr=log, env=own, cwd=tmp_path)
    try:
        _wait_for(port, child, tmp_path / "olah.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(20)


def _wait_for(port: int, child: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        if child.poll() is not None:
            break
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"olah did not start: {log.read_text()[-2000:]}")


def through(endpoint: str, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program in a new process that sees the mirror as the Hub, with an empty cache and no token."""
    env = {key: value for key, value in os.environ.items() if key != "HF_TOKEN"}
    env |= {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "mirrored")}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run([sys.executable, "-c", program, *words], env=env, capture_output=True, text=True)


def test_what_we_publish_is_read_through_olah_as_it_is(
    hub: HubServer, mirror: str, reference: Path, tmp_path: Path
) -> None:
    done = publish(reference, "someone/small", stage="tune")
    assert hub.repos["someone/small"].fsck() == ""
    program = (
        "import sys, json, provenzoo\n"
        "from huggingface_hub import HfApi, get_safetensors_metadata\n"
        "about = provenzoo.load(sys.argv[1]).provenance\n"
        "names = sorted(HfApi().list_repo_files('someone/small'))\n"
        "print(json.dumps([about['digest'], about['revision'], names]))\n"
    )
    read = through(mirror, tmp_path, program, done.reference)
    assert read.returncode == 0, read.stderr[-3000:]
    digest, revision, names = json.loads(read.stdout.splitlines()[-1])
    assert digest == provenzoo.load(done.reference).provenance["digest"] and revision == hub.head("someone/small")
    assert names == sorted(hub.files("someone/small"))


def test_a_flipped_bit_is_refused_through_olah_too(
    hub: HubServer, mirror: str, reference: Path, tmp_path: Path
) -> None:
    done = publish(reference, "someone/damaged", stage="tune")
    hub.flip("someone/damaged", "model.safetensors", -5)
    read = through(mirror, tmp_path, "import sys, provenzoo\nprovenzoo.load(sys.argv[1])", done.reference)
    assert read.returncode == 1 and "refused" in read.stderr
