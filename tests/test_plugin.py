"""Plug-ins: the example is installed, listed without its import, run, loaded and verified; bad ones break nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hubserver import HubServer

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.pipeline.plan import prepare

EXAMPLE = Path(__file__).parent / "plugin_example"


def python(code: str, *places: Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python that finds packages in some more folders."""
    path = [*places, Path(provenzoo.__file__).parents[1], os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **more}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=cwd, capture_output=True, text=True)


def fake(site: Path, name: str, entry: str, requires: str = "", files: dict[str, str] | None = None) -> None:
    """An installed package `name` with an entry point `name` in our group."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    need = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{need}")
    (info / "entry_points.txt").write_text(f"[provenzoo.registry]\n{name} = {entry}\n")
    for file, text in (files or {}).items():
        (site / name / file).parent.mkdir(parents=True, exist_ok=True)
        (site / name / file).write_text(text)


def test_the_example_is_installed_listed_run_verified_and_shared(tmp_path: Path, hub: HubServer) -> None:
    site = tmp_path / "site"
    words = [
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--target",
    ]
    source = tmp_path / "source"
    subprocess.run(["cp", "-R", str(EXAMPLE), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "pip", *words, str(site), str(source)], check=True)
    done = python(WHOLE, site, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a plug-in's own card" in (tmp_path / "run" / "README.md").read_text()
    shared = python(SHARED, site, cwd=tmp_path, HF_HUB_OFFLINE="0", HF_HUB_CACHE=str(tmp_path / "cache"))
    assert shared.returncode == 0, shared.stderr
    assert "a plug-in's own card" in hub.files("someone/example")["README.md"].decode()
    assert hub.repos["someone/example"].fsck() == ""
    known = "import provenzoo\nprovenzoo.load('hf:someone/example')"
    lacking = python(known, cwd=tmp_path, HF_HUB_OFFLINE="0", HF_HUB_CACHE=str(tmp_path / "cache"))
    assert "no model 'example-linear'" in lacking.stderr.splitlines()[-1]


WHOLE = """
import sys, provenzoo
from provenzoo import registry
assert provenzoo.list_names("models", "example-*") == ["example-linear"]
assert provenzoo.list_names("teachers", "example-*") == ["example-direction"]
assert "example-half-space" in provenzoo.list_names("datasets") and "example/half-space" in provenzoo.list_names("recipes")
assert registry.problems() == [] and not {"zoo_example", "torch"} & set(sys.modules)
assert provenzoo.info("example-linear")["origin"] == "the plug-in 'example' (zoo_example.content)"
assert abs(float(provenzoo.create_teacher("example-direction", seed=3).direction.norm()) - 1) < 1e-6
done = provenzoo.run("example/half-space", out="run")
assert done.holds, done.claims
model = provenzoo.load("run/stages/learn", seed=1)
data = provenzoo.create_dataset("example-half-space", seed=1, teacher={"name": "example-direction"})
right = (model(data.test.inputs).argmax(-1) == data.test.targets).float().mean().item()
assert abs(right - done.metrics["learn"]["accuracy"]["per_seed"][1]) < 1e-6
assert provenzoo.verify("run").holds
from provenzoo.doctor import examine
assert examine()["problems"] == []
"""


SHARED = """
import json, provenzoo
from pathlib import Path
done = provenzoo.publish("run", "someone/example", tag="v1")
for place in (done.reference, "hf:someone/example@v1"):
    theirs, ours = (provenzoo.load(name).state_dict() for name in (place, "run/stages/learn"))
    assert theirs.keys() == ours.keys() and all(theirs[name].equal(ours[name]) for name in ours)
found = provenzoo.verify(done.reference)
assert found.holds, [row for row in found.rows if not row.agrees]
assert {"learn", "card: learn"} <= {row.where for row in found.rows}, found.rows
provenzoo.publish("run", "local:example")
assert provenzoo.verify("local:example").holds
"""


def test_bad_plug_ins_are_named_in_list_and_doctor_and_break_nothing_else(tmp_path: Path) -> None:
    site = tmp_path / "site"
    fake(site, "gone", "no_such_package.content")
    fake(site, "odd", "..")
    fake(site, "needy", "needy", "not-a-package-of-anyone (>=2)", {"registry/models/needy-mlp.yaml": MLP})
    fake(site, "old", "old", "torch<1", {"registry/datasets/README.md": ""})
    fake(
        site,
        "greedy",
        "greedy",
        files={"registry/models/mlp.yaml": MLP, "registry/models/greedy-mlp.yaml": MLP},
    )
    fake(site, "failing", "failing", files={
        "__init__.py": "raise RuntimeError('imported')",
        "registry/models/failing-model.yaml": "builder: failing:Model\n",
        "registry/metrics/failing-metric.yaml": "bilder: failing:metric\n",
        "pipelines/failing.yaml": "sedes: 3\n",
    })  # fmt: skip
    done = python(BAD, site, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed, examined = json.loads(done.stdout)
    wanted = [
        "the plug-in 'gone' names the package folder 'no_such_package.content', which is not there",
        "the plug-in 'odd' names the package folder '..', which is not there",
        "the plug-in 'needy' needs not-a-package-of-anyone, which is not installed",
        "the plug-in 'old' needs torch<1, and",
        "the plug-in 'greedy' (greedy) claims the name 'mlp' (models), which provenzoo holds; it is left out",
    ]
    assert all(any(problem.startswith(text) for problem in listed) for text in wanted), listed
    assert len(listed) == len(wanted) and examined[: len(listed)] == listed
    said = examined[len(listed) :]
    assert len(said) == 3 and all(problem.startswith("the plug-in 'failing' (failing)") for problem in said)
    assert "does not import: imported" in said[0]
    assert "unknown key 'bilder'; did you mean 'builder'" in said[1] and "unknown key 'sedes'" in said[2]


MLP = "builder: provenzoo.models.mlp:MLP\nargs: {hidden: 2}\n"
BAD = """
import json, sys, provenzoo
from provenzoo import registry
listed = registry.problems()
assert {"mlp", "needy-mlp", "greedy-mlp", "failing-model"} <= set(provenzoo.list_names("models"))
assert not {"failing", "greedy", "needy"} & set(sys.modules)
assert provenzoo.info("mlp")["origin"] == "provenzoo"
assert provenzoo.create_model("greedy-mlp", features=3, num_classes=2).body[0].weight.shape == (2, 3)
provenzoo.create_model("mlp", features=3, num_classes=2)
from provenzoo.doctor import examine
json.dump([listed, examine()["problems"]], sys.stdout)
"""


def test_two_plug_ins_that_claim_one_name_are_both_named_when_it_is_asked_for(tmp_path: Path) -> None:
    for name in ("one", "two"):
        fake(tmp_path / "site", name, name, files={"registry/models/shared.yaml": MLP})
    code = (
        "import provenzoo; provenzoo.create_model('mlp', features=2, num_classes=2); provenzoo.create_model('shared')"
    )
    done = python(code, tmp_path / "site", cwd=tmp_path)
    assert "the name 'shared' is held by the plug-in 'one' (one) and by the plug-in 'two' (two)" in done.stderr


def test_a_card_template_that_is_not_there_is_told_before_anything_runs() -> None:
    with pytest.raises(ZooError, match=r"card: no template 'crad'; did you mean 'card'"):
        prepare("quickstart", ["card=crad"])
