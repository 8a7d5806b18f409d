"""mixup and cutmix: shares and boxes as timm's, partners by place, soft targets whose loss is a mean over examples."""

import signal
from typing import Any

import numpy as np
import pytest
import torch
from small_run import IMAGES, SHORT, assert_same_run, killed, weights
from timm.data.mixup import cutmix_bbox_and_lam, mixup_target
from torch.nn import functional as F

import provenzoo
from provenzoo.datasets.base import Split
from provenzoo.draws import cell_permutation, generator
from provenzoo.errors import ZooError
from provenzoo.metrics.classification import cross_entropy
from provenzoo.pipeline.plan import prepare
from provenzoo.plain import dump_yaml
from provenzoo.training.feed import Feed
from provenzoo.training.mixing import GROUP, MixedFeed, Mixing, _boxes, partners

SHAPE = torch.Size([40, 3, 12, 20])
IMAGE = torch.rand(SHAPE, generator=generator(0, "test"))
LABELS = torch.arange(40) % 5
CLUSTERS = {"model": {"name": "mlp", "hidden": 4}, "data": {"name": "gaussian-clusters", "train": 40, "test": 20}}


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 31, 64])
def test_every_row_but_a_lonely_one_has_another_of_its_group_as_partner_and_is_one_rows_partner(count):
    found = partners(count)
    assert found.sort().values.tolist() == list(range(count))
    assert torch.equal(found // GROUP, torch.arange(count) // GROUP)
    lonely = [row for row in range(count) if found[row] == row]
    assert lonely == ([count - 1] if count % GROUP == 1 else [])


def test_copies_of_an_image_that_come_in_a_row_are_not_mixed_with_one_another():
    rows = torch.arange(96)
    for repeats in range(1, 9):
        assert not (partners(96) // repeats == rows // repeats).any()


def test_mixup_weighs_both_examples_and_their_classes_by_the_same_share():
    mixing = Mixing(0.8, 0.0, 5)
    shares = mixing.shares(3, 7, SHAPE)
    inputs, targets = mixing(IMAGE, LABELS, shares)
    for row, other in enumerate(partners(40).tolist()):
        share = shares.kept[row].item()
        torch.testing.assert_close(inputs[row], share * IMAGE[row] + (1 - share) * IMAGE[other])
        expected = share * F.one_hot(LABELS[row], 5) + (1 - share) * F.one_hot(LABELS[other], 5)
        torch.testing.assert_close(targets[row], expected)
    torch.testing.assert_close(targets.sum(1), torch.ones(40))


def test_cutmix_puts_a_box_of_the_partner_into_an_image_and_counts_what_is_left_of_its_area():
    mixing = Mixing(0.0, 1.0, 5)
    shares = mixing.shares(3, 7, SHAPE)
    inputs, targets = mixing(IMAGE, LABELS, shares)
    for row, other in enumerate(partners(40).tolist()):
        top, bottom, left, right = shares.boxes[row].tolist()
        expected = IMAGE[row].clone()
        expected[:, top:bottom, left:right] = IMAGE[other][:, top:bottom, left:right]
        assert torch.equal(inputs[row], expected)
        share = 1 - (bottom - top) * (right - left) / 240
        if LABELS[row] != LABELS[other]:
            assert targets[row, LABELS[row]].item() == pytest.approx(share)


def test_boxes_are_timms_for_the_same_share_and_centre(monkeypatch):
    rng = np.random.default_rng(0)
    for area in rng.random(50):
        row, column = rng.integers(0, 12), rng.integers(0, 20)
        centres = iter([row, column])
        monkeypatch.setattr(np.random, "randint", lambda *_, centres=centres, **__: next(centres))
        theirs, kept = cutmix_bbox_and_lam((3, 12, 20), 1 - area)

        class Drawn:
            centres = iter([np.array([row]), np.array([column])])

            def integers(self, *_: int) -> np.ndarray:
                return next(self.centres)

        (box,) = _boxes(np.array([area]), 12, 20, Drawn())  # pyright: ignore[reportArgumentType]
        assert box.tolist() == [int(end) for end in theirs]
        assert 1 - (box[1] - box[0]) * (box[3] - box[2]) / 240 == pytest.approx(kept)


def test_half_of_the_examples_are_cut_and_shares_have_the_beta_distributions_moments():
    shares = Mixing(0.8, 1.0, 5).shares(0, 0, torch.Size([8000, 3, 224, 224]))
    cut = shares.boxes.any(1)
    assert abs(cut.double().mean() - 0.5) < 0.03
    kept = shares.kept[~cut]
    assert abs(kept.mean() - 0.5) < 0.02
    assert abs(kept.var() - 1 / (4 * (2 * 0.8 + 1))) < 0.01


def test_what_is_drawn_depends_on_seed_and_step_alone():
    mixing = Mixing(0.8, 1.0, 5)
    first = mixing.shares(0, 3, SHAPE)
    assert torch.equal(first.kept, mixing.shares(0, 3, SHAPE).kept)
    for seed, step in ((1, 3), (0, 4)):
        assert not torch.equal(first.kept, mixing.shares(seed, step, SHAPE).kept)


def test_of_permuted_images_the_box_lies_in_the_natural_one():
    order = cell_permutation(12, 4, 1)
    square = IMAGE[..., :12]
    moved = square.flatten(2)[..., order].view_as(square)
    plain, permuted = Mixing(0.0, 1.0, 5), Mixing(0.0, 1.0, 5, order)
    shares = plain.shares(1, 1, square.shape)
    expected = plain(square, LABELS, shares)[0].flatten(2)[..., order].view_as(square)
    assert torch.equal(permuted(moved, LABELS, shares)[0], expected)


# --- the loss and the loop ------------------------------------------------------------------------------------


def test_the_loss_of_soft_targets_is_timms_smoothed_mean_over_examples():
    outputs = torch.randn(40, 5, generator=generator(0, "logits"), dtype=torch.float64)
    expected = mixup_target(LABELS, 5, 0.3, smoothing=0.1).double()
    loss = -(expected * outputs.log_softmax(1)).sum(1).mean()
    soft = 0.3 * F.one_hot(LABELS, 5) + 0.7 * F.one_hot(LABELS.flip(0), 5)
    torch.testing.assert_close(cross_entropy(outputs, soft.double(), label_smoothing=0.1), loss, rtol=1e-6, atol=1e-6)
    both = torch.stack([outputs, outputs.flip(0)])
    of_two = cross_entropy(both, torch.stack([soft, soft.flip(0)]).double(), label_smoothing=0.1)
    torch.testing.assert_close(of_two, loss.expand(2), rtol=1e-6, atol=1e-6)


def test_seeds_that_train_at_once_are_mixed_each_as_alone():
    splits = [Split(torch.rand(30, 3, 4, 4, generator=generator(s, "x")), torch.arange(30) % 5) for s in range(2)]
    mixing = Mixing(0.8, 1.0, 5)
    together = MixedFeed(Feed(splits, [0, 1], 12), mixing)
    for seed in range(2):
        alone = MixedFeed(Feed([splits[seed]], [seed], 12), mixing)
        for step in range(4):
            for one, both in zip(alone.batch(step), together.batch(step), strict=True):
                assert torch.equal(one, both[seed])


def images(**settings: Any) -> dict[str, Any]:
    train = {"stage": "pretrain", "model": {"name": "vit-mini", "dim": 24, "depth": 2, "heads": 2}, "data": IMAGES}
    return {
        "recipe": "mixed",
        "device": "cpu",
        "seeds": 1,
        "stages": {"train": train | SHORT | {"metrics": ["accuracy"], **settings}},
    }


def test_a_training_on_mixed_images_in_micro_batches_is_that_of_whole_batches(tmp_path):
    found = []
    for accumulate in (1, 3):
        mixed = {"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1, "dtype": "float64", "accumulate": accumulate}
        provenzoo.run(images(**mixed), out=tmp_path / str(accumulate))
        found.append(weights(tmp_path / str(accumulate)))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=1e-9, atol=1e-9)


def test_a_killed_training_on_mixed_images_goes_on_to_the_bit(tmp_path):
    file = tmp_path / "mixed.yaml"
    file.write_text(dump_yaml(images(mixup=0.8, cutmix=1.0)))
    provenzoo.run(file, out=tmp_path / "whole")
    assert killed(file, tmp_path / "killed", 8) == -signal.SIGKILL
    provenzoo.run(file, out=tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**CLUSTERS, "cutmix": 1.0}, "cutmix: cuts boxes out of images"),
        ({"loss": "logistic", "mixup": 0.8}, "mixup: mixes classes, for the loss cross-entropy"),
        ({"mixup": -1.0}, "mixup: must be greater than or equal to 0"),
    ],
)
def test_what_cannot_be_mixed_is_told_before_anything_trains(changes, words, tmp_path):
    with pytest.raises(ZooError, match=words):
        provenzoo.run(images(**changes), out=tmp_path)


def test_mixing_changes_the_run_id_and_its_absence_does_not():
    assert prepare(images(mixup=0.8))[1].id != prepare(images())[1].id
    assert "mixup" not in prepare(images())[1].points[0].node
