"""`image-folder`: layouts, classes by name, statistics, and files that cannot be used."""

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

import provenzoo
from provenzoo.components import create_dataset
from provenzoo.datasets.base import as_trained
from provenzoo.datasets.image_folder import ImageFolder
from provenzoo.datasets.mnist import FashionMNISTMini
from provenzoo.errors import ZooError

MINI = create_dataset("fashion-mnist-mini", mean=0.0, std=1.0)
CLASSES = {"bag": 8, "sandal": 5, "trouser": 1}


def write(folder: Path, number: int, count: int, start: int = 0) -> None:
    """Real images of one class as 28 x 28 grey PNGs 0.png, 1.png, ..."""
    folder.mkdir(parents=True)
    images = MINI.train.inputs[MINI.train.targets == number][start : start + count, 0]
    for index, image in enumerate(images):
        Image.fromarray((image * 255).round().byte().numpy()).save(folder / f"{index}.png")


@pytest.fixture
def root(tmp_path) -> Path:
    for name, number in CLASSES.items():
        write(tmp_path / "photos" / "train" / name, number, 6)
        write(tmp_path / "photos" / "test" / name, number, 3, start=6)
    return tmp_path / "photos"


def folder(root: Path, seed: int = 0, **args):
    return create_dataset("image-folder", seed=seed, root=str(root), **{"channels": 1, **args})


def some(root: Path) -> Path:
    return root / "train" / "sandal" / "2.png"


def test_a_folder_of_classes_becomes_two_normalised_splits(root):
    data = folder(root)
    assert data.shapes == {"image_size": 28, "channels": 1, "num_classes": 3}
    assert data.class_names == ["bag", "sandal", "trouser"]
    assert data.train.inputs.shape == (18, 1, 28, 28) and data.test.inputs.shape == (9, 1, 28, 28)
    assert data.train.targets.bincount().tolist() == [6, 6, 6]
    torch.testing.assert_close(data.train.inputs.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(data.train.inputs.std(), torch.tensor(1.0), atol=1e-5, rtol=0)


def test_pixels_are_those_of_the_files(root):
    data = folder(root, mean=[0.0], std=[1.0])
    for name, number in CLASSES.items():
        original = MINI.train.inputs[MINI.train.targets == number][:6]
        held = data.train.inputs[data.train.targets == data.class_names.index(name)]
        assert {x.numpy().tobytes() for x in held} == {x.numpy().tobytes() for x in original}


def test_classes_map_by_name_in_the_order_given(root):
    data = folder(root, classes=["trouser", "bag"])
    assert data.class_names == ["trouser", "bag"]
    mean, std = data.statistics()
    trousers = folder(root, classes=["trouser"], mean=mean, std=std).test.inputs
    assert torch.equal(data.test.inputs[data.test.targets == 0], trousers)


def test_a_checkpoints_classes_keep_their_labels_in_another_folder(root, tmp_path):
    trained = folder(root)
    other = tmp_path / "other"
    for name, number in {"aardvark": 0, **CLASSES}.items():
        write(other / "train" / name, number, 4)
        write(other / "test" / name, number, 4)
    judged = folder(other, **trained.resolved())
    assert judged.class_names == trained.class_names
    assert judged.resolved() == trained.resolved()
    with pytest.raises(ZooError, match="no class 'trouser'"):
        shutil.rmtree(other / "train" / "trouser")
        folder(other, **trained.resolved())


def test_another_folder_is_read_as_the_model_was_trained_where_its_node_says_nothing(root):
    trained = {"name": "image-folder", "root": str(root), "limit": 2, **folder(root).resolved()}
    node = as_trained(ImageFolder, {"name": "image-folder", "root": "other", "size": 14}, trained)
    assert node == {**folder(root).resolved(), "name": "image-folder", "root": "other", "size": 14}
    other = {"name": "fashion-mnist-mini"}
    assert as_trained(FashionMNISTMini, other, trained) == other
    assert ImageFolder.derived == tuple(folder(root).resolved())


def test_a_folder_named_by_a_number_is_meant_by_that_number(tmp_path):
    for name, number in {"2": 2, "10": 0}.items():
        write(tmp_path / name, number, 3)
    assert folder(tmp_path).class_names == ["10", "2"]
    assert folder(tmp_path, classes=[2, 10]).class_names == ["2", "10"]


def test_what_is_resolved_is_the_same_for_every_seed_and_option(root):
    base = folder(root).resolved()
    assert list(base) == ["classes", "size", "mean", "std"]
    assert folder(root, seed=3, samples=2, limit=3, corrupt={"name": "inversion"}).resolved() == base
    bag = MINI.train.inputs[MINI.train.targets == 8][:6].double()
    assert folder(root, classes=["bag"]).resolved()["mean"] == pytest.approx([bag.mean().item()])


def test_given_statistics_spare_the_training_images(root):
    saved, expected = folder(root).resolved(), folder(root).test.digest
    some(root).write_bytes(b"no image")
    assert folder(root, **saved).test.digest == expected


def test_val_stands_for_test(root):
    (root / "test").rename(root / "val")
    assert len(folder(root).test) == 9


def test_hidden_folders_and_other_files_are_passed_over(root):
    expected = folder(root).train.digest
    for split in ("train", "test"):
        (root / split / ".ipynb_checkpoints").mkdir()
        (root / split / ".git").mkdir()
        (root / split / "notes.txt").write_text("notes")
        (root / split / "bag" / "Thumbs.db").write_bytes(b"x")
        (root / split / "bag" / "._0.png").write_bytes(b"x")
    assert folder(root).train.digest == expected


def test_without_train_a_fraction_of_each_class_is_held_out_alike_for_every_seed(root):
    first, other = (folder(root / "train", seed=seed, holdout=0.34) for seed in (0, 1))
    assert first.train.targets.bincount().tolist() == [4, 4, 4]
    assert first.test.targets.bincount().tolist() == [2, 2, 2]
    assert first.test.digest == other.test.digest
    held_out = {image.numpy().tobytes() for image in first.test.inputs}
    assert not held_out & {image.numpy().tobytes() for image in first.train.inputs}


def test_what_is_held_out_of_a_class_does_not_depend_on_the_classes_beside_it(root):
    among, alone = folder(root / "train"), folder(root / "train", classes=["sandal"])
    files = {Path(file) for file, _ in among._listed["test"] if file.parent.name == "sandal"}
    assert files == {file for file, _ in alone._listed["test"]}


def test_the_shared_options_work_on_folders(root):
    data = folder(root, samples=2, permute={"cell": 4}, corrupt={"name": "noise", "sigma": 0.1})
    assert data.train.targets.bincount().tolist() == [2, 2, 2]
    with pytest.raises(ZooError, match="7 a class were asked for, but class 'bag' has 6 training images"):
        folder(root, samples=7)
    with pytest.raises(ZooError, match="do not tile an image of 28 x 28"):
        folder(root, permute={"cell": 3})


def test_limit_mixes_the_classes(root):
    assert len(folder(root, limit=9).train.targets.unique()) == 3


def test_size_fits_images_of_any_shape_and_colour_mode(root):
    for index, mode in enumerate(["RGB", "RGBA", "P", "LA", "1", "CMYK"]):
        image = Image.open(some(root)).convert("RGB").resize((40 + index, 30)).convert(mode)
        image.save(root / "train" / "bag" / f"mode-{mode}.{'tif' if mode == 'CMYK' else 'png'}")
    for channels in (1, 3):
        data = folder(root, channels=channels, size=20)
        assert data.train.inputs.shape == (24, channels, 20, 20)
        assert data.shapes["image_size"] == 20 and len(data.resolved()["mean"]) == channels


def test_images_of_several_sizes_need_size_and_two_files_are_named(root):
    Image.new("L", (32, 32)).save(root / "train" / "bag" / "large.png")
    with pytest.raises(ZooError, match=r"large\.png.*set `size`") as told:
        _ = folder(root).train
    assert str(told.value).count(".png") == 2
    assert len(folder(root, size=28).train) == 19


def test_an_image_that_is_no_square_needs_size(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(2):
            Image.new("L", (20, 10), 7 * index).save(tmp_path / name / f"{index}.png")
    with pytest.raises(ZooError, match="20 x 10 is no square; set `size`"):
        _ = folder(tmp_path).shapes
    assert folder(tmp_path, size=8).shapes["image_size"] == 8


def sixteen_bits(file: Path) -> None:
    Image.new("I;16", (28, 28), 40_000).save(file)


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-60])


def text(file: Path) -> None:
    file.write_text("no image")


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [sixteen_bits, truncated, text, empty])
def test_an_image_that_cannot_be_used_is_named(root, damage):
    damage(some(root))
    with pytest.raises(ZooError, match=str(some(root))) as told:
        _ = folder(root, size=28).train
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_class_without_images_is_named(root, split):
    for file in (root / split / "bag").iterdir():
        file.unlink()
    with pytest.raises(ZooError, match=f"{split}/bag holds no image of class 'bag'"):
        folder(root)


def test_a_class_missing_in_test_is_named_unless_it_is_not_kept(root):
    shutil.rmtree(root / "test" / "bag")
    with pytest.raises(ZooError, match="test has no folder of class 'bag'"):
        folder(root)
    assert len(folder(root, classes=["sandal", "trouser"]).test) == 6


def test_a_class_only_in_test_is_named(root):
    write(root / "test" / "coat", 4, 2)
    with pytest.raises(ZooError, match="'coat'"):
        folder(root)
    assert len(folder(root, classes=["bag"]).test) == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"classes": ["bags"]}, "no class 'bags'; it has 0 bag, 1 sandal, 2 trouser"),
        ({"classes": ["bag", "bag"]}, "named twice"),
        ({"mean": [0.5, 0.5, 0.5]}, "mean: 3 values for 1 channels"),
        ({"std": [0.0]}, "std"),
        ({"channels": 2}, "channels"),
        ({"holdout": 1.5}, "holdout"),
    ],
)
def test_a_wrong_option_is_an_error_before_any_image_is_read(root, args, words):
    with pytest.raises(ZooError, match=words):
        folder(root, **args)


def test_a_folder_that_is_not_there_or_holds_half_of_it_is_told(root, tmp_path):
    assert ImageFolder.missing(root=str(root)) is None
    told = ImageFolder.missing(root=str(tmp_path / "gone"))
    assert told and str(tmp_path / "gone") in told
    with pytest.raises(ZooError, match="no folder"):
        folder(tmp_path / "gone")
    (tmp_path / "bare").mkdir()
    with pytest.raises(ZooError, match="holds no folder of a class"):
        folder(tmp_path / "bare")
    shutil.rmtree(root / "train")
    with pytest.raises(ZooError, match="holds test but no folder train"):
        folder(root)


def test_one_image_a_class_cannot_be_held_out(tmp_path):
    write(tmp_path / "bag", 8, 1)
    with pytest.raises(ZooError, match="class 'bag' has one image"):
        folder(tmp_path)


def test_paths_are_the_callers(root, monkeypatch):
    monkeypatch.chdir(root.parent)
    assert len(folder(Path("photos")).test) == 9


FOLDERS = """
stages:
  pretrain:
    stage: pretrain
    model: {name: small-cnn}
    data: {name: image-folder, root: ROOT, channels: 1}
    epochs: 2
    batch: 6
    metrics: [accuracy, class-accuracy]
  evaluate:
    stage: evaluate
    from: pretrain
    metrics: [accuracy, class-accuracy]
    sets:
      same: {}
      other: {data: {root: OTHER}}
"""


def run(folder: Path, root: Path, other: Path):
    recipe = folder / "recipe.yaml"
    recipe.write_text(FOLDERS.replace("ROOT", str(root)).replace("OTHER", str(other)))
    return provenzoo.run(recipe, out=folder / "run")


def test_a_model_is_judged_on_another_folder_by_the_names_of_its_classes(root, tmp_path):
    shutil.copytree(root, tmp_path / "other")
    for split in ("train", "test"):
        write(tmp_path / "other" / split / "aardvark", 0, 3)  # comes first, and moves the mean
    done = run(tmp_path, root, tmp_path / "other")
    values = {
        name: done.record["metrics"][f"evaluate.{name}"]["class-accuracy"]["per_seed"] for name in ("same", "other")
    }
    assert values["other"] == values["same"]
    assert provenzoo.verify(done.path).holds


def test_a_folder_that_lacks_a_class_of_the_model_is_told_before_anything_trains(root, tmp_path):
    shutil.copytree(root, tmp_path / "other")
    for split in ("train", "test"):
        shutil.rmtree(tmp_path / "other" / split / "trouser")
    with pytest.raises(ZooError, match="no class 'trouser'"):
        run(tmp_path, root, tmp_path / "other")
    assert not list(tmp_path.rglob("model.safetensors"))
