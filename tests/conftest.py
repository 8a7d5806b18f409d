"""What every test can count on: one thread, no network, none of the user's settings, `cuda` tests only with CUDA.

The environment is set before torch and huggingface_hub are imported, which read it once; processes that tests
start inherit it.
"""

import os
from pathlib import Path

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "MPLBACKEND": "agg",
}
for name in ("PROVENZOO_PATH", "PROVENZOO_DATA", "FORCE_COLOR", "HF_TOKEN"):
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
