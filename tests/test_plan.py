"""The plan: axes, parents, order, inherited nodes, digests, and what is refused before anything trains."""

from typing import Any

import pytest

from provenzoo.errors import UsageError, ZooError
from provenzoo.pipeline.plan import Plan, Point, prepare
from provenzoo.pipeline.recipe import compose, plain_recipe

TRAIN = {
    "stage": "pretrain",
    "model": {"name": "mlp", "hidden": 8},
    "data": {"name": "gaussian-clusters", "train": 100, "test": 50},
    "steps": 4,
    "metrics": ["loss", "accuracy"],
}
TUNE = {"stage": "finetune", "from": "train", "freeze": ["body"], "steps": 2, "metrics": ["loss"]}
JUDGE = {
    "stage": "evaluate",
    "from": "train",
    "metrics": ["accuracy"],
    "sets": {"in": {}, "noisy": {"data": {"noise": 4.0}}},
}


def plan(stages: dict[str, Any], *overrides: str, **top: Any) -> Plan:
    return Plan.of(plain_recipe(compose({"recipe": "test", "stages": stages, **top}, overrides)))


def names(found: Plan) -> list[str]:
    return [point.name for point in found.points]


def point(found: Plan, name: str) -> Point:
    return next(p for p in found.points if p.name == name)


# --- grids and parents --------------------------------------------------------------------------------------------


def test_a_list_on_an_axis_sets_the_path_that_names_it() -> None:
    found = plan({"train": TRAIN | {"grid": {"model.hidden": [4, 8], "data.noise": [1.0, 2.0]}}})
    assert names(found) == [f"train[model.hidden={h},data.noise={n}]" for h in (4, 8) for n in (1.0, 2.0)]
    assert point(found, "train[model.hidden=4,data.noise=2.0]").node["model"]["hidden"] == 4


def test_a_range_counts_both_ends_and_a_mapping_lays_an_overlay_under_a_free_name() -> None:
    assert names(plan({"train": TRAIN | {"grid": {"model.hidden": "1..3"}}})) == [
        f"train[model.hidden={h}]" for h in (1, 2, 3)
    ]
    found = plan({"train": TRAIN | {"grid": {"size": {"small": {"model": {"hidden": 2}, "steps": 1}, "plain": {}}}}})
    assert names(found) == ["train[size=small]", "train[size=plain]"]
    small = point(found, "train[size=small]").node
    assert (small["model"]["hidden"], small["steps"]) == (2, 1)
    assert point(found, "train[size=plain]").node["steps"] == 4


def test_a_stage_has_its_parents_axes_and_then_its_own() -> None:
    found = plan({"train": TRAIN | {"grid": {"model.hidden": [2, 3]}}, "tune": TUNE | {"grid": {"steps": [1, 2]}}})
    assert names(found)[2:] == [f"tune[model.hidden={h},steps={s}]" for h in (2, 3) for s in (1, 2)]
    assert point(found, "tune[model.hidden=3,steps=1]").node["from"] == "train[model.hidden=3]"


def test_from_with_brackets_picks_a_label_and_drops_the_axis() -> None:
    stages = {"train": TRAIN | {"grid": {"model.hidden": [2, 3]}}, "tune": TUNE | {"from": "train[model.hidden=3]"}}
    found = plan(stages)
    assert names(found)[2:] == ["tune"] and point(found, "tune").node["model"]["hidden"] == 3


def test_a_grid_over_from_judges_several_stages() -> None:
    found = plan({"train": TRAIN, "tune": TUNE, "judge": JUDGE | {"grid": {"from": ["train", "tune"]}}})
    assert names(found)[2:] == ["judge[from=train]", "judge[from=tune]"]


def test_parents_join_on_the_axes_they_share() -> None:
    stages = {
        "train": TRAIN | {"grid": {"model.hidden": [2, 3]}},
        "tune": TUNE | {"grid": {"steps": [1, 2]}},
        "judge": JUDGE | {"from": "tune"},
    }
    assert names(plan(stages))[6:] == [f"judge[model.hidden={h},steps={s}]" for h in (2, 3) for s in (1, 2)]


def test_an_own_axis_named_as_an_inherited_one_is_an_error() -> None:
    stages = {"train": TRAIN | {"grid": {"steps": [2, 3]}}, "tune": TUNE | {"grid": {"steps": [1, 2]}}}
    with pytest.raises(ZooError, match="the axis 'steps' is inherited from a parent"):
        plan(stages)


def test_parents_without_a_shared_label_are_an_error_not_an_empty_stage() -> None:
    stages = {
        "a": TRAIN | {"grid": {"steps": [1, 2]}},
        "b": TRAIN | {"grid": {"steps": [3, 4]}},
        "judge": JUDGE | {"from": "a", "data": {"teacher": {"from": "b"}}},
    }
    with pytest.raises(ZooError, match=r"stages\.judge: its parents have no labels in common"):
        plan(stages)


def test_a_from_inside_a_set_is_an_edge_too() -> None:
    inner = {"data": {"teacher": {"from": "other"}}}
    stages = {"judge": JUDGE | {"sets": {"taught": inner}}, "train": TRAIN, "other": TRAIN | {"steps": 9}}
    with pytest.raises(ZooError, match=r"judge\.sets\.taught\.data: gaussian-clusters has no argument 'teacher'"):
        plan(stages)
    with pytest.raises(UsageError, match="no stage and no checkpoint 'othre'"):
        plan(stages | {"judge": JUDGE | {"sets": {"taught": {"data": {"teacher": {"from": "othre"}}}}}})


def test_a_folders_name_is_one_that_file_systems_take() -> None:
    found = plan({"train": TRAIN | {"grid": {"arm": {"../ü": {}, "x" * 300: {}}}}})
    odd, long = (point.folder for point in found.points)
    assert odd == "train[arm=..%2F%C3%BC]" and len(long) <= 200


def test_parents_come_first_whatever_the_written_order() -> None:
    assert names(plan({"judge": JUDGE | {"from": "tune"}, "tune": TUNE, "train": TRAIN})) == ["train", "tune", "judge"]


def test_stages_that_come_from_one_another_are_an_error_that_shows_the_circle() -> None:
    stages = {"a": TUNE | {"from": "b"}, "b": TUNE | {"from": "a"}}
    with pytest.raises(ZooError, match="comes from itself: a -> b -> a"):
        plan(stages)


# --- inheritance --------------------------------------------------------------------------------------------------


def test_model_and_data_are_overlays_on_the_parents_and_nothing_else_is_inherited() -> None:
    stages = {"train": TRAIN | {"batch": 7}, "tune": TUNE | {"data": {"noise": 3.0}}}
    tune = point(plan(stages), "tune")
    assert tune.node["data"] == TRAIN["data"] | {"noise": 3.0} and tune.node["model"] == TRAIN["model"]
    assert tune.settings.batch != 7


def test_naming_other_data_drops_what_the_checkpoint_carried() -> None:
    stages = {"train": TRAIN, "tune": TUNE | {"data": {"name": "fashion-mnist-mini"}}}
    assert point(plan(stages), "tune").node["data"] == {"name": "fashion-mnist-mini"}


def test_null_in_an_overlay_removes_what_the_parent_had_and_only_that() -> None:
    assert "train" not in point(plan({"train": TRAIN, "tune": TUNE | {"data": {"train": None}}}), "tune").node["data"]
    with pytest.raises(ZooError, match=r"tune\.data: noise: null removes an inherited key"):
        plan({"train": TRAIN, "tune": TUNE | {"data": {"noise": None}}})


def test_null_and_plus_in_an_arm_or_a_set_of_it_reach_what_the_parent_had() -> None:
    arms = {"less": {"data": {"train": None}, "metrics+": ["accuracy"]}}
    less = point(plan({"train": TRAIN, "tune": TUNE | {"grid": {"arm": arms}}}), "tune[arm=less]").node
    assert "train" not in less["data"] and less["metrics"] == ["loss", "accuracy"]
    images = TRAIN | {"model": {"name": "small-cnn"}, "data": {"name": "fashion-mnist-mini", "classes": [0, 1]}}
    more = {"data": {"classes+": [2]}}
    found = plan({"train": images, "tune": TUNE | {"freeze": [], "grid": {"arm": {"more": more}}}})
    assert point(found, "tune[arm=more]").node["data"]["classes"] == [0, 1, 2]
    sets = {"arm": {"less": {"sets": {"noisy": {"data": {"train": None}}}}}}
    found = plan({"train": TRAIN, "judge": JUDGE | {"grid": sets}})
    assert "train" not in point(found, "judge[arm=less]").node["sets"]["noisy"]["data"]
    with pytest.raises(ZooError, match="null removes an inherited key"):
        plan({"train": TRAIN, "tune": TUNE | {"grid": {"arm": {"x": {"data": {"noise": None}}}}}})


def test_every_set_has_its_whole_data_node() -> None:
    sets = point(plan({"train": TRAIN, "judge": JUDGE}), "judge").node["sets"]
    assert sets["noisy"] == {"data": TRAIN["data"] | {"noise": 4.0}, "model": TRAIN["model"]}


# --- digests ------------------------------------------------------------------------------------------------------


def test_the_digest_covers_the_node_the_seeds_and_the_parents() -> None:
    stages = {"train": TRAIN, "tune": TUNE}
    base, steps, seeds = plan(stages), plan(stages, "stages.train.steps=5"), plan(stages, "seeds=2")
    assert point(base, "train").digest != point(steps, "train").digest
    assert point(base, "tune").digest != point(steps, "tune").digest, "a changed parent changes its children"
    assert point(base, "tune").digest != point(seeds, "tune").digest
    assert base.id != steps.id


def test_claims_text_figures_and_device_are_not_in_the_digest() -> None:
    claim = {"learns": {"says": "x", "metric": "train.loss", "holds": "<= 9"}}
    other = plan(
        {"train": TRAIN},
        about="y",
        note="z",
        claims=claim,
        device="cpu",
        figures={"f": {"kind": "curves", "stage": "train"}},
    )
    assert other.id == plan({"train": TRAIN}).id


def test_the_digest_depends_on_what_a_parent_is_not_on_its_name() -> None:
    assert (
        point(plan({"train": TRAIN, "tune": TUNE}), "tune").digest
        == point(plan({"first": TRAIN, "tune": TUNE | {"from": "first"}}), "tune").digest
    )


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ({"train": TRAIN | {"stage": "pretran"}}, "no stage 'pretran'; did you mean 'pretrain'"),
        ({"train": {k: v for k, v in TRAIN.items() if k != "stage"}}, "no stage None; there are: pretrain, finetune, evaluate"),
        ({"train": TRAIN | {"epoch": 3}}, "unknown key 'epoch'; did you mean 'epochs'"),
        ({"train": TRAIN | {"epochs": 3}}, "either `steps` or `epochs`"),
        ({"train": TRAIN | {"steps": True}}, "steps: must be a whole number"),
        ({"train": TRAIN | {"steps": -1}}, "steps: must be greater than or equal to 1"),
        ({"train": TRAIN | {"batch": 2.5}}, "batch: must be a whole number"),
        ({"train": TRAIN | {"optim": {"lr": "fast"}}}, "lr"),
        ({"train": TRAIN | {"optim": {"lr": 1e99}}}, "lr"),
        ({"train": TRAIN | {"optim": {"lr": -0.1}}}, "lr"),
        ({"train": TRAIN | {"optim": {"name": "adamm"}}}, "adamm"),
        ({"train": TRAIN | {"optim": {"bets": [0.9, 0.9]}}}, "did you mean 'betas'"),
        ({"train": TRAIN | {"optim": {"groups": {"attention": {"lr": 1.0}}}}}, "body, head"),
        ({"train": TRAIN | {"metrics": ["acuracy"]}}, "no metric 'acuracy'; did you mean 'accuracy'"),
        ({"train": TRAIN | {"metrics": []}}, "metrics"),
        ({"train": TRAIN | {"loss": "cross-entrpy"}}, "did you mean 'cross-entropy'"),
        ({"train": TRAIN | {"model": {"name": "mpl"}}}, "no model 'mpl'; did you mean 'mlp'"),
        ({"train": TRAIN | {"model": {"hidden": 3}}}, "no `name`"),
        ({"train": TRAIN | {"model": {"name": "mlp", "hiden": 3}}}, "no argument 'hiden'; did you mean 'hidden'"),
        ({"train": TRAIN | {"data": {"name": "mlp"}}}, "that is the name of a model"),
        ({"train": TRAIN | {"grid": {"steps": []}}}, "no labels"),
        ({"train": TRAIN | {"grid": {"steps": [1, 1]}}}, "a label is there twice"),
        ({"train": TRAIN | {"grid": {"a=b": {"x": {}}}}}, "the axis 'a=b' cannot be named in a path"),
        ({"train": TRAIN | {"grid": {"arm": {"*": {}}}}}, "the label '*' cannot be named in a path"),
        ({"train": TRAIN | {"grid": {"arm": {" x": {}}}}}, "the label ' x' cannot be named in a path"),
        ({"train": TRAIN | {"grid": {"arm": {"x": {"stage": "pretran"}}}}}, "no stage 'pretran'; did you mean 'pretrain'"),
        ({"train": TRAIN | {"model": {"name": "mlp", "hidden": "x"}}}, "model.hidden: must be a whole number (it is 'x')"),
        ({"train": TRAIN | {"model": {"name": "mlp", "hidden": [1, "x"]}}}, "model.hidden.1: must be a whole number (it is 'x')"),
        ({"train": TRAIN | {"optim": {"groups": {"body": 5}}}}, "optim.groups.body: must be a mapping (it is 5)"),
        ({"train": TRAIN | {"metrics": "loss"}}, "metrics: must be a list (it is 'loss')"),
        ({"train": TRAIN, "b": TRAIN | {"data": {"name": "gaussian-clusters", "from": "train"}}}, "stages.b.data: gaussian-clusters takes no `from`"),
        ({"train": TRAIN, "tune": TUNE | {"from": 5}}, "tune.from: a whole number where the name of a stage or checkpoint is needed"),
        ({"train": TRAIN, "tune": TUNE | {"from": "runs/x"}}, "no stage and no checkpoint 'runs/x'; a folder is local:DIR"),
        ({"train": TRAIN, "judge": JUDGE | {"sets": {"*": {}}}}, "sets: the set '*' cannot be named in a path"),
        ({"train": TRAIN | {"grid": {"steps": 3}}}, "a list, a range a..b or a mapping"),
        ({"train": TRAIN | {"grid": {"stepz": [1, 2]}}}, "unknown key 'stepz'; did you mean 'steps'"),
        ({"train": TRAIN, "tune": TUNE | {"from": "trian"}}, "no stage and no checkpoint 'trian'; did you mean 'train'"),
        ({"train": TRAIN, "tune": TUNE | {"freeze": ["nothing"]}}, "body, head"),
        ({"train": TRAIN, "tune": TUNE | {"reset": ["haed"]}}, "did you mean 'head'"),
        ({"train": TRAIN, "tune": TUNE | {"freeze": ["body", "head"]}}, "everything"),
        ({"train": TRAIN, "judge": JUDGE | {"sets": {}}}, "sets"),
        ({"train": TRAIN, "judge": JUDGE | {"sets": {"a": {"date": {}}}}}, "unknown key 'date'; did you mean 'data'"),
        ({"train": TRAIN, "judge": JUDGE | {"sets": {"a": {"model": {"hidden": 2}}}}}, "'hidden' cannot change after training"),
        ({"train": TRAIN, "judge": JUDGE | {"model": {"hidden": 2}}}, "judge.model: 'hidden' cannot change after training"),
        ({"train": TRAIN, "judge": JUDGE, "tune": TUNE | {"from": "judge"}}, "leaves no checkpoint"),
        ({"train": TRAIN | {"grid": {"model.hidden": [1, 2]}}, "tune": TUNE | {"from": "train[model.hidden=3]"}}, "no label '3'"),
        ({"train": TRAIN | {"seeds": 3}, "tune": TUNE | {"seeds": 2}}, "3 seeds and this stage 2"),
    ],
)  # fmt: skip
def test_a_fault_is_found_before_anything_trains(stages: dict[str, Any], says: str) -> None:
    with pytest.raises(ZooError) as caught:
        plan(stages)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("top", "says"),
    [
        ({"publish": "trian"}, "publish: no stage with a checkpoint 'trian'; did you mean 'train'"),
        ({"publish": "judge"}, "publish: no stage with a checkpoint 'judge'"),
        ({"figures": {"f": {"kind": "curves", "stage": "trian"}}}, "figures.f: no stage 'trian'; did you mean 'train'"),
        (
            {"figures": {"f": {"kind": "bars", "stage": "judge", "metric": "acuracy"}}},
            "figures.f: no metric 'acuracy' in judge; did you mean 'accuracy'",
        ),
    ],
)
def test_a_figure_or_publish_that_names_nothing_is_found_before_anything_trains(top: dict[str, Any], says: str) -> None:
    with pytest.raises(ZooError) as caught:
        plan({"train": TRAIN, "judge": JUDGE}, **top)
    assert says in str(caught.value)


def test_a_fault_that_the_overrides_bring_is_one_of_the_commands_words() -> None:
    sound = {"recipe": "test", "stages": {"train": TRAIN}}
    with pytest.raises(UsageError, match="unknown key 'stepz'; did you mean 'steps'"):
        prepare(sound, ["stages.train.stepz=3"])
    with pytest.raises(ZooError) as caught:
        prepare({"recipe": "test", "stages": {"train": TRAIN | {"stepz": 3}}}, ["seeds=2"])
    assert not isinstance(caught.value, UsageError)


def test_a_parent_with_one_seed_serves_all() -> None:
    found = plan({"train": TRAIN | {"seeds": 1}, "tune": TUNE}, "seeds=3")
    assert point(found, "tune").seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("train.los", "no metric 'los'; did you mean 'loss'"),
        ("trian.loss", "no stage 'trian'"),
        ("judge.out.accuracy", "no set 'out'"),
        ("judge.accuracy", "the stage has sets: in, noisy"),
        ("train.loss@3", "step 3 is not logged"),
        (f"train.loss@{'9' * 5000}", "no metric's path"),
        ("train.frozen-unchanged", "no metric 'frozen-unchanged'"),
    ],
)
def test_a_misspelt_claim_is_found_before_anything_trains(metric: str, says: str) -> None:
    claims = {"it": {"says": "x", "metric": metric, "holds": "> 0"}}
    with pytest.raises(ZooError) as caught:
        plan({"train": TRAIN | {"log_every": 2}, "judge": JUDGE}, claims=claims)
    assert says in str(caught.value)
