"""`provenzoo new`: a working skeleton of a model, data set, teacher or recipe, with its test, in a user's project."""

import importlib.util
import keyword
import re
from pathlib import Path

from provenzoo import registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import did_you_mean, write_whole

KINDS = ("model", "dataset", "teacher", "recipe")
SKELETONS = Path(__file__).with_name("skeletons")


def new(kind: str, name: str, into: str | Path = ".") -> list[Path]:
    """Write a skeleton into a project and give its files: what the registry reads, the code, and a test that passes.

    The project's folder in PROVENZOO_PATH makes the name known, in PYTHONPATH its module. A name or file that is there
    already is an error, and nothing is written.
    """
    if kind not in KINDS:
        raise UsageError(f"no kind {kind!r}{did_you_mean(kind, KINDS)}")
    if holders := registry.names_held(f"{kind}s").get(name):
        raise UsageError(f"the name {name!r} is taken by {holders[0][0]}")
    files = {Path(into, to): _filled(SKELETONS / skeleton, name) for to, skeleton in _files(kind, name).items()}
    if there := [file for file in files if file.exists()]:
        raise ZooError(f"{there[0]}: is there already; nothing was written")
    for file, text in files.items():
        write_whole(file, text)
    return list(files)


def _files(kind: str, name: str) -> dict[str, str]:
    """What is written, by the skeleton that it is made from."""
    module = _module(kind, name)
    test = {f"tests/test_{module}.py": f"test_{kind}.py.txt"}
    if kind == "recipe":
        return {f"pipelines/{name}.yaml": "recipe.yaml", **test}
    return {f"registry/{kind}s/{name}.yaml": f"{kind}.yaml", f"{module}.py": f"{kind}.py", **test}


def _module(kind: str, name: str) -> str:
    """The Python module of a name; a name that has none, or another's, is an error."""
    parts = name.split("/") if kind == "recipe" else [name]
    if not all(registry.NAME.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r}: a name is lower case letters, digits and hyphens")
    module = re.sub(r"\W", "_", name)
    taken = not module.isidentifier() or keyword.iskeyword(module) or importlib.util.find_spec(module) is not None
    if kind != "recipe" and taken:
        raise UsageError(f"{name!r}: there can be no new Python module {module!r}; choose another name")
    return module


def _filled(skeleton: Path, name: str) -> str:
    words = re.sub(r"\W", "_", name)
    camel = "".join(part.capitalize() for part in words.split("_"))
    text = skeleton.read_text(encoding="utf-8")
    return text.replace("my-skeleton", name).replace("my_skeleton", words).replace("MySkeleton", camel)
