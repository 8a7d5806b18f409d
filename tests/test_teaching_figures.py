"""Figures of students and teachers: what is drawn, in which order, of which trainings."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import provenzoo
from provenzoo.errors import ZooError
from provenzoo.pipeline.recipe import compose, plain_recipe
from provenzoo.report.figures import write_figures
from provenzoo.report.overlay import _turns
from provenzoo.report.scores import _by_group, _from_patches


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs with the figures of their recipes."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    short = ["seeds=2", "stages.train.steps=30", "stages.train.log_every=10"]
    for name in ("population", "full-attention"):
        found[name] = provenzoo.run(
            {**plain_recipe(compose(f"zhang2026/{name}", short)), "claims": {}}, out=folder / name
        )
    return found


def test_the_recipes_figures_are_drawn_once_of_all_points(runs):
    drawn = {name: {file.stem for file in (run.path / "figures").glob("*.png")} for name, run in runs.items()}
    assert drawn == {"population": {"rates", "phases", "scores"}, "full-attention": {"rates", "weights"}}


def test_captions_say_what_is_shown(runs):
    folder = runs["population"].path / "figures"
    captions = {file.stem: Image.open(file).info["Description"] for file in folder.glob("*.png")}
    assert "mean and range over 2 seeds" in captions["rates"] and "a further phase begins" in captions["rates"]
    assert captions["scores"].startswith("Attention scores of train: above the teachers', below the students'")


def test_a_metric_that_was_not_logged_is_refused_before_training():
    with pytest.raises(ZooError, match=r"figures\.rates: no metric 'out.excess'"):
        provenzoo.run("zhang2026/graph-relu", ["figures.rates.metrics=[out.excess]"])


def test_figures_are_drawn_again_from_the_folder_alone(runs):
    before = sorted((runs["full-attention"].path / "figures").glob("*.png"))
    assert sorted(write_figures(runs["full-attention"].path)) == before


def test_the_name_of_a_guide_leaves_the_panels_of_a_short_training_their_room(runs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_figures(runs["population"].path)


def test_phases_turn_where_the_median_seed_enters_the_next():
    assert _turns([[1.0, 1.0, 1.0], [1.0, 2.0, 2.0], [2.0, 2.0, 2.0], [3.0, 2.0, 3.0]]) == [1, 3]


def test_tokens_stand_group_by_group():
    groups = np.array([0, 1, 0, 1, 2])
    truth = (groups[:, None] == groups).astype(float)
    assert _by_group(truth).tolist() == [0, 2, 1, 3, 4]


def test_an_image_comes_back_from_its_patches():
    image = torch.arange(36.0).view(1, 1, 6, 6)
    patches = torch.nn.functional.unfold(image, 2, stride=2)[0].numpy()
    assert np.array_equal(_from_patches(patches), image[0, 0].numpy())
