"""Claims: paths, forms, bounds, and what a null or a misspelt path does."""

import pytest

from provenzoo.errors import ZooError
from provenzoo.pipeline.claims import Claim, Key, Table, Values, bound, judge
from provenzoo.settings import read


def table() -> Table:
    numbers: Table = {}

    def put(stage: str, labels: dict[str, str], set: str, metric: str, step: int | None, *values: float | None) -> None:
        numbers[Key(stage, tuple(labels.items()), set, metric, step)] = list(values)

    put("train", {}, "", "loss", 0, 2.0, 2.2)
    put("train", {}, "", "loss", 10, 1.0, 1.5)
    put("train", {}, "", "loss", None, 1.0, 1.5)
    for loops, (a, b) in {"1": (4.0, 5.0), "2": (2.0, 3.0), "3": (1.0, 3.5)}.items():
        put("judge", {"arm": "x", "loops": loops}, "in", "loss", None, a, b)
        put("judge", {"arm": "y", "loops": loops}, "in", "loss", None, a + 1, b + 1)
    put("judge", {"arm": "x", "loops": "1"}, "out", "loss", None, 9.0, None)
    return numbers


def verdict(metric: object, holds: str, over: str = "mean"):
    claim = read(Claim, {"says": "", "metric": metric, "over": over, "holds": holds}, "claim")
    return judge({"it": claim}, table())[0]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">= 0.5", 0.5, 0.4),
        ("> 0.5", 0.6, 0.5),
        ("<= 1e-3", 0.001, 0.002),
        ("< 0", -1, 0),
        ("== 1", 1, 1.0001),
        ("in [-2.5, 2.5]", -2.5, 2.6),
    ],
)
def test_bounds(text: str, inside: float, outside: float) -> None:
    assert bound(text)(inside)[0] and not bound(text)(outside)[0]


@pytest.mark.parametrize("text", ["about 3", ">= x", "in [1]", "in [2, 1]", "=> 3", ""])
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(ZooError, match=r"claim\.holds"):
        read(Claim, {"says": "", "metric": "a.b", "holds": text}, "claim")


@pytest.mark.parametrize(("over", "value"), [("mean", 1.25), ("min", 1.0), ("max", 1.5), ("all", 1.5)])
def test_the_value_is_over_the_seeds_and_for_all_the_worst_one(over: str, value: float) -> None:
    assert verdict("train.loss", "<= 2", over).value == value


def test_a_step_is_named_by_its_number_and_star_means_every_logged_one() -> None:
    assert verdict("train.loss@0", "> 0").value == pytest.approx(2.1)
    worst = verdict("train.loss@*", "<= 1.5")
    assert worst.value == pytest.approx(2.1) and worst.at == "train.loss@0" and not worst.holds and worst.matches == 2


def test_no_brackets_mean_every_point_and_brackets_name_every_axis() -> None:
    assert verdict("judge.in.loss", "<= 10").matches == 6
    assert verdict("judge[arm=x,loops=*].in.loss", "<= 10").matches == 3
    one = verdict("judge[arm=x,loops=2].in.loss", "<= 10")
    assert (one.matches, one.value, one.at) == (1, 2.5, "judge[arm=x,loops=2].in.loss")
    with pytest.raises(ZooError, match="brackets name every axis; 'loops' is missing"):
        verdict("judge[arm=x].in.loss", "<= 10")


def test_differences_and_ratios_are_taken_seed_by_seed_at_the_same_labels() -> None:
    gap = verdict({"difference": ["judge[arm=y,loops=*].in.loss", "judge[arm=x,loops=*].in.loss"]}, "== 1", "all")
    assert gap.holds and gap.matches == 3
    every = verdict({"difference": ["judge.in.loss", "judge[arm=x,loops=*].in.loss"]}, "in [0, 1]", "all")
    assert every.holds and every.matches == 6
    fall = verdict({"ratio": ["train.loss", "train.loss@0"]}, "<= 0.7", "all")
    assert fall.value == pytest.approx(1.5 / 2.2) and fall.holds


def test_steps_are_consecutive_differences_along_an_axis() -> None:
    falling = verdict({"steps": ["judge[arm=x,loops=*].in.loss", "loops"]}, "< 0", "all")
    assert (
        not falling.holds and falling.value == pytest.approx(0.5) and "loops=3" in falling.at and "seed 1" in falling.at
    )
    assert verdict({"steps": ["judge[arm=x,loops=*].in.loss", "loops"]}, "< 0").holds


def test_steps_are_differences_of_consecutive_logged_steps_too() -> None:
    falling = verdict({"steps": ["train.loss@*", "step"]}, "< 0", "all")
    assert falling.holds and falling.matches == 1
    assert falling.value == pytest.approx(1.5 - 2.2) and falling.at == "step to train.loss@10, seed 1"


def test_a_null_never_holds() -> None:
    for over in ("mean", "min", "max", "all"):
        found = verdict("judge[arm=x,loops=1].out.loss", "<= 1e9", over)
        assert found.value is None and not found.holds


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("trian.loss", "no stage 'trian'; did you mean 'train'"),
        ("train.los", "no metric 'los'; did you mean 'loss'"),
        ("judge[arm=x,loops=*].inn.loss", "no set 'inn'"),
        ("judge[arm=z,loops=*].in.loss", "no label 'z' on arm"),
        ("judge[arms=x,loops=*].in.loss", "no axis 'arms'; did you mean 'arm'"),
        ("train.loss@7", "step 7 is not logged; logged: 0, 10"),
        ("judge.loss", "the stage has sets: in, out"),
        ("loss", "no metric's path"),
        ({"steps": ["train.loss", "loops"]}, "no axis 'loops'"),
    ],
)
def test_a_misspelt_path_is_named_with_the_nearest(metric: object, says: str) -> None:
    with pytest.raises(ZooError, match=r"claims\.it: ") as caught:
        verdict(metric, ">= 0")
    assert says in str(caught.value)


def test_a_seed_that_is_missing_on_one_side_is_an_error() -> None:
    numbers: dict[Key, Values] = {Key("a", (), "", "m", None): [1.0, 2.0], Key("b", (), "", "m", None): [1.0, 2.0, 3.0]}
    claim = read(Claim, {"says": "", "metric": {"difference": ["a.m", "b.m"]}, "holds": ">= 0"}, "claim")
    with pytest.raises(ZooError, match="2 seeds cannot be compared with 3"):
        judge({"it": claim}, numbers)
