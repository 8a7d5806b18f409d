"""Plain data: strict YAML, merging, paths, digests, whole files."""

import os
import random
from pathlib import Path

import pytest
import yaml

from provenzoo.errors import ZooError
from provenzoo.plain import (
    DEEPEST,
    digest,
    dump_yaml,
    merge,
    nearest,
    parse_yaml,
    plain_data,
    read_yaml,
    shortened,
    split_path,
    write_whole,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("1:30", "1:30"),
        ("off", "off"),
        ("no", "no"),
        ("1e-3", 0.001),
        ("1e99", 1e99),
        (".inf", float("inf")),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("~", None),
        ("'7'", "7"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("nan", "nan"),
    ],
)
def test_scalars_are_what_yaml_1_2_says(text: str, value: object) -> None:
    read = parse_yaml(text, "test")
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' is there twice"),
        ("a: &x 1\nb: *x", "anchors and aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "tag"),
        ("a: !env HOME", "tag"),
        ("a: [1", "not valid YAML"),
        ("? [a, b]\n: c", "a key must be a word"),
        ("a: \x00", "not valid YAML"),
        (f"a: {'[' * 3000}", "nested deeper than"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ZooError, match=says.replace("(", r"\(")) as caught:
        parse_yaml(text, "file.yaml")
    assert str(caught.value).startswith("file.yaml")


@pytest.mark.parametrize(
    ("text", "kind"), [("", "nothing"), ("# only a remark", "nothing"), ("[1, 2]", "a list"), ("word", "text")]
)
def test_a_file_must_hold_a_mapping(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ZooError, match=f"holds {kind}; a mapping"):
        read_yaml(tmp_path / "x.yaml")


def test_dumped_data_reads_back_equal_here_and_in_a_yaml_1_1_reader() -> None:
    data = {
        "texts": [
            "off",
            "1e-3",
            "010",
            "",
            "null",
            "a: b #c",
            "@x %r *x",
            "Ünïcödé 中文",
            "1:30",
            "${a.b}",
            "x\ny",
            '"',
        ],
        "numbers": [1, -2, 0.5, 1e-5, 1e99, 1.5e-7],
        "others": {"t": True, "f": False, "empty": {}, "none": []},
    }
    assert parse_yaml(dump_yaml(data), "test") == data
    assert yaml.safe_load(dump_yaml(data)) == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"a": {"b": [1, float("nan")]}}, "x.a.b.1: nan is no finite number"),
        ({"a": parse_yaml("1" * 5000, "x")}, "x.a: inf is no finite number"),
        ({"a": Path("b")}, "x.a: PosixPath is no plain value"),
        ({"a": "\udcff"}, r"x.a: '\udcff' is no text in UTF-8"),
        ({"a": {None: 1}}, "x.a: the key None is nothing; text is needed"),
    ],
)
def test_what_is_not_plain_and_finite_is_named_by_its_path(data: object, says: str) -> None:
    with pytest.raises(ZooError) as caught:
        plain_data(data, "x")
    assert says in str(caught.value)


def test_plain_data_has_text_as_keys_and_lists_for_tuples_and_is_not_too_deep() -> None:
    assert plain_data({2: (1, "b"), "c": None}, "x") == {"2": [1, "b"], "c": None}
    deep: object = 1
    for _ in range(DEEPEST + 1):
        deep = {"a": deep}
    with pytest.raises(ZooError, match=r"x\.a: nested deeper than"):
        plain_data(deep, "x")


def test_a_long_text_is_shown_cut() -> None:
    assert shortened("short") == "short" and len(shortened("x" * 500)) < 80


def test_any_text_survives_a_dump_and_a_read() -> None:
    letters = [
        *"ab:#-?,[]{}&*!|>'\"%@`\\$ \n\t\r\x85\u2028\xa0\ufeff\x7f\x1b01.eE+~=<é中😀_",
        "${",
        "true",
        "\n\n",
        " #",
    ]
    draws = random.Random(0)
    texts = ["".join(draws.choices(letters, k=draws.choice([1, 2, 3, 5, 40, 150]))) for _ in range(500)]
    data = {"texts": texts, "keys": dict.fromkeys(text[:20] for text in texts)}
    assert parse_yaml(dump_yaml(data), "test") == data


def test_a_child_wins_at_every_depth_and_leaves_its_parents_alone() -> None:
    base = {"a": {"b": {"c": 1, "d": 2}}, "list": [1, 2]}
    assert merge(base, {"a": {"b": {"c": 9}}, "list": [3]}) == {"a": {"b": {"c": 9, "d": 2}}, "list": [3]}
    assert base == {"a": {"b": {"c": 1, "d": 2}}, "list": [1, 2]}


@pytest.mark.parametrize("key", ["name", "stage"])
def test_another_component_drops_the_old_ones_arguments_and_the_same_one_keeps_them(key: str) -> None:
    base = {"model": {key: "vit", "patch": 4}}
    assert merge(base, {"model": {key: "mlp"}}) == {"model": {key: "mlp"}}
    assert merge(base, {"model": {key: "vit", "dim": 8}}) == {"model": {key: "vit", "patch": 4, "dim": 8}}


def test_only_text_names_a_component_and_a_figures_stage_names_none() -> None:
    base = {"stages": {"name": {"a": 1}, "stage": {"b": 1}}}
    assert merge(base, {"stages": {"name": {"a": 2}}}) == {"stages": {"name": {"a": 2}, "stage": {"b": 1}}}
    figures = {"figures": {"f": {"kind": "curves", "stage": "a"}}}
    assert merge(figures, {"figures": {"f": {"stage": "b"}}}) == {"figures": {"f": {"kind": "curves", "stage": "b"}}}


def test_a_copy_is_not_changed_in_part_but_replaced_whole() -> None:
    base = {"data": "${stages.a.data}"}
    with pytest.raises(ZooError, match=r"data: is a copy of \$\{stages\.a\.data\}; change that"):
        merge(base, {"data": {"noise": 3.0}})
    assert merge(base, {"data": {"name": "b"}}) == {"data": {"name": "b"}}


def test_plus_extends_an_inherited_list() -> None:
    assert merge({"metrics": ["a"]}, {"metrics+": ["b"]}) == {"metrics": ["a", "b"]}
    assert merge({}, {"metrics+": ["b"]}) == {"metrics": ["b"]}
    with pytest.raises(ZooError, match="extends a list, but there is a mapping"):
        merge({"metrics": {}}, {"metrics+": ["b"]})


def test_null_removes_what_is_inherited_and_only_that() -> None:
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}
    with pytest.raises(ZooError, match=r"a\.x: null removes an inherited key and there is none; write {}"):
        merge({"a": {"b": 1}}, {"a": {"x": None}})


def test_a_path_takes_the_longest_key_that_exists() -> None:
    assert split_path({"grid": {"data.samples": [1]}}, "grid.data.samples") == ["grid", "data.samples"]
    assert split_path({"grid": {}}, "grid.data.samples") == ["grid", "data", "samples"]


def test_the_digest_depends_on_the_data_not_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1.0]}) == digest({"b": [1.0], "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.0})
    assert digest({"a": True}) != digest({"a": 1})


def test_the_nearest_names_come_best_first() -> None:
    assert nearest("vit-minni", ["mlp", "vit-mini", "vit-tiny"])[0] == "vit-mini"
    assert nearest("zzz", ["mlp"]) == []


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run.json"
    write_whole(target, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ZooError, match=r"run\.json: cannot be written \(No space left on device\)"):
        write_whole(target, "new")
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["run.json"]
