"""The registry: names without torch, a closed table, plug-ins, did-you-mean, checked arguments."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import pytest
from torch import nn

import provenzoo
from provenzoo import components, registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.settings import bind


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's content folder in PROVENZOO_PATH."""
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, text: str, kind: str = "models") -> None:
    file = folder / "registry" / kind / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))


def test_listing_names_imports_neither_torch_nor_timm_and_reads_no_file(folder: Path) -> None:
    put(folder, "broken", "builder: [this is: not valid")
    code = "import provenzoo, sys; n = provenzoo.list_names('models'); assert 'broken' in n and 'vit-mini' in n, n;"
    code += "assert not {'torch', 'timm', 'yaml.constructor_'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_kind_lists_its_sorted_names_and_a_pattern_narrows_them() -> None:
    names = provenzoo.list_names("models")
    assert names == sorted(names) and {"vit-mini", "positional-vit-mini", "small-cnn", "mlp"} <= set(names)
    assert provenzoo.list_names("models", "positional-*") == [n for n in names if n.startswith("positional-")]
    assert "quickstart" in provenzoo.list_names("recipes")
    with pytest.raises(UsageError, match="no kind 'model'; did you mean 'models'"):
        provenzoo.list_names("model")


@pytest.mark.parametrize("kind", ["models", "datasets", "metrics"])
def test_every_entry_reads_imports_and_describes_itself(kind: str) -> None:
    for name in provenzoo.list_names(kind):
        answer = provenzoo.info(name, kind)
        assert answer["summary"], f"{name} has no summary"
        assert callable(registry.entry(kind, name).load())


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("models", "vit-minni", "no model 'vit-minni'; did you mean 'vit-mini'"),
        ("models", "accuracy", "no model 'accuracy': that is the name of a metric"),
        ("models", "quickstart", "that is the name of a recipe"),
        ("datasets", "fashion-mnst", "'fashion-mnist'"),
        ("models", "fashion-mnist-minii", "near it: 'fashion-mnist-mini' (dataset)"),
        ("metrics", "acuracy", "did you mean 'accuracy'"),
    ],
)
def test_an_unknown_name_offers_the_nearest_across_kinds(kind: str, name: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.entry(kind, name)
    assert says in str(caught.value)


def test_a_checkpoints_tag_is_found_though_misspelt(folder: Path) -> None:
    put(folder, "vit-mini.garments", "summary: x\ndigest: y\n", "checkpoints")
    with pytest.raises(UsageError, match=r"did you mean 'vit-mini\.garments'"):
        registry.entry("checkpoints", "vit-mini.garment")
    with pytest.raises(UsageError, match=r"vit-mini\.garments"):
        provenzoo.load("vit-mini.garmets")


def test_a_users_folder_adds_a_name_and_builds(folder: Path) -> None:
    put(folder, "small", "builder: provenzoo.models.mlp:MLP\nsummary: a small one\nargs: {hidden: 3}\n")
    model = provenzoo.create_model("small", features=4, num_classes=2)
    assert sum(p.numel() for p in model.parameters()) == 4 * 3 + 3 + 3 * 2 + 2


def test_a_name_twice_is_an_error_that_says_who_holds_it(folder: Path) -> None:
    put(folder, "mlp", "builder: provenzoo.models.mlp:MLP\n")
    with pytest.raises(ZooError, match=r"'mlp' is held by provenzoo and by PROVENZOO_PATH"):
        provenzoo.create_model("mlp", features=4, num_classes=2)
    assert any("'mlp' (models) is held by" in problem for problem in registry.problems())
    assert provenzoo.create_model("small-cnn", channels=1, num_classes=2) is not None


def test_a_folder_that_is_given_twice_counts_once_and_a_relative_one_is_the_callers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "small", "builder: provenzoo.models.mlp:MLP\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PROVENZOO_PATH", f".:{folder}:nowhere")
    assert "small" in provenzoo.list_names("models") and provenzoo.info("small")["name"] == "small"
    assert registry.problems() == ["PROVENZOO_PATH (nowhere): no such folder"]


@pytest.mark.parametrize("text", ["stages: 5\nclaims: [1]\n", "stages:\nclaims: {a: b}\n"])
def test_a_broken_recipe_can_still_be_described(folder: Path, text: str) -> None:
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "broken.yaml").write_text(text)
    assert provenzoo.info("broken")["stages"] == []


def test_a_module_that_fails_to_import_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "failing.py").write_text("raise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(str(folder))
    put(folder, "failing", "builder: failing:Model\n")
    with pytest.raises(ZooError, match=r"the builder 'failing:Model' of 'failing' does not import: boom"):
        provenzoo.create_model("failing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("summary: no builder\n", "`builder: module:attribute` is needed"),
        ("builder: provenzoo.models.mlp\n", "`builder: module:attribute` is needed"),
        ("builder: no.such.module:Thing\n", "does not import"),
        ("builder: provenzoo.models.mlp:Nothing\n", "does not import"),
        ("builder: os:path\n", "is module; a class or function is needed"),
        ("builder: provenzoo.models.mlp:MLP\nargz: {}\n", "unknown key 'argz'; did you mean 'args'"),
        ("builder: provenzoo.models.mlp:MLP\nargs: [1]\n", "args is a list"),
    ],
)
def test_a_broken_entry_is_named_when_it_is_asked_for(folder: Path, text: str, says: str) -> None:
    put(folder, "broken", text)
    with pytest.raises(ZooError) as caught:
        provenzoo.create_model("broken", features=4, num_classes=2)
    assert says in str(caught.value)


def test_the_decorator_registers_a_builder_and_refuses_a_taken_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @provenzoo.register("models", "from-a-notebook", summary="one layer")
    class OneLayer(nn.Linear):
        def __init__(self, *, features: int, num_classes: int):
            super().__init__(features, num_classes)

    assert "from-a-notebook" in provenzoo.list_names("models")
    assert isinstance(provenzoo.create_model("from-a-notebook", features=2, num_classes=3), OneLayer)
    with pytest.raises(UsageError, match="the name 'mlp' is taken by provenzoo"):
        provenzoo.register("models", "mlp")
    with pytest.raises(UsageError, match="is taken by"):
        provenzoo.register("models", "from-a-notebook")
    with pytest.raises(UsageError, match="lower case"):
        provenzoo.register("models", "My Model")


def test_a_plug_in_is_listed_without_importing_it_and_a_broken_one_breaks_nothing(tmp_path: Path) -> None:
    package = tmp_path / "my_zoo"
    (package / "registry" / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "registry" / "models" / "plugged.yaml").write_text("builder: my_zoo.x:Y\nsummary: z\n")
    info = tmp_path / "my_zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[provenzoo.registry]\nmine = my_zoo\nbroken = not_there\n")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import provenzoo; from provenzoo import components, registry
assert "plugged" in provenzoo.list_names("models") and "mlp" in provenzoo.list_names("models")
assert "my_zoo" not in sys.modules
assert any("'broken'" in p and "not_there" in p for p in registry.problems()), registry.problems()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"hiden": 3}, "no argument 'hiden'; did you mean 'hidden'"),
        ({"hidden": "many"}, "hidden"),
        ({"hidden": True}, "hidden"),
        ({"hidden": 0}, "hidden"),
        ({}, "needs 'num_classes'"),
    ],
)
def test_arguments_are_checked_against_the_builders_signature(args: dict, says: str) -> None:
    with pytest.raises(ZooError) as caught:
        provenzoo.create_model("mlp", features=4, **args)
    assert says in str(caught.value)


def test_nothing_in_a_recipe_names_code(folder: Path) -> None:
    for name in ("torch.nn:Linear", "provenzoo.models.mlp:MLP", "os.system", "../mlp", "/etc/passwd"):
        with pytest.raises(UsageError, match="no model"):
            components.check("models", {"name": name}, "model")
    with pytest.raises(ZooError, match="no argument '_target_'"):
        components.check("models", {"name": "mlp", "_target_": "os.system"}, "model")


def test_a_model_is_the_same_for_the_same_seed_and_leaves_the_global_generator_alone() -> None:
    import torch

    torch.manual_seed(7)
    before = torch.get_rng_state()
    a, b, c = (provenzoo.create_model("mlp", seed=s, features=4, num_classes=2) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    flat = [torch.cat([p.flatten() for p in m.parameters()]) for m in (a, b, c)]
    assert torch.equal(flat[0], flat[1]) and not torch.equal(flat[0], flat[2])


def test_a_type_that_cannot_be_hashed_is_checked_like_any_other() -> None:
    def builder(width: Annotated[int, ["a list"]]) -> None: ...

    for _ in range(2):
        assert bind(builder, {"width": 3}, "here") == {"width": 3}
        with pytest.raises(ZooError, match=r"here\.width: must be a whole number"):
            bind(builder, {"width": "3"}, "here")
