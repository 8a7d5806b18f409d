"""Where the content folders (registry/, pipelines/, cards/) are.

They stand at the root of the repository, where a newcomer reads and adds to them, and inside the package in
a wheel, which has no root. A path finds both. `importlib.resources` would find only the second, and loads
for longer than listing names takes in all.
"""

from pathlib import Path

from provenzoo.errors import ZooError


def own_content() -> Path:
    """The folder with our registry/, pipelines/ and cards/.

    That is `provenzoo/_content` where we are installed from a wheel, else the root of the repository, two
    levels above the package, in a checkout or an editable install. With neither, the installation lacks its
    content: a ZooError.
    """
    package = Path(__file__).resolve().parent
    shipped, checkout = package / "_content", package.parents[1]
    for folder in (shipped, checkout):
        if (folder / "registry").is_dir():
            return folder
    raise ZooError(
        f"provenzoo's registry/ is neither in {shipped} nor in {checkout}\n"
        "reinstall the package (pip install --force-reinstall provenzoo) or its checkout (pip install -e .)"
    )
