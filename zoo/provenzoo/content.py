"""Where the content folders (registry/, pipelines/, cards/) are."""

from pathlib import Path

from provenzoo.errors import ZooError


def own_content() -> Path:
    """The folder that holds registry/, pipelines/ and cards/: inside the package in a wheel, else the checkout's root."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_content", package.parents[1]):
        if (folder / "registry").is_dir():
            return folder
    raise ZooError(f"{package}: registry/, pipelines/ and cards/ are not there; install provenzoo again")
