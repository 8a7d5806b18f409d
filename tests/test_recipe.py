"""Recipes: composition, references and overrides."""

from pathlib import Path

import pytest
from omegaconf import DictConfig

import provenzoo
from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.recipe import compose, parse_override, plain_recipe

BASE = """
about: base
seeds: 2
stages:
  train:
    stage: pretrain
    model: {name: mlp, hidden: 8, depth: 2}
    data: {name: gaussian-clusters}
    optim: {name: adamw, lr: 0.1, groups: {head: {lr: 1.0}}}
    steps: 4
    metrics: [loss]
    grid: {data.samples: [1, 2]}
claims:
  learns: {says: it learns, metric: train.loss, holds: "<= 9"}
"""


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write recipes into a folder of PROVENZOO_PATH; gives the writer."""
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path))

    def write(**texts: str) -> None:
        for name, text in texts.items():
            file = tmp_path / "pipelines" / "paper" / f"{name}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    write(base=BASE)
    return write


def composed(name: str, *overrides: str) -> dict:
    return plain_recipe(compose(name, overrides))


def test_compose_gives_a_config_that_a_notebook_can_read_and_not_misspell(recipes) -> None:
    config = provenzoo.compose("paper/base")
    assert isinstance(config, DictConfig) and config.stages.train.optim.lr == 0.1
    with pytest.raises(AttributeError):
        _ = config.stages.trian


def test_a_childs_value_wins_over_its_grandparents_at_every_depth(recipes) -> None:
    recipes(
        child="extends: paper/base\nstages: {train: {optim: {groups: {head: {lr: 2.0}}}}}",
        grandchild="extends: paper/child\nseeds: 5\nstages: {train: {optim: {lr: 0.5}}}",
    )
    optim = composed("paper/grandchild")["stages"]["train"]["optim"]
    assert optim == {"name": "adamw", "lr": 0.5, "groups": {"head": {"lr": 2.0}}}
    assert composed("paper/grandchild")["seeds"] == 5 and composed("paper/grandchild")["about"] == "base"


def test_naming_another_component_drops_the_old_ones_arguments(recipes) -> None:
    recipes(child="extends: paper/base\nstages: {train: {optim: {name: sgd}, model: {name: mlp, hidden: 4}}}")
    train = composed("paper/child")["stages"]["train"]
    assert train["optim"] == {"name": "sgd"} and train["model"] == {"name": "mlp", "hidden": 4, "depth": 2}


def test_lists_replace_and_plus_extends(recipes) -> None:
    recipes(child="extends: paper/base\nstages: {train: {metrics: [accuracy]}}")
    recipes(more="extends: paper/base\nstages: {train: {metrics+: [accuracy]}}")
    assert composed("paper/child")["stages"]["train"]["metrics"] == ["accuracy"]
    assert composed("paper/more")["stages"]["train"]["metrics"] == ["loss", "accuracy"]
    assert composed("paper/base", "stages.train.metrics+=[accuracy]")["stages"]["train"]["metrics"] == [
        "loss",
        "accuracy",
    ]


def test_null_removes_a_claim_a_stage_or_a_key_and_nothing_that_is_not_there(recipes) -> None:
    recipes(child="extends: paper/base\nclaims: {learns: null}\nstages: {train: {optim: {groups: null}}}")
    child = composed("paper/child")
    assert child["claims"] == {} and "groups" not in child["stages"]["train"]["optim"]
    recipes(wrong="extends: paper/base\nclaims: {learn: null}")
    with pytest.raises(ZooError, match=r"claims\.learn: null removes an inherited key and there is none; write {}"):
        compose("paper/wrong")


def test_claims_are_inherited_and_overridden_by_id(recipes) -> None:
    recipes(
        child='extends: paper/base\nclaims: {learns: {holds: "<= 1"}, more: {says: x, metric: train.loss, holds: "> 0"}}'
    )
    claims = composed("paper/child")["claims"]
    assert claims["learns"] == {"says": "it learns", "metric": "train.loss", "holds": "<= 1"} and "more" in claims


def test_null_in_an_overlay_waits_for_what_it_is_laid_over(recipes) -> None:
    recipes(
        child="extends: paper/base\nstages: {judge: {stage: evaluate, from: train, sets: {clean: {data: {corrupt: null}}}}}"
    )
    assert composed("paper/child")["stages"]["judge"]["sets"] == {"clean": {"data": {"corrupt": None}}}


def test_a_whole_reference_is_a_copy_of_the_composed_node_and_nothing_else_interpolates(recipes) -> None:
    recipes(
        child="""
extends: paper/base
about: "costs ${seeds} and ${nothing}"
stages:
  other: {stage: pretrain, model: "${stages.train.model}", data: "${stages.train.data}", steps: "${stages.train.steps}"}
"""
    )
    child = composed("paper/child", "stages.train.model.hidden=3")
    assert child["stages"]["other"]["model"] == {"name": "mlp", "hidden": 3, "depth": 2}
    assert child["stages"]["other"]["steps"] == 4
    assert child["about"] == "costs ${seeds} and ${nothing}"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("${stages.trian}", "names nothing; did you mean 'stages.train'"),
        ("${oc.env:HOME}", "names nothing"),
        ("${stages.other}", "goes in a circle"),
    ],
)
def test_a_reference_that_cannot_be_followed_is_an_error(recipes, value: str, says: str) -> None:
    recipes(child=f'extends: paper/base\nstages: {{other: {{model: "{value}"}}}}')
    with pytest.raises(ZooError) as caught:
        compose("paper/child")
    assert says in str(caught.value)


def test_a_recipe_that_extends_itself_is_an_error_that_shows_the_circle(recipes) -> None:
    recipes(a="extends: paper/b", b="extends: paper/a", c="extends: paper/c")
    with pytest.raises(ZooError, match="circle: paper/a -> paper/b -> paper/a"):
        compose("paper/a")
    with pytest.raises(ZooError, match="circle"):
        compose("paper/c")


def test_a_file_may_extend_a_recipe_of_its_own_name_but_not_itself(recipes, tmp_path: Path) -> None:
    file = tmp_path / "base.yaml"
    recipes(top="extends: paper/base\n")
    (tmp_path / "pipelines" / "base.yaml").write_text(BASE)
    file.write_text("extends: base\nseeds: 7\n")
    assert plain_recipe(compose(file))["seeds"] == 7
    file.write_text(f"extends: {file}\n")
    with pytest.raises(ZooError, match="circle"):
        compose(file)


def test_a_reference_leads_through_another_copy(recipes) -> None:
    recipes(
        child="""
extends: paper/base
stages:
  b: {stage: pretrain, optim: "${stages.train.optim}", steps: 3}
  c: {stage: pretrain, optim: {lr: "${stages.b.optim.lr}"}}
"""
    )
    assert composed("paper/child")["stages"]["c"]["optim"]["lr"] == 0.1


@pytest.mark.parametrize("name", ["../x", "/abs/x", "", "a//b", ".", "a/../b", "a\\b", "a\nb", "x" * 300, 5])
def test_a_recipes_name_stays_below_runs(name: object) -> None:
    with pytest.raises(ZooError, match=r"recipe: "):
        compose({"recipe": name, "stages": {"train": {"stage": "pretrain"}}})


def test_a_notebooks_mapping_may_hold_tuples_and_numbers_as_keys() -> None:
    grid = {"size": {2: {"steps": 1}}, "steps": (1, 2)}
    data = plain_recipe(compose({"stages": {"train": {"stage": "pretrain", "grid": grid}}}))
    assert data["stages"]["train"]["grid"] == {"size": {"2": {"steps": 1}}, "steps": [1, 2]}


@pytest.mark.parametrize("text", ["", "just words", "[1, 2]", "seeds: 1\nseeds: 2\n"])
def test_a_file_that_is_no_mapping_or_repeats_a_key_names_the_file(recipes, text: str) -> None:
    recipes(broken=text)
    with pytest.raises(ZooError, match=r"broken\.yaml"):
        compose("paper/broken")


def test_an_unknown_recipe_offers_the_nearest(recipes) -> None:
    with pytest.raises(UsageError, match="no recipe 'paper/bas'; did you mean 'paper/base'"):
        compose("paper/bas")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: 3\n", "unknown key 'seed'; did you mean 'seeds'"),
        ("seeds: many\n", "seeds: must be a whole number"),
        ("claims: {x: {say: a, metric: b.c, holds: '> 0'}}\n", "unknown key 'say'; did you mean 'says'"),
        ("claims: {x: {says: a, metric: b.c, holds: big}}\n", "not a bound"),
        ("stages: {Train Me: {stage: pretrain}}\n", "lower case"),
        ("scale: huge\n", "scale: must be 'cpu' or 'gpu'"),
        ("stages: 5\n", "stages: must be a mapping (it is 5)"),
        ("stages: {train: 5}\n", "stages.train: must be a mapping (it is 5)"),
        ("claims: [1]\n", "claims: must be a mapping (it is [1])"),
        ("claims: {x: 5}\n", "claims.x: must be a mapping (it is 5)"),
        ("claims: {x: {says: a, metric: 5, holds: '> 0'}}\n", "metric: write a path, {difference: [P, P]}"),
        ("claims: {x: {says: a, metric: {ratio: a.b}, holds: '> 0'}}\n", "metric.ratio: must be a list (it is 'a.b')"),
        (
            "claims: {x: {says: a, metric: {steps: [a.b]}, holds: '> 0'}}\n",
            "metric.steps: must hold at least 2, holds 1",
        ),
        ("figures: {f: {kind: curvez, stage: train}}\n", "figures.f.kind: must be 'curves', 'overlay', 'bars'"),
        ("figures: {f: {kind: curves, stag: train}}\n", "figures.f: unknown key 'stag'; did you mean 'stage'"),
        ("note: .inf\n", "note: inf is no finite number"),
    ],
)
def test_a_misspelt_key_or_a_wrong_type_in_a_file_is_named(recipes, text: str, says: str) -> None:
    recipes(child=f"extends: paper/base\n{text}")
    with pytest.raises(ZooError) as caught:
        compose("paper/child")
    assert says in str(caught.value)


# --- overrides ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("note=epoch=9-step=1.ckpt", "epoch=9-step=1.ckpt"),
        ("note=50%", "50%"),
        ("note=a@b|c#d", "a@b|c#d"),
        ("note=Ünïcödé 中文", "Ünïcödé 中文"),
        ("note=a: b", "a: b"),
        ("note=@x %r *x", "@x %r *x"),
        ('note="7"', "7"),
        ('note="[1, 2]"', "[1, 2]"),
        ("note=", ""),
        ("note=${seeds} b", "${seeds} b"),
        ("seeds=7", 7),
        ("a.lr=1e-3", 0.001),
        ("a=true", True),
        ("a=[1, x]", [1, "x"]),
        ("a={name: vit}", {"name": "vit"}),
        ("a=null", None),
        ("a=1..50", "1..50"),
    ],
)
def test_override_values_are_what_they_look_like(text: str, value: object) -> None:
    assert parse_override(text)[1] == value


@pytest.mark.parametrize("text", ["epoch=9-step=1.ckpt", "50%", "a@b|c#d", "Ünïcödé 中文", "x: y"])
def test_any_text_reaches_the_recipe_as_it_is(recipes, text: str) -> None:
    assert composed("paper/base", f"note={text}")["note"] == text
    assert provenzoo.compose("paper/base", [f"note={text}"]).note == text


def test_the_order_of_overrides_does_not_matter(recipes) -> None:
    changes = ["stages.train.optim.lr=0.3", "stages.train.model={name: mlp, hidden: 2}", "seeds=1"]
    assert composed("paper/base", *changes) == composed("paper/base", *reversed(changes))
    with pytest.raises(UsageError, match="given twice"):
        compose("paper/base", ["seeds=1", "seeds=two"])
    with pytest.raises(UsageError, match="another override sets"):
        compose("paper/base", ["stages.train.model={name: mlp, hidden: 1}", "stages.train.model.hidden=2"])


def test_a_new_axis_is_named_by_all_of_the_rest_of_the_path(recipes) -> None:
    grid = composed("paper/base", "stages.train.grid.optim.lr=[1.0]")["stages"]["train"]["grid"]
    assert grid == {"data.samples": [1, 2], "optim.lr": [1.0]}


def test_a_path_takes_the_longest_key_that_exists(recipes) -> None:
    assert composed("paper/base", "stages.train.grid.data.samples=[5]")["stages"]["train"]["grid"] == {
        "data.samples": [5]
    }


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("lr=fast", "no key 'lr' in a recipe; did you mean 'stages.train.optim.lr'"),
        ("sedes=3", "did you mean 'seeds'"),
        ("stages.trian.steps=3", "no stage 'trian'; did you mean 'train'"),
        ("claims.learn.holds=> 0", "no claim 'learn'; did you mean 'learns'"),
        ("seeds", "an override is path=value"),
        ("recipe=x", "no key 'recipe' in a recipe"),
        ("stages.train.optim.lr=.inf", "optim.lr: inf is no finite number"),
        ("=3", "an override is path=value"),
        ("a=[1", "put it in double quotes"),
        ("stages.train.optim.beta=null", "null removes an inherited key"),
    ],
)
def test_a_wrong_override_says_what_is_near(recipes, override: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose("paper/base", [override])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "override", ["seeds=0", "seeds=-1", "seeds=1e99", "seeds=true", "seeds=two", "note=7", "about=true"]
)
def test_a_value_of_the_wrong_type_is_an_error(recipes, override: str) -> None:
    with pytest.raises(ZooError, match=override.partition("=")[0]):
        compose("paper/base", [override])


@pytest.mark.parametrize(
    "note",
    [
        "50% ${x}",
        r"\${x}",
        r"\\${x}",
        r"a\b${",
        "???",
        "off",
        "1_0",
        " a ",
        "a\nb\n\n",
        "\x85\u2028",
        "a: 'b' #c",
        "[",
        "😀",
    ],
)
def test_a_composed_config_and_a_saved_file_compose_to_the_same(recipes, tmp_path: Path, note: str) -> None:
    from provenzoo.plain import dump_yaml

    first = composed("paper/base", f"note={note}" if note != "[" else 'note="["', "seeds=3")
    assert first["note"] == note
    (tmp_path / "config.yaml").write_text(dump_yaml(first))
    assert plain_recipe(compose(tmp_path / "config.yaml")) == first == plain_recipe(compose(compose(first)))
