"""`provenzoo new`: each skeleton's own test passes, and nothing that is there is touched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import provenzoo
from provenzoo import cli


def test_each_skeleton_passes_its_own_test_and_its_names_are_known(tmp_path, capsys, monkeypatch):
    for kind in ("model", "dataset", "teacher", "recipe"):
        assert cli.execute(["new", kind, f"my-own-{kind}", "--into", str(tmp_path)]) == 0
    assert "use it: export PROVENZOO_PATH=" in capsys.readouterr().err
    path = os.pathsep.join([str(Path(provenzoo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0 and "7 passed" in done.stdout, done.stdout
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))
    assert {f"my-own-{kind}" for kind in ("model", "dataset", "teacher", "recipe")} <= set(provenzoo.list_names())


def test_a_recipe_may_lie_in_a_folder(tmp_path, capsys):
    assert cli.execute(["new", "recipe", "my-paper/first", "--into", str(tmp_path), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)
    assert [os.path.relpath(file, tmp_path) for file in files] == [
        "pipelines/my-paper/first.yaml",
        "tests/test_my_paper_first.py",
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("modle x-y", 2, "no kind 'modle'; did you mean 'model'"),
        ("model mlp", 2, "the name 'mlp' is taken by provenzoo"),
        ("recipe quickstart", 2, "the name 'quickstart' is taken by provenzoo"),
        ("model My_Model", 2, "a name is lower case letters, digits and hyphens"),
        ("model a/b", 2, "a name is lower case letters, digits and hyphens"),
        ("model random", 2, "there can be no new Python module 'random'"),
        ("model 3d-vit", 2, "there can be no new Python module '3d_vit'"),
        ("model taken", 1, "taken.py: is there already; nothing was written"),
        ("model", 2, "Missing argument 'NAME'"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(words, code, says, tmp_path, capsys):
    (tmp_path / "taken.py").touch()
    assert cli.execute(["new", *words.split(), "--into", str(tmp_path)]) == code
    assert says in capsys.readouterr().err
    assert [file.name for file in tmp_path.rglob("*")] == ["taken.py"]
