"""What every test can count on: one thread, no network, none of the user's settings, `cuda` tests only with CUDA.

The environment is set before torch and huggingface_hub are imported, which read it once; processes that tests
start inherit it. The Hub is a server of our own on this machine (hubserver/), whose port is therefore chosen here.
"""

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hubserver import HubServer, listening

PORTS = listening(), listening()
HOME = tempfile.mkdtemp(prefix="hf-home-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_ENDPOINT": f"http://127.0.0.1:{PORTS[0].getsockname()[1]}",
    "HF_HOME": HOME,
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "MPLBACKEND": "agg",
}
for name in ("PROVENZOO_PATH", "PROVENZOO_DATA", "FORCE_COLOR", "HF_TOKEN", "HF_HUB_CACHE"):
    os.environ.pop(name, None)

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--whole`: papers are run whole, every claim of every recipe, for many minutes."""
    parser.addoption("--whole", action="store_true", help="also run every recipe of the papers whole")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `whole` unless asked for; skip what is marked `cuda` where torch sees no such device."""
    if not config.getoption("--whole"):
        left_out = [item for item in items if item.get_closest_marker("whole")]
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs CUDA, and torch sees no such device here")
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of the small recipe."""
    from small_run import recipe

    import provenzoo

    folder = tmp_path_factory.mktemp("reference")
    return provenzoo.run(recipe(folder), out=folder / "run").path


@pytest.fixture
def no_report(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the reference draws its report: the most of what a run of this size takes."""
    monkeypatch.setattr("provenzoo.report.report", lambda path: [])


@pytest.fixture(scope="session")
def served() -> Iterator[HubServer]:
    """The Hub server of all tests."""
    with HubServer(PORTS) as server:
        yield server


class _Hasty:
    """The module `time`, whose sleep does not."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None: ...


@pytest.fixture
def hub(served: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The server, online, for the user `someone` who may write, with an empty cache; the client retries at once."""
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", served.token("someone"))
    for module in (_http, file_download):
        monkeypatch.setattr(module, "time", _Hasty())
    served.seen.clear()
    yield served
    served.faults.clear()
    served.repos.clear()
    served.page, served.part_size = 1000, None
    shutil.rmtree(served.root / "git", ignore_errors=True)
    shutil.rmtree(served.root / "lfs", ignore_errors=True)
