"""The README: its links lead somewhere, its names are there, its overrides are read."""

import re
import shlex
from pathlib import Path

import pytest

import provenzoo
from provenzoo import registry
from provenzoo.pipeline.axes import combinations, read_axes
from provenzoo.pipeline.plan import prepare

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("*/README.md"), *ROOT.glob("registry/*/README.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("name", re.findall(r"provenzoo (?:info|verify) ([a-z0-9.-]+)(?=\s)", TEXT))
def test_the_names_that_it_shows_are_there(name: str) -> None:
    assert name in registry.list_names()


def test_the_recipe_overrides_that_it_shows_are_read() -> None:
    [line] = re.findall(r"provenzoo run quickstart (.*seeds=5) device=cuda", TEXT)
    config = provenzoo.compose("quickstart", line.split())
    assert config.seeds == 5 and config.stages.pretrain.model.name == "positional-vit-tiny"


@pytest.mark.parametrize("line", re.findall(r"provenzoo sweep quickstart (.*)", TEXT))
def test_the_sweeps_that_it_shows_are_read(line: str) -> None:
    words = [word for word in shlex.split(line, comments=True) if "=" in word]
    fixed, axes = read_axes(words)
    for texts in combinations(axes):
        prepare("quickstart", [*fixed, *(f"{path}={text}" for path, text in texts.items())])


def test_each_content_folder_opens_with_a_readme_that_names_its_module() -> None:
    for folder in ("registry", "pipelines", "cards"):
        modules = re.findall(r"provenzoo[./][\w./]+", (ROOT / folder / "README.md").read_text(encoding="utf-8"))
        places = [ROOT / "zoo" / m.replace(".py", "").replace(".", "/").removeprefix("zoo/") for m in modules]
        assert any(place.with_suffix(".py").is_file() for place in places), f"{folder}: {modules}"
