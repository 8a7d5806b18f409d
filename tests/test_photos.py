"""CIFAR, SVHN, ImageNet and its shifted sets: formats, labels, missing and damaged files. The data is generated."""

from pathlib import Path

import numpy as np
import pytest
import stand_ins
import torch
import torchvision
from PIL import Image

from provenzoo.components import create_dataset, create_model
from provenzoo.datasets import small_photos
from provenzoo.datasets.base import Stream
from provenzoo.datasets.imagenet import ImageNet, ImageNetA, ImageNetR, ImageNetV2, _random_box, wordnet_ids
from provenzoo.draws import generator
from provenzoo.errors import ZooError
from provenzoo.metrics.classification import accuracy, accuracy_among_scored
from provenzoo.metrics.measure import Measure

PLAIN = {"mean": [0.0] * 3, "std": [1.0] * 3}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No set lies in the user's folder, and nothing is downloaded."""
    monkeypatch.setattr("provenzoo.datasets.places.cache", lambda: tmp_path / "no-cache")
    small_photos._arrays.cache_clear()
    yield tmp_path
    small_photos._arrays.cache_clear()


# --- CIFAR and SVHN -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "classes", "files"), [("cifar10", 10, 5), ("cifar100", 100, 1)])
def test_cifar_is_read_by_torchvision_in_its_order(name, classes, files, tmp_path, monkeypatch):
    root = stand_ins.cifar(tmp_path / "data", monkeypatch, classes)
    data = create_dataset(name, root=str(root), **PLAIN)
    assert data.shapes == {"image_size": 32, "channels": 3, "num_classes": classes}
    assert data.train.inputs.shape == (2 * files * classes, 3, 32, 32) and len(data.test) == 2 * classes
    assert data.test.targets.tolist() == [label for label in range(classes) for _ in range(2)]
    expected = torch.from_numpy(stand_ins.noise(7, 2, start=100)).permute(0, 3, 1, 2) / 255
    assert torch.equal(data.test.inputs[data.test.targets == 7], expected)


def test_the_names_of_the_hundred_classes_are_the_published_ones_in_their_order():
    names = small_photos.CIFAR100_CLASSES
    assert len(set(names)) == 100 and names == sorted(names)
    assert names[51] == "mushroom" and names[99] == "worm"


def test_the_published_counts_are_known_without_a_file():
    for name, train in (("cifar10", 50_000), ("cifar100", 50_000), ("svhn", 73_257)):
        data = create_dataset(name, root="nowhere")
        assert sum(data.train_counts) == train and len(data.train_counts) == data.shapes["num_classes"]


def test_svhns_label_ten_is_the_digit_zero(tmp_path, monkeypatch):
    stand_ins.numpys_scipy(monkeypatch)
    root = stand_ins.svhn(tmp_path / "data", monkeypatch)
    data = create_dataset("svhn", root=str(root), **PLAIN)
    assert data.test.targets.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 0, 0]
    expected = torch.from_numpy(stand_ins.noise(0, 2, start=1)).permute(0, 3, 1, 2) / 255
    assert torch.equal(data.test.inputs[-2:], expected)


def test_svhn_without_scipy_says_what_to_install(tmp_path, monkeypatch):
    root = stand_ins.svhn(tmp_path / "data", monkeypatch)
    monkeypatch.setattr(small_photos, "find_spec", lambda name: None)
    with pytest.raises(ZooError, match="pip install scipy"):
        _ = create_dataset("svhn", root=str(root)).test


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn"])
def test_a_set_that_is_nowhere_tells_what_was_looked_for_where_and_how_to_get_it(name, tmp_path):
    with pytest.raises(ZooError) as error:
        _ = create_dataset(name, root=str(tmp_path / "there"), download=False).train
    told = str(error.value)
    assert str(tmp_path / "there") in told and "no-cache" in told and "http" in told and "download is off" in told


def test_a_failed_download_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def no_network(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", no_network)
    with pytest.raises(ZooError, match="the download failed: no route to host"):
        _ = create_dataset("cifar10").train
    assert not [path for path in (tmp_path / "no-cache").rglob("*") if path.is_file()]


def test_a_download_lands_in_the_data_folder_and_is_found_there(tmp_path, monkeypatch):
    source = stand_ins.cifar(tmp_path / "source", monkeypatch)

    def fetched(reader):
        target = Path(reader.root, reader.base_folder)
        target.mkdir(exist_ok=True)
        for file in (source / reader.base_folder).iterdir():
            (target / file.name).write_bytes(file.read_bytes())

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", fetched)
    monkeypatch.setenv("PROVENZOO_DATA", str(tmp_path / "data"))
    assert len(create_dataset("cifar10").train) == 100
    assert create_dataset("cifar10", download=False).missing() is None


def test_a_file_that_is_missing_or_changed_is_named(tmp_path, monkeypatch):
    root = stand_ins.cifar(tmp_path / "data", monkeypatch)
    file = root / "cifar-10-batches-py" / "data_batch_3"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"\0")
    with pytest.raises(ZooError, match="data_batch_3: not the published file"):
        _ = create_dataset("cifar10", root=str(root)).train
    file.unlink()
    with pytest.raises(ZooError, match=r"lacks cifar-10-batches-py/data_batch_3"):
        _ = create_dataset("cifar10", root=str(root), download=False).train


# --- ImageNet -------------------------------------------------------------------------------------------------


def imagenet(root: Path, **args) -> ImageNet:
    return create_dataset("imagenet", root=str(root), **{"size": 16, **PLAIN, **args})  # pyright: ignore[reportReturnType]


def drawn(data: ImageNet, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    assert isinstance(data.train, Stream)
    return data.train.draw(step, size)


def test_the_official_index_is_that_of_torchvisions_names():
    """timm's ids with WordNet's words against torchvision's list of names, which is ordered by the index."""
    lemmas = dict(
        line.split("\t") for line in (wordnet_file("imagenet_synset_to_lemma.txt")).read_text().strip().split("\n")
    )
    from torchvision.models._meta import _IMAGENET_CATEGORIES as names

    ids = wordnet_ids()
    same = sum(name.lower() in lemmas[id].lower() for id, name in zip(ids, names, strict=True))
    assert len(ids) == 1000 and ids == sorted(ids) and same > 950


def wordnet_file(name: str) -> Path:
    import timm.data

    return Path(timm.data.__file__).parent / "_info" / name


@pytest.mark.parametrize("of", [ImageNetA, ImageNetR])
def test_two_hundred_folders_map_to_their_places_among_the_thousand(of):
    indices = [int(line) for line in wordnet_file(f"{of.subset}_indices.txt").read_text().split()]
    assert list(of.folder_names().values()) == indices and len(indices) == 200
    assert indices != list(range(200))


def test_folders_of_numbers_are_the_index_itself():
    names = ImageNetV2.folder_names()
    assert names["10"] == 10 and names["2"] == 2 and len(names) == 1000


def test_the_test_split_passes_in_batches_and_its_middle_square_is_resized(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch, classes=4, each=3)
    data = imagenet(root, crop=1.0)
    assert data.shapes == {"image_size": 16, "channels": 3, "num_classes": 4}
    batches = list(data.test.inputs.split(5))
    assert [len(batch) for batch in batches] == [5, 5, 2] and len(data.test) == 12
    assert data.test.targets.bincount().tolist() == [3, 3, 3, 3]
    paths, _ = data.listed("test")
    with Image.open(paths[0]) as image:
        width, height = image.size
        left = (width - height) / 2
        square = image.resize((16, 16), Image.Resampling.BICUBIC, box=(left, 0, left + height, height))
    expected = torch.from_numpy(np.array(square)).permute(2, 0, 1) / 255
    assert torch.equal(batches[0][0], expected)


def test_every_training_image_comes_once_in_a_pass_and_a_batch_depends_on_the_step_alone(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch, classes=4, each=3)
    data = imagenet(root, area=1.0)
    targets = torch.cat([drawn(data, step, 4)[1] for step in range(6)])
    assert targets[:12].bincount().tolist() == targets[12:].bincount().tolist() == [3, 3, 3, 3]
    assert not torch.equal(targets[:12], targets[12:])
    again, once = drawn(imagenet(root), 3, 4), drawn(imagenet(root), 3, 4)
    assert torch.equal(again[0], once[0]) and torch.equal(again[1], once[1])
    assert not torch.equal(drawn(imagenet(root, limit=None), 4, 4)[0], once[0])


def test_random_boxes_lie_inside_and_have_the_published_range():
    draws = generator(0, "boxes")
    boxes = [_random_box((60, 40), 0.08, draws) for _ in range(300)]
    for left, top, right, bottom in boxes:
        assert left >= 0 and top >= 0 and right <= 60 + 1e-9 and bottom <= 40 + 1e-9
        assert 0.08 - 1e-9 <= (right - left) * (bottom - top) / 2400 <= 1
        assert 3 / 4 - 1e-9 <= (right - left) / (bottom - top) <= 4 / 3 + 1e-9
    areas = torch.tensor([(r - x) * (b - y) / 2400 for x, y, r, b in boxes])
    assert areas.min() < 0.12 and 0.3 < areas.mean() < 0.6


def test_an_evaluation_in_batches_counts_every_image_once(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch, classes=4, each=3)
    data, model = imagenet(root), create_model("resnet18", channels=3, num_classes=4).eval()
    monkeypatch.setattr("provenzoo.metrics.measure.BATCH", 5)
    found = Measure({"accuracy": accuracy}, data, data.test, torch.device("cpu"), torch.float32)(model)
    with torch.no_grad():
        outputs = model(torch.cat(list(data.test.inputs.split(12))))
    assert found["accuracy"] == accuracy(outputs, data.test.targets).item()


def test_hidden_folders_are_no_class_and_an_unknown_or_missing_one_is_named(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch)
    for part in ("train", "val"):
        (root / part / ".ipynb_checkpoints").mkdir()
    assert len(imagenet(root).test) == 8
    stand_ins.photos(root / "val" / "n99999999", 0, 1)
    with pytest.raises(ZooError, match="n99999999 is no class of imagenet"):
        _ = imagenet(root).test
    (root / "val" / "n99999999").rename(tmp_path / "away")
    (root / "val" / wordnet_ids()[2]).rename(tmp_path / "lost")
    with pytest.raises(ZooError, match=f"no folder '{wordnet_ids()[2]}' .class 2.; all 4"):
        _ = imagenet(root).test


def test_imagenet_that_is_nowhere_tells_where_it_was_looked_for(tmp_path):
    with pytest.raises(ZooError, match=r"train/ and val/ in .*there.*\n.*ILSVRC2012.*`root`"):
        _ = imagenet(tmp_path / "there").test


def test_grey_and_cmyk_images_become_rgb_and_deeper_or_damaged_ones_are_named(tmp_path, monkeypatch):
    root = stand_ins.imagenet(tmp_path / "imagenet", monkeypatch)
    file = root / "val" / wordnet_ids()[1] / "0.jpg"
    grey = Image.fromarray(stand_ins.noise(3, 1)[0]).convert("L")
    for image in (grey, grey.convert("CMYK")):
        image.save(file)
        assert torch.cat(list(imagenet(root).test.inputs.split(3))).shape == (8, 3, 16, 16)
    Image.fromarray(np.zeros((8, 8), dtype=np.uint16)).save(file.with_suffix(".png"))
    with pytest.raises(ZooError, match=r"0.png: has more than 8 bits"):
        list(imagenet(root).test.inputs.split(3))
    file.with_suffix(".png").unlink()
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ZooError, match=r"0.jpg: a damaged image"):
        list(imagenet(root).test.inputs.split(3))


# --- shifted sets ---------------------------------------------------------------------------------------------


def test_a_shifted_set_is_scored_by_the_official_labels(tmp_path):
    names = list(ImageNetA.folder_names())
    root = stand_ins.shifted(tmp_path / "imagenet-a", ImageNetA, names, side=8)
    data = create_dataset("imagenet-a", root=str(root), size=8)
    assert data.shapes["num_classes"] == 1000 and len(data.test) == 200
    assert data.test.targets.sort().values.tolist() == list(ImageNetA.folder_names().values())
    assert data.structure["scored_classes"].tolist() == sorted(ImageNetA.folder_names().values())
    (root / names[5] / "0.jpg").unlink()
    with pytest.raises(ZooError, match=f"{names[5]} holds no image"):
        _ = create_dataset("imagenet-a", root=str(root)).test
    (root / names[5]).rmdir()
    with pytest.raises(ZooError, match=f"no folder '{names[5]}'.*all 200"):
        _ = create_dataset("imagenet-a", root=str(root)).test


def test_among_the_scored_classes_only_their_logits_compete():
    outputs = torch.tensor([[9.0, 1.0, 2.0, 3.0], [9.0, 5.0, 2.0, 3.0]])
    targets = torch.tensor([3, 3])
    assert accuracy(outputs, targets) == 0
    assert accuracy_among_scored(outputs, targets, scored_classes=torch.tensor([1, 3])) == 0.5


def test_nothing_can_be_trained_on_a_shifted_set(tmp_path):
    with pytest.raises(ZooError, match="imagenet-r: a test set"):
        _ = create_dataset("imagenet-r", root=str(tmp_path)).train
