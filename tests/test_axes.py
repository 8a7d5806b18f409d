"""The values of a sweep: lists, ranges, logarithmic and random ones."""

import pytest

from provenzoo.errors import UsageError
from provenzoo.pipeline.axes import combinations, read_axes, short_names


def values(word: str) -> list:
    _, [axis] = read_axes([word])
    return axis.values


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("a=1,2,3", [1, 2, 3]),
        ("a=x, y", ["x", "y"]),
        ("a=[1,2],[3]", [[1, 2], [3]]),
        ('a="1,2",3', ["1,2", 3]),
        ("a={name: b, c: [1, 2]},{name: d}", [{"name": "b", "c": [1, 2]}, {"name": "d"}]),
        ("a=range(3)", [0, 1, 2]),
        ("a=range(2,9,3)", [2, 5, 8]),
        ("a=range(1,2)", [1]),
        ("a=log(1e-4,1e-1,7)", [1e-4, 0.000316228, 1e-3, 0.00316228, 0.01, 0.0316228, 0.1]),
        ("a=log(1,256,9)", [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
        ("a=0,log(1,100,3),null", [0, 1.0, 10.0, 100.0, None]),
    ],
)
def test_values_are_what_they_look_like(word, wanted):
    assert values(word) == wanted


def test_random_values_are_the_same_every_time_and_others_for_another_key():
    drawn = values("a=random(5)")
    assert drawn == values("a=random(5)") != values("b=random(5)")
    assert len(set(drawn)) == 5 and all(0 <= x < 1 for x in drawn)
    assert all(1e-4 <= x <= 1e-1 for x in values("a=random(50,1e-4,1e-1,log)"))
    assert sum(x < 1e-2 for x in values("a=random(300,1e-4,1,log)")) == pytest.approx(150, abs=45)  # five sigma
    assert sorted(values("a=random(6,2,8)")) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("a=range(3,3)", "a: range(3,3) is empty"),
        ("a=range(0)", "a: range(0) is empty"),
        ("a=random(0)", "a: random(0) is empty"),
        ("a=range(0,1,0.1)", "a: range(0,1,0.1) is not read: write range(end), range(start,end)"),
        ("a=range(x)", "write range(end)"),
        ("a=range(99999)", "has more than 10,000 values"),
        ("a=log(0,1,5)", "write log(low,high,n) with 0 < low < high"),
        ("a=log(1,2)", "write log(low,high,n)"),
        ("a=log(1,2,1)", "n of 2 or more"),
        ("a=random(3,1,1)", "write random(n)"),
        ("a=random(7,2,8)", "there are 6 whole numbers from 2 below 8"),
        ("a=random(3,1,2,lin)", "no scale 'lin'; did you mean 'linear'"),
        ("a=1,,2", "a: a value between the commas is empty"),
        ("a=1,2,1", "a: the value 1 is there twice"),
        ("a", "an override is path=value"),
        ("=1,2", "an override is path=value"),
        ("a=1", "a sweep needs a key with several values"),
    ],
)
def test_what_is_off_is_told(word, says):
    with pytest.raises(UsageError) as caught:
        read_axes([word])
    assert says in str(caught.value)


def test_a_key_with_one_value_holds_for_every_point_and_the_last_key_changes_fastest():
    fixed, axes = read_axes(["seeds=3", "a=1,2", "note=", "b.c=x,y", "m=[loss,accuracy]"])
    assert fixed == ["seeds=3", "note=", "m=[loss,accuracy]"]
    assert [tuple(texts.values()) for texts in combinations(axes)] == [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y")]
    with pytest.raises(UsageError, match="'a' is given twice"):
        read_axes(["a=1,2", "a=range(3)"])
    with pytest.raises(UsageError, match="more than 10,000 points"):
        read_axes(["a=range(200)", "b=range(200)"])


def test_names_are_the_shortest_endings_that_differ():
    assert short_names(["stages.a.optim.lr", "seeds"]) == {"stages.a.optim.lr": "lr", "seeds": "seeds"}
    assert short_names(["stages.a.steps", "stages.b.steps"]) == {
        "stages.a.steps": "a.steps",
        "stages.b.steps": "b.steps",
    }
    assert short_names(["lr", "optim.lr"]) == {"lr": "lr", "optim.lr": "optim.lr"}
