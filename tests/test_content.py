"""The content folders are found from a checkout and from an installed wheel, and missed by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from provenzoo import content
from provenzoo.errors import ZooError


def installed_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package lay in `folder`/provenzoo."""
    package = folder / "provenzoo"
    package.mkdir(parents=True)
    monkeypatch.setattr(content, "__file__", str(package / "content.py"))


def test_the_content_of_this_installation_holds_names_recipes_and_cards():
    folder = content.own_content()
    assert (folder / "registry" / "models" / "vit.yaml").is_file()
    assert (folder / "pipelines" / "quickstart.yaml").is_file()
    assert (folder / "cards").is_dir()


def test_a_checkout_has_its_content_two_levels_above_the_package(tmp_path, monkeypatch):
    installed_at(tmp_path / "zoo", monkeypatch)
    (tmp_path / "registry").mkdir()
    assert content.own_content() == tmp_path.resolve()


def test_a_wheel_has_its_content_in_the_package_whatever_lies_around_it(tmp_path, monkeypatch):
    installed_at(tmp_path / "site-packages", monkeypatch)
    (tmp_path / "registry").mkdir()
    shipped = tmp_path / "site-packages" / "provenzoo" / "_content"
    (shipped / "registry").mkdir(parents=True)
    assert content.own_content() == shipped.resolve()


def test_a_package_that_is_linked_from_elsewhere_finds_its_own_checkout(tmp_path, monkeypatch):
    installed_at(tmp_path / "checkout" / "zoo", monkeypatch)
    (tmp_path / "checkout" / "registry").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "checkout" / "zoo" / "provenzoo", target_is_directory=True)
    monkeypatch.setattr(content, "__file__", str(tmp_path / "link" / "content.py"))
    assert content.own_content() == (tmp_path / "checkout").resolve()


def test_a_package_without_content_says_where_it_looked(tmp_path, monkeypatch):
    installed_at(tmp_path / "site-packages", monkeypatch)
    with pytest.raises(ZooError, match=r"(?s)registry/ is neither in .*_content nor in .*reinstall"):
        content.own_content()


def test_finding_the_content_imports_no_torch_and_no_importlib_resources():
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from provenzoo.content import own_content; own_content();"
        "assert not {'torch', 'importlib.resources'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
