"""The MNIST family and Gaussian clusters: contents, options, draws, and what bad input gets."""

import gzip
import hashlib
import importlib.util
import math
import shutil
from pathlib import Path

import pytest
import torch

from provenzoo.components import create_dataset
from provenzoo.datasets import mnist
from provenzoo.datasets.base import Split, digest
from provenzoo.datasets.idx import read_idx, write_idx
from provenzoo.datasets.images import Augment, Augmenter, fit
from provenzoo.datasets.mnist import FILES, NAMES, FashionMNIST, FashionMNISTMini
from provenzoo.draws import cell_permutation, generator
from provenzoo.errors import ZooError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
whole_set = pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")


def mini(seed=0, **args):
    return create_dataset("fashion-mnist-mini", seed=seed, **args)


def plain(**args):
    """The sample on the [0, 1] scale."""
    return mini(mean=0.0, std=1.0, **args)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No set anywhere and no network."""

    def refuse(*args, **kwargs):
        raise RuntimeError("no route to host")

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PROVENZOO_DATA", raising=False)
    monkeypatch.setattr(mnist, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.download", refuse)
    monkeypatch.setattr("torchvision.datasets.MNIST.download", refuse)
    return tmp_path


# --- the shipped sample ---------------------------------------------------------------------------


def test_the_sample_is_balanced_and_ready_for_a_model():
    data = mini()
    assert data.train.inputs.shape == (2000, 1, 28, 28) and data.test.inputs.shape == (500, 1, 28, 28)
    assert data.train.inputs.dtype == torch.float32 and data.train.targets.dtype == torch.int64
    assert data.train.targets.bincount().tolist() == [200] * 10
    assert data.test.targets.bincount().tolist() == [50] * 10
    assert data.shapes == {"image_size": 28, "channels": 1, "num_classes": 10}
    assert data.class_names[9] == "Ankle boot"
    assert data.structure == {} and data.resolved() == {} and data.loss == "cross-entropy"


def test_images_are_normalised_by_the_published_constants():
    scaled = plain().test.inputs
    assert scaled.min() == 0 and scaled.max() == 1
    torch.testing.assert_close(mini().test.inputs, (scaled - 0.2860) / 0.3530)


def test_shapes_and_names_are_known_without_reading_a_file(monkeypatch):
    monkeypatch.setattr(mnist, "read_idx", lambda *args: pytest.fail("a file was read"))
    data = mini(classes=[3, 1], size=32)
    assert data.shapes == {"image_size": 32, "channels": 1, "num_classes": 2}
    assert data.class_names == ["Dress", "Trouser"]


@whole_set
def test_the_sample_is_made_from_the_whole_set_byte_for_byte(tmp_path):
    script = Path(__file__).parents[1] / "scripts" / "make_fashion_mini.py"
    spec = importlib.util.spec_from_file_location("make_fashion_mini", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(tmp_path)
    for name in NAMES:
        made, shipped = (folder / f"{name}.gz" for folder in (tmp_path, FashionMNISTMini.folder))
        assert gzip.decompress(made.read_bytes()) == gzip.decompress(shipped.read_bytes())
        assert shipped.read_bytes()[4:8] == bytes(4), "a time stands in the gzip header"


# --- options --------------------------------------------------------------------------------------


def test_classes_are_kept_and_labelled_in_the_order_given():
    whole, kept = plain(), plain(classes=[7, "Trouser", 0])
    assert kept.class_names == ["Sneaker", "Trouser", "T-shirt/top"]
    for label, number in enumerate([7, 1, 0]):
        expected = whole.test.inputs[whole.test.targets == number]
        assert torch.equal(kept.test.inputs[kept.test.targets == label], expected)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"classes": [3, 10]}, "no class 10; it has 0 T-shirt/top, 1 Trouser"),
        ({"classes": [-1]}, "no class -1"),
        ({"classes": ["bag"]}, "no class 'bag'.*8 Bag"),
        ({"classes": []}, "empty list"),
        ({"classes": [1, 2, 1]}, "'Trouser' .class 1. is named twice"),
        ({"classes": [1, "Trouser"]}, "named twice"),
        ({"classes": 3}, "classes"),
        ({"samples": 201}, "201 a class were asked for, but class 'T-shirt/top' has 200 training images"),
        ({"samples": 0}, "samples"),
        ({"limit": -1}, "limit"),
        ({"permute": {"cell": 5}}, "do not tile an image of 28 x 28"),
        ({"permute": {"cell": 4}, "size": 30}, "do not tile an image of 30 x 30"),
        ({"std": 0.0}, "std"),
        ({"sample": 3}, "did you mean 'samples'"),
    ],
)
def test_a_wrong_option_is_an_error_before_any_file_is_read(args, words, monkeypatch):
    monkeypatch.setattr(mnist, "read_idx", lambda *args: pytest.fail("a file was read"))
    with pytest.raises(ZooError, match=words):
        mini(**args)


def test_samples_are_balanced_and_leave_the_test_split_whole():
    data = mini(classes=[5, 6, 7, 8, 9], samples=20)
    assert data.train.targets.bincount().tolist() == [20] * 5
    assert len(data.test) == 250


def test_samples_depend_on_the_seed_and_more_of_them_hold_the_fewer():
    few, more, other = mini(samples=5), mini(samples=12), mini(seed=1, samples=5)
    assert few.train.digest != other.train.digest
    assert torch.equal(few.train.inputs, mini(samples=5).train.inputs)
    held = {image.numpy().tobytes() for image in more.train.inputs}
    assert all(image.numpy().tobytes() in held for image in few.train.inputs)


def test_samples_of_a_class_do_not_depend_on_the_classes_beside_it():
    alone, among = mini(classes=[4], samples=7), mini(classes=[2, 4], samples=7)
    assert torch.equal(alone.train.inputs, among.train.inputs[among.train.targets == 1])


def test_limit_keeps_the_first_of_each_split():
    whole, first = mini(), mini(limit=30)
    assert torch.equal(first.train.inputs, whole.train.inputs[:30])
    assert torch.equal(first.test.targets, whole.test.targets[:30])


def test_a_permuted_image_is_the_image_with_its_cells_moved():
    before, after = plain().test.inputs, plain(permute={"cell": 7, "draw": 2}).test.inputs
    order = cell_permutation(28, 7, 2)
    assert torch.equal(after.flatten(1), before.flatten(1)[:, order])
    assert not torch.equal(after, before)


def test_permuting_commutes_with_every_corruption():
    how = {"corrupt": {"name": "blur", "sigma": 2.0}}
    blurred, both = plain(**how).test.inputs, plain(permute={"cell": 4}, **how).test.inputs
    assert torch.equal(both.flatten(1), blurred.flatten(1)[:, cell_permutation(28, 4, 0)])


def test_corruption_acts_on_both_splits_before_normalisation():
    data, scaled = mini(corrupt={"name": "inversion"}), plain()
    for changed, kept in ((data.train, scaled.train), (data.test, scaled.test)):
        torch.testing.assert_close(changed.inputs, (1 - kept.inputs - 0.2860) / 0.3530, atol=1e-5, rtol=0)


def test_a_larger_size_pads_with_black_and_a_smaller_one_averages():
    padded, whole = plain(size=33).test.inputs, plain().test.inputs
    assert torch.equal(padded[..., 2:30, 2:30], whole)
    assert padded.sum() == whole.sum()
    halves = fit(torch.full((1, 1, 28, 28), 0.25), 14)
    torch.testing.assert_close(halves, torch.full((1, 1, 14, 14), 0.25))
    assert plain(size=14).test.inputs.shape[-1] == 14


# --- augmentation ---------------------------------------------------------------------------------


def test_only_the_training_split_is_augmented():
    data = mini(augment={"flip": True, "crop": 2})
    assert data.train.augment is not None and data.test.augment is None
    assert mini().train.augment is None


def test_flipping_mirrors_about_half_of_the_images():
    images = plain(limit=400).train.inputs
    flipped = Augmenter(Augment(flip=True), torch.zeros(1, 1, 1))(images, generator(0, "augment"))
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    kept = (flipped == images).flatten(1).all(1)
    assert (mirrored | kept).all()
    assert abs(int(mirrored.sum()) - 200) < 5 * math.sqrt(100)  # five standard deviations of a fair coin


def test_cropping_shifts_each_image_by_its_own_draw_over_black():
    images = plain(limit=64).train.inputs + 1
    shifted = Augmenter(Augment(crop=2), torch.zeros(1, 1, 1))(images, generator(0, "augment"))
    padded = torch.nn.functional.pad(images, [2] * 4)
    found = set()
    for image, wide in zip(shifted, padded, strict=True):
        windows = [(r, c) for r in range(5) for c in range(5) if torch.equal(image, wide[:, r : r + 28, c : c + 28])]
        assert windows
        found.update(windows)
    assert len(found) > 12


def test_a_permuted_image_is_augmented_as_the_natural_image_behind_it():
    how = {"augment": {"flip": True, "crop": 3}, "limit": 32}
    natural, permuted = mini(**how).train, mini(permute={"cell": 4}, **how).train
    assert natural.augment and permuted.augment
    expected = natural.augment(natural.inputs, generator(0, "augment")).flatten(2)
    changed = permuted.augment(permuted.inputs, generator(0, "augment")).flatten(2)
    assert torch.equal(changed, expected[..., cell_permutation(28, 4, 0)])


# --- digests --------------------------------------------------------------------------------------


def test_equal_data_has_equal_digests_and_any_change_another():
    base = mini(limit=20).test
    assert base.digest == mini(limit=20, seed=3).test.digest
    changed = base.inputs.clone()
    changed[3, 0, 5, 5] += 1e-6
    others = [Split(changed, base.targets), Split(base.inputs, base.targets.flip(0))]
    assert len({base.digest, *(other.digest for other in others)}) == 3


def test_a_corrupted_sets_digest_is_of_what_it_is_made_from():
    """Blurring differs in the last bits between processors, and a number must verify on another machine."""
    noise, blur = {"name": "noise", "sigma": 0.1}, {"name": "blur", "sigma": 1.0}
    made = {
        "noise": mini(limit=20, corrupt=noise),
        "more noise": mini(limit=20, corrupt=noise | {"sigma": 0.2}),
        "other noise": mini(limit=20, corrupt=noise, seed=1),
        "blur": mini(limit=20, corrupt=blur),
        "blur of fewer": mini(limit=19, corrupt=blur),
        "blur, permuted": mini(limit=20, corrupt=blur, permute={"cell": 4}),
        "none": mini(limit=20),
    }
    digests = {name: data.test.digest for name, data in made.items()}
    assert len(set(digests.values())) == len(made)
    assert digests["blur"] == mini(limit=20, corrupt=blur, seed=1).test.digest
    assert digests["noise"] == mini(limit=20, corrupt=noise).test.digest


def test_a_digest_covers_dtype_shape_and_bytes_but_not_the_layout():
    values = torch.arange(6)
    assert digest(values) == hashlib.sha256(b"torch.int64 [6];" + values.numpy().tobytes()).hexdigest()
    assert digest(values) != digest(values.view(2, 3)) != digest(values.view(3, 2))
    assert digest(torch.zeros(2)) != digest(torch.zeros(2, dtype=torch.int32))
    assert digest(values.view(2, 3).t()) == digest(values.view(2, 3).t().contiguous())


# --- idx files ------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_plain_and_gzipped(tmp_path):
    values = torch.arange(24, dtype=torch.uint8).view(2, 3, 4)
    packed = write_idx(values)
    assert packed == write_idx(values)
    (tmp_path / "a.gz").write_bytes(packed)
    (tmp_path / "a").write_bytes(gzip.decompress(packed))
    for name in ("a", "a.gz"):
        assert torch.equal(read_idx(tmp_path / name, (2, 3, 4)), values)


def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path):
    good = gzip.decompress(write_idx(torch.zeros(2, 3, 4, dtype=torch.uint8)))
    packed = write_idx(torch.zeros(2, 3, 4, dtype=torch.uint8))
    cases = {
        "empty": (b"", "is empty"),
        "cut": (good[:-1], "truncated: 39 bytes where its header promises 40"),
        "header": (good[:9], "truncated in its header, at byte 9 of 16"),
        "long": (good + b"x", "too long"),
        "magic": (b"\x00\x00\x0d" + good[3:], "begins with 00 00 0d 03"),
        "labels": (gzip.decompress(write_idx(torch.zeros(24, dtype=torch.uint8))), "in 3 dimensions"),
        "shape": (gzip.decompress(write_idx(torch.zeros(4, 3, 2, dtype=torch.uint8))), "holds 4 x 3 x 2"),
        "cut.gz": (packed[:-9], "truncated"),
        "crc.gz": (packed[:-8] + bytes(8), "not a sound gzip file"),
        "plain.gz": (good, "not a sound gzip file"),
    }
    for name, (content, words) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ZooError, match=words) as told:
            read_idx(tmp_path / name, (2, 3, 4))
        assert str(tmp_path / name) in str(told.value)
    with pytest.raises(ZooError, match=r"cannot be read .No such file"):
        read_idx(tmp_path / "absent", (2, 3, 4))


def test_other_content_of_the_right_shape_is_told_by_its_md5(tmp_path):
    (tmp_path / "a.gz").write_bytes(write_idx(torch.zeros(5, dtype=torch.uint8)))
    with pytest.raises(ZooError, match="not the published file"):
        read_idx(tmp_path / "a.gz", (5,), md5="0" * 32)


# --- whole sets -----------------------------------------------------------------------------------


@whole_set
def test_the_whole_set_has_the_published_size_mean_and_deviation():
    data = create_dataset("fashion-mnist", mean=0.0, std=1.0)
    assert data.train.inputs.shape == (60_000, 1, 28, 28) and len(data.test) == 10_000
    assert round(data.train.inputs.double().mean().item(), 4) == 0.2860
    assert round(data.train.inputs.double().std().item(), 4) == 0.3530
    assert data.train.targets.bincount().tolist() == [6000] * 10


@whole_set
@pytest.mark.parametrize("layout", ["FashionMNIST/raw", "fashion-mnist", "."])
@pytest.mark.parametrize("by", ["root", "PROVENZOO_DATA"])
def test_the_whole_set_is_found_in_every_layout(nowhere, layout, by, monkeypatch):
    folder = nowhere / "data" / layout
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / f"{name}.gz").symlink_to(DEBIAN / f"{name}.gz")
    root = {"root": "data"} if by == "root" else {}
    monkeypatch.chdir(nowhere)
    if by == "PROVENZOO_DATA":
        monkeypatch.setenv("PROVENZOO_DATA", str(nowhere / "data"))
    assert FashionMNIST.missing(**root) is None
    assert len(create_dataset("fashion-mnist", download=False, **root).test) == 10_000


def test_a_sample_never_passes_for_the_whole_set(nowhere):
    data = create_dataset("fashion-mnist", root=str(FashionMNISTMini.folder))
    with pytest.raises(ZooError, match=r"holds 500 x 28 x 28 values; 10000 x 28 x 28 are needed\n.*`root`"):
        _ = data.pixels("test", torch.arange(3))


@whole_set
def test_another_set_of_the_same_shape_does_not_pass(nowhere):
    with pytest.raises(ZooError, match=r"t10k-labels-idx1-ubyte\.gz: of the right shape, but not the published"):
        _ = create_dataset("mnist", root=str(DEBIAN)).test


def test_a_set_that_is_nowhere_names_every_place_and_how_to_get_it(nowhere, monkeypatch):
    monkeypatch.setenv("PROVENZOO_DATA", str(nowhere / "shared"))
    with pytest.raises(ZooError) as told:
        _ = create_dataset("fashion-mnist", root=str(nowhere / "mine")).train
    message = str(told.value)
    for place in ("mine", "shared", "system/fashion-mnist", "home/.cache/provenzoo/data"):
        assert str(nowhere / place) in message
    assert all(name in message for name in NAMES)
    assert "apt install dataset-fashion-mnist" in message and "no route to host" in message
    assert len(message.splitlines()) == 2


def test_download_can_be_turned_off(nowhere):
    with pytest.raises(ZooError, match="download is off"):
        _ = create_dataset("mnist", download=False).test


def test_three_of_four_files_are_not_enough(nowhere):
    shutil.copytree(FashionMNISTMini.folder, nowhere / "part")
    (nowhere / "part" / f"{FILES['test'][1]}.gz").unlink()
    told = FashionMNIST.missing(root=str(nowhere / "part"))
    assert told and f"{nowhere / 'part'} lacks {FILES['test'][1]}" in told and "\n" not in told


def test_a_failed_download_leaves_no_file(nowhere, monkeypatch):
    monkeypatch.setenv("PROVENZOO_DATA", str(nowhere / "shared"))
    with pytest.raises(ZooError):
        _ = create_dataset("fashion-mnist").train
    assert [path for path in (nowhere / "shared").rglob("*") if path.is_file()] == []


@whole_set
def test_a_download_lands_in_the_data_folder_and_is_found_there(nowhere, monkeypatch):
    def fetch(self):
        Path(self.raw_folder).mkdir(parents=True)
        for name in NAMES:
            content = gzip.decompress((DEBIAN / f"{name}.gz").read_bytes())
            (Path(self.raw_folder) / name).write_bytes(content)

    monkeypatch.setattr("torchvision.datasets.FashionMNIST.download", fetch)
    monkeypatch.setenv("PROVENZOO_DATA", str(nowhere / "shared"))
    assert FashionMNIST.missing() is not None
    assert len(create_dataset("fashion-mnist").test) == 10_000
    assert FashionMNIST.missing() is None
    assert sorted(path.name for path in (nowhere / "shared").rglob("*") if path.is_file()) == sorted(NAMES)


# --- Gaussian clusters ----------------------------------------------------------------------------


def test_clusters_are_their_centres_plus_noise():
    data = create_dataset("gaussian-clusters", features=8, num_classes=4, train=4000, noise=0.5)
    assert data.shapes == {"features": 8, "num_classes": 4}
    assert data.train.inputs.shape == (4000, 8) and len(data.test) == 1000
    assert data.train.targets.bincount().tolist() == [1000] * 4
    noise = data.train.inputs - data.structure["centres"][data.train.targets]
    assert abs(noise.mean().item()) < 5 * 0.5 / math.sqrt(noise.numel())
    assert abs(noise.std().item() - 0.5) < 5 * 0.5 / math.sqrt(2 * noise.numel())


def test_clusters_differ_by_seed_and_repeat_themselves():
    first, again, other = (create_dataset("gaussian-clusters", seed=seed) for seed in (0, 0, 1))
    assert first.train.digest == again.train.digest != other.train.digest
    assert first.train.digest != first.test.digest
