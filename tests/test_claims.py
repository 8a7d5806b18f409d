"""Claims: paths, forms, bounds, and what a null or a misspelt path does."""

import math
import random
import statistics

import pytest

from provenzoo.errors import ZooError
from provenzoo.pipeline.claims import Claim, Key, Table, Values, bound, judge
from provenzoo.pipeline.slopes import log_slope
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
        ({"steps": ["train.loss", "step"]}, "for its logged steps write 'train.loss@*'"),
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


def falling(*powers: float) -> Table:
    """A series a seed that falls as a power of the step, from step 100 on; before it is flat."""
    steps = range(0, 1001, 100)
    return {
        Key("train", (), "out", "excess", step): [max(step, 100) ** power for power in powers] for step in steps
    } | {Key("train", (), "out", "excess", None): [1.0] * len(powers)}


def slope_of(table: Table, tail: object, holds: str = "in [-1.1, -0.9]"):
    node = {"says": "", "metric": {"slope": ["train.out.excess@*", tail]}, "over": "all", "holds": holds}
    return judge({"it": read(Claim, node, "claim")}, table)[0]


@pytest.mark.parametrize("tail", [0.25, 300])
def test_a_slope_is_the_power_of_the_step_seed_by_seed(tail: object) -> None:
    found = slope_of(falling(-1.0, -0.5), tail)
    assert found.value == pytest.approx(-0.5) and not found.holds
    assert "steps 300..1000" in found.at and found.at.endswith("seed 1")
    assert slope_of(falling(-1.0, -1.05), tail).holds


def test_the_standard_error_of_a_slope_is_that_of_ordinary_least_squares() -> None:
    x, y = [0.0, 1.0, 2.0, 3.0], [0.1, 0.9, 2.1, 2.9]
    slope, error = log_slope([round(1000 * math.exp(v)) for v in x], [math.exp(v) for v in y])
    assert slope == pytest.approx(0.96, abs=1e-3)
    assert error == pytest.approx((0.032 / 2 / 5) ** 0.5, rel=2e-2)


def test_the_standard_error_of_a_slope_is_its_spread_over_draws_of_the_noise() -> None:
    steps, draws = [*range(100, 2100, 100)], random.Random(0)
    fits = [log_slope(steps, [s**-1.0 * math.exp(draws.gauss(0, 0.2)) for s in steps]) for _ in range(2000)]
    slopes, errors = zip(*fits, strict=True)
    spread = statistics.stdev(slopes)
    middle = statistics.fmean(math.log(s) for s in steps)
    known = 0.2 / math.sqrt(sum((math.log(s) - middle) ** 2 for s in steps))
    assert spread == pytest.approx(known, rel=0.07) and statistics.fmean(slopes) == pytest.approx(-1, abs=0.01)
    assert math.sqrt(statistics.fmean(error**2 for error in errors)) == pytest.approx(known, rel=0.03)


def test_a_slope_of_what_is_not_above_zero_is_null_and_holds_never() -> None:
    table = falling(-1.0)
    table[Key("train", (), "out", "excess", 500)] = [0.0]
    assert slope_of(table, 0.25).value is None and not slope_of(table, 0.25).holds


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"slope": ["train.out.excess", 0.25]}, r"write train.out.excess@\*"),
        ({"slope": ["train.out.excess@*", 0]}, "a tail begins at"),
        ({"slope": ["train.out.excess@*", 1.5]}, "a tail begins at"),
        ({"ratio": ["train.loss", 0]}, "a ratio to 0 says nothing"),
    ],
)
def test_forms_that_say_nothing_are_refused(metric: object, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        read(Claim, {"says": "", "metric": metric, "holds": "> 0"}, "claim")


def test_a_slope_needs_three_steps() -> None:
    with pytest.raises(ZooError, match="2 logged steps from 900 on; three are needed"):
        slope_of(falling(-1.0), 900)


def test_a_ratio_may_be_to_a_number() -> None:
    found = verdict({"ratio": ["train.loss", 0.5]}, "<= 3", "all")
    assert found.value == pytest.approx(3.0) and found.holds
