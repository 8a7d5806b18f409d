"""The figures of the papers' theory: patch association, and the dynamics with their events."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_run import IDEALIZED, REALISTIC, association, drawn, scalars, write_run

from provenzoo.errors import ZooError
from provenzoo.report.association import association as draw_association
from provenzoo.report.dynamics import dynamics, events, plateau
from provenzoo.report.figures import write_figures

# --- association --------------------------------------------------------------------------------------------------

TWO = {"kind": "association", "stage": "pretrain", "metrics": ["test-error", "cosine-to-feature"]}
ONE = {"kind": "association", "stage": "pretrain", "metric": "test-error"}


def maps(figure: Any) -> dict[str, Any]:
    return {axes.get_title("left"): axes for axes in figure.axes}


def shown(axes: Any) -> np.ndarray:
    return np.ma.filled(np.ma.asarray(axes.get_images()[0].get_array(), dtype=float), np.nan)


@pytest.mark.parametrize("random", [False, True])
def test_pairs_of_one_set_stand_beside_the_learned_matrix_in_the_same_order(tmp_path: Path, random: bool) -> None:
    point = association(random)
    figure, caption = drawn(write_run(tmp_path / "run", REALISTIC, [point]), draw_association, **TWO)
    sets = point["tensors"]["structure/partition"][0].tolist()
    pairs = shown(maps(figure)["pairs of one set"])
    assert all(pairs[i, j] == any(i in s and j in s for s in sets) for i in range(36) for j in range(36))
    learned = shown(maps(figure)["learned A"])
    assert np.isnan(learned.diagonal()).all()
    off = ~np.eye(36, dtype=bool)
    assert learned[off] == pytest.approx(point["tensors"]["tensors/attention_matrix"][0].numpy()[off])
    assert ((learned > 2) == (pairs == 1))[off].all()
    assert "its diagonal, which is fixed, is grey" in caption


def test_sets_as_order_gather_the_patches_of_each_set(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", REALISTIC, [association(random=True)])
    figure, caption = drawn(run, draw_association, **ONE, order="sets")
    blocks = np.kron(np.eye(9), np.ones((4, 4)))
    assert (shown(maps(figure)["pairs of one set"]) == blocks).all()
    off = ~np.eye(36, dtype=bool)
    assert ((shown(maps(figure)["learned A"]) > 2) == (blocks == 1))[off].all()
    assert "set by set" in caption


def test_two_metrics_make_a_row_of_four_and_one_stands_left_of_two_maps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", REALISTIC, [association()])
    row = list(maps(drawn(run, draw_association, **TWO)[0]))
    assert row[:4] == ["pairs of one set", "learned A", "test-error", "cosine-to-feature"]
    places = {name: axes.get_position() for name, axes in maps(drawn(run, draw_association, **ONE)[0]).items()}
    assert places["test-error"].x1 < places["pairs of one set"].x0
    assert places["pairs of one set"].y0 > places["learned A"].y1


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("tensors/attention_matrix", "figures.it: pretrain keeps no attention_matrix"),
        ("structure/partition", "figures.it: the data of pretrain has no partition"),
    ],
)
def test_association_needs_a_matrix_and_a_partition(tmp_path: Path, without: str, message: str) -> None:
    point = association()
    point["tensors"] = {name: tensor for name, tensor in point["tensors"].items() if name != without}
    with pytest.raises(ZooError, match=message):
        drawn(write_run(tmp_path / "run", REALISTIC, [point]), draw_association, **TWO)


# --- dynamics -----------------------------------------------------------------------------------------------------

STEPS = np.arange(0, 100, 10)


def test_a_local_maximum_is_a_plateau() -> None:
    assert plateau(STEPS, np.array([0.1, 0.3, 0.7, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])) == 1.0


def test_a_plateau_is_where_the_slope_falls_below_a_fiftieth_of_the_greatest_until_then() -> None:
    alpha = np.array([0.0, 0.1, 0.5, 0.9, 0.909, 0.916, 0.917, 0.9175, 0.9176, 0.9177])
    assert plateau(STEPS, alpha) == pytest.approx(
        0.909
    )  # increments .1 .4 .4 .009 .007 ..: 2 % of the greatest is .008


def test_a_plateau_is_also_where_a_slope_below_half_the_greatest_starts_to_rise_again() -> None:
    alpha = np.array([0.0, 0.3, 0.8, 1.2, 1.4, 1.5, 1.7, 2.0, 2.6, 3.5])  # increments .3 .5 .4 .2 .1 .2 .3 ..
    assert plateau(STEPS, alpha) == pytest.approx(1.4)


def test_slopes_are_taken_over_twentieths_of_the_steps_so_that_noise_is_no_plateau() -> None:
    steps = np.arange(401)
    noise = np.random.default_rng(0).uniform(-0.005, 0.005, 401)  # greater than the increments of 0.0025 themselves
    assert (np.diff(steps / 400 + noise) < 0).any()
    assert plateau(steps, steps / 400 + noise) is None


def test_slopes_count_by_step_where_logged_steps_are_uneven() -> None:
    assert plateau(np.array([0, 10, 20, 21]), np.array([0.0, 1.0, 2.0, 2.1])) is None


def test_a_fall_before_any_rise_is_no_plateau() -> None:
    assert plateau(STEPS[:5], np.array([1.0, 0.9, 1.5, 2.5, 3.5])) is None


def test_events_are_the_first_logged_steps_that_meet_their_definition() -> None:
    alpha = np.array([0.1, 0.4, 0.7, 0.96, 1.0, 0.9, 0.8, 1.5, 2.0, 2.5])  # its first plateau is the maximum, 1
    gamma = np.array([0.0, 0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.6, 1.0, 2.0])
    rho = np.array([0.0, 0.0, 0.0, -0.1, -0.2, -0.4, -0.3, -0.2, -0.1, -0.1])
    assert events(STEPS, alpha, gamma, rho) == (
        30,
        70,
    )  # 0.7 is not within 5 % of 1; gamma = .4 is not above |rho| = .4


def test_an_event_that_is_not_reached_is_none() -> None:
    rising, still = np.linspace(0, 1, 10) ** 2, np.zeros(10)
    assert events(STEPS, rising, still, still) == (None, None)


def test_the_dynamics_show_both_stages_and_mark_the_events(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", IDEALIZED, [scalars("full"), scalars("scalars", 0.05)])
    figure, caption = drawn(run, dynamics, **IDEALIZED["figures"]["dynamics"])
    axes = figure.axes[0]
    named = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(named) == ["α, full", "γ, full", "ρ, full", "α, scalars", "γ, scalars", "ρ, scalars"]
    assert [line.get_linestyle() for line in named.values()] == ["-"] * 3 + ["--"] * 3
    assert {text.get_text() for text in axes.texts} == {"T₀", "T₁", "Event I", "Event II", "Event III"}
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert marks == [200, 360]  # alpha 0.87 + .01 is the first within 5 % of .91; gamma = .42 + .01 > max |rho| = .34
    assert "T₀ (step 200)" in caption and "T₁ (step 360)" in caption


def test_events_out_of_order_are_marked_apart_and_told(tmp_path: Path) -> None:
    full = scalars("full")
    full["logged"]["gamma"] = [[4.0 if step >= 200 else 0.0] * 3 for step in full["steps"]]
    run = write_run(tmp_path / "run", IDEALIZED, [full, scalars("scalars")])
    figure, caption = drawn(run, dynamics, kind="dynamics", stage="full")
    sides = {text.get_text(): text.get_ha() for text in figure.axes[0].texts}
    assert sides == {"T₀": "right", "T₁": "left", "Event I": "center", "Event III": "center"}
    assert "T₀ (step 200)" in caption and "T₁ (step 200)" in caption and "Event II, between them, is empty." in caption


def test_a_run_level_figure_waits_for_the_stage_beside_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", IDEALIZED, [scalars("full")])
    assert write_figures(run) == []
