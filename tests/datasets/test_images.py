"""Sets of image files: the reading itself, and each layout on disk."""

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from shortlist.class_table import ClassTable
from shortlist.datasets.folders import image_folder
from shortlist.datasets.imagenet import imagenet, imagenet_lt
from shortlist.datasets.images import ImageFiles, PathList, unreadable_files
from shortlist.datasets.inaturalist import inaturalist2018
from shortlist.datasets.lists import image_list, image_lists
from shortlist.datasets.plantnet import genus_of, plantnet300k, plantnet_metadata
from shortlist.datasets.splits import Splits
from shortlist.datasets.transforms import EvalTransform, TrainTransform
from shortlist.preprocessing import read_image
from tests.datasets import trees


def folder_of(splits: Splits, part: str) -> list[tuple[str, int]]:
    """Class folder and class index of each row."""
    files = getattr(splits, part)
    return [(Path(p).parent.name, int(t)) for p, t in zip(files.paths, files.targets, strict=True)]


def test_path_list_is_two_arrays_and_gives_back_what_it_got():
    paths = ["", "a b.png", "été/葉.jpg", "z" * 300, "bad\udcff.jpg"]
    kept = pickle.loads(pickle.dumps(PathList(paths)))
    assert list(kept) == paths
    assert kept[-1] == paths[-1]
    assert kept[1:3] == paths[1:3]
    with pytest.raises(IndexError):
        kept[5]
    many = PathList(f"train/{i}.jpg" for i in range(1000))
    assert sum(array.nbytes for array in vars(many).values()) < 1000 * 30


def test_eval_transform_is_a_scaled_center_cut():
    """A ramp from left to right: the cut's middle is the ramp's, and its slope that of the scale."""
    ramp = np.broadcast_to(np.linspace(0, 255, 320)[None, :, None], (160, 320, 3)).astype(np.uint8)
    out = EvalTransform(32, resize=40, mean=[0] * 3, std=[1] * 3)(Image.fromarray(ramp))
    assert out.shape == (3, 32, 32)
    # the square is 128 pixels wide around column 160, so one output pixel is 4 columns
    columns = 160 - 64 + 4 * (np.arange(32) + 0.5) - 0.5
    torch.testing.assert_close(out[0, 5].double(), torch.tensor(columns / 319), atol=0.006, rtol=0)


def test_train_transform_cuts_a_part_within_bounds():
    height, width = 60, 90
    grid = np.zeros((height, width, 3), np.uint8)
    grid[..., 0] = np.arange(width)[None]
    grid[..., 1] = np.arange(height)[:, None]
    transform = TrainTransform(64, area=(0.2, 0.5), mean=[0] * 3, std=[1 / 255] * 3)
    shares, mirrored = [], 0
    for _ in range(100):
        out = transform(Image.fromarray(grid))
        across, down = out[0, 32, -1] - out[0, 32, 0], out[1, -1, 32] - out[1, 0, 32]
        mirrored += bool(across < 0)
        w, h = abs(float(across)) * 64 / 63, float(down) * 64 / 63
        shares.append(w * h / (width * height))
        assert 0.65 < w / h < 1.5
    assert 0.17 < min(shares) < 0.25
    assert 0.43 < max(shares) < 0.55
    assert abs(mirrored - 50) < 25
    # nothing of the wanted shape and area fits: the largest centered square
    whole = TrainTransform(30, area=(1, 1), ratio=(1, 1), flip=False, mean=[0] * 3, std=[1 / 255] * 3)
    out = whole(Image.fromarray(grid))
    assert float(out[0].mean()) == pytest.approx(44.5, abs=0.6)
    assert float(out[1].mean()) == pytest.approx(29.5, abs=0.6)


def test_unreadable_files_are_found_with_their_reason(tmp_path):
    good = trees.image(tmp_path / "good.jpg")
    cut = [trees.truncate(trees.image(tmp_path / name, size=(200, 200))) for name in ("cut.jpg", "cut.png")]
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("no image")
    paths = [str(p) for p in (good, *cut, tmp_path / "empty.jpg", tmp_path / "text.jpg", tmp_path / "no.jpg")]
    found = unreadable_files(paths)
    assert sorted(found) == [1, 2, 3, 4, 5]
    assert found[3] == "it is empty"
    assert found[4] == "it is in no known image format"
    assert found[5] == "there is no such file"


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA"])
def test_every_kind_of_image_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
    Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(path)
    image = read_image(path)
    assert (image.mode, image.getpixel((3, 3))) == ("RGB", (255, 255, 255))


@pytest.fixture
def three_files(tmp_path) -> list[Path]:
    paths = [trees.image(tmp_path / f"{i}.jpg", seed=i, size=(200, 200)) for i in range(3)]
    trees.truncate(paths[1])
    return paths


def test_a_truncated_image_is_skipped_and_counted(three_files):
    files = ImageFiles(three_files, torch.tensor([4, 5, 6]), transform=EvalTransform(16))
    assert files[0][1] == 4
    assert files.unreadable == []
    with pytest.warns(UserWarning, match=rf"{three_files[1]} cannot be read as an image.*class -100"):
        image, target = files[1]
    assert target == -100
    assert torch.equal(image, torch.zeros(3, 16, 16))
    assert files[1][1] == -100  # the second time without a warning
    assert files.unreadable == [str(three_files[1])]
    assert files[-1][1] == 6
    logits = torch.randn(3, 7)
    targets = torch.tensor([files[i][1] for i in range(3)])
    expected = torch.nn.functional.cross_entropy(logits[[0, 2]], torch.tensor([4, 6]))
    torch.testing.assert_close(torch.nn.functional.cross_entropy(logits, targets), expected)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_decode_and_report_what_they_skip(three_files, context):
    files = ImageFiles(three_files, torch.tensor([4, 5, 6]), transform=EvalTransform(16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = DataLoader(files, batch_size=1, num_workers=2, multiprocessing_context=context)
        targets = [int(target) for _, target in loader]
    assert targets == [4, -100, 6]
    assert files.unreadable == [str(three_files[1])]


@pytest.mark.errors
def test_a_truncated_image_raises_if_asked(three_files):
    files = ImageFiles(three_files, torch.tensor([4, 5, 6]), on_error="raise")
    with pytest.raises(ValueError, match=rf"{three_files[1]} cannot be read as an image"):
        files[1]
    with pytest.raises(ValueError, match="on_error must be one of skip, raise, got 'ignore'"):
        ImageFiles(three_files, torch.tensor([4, 5, 6]), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"targets must be int64 of shape \(3,\)"):
        ImageFiles(three_files, torch.tensor([4, 5]))


def test_a_fault_of_the_transform_is_not_taken_for_a_broken_file(three_files):
    def faulty(image):
        raise ValueError("my own fault")

    files = ImageFiles(three_files, torch.tensor([4, 5, 6]), transform=faulty)
    with pytest.raises(ValueError, match="my own fault"):
        files[0]


def test_folder_with_parts_unicode_names_and_a_class_missing_from_val(tmp_path):
    trees.class_folders(tmp_path / "train", {"été": 3, "葉 1": 2, "Zoë": 1})
    trees.class_folders(tmp_path / "val", {"été": 1, "Zoë": 2})
    trees.class_folders(tmp_path / "test", {"été": 1, "Zoë": 2, "葉 1": 1})
    (tmp_path / "train" / "été" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".hidden").mkdir()
    with pytest.warns(
        UserWarning, match=rf"{tmp_path}: 1 of 3 classes have no image in the val split \(葉 1\)"
    ):
        splits = image_folder(tmp_path, image_size=16)
    assert splits.class_table.names == ("Zoë", "été", "葉 1")
    assert splits.class_table.counts == (1, 3, 2)
    assert folder_of(splits, "train") == [("Zoë", 0)] + [("été", 1)] * 3 + [("葉 1", 2)] * 2
    assert folder_of(splits, "val") == [("Zoë", 0)] * 2 + [("été", 1)]
    assert splits.train[0][0].shape == (3, 16, 16)


@pytest.mark.parametrize(
    "names", [("Train", "Test"), ("training", "validation"), ("TRAIN", "VAL", "TESTING"), ("train", "dev")]
)
def test_parts_of_other_names_are_no_classes(tmp_path, names):
    for name in names:
        trees.class_folders(tmp_path / name, {"ash": 3, "oak": 3})
    splits = image_folder(tmp_path, image_size=8)
    assert splits.class_table.names == ("ash", "oak")
    # with one held-out folder, a third of each class (rounded up from a tenth) goes to validation
    assert len(splits.train) == (4 if len(names) == 2 else 6) and len(splits.test) == 6


@pytest.mark.errors
def test_parts_of_unknown_names_are_refused(tmp_path):
    for name in ("fold1", "fold2"):
        trees.class_folders(tmp_path / name, {"ash": 1, "oak": 1, "elm": 1})
    with pytest.raises(ValueError, match=r"holds the folders fold1, fold2, .* the same 3 folders \(ash, elm"):
        image_folder(tmp_path)
    trees.image(tmp_path / "fold1" / "image.jpg")  # then it is a class, with folders for whatever reason
    assert image_folder(tmp_path, image_size=8).class_table.names == ("fold1", "fold2")


def test_classes_with_the_same_folders_stay_classes(tmp_path):
    for name in ("ash", "oak", "elm"):
        trees.class_folders(tmp_path / name, {"leaf": 2, "flower": 2})
    assert image_folder(tmp_path, image_size=8).class_table.names == ("ash", "elm", "oak")


def test_folder_without_parts_is_split_by_class(tmp_path):
    trees.class_folders(tmp_path, {"a": 12, "b": 5})
    splits = image_folder(tmp_path)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [11, 3, 3]
    assert splits.class_table.counts == (8, 3)
    assert sorted(folder_of(splits, "val")) == [("a", 0), ("a", 0), ("b", 1)]
    paths = [set(getattr(splits, part).paths) for part in ("train", "val", "test")]
    assert len(set.union(*paths)) == 17


def test_verify_leaves_out_what_cannot_be_read(tmp_path):
    trees.class_folders(tmp_path, {"a": 12, "b": 5})
    broken = trees.truncate(trees.image(tmp_path / "a" / "image 3.jpg", size=(300, 300)))
    with pytest.warns(UserWarning, match=rf"1 files of the \w+ split cannot be read.*{broken}"):
        splits = image_folder(tmp_path, verify=True)
    assert len(splits.train) + len(splits.val) + len(splits.test) == 16
    with pytest.raises(ValueError, match=rf"1 files of the \w+ split cannot be read as images: {broken}"):
        image_folder(tmp_path, verify=True, on_error="raise")


def test_folder_follows_its_class_table(tmp_path):
    trees.class_folders(tmp_path / "train", {"7": 2, "9": 2})
    trees.class_folders(tmp_path / "test", {"7": 1, "9": 1})
    ClassTable(["oak", "ash"], ["9", "7"], parents={"genus": ["Q", "F"]}).save(tmp_path / "class_table.json")
    splits = image_folder(tmp_path)
    assert set(folder_of(splits, "train")) == {("9", 0), ("7", 1)}
    assert splits.class_table.parents == {"genus": ("Q", "F")}
    assert [len(splits.train), len(splits.val), len(splits.test)] == [2, 2, 2]
    trees.class_folders(tmp_path / "train", {"8": 2})
    with pytest.raises(ValueError, match=r"the class '8' is none of the"):
        image_folder(tmp_path)


@pytest.mark.errors
def test_folder_errors_have_the_path(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere is missing. Expected one folder of images per class"
    ):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=rf"{tmp_path} holds no images in class folders"):
        image_folder(tmp_path)


def test_plantnet(tmp_path):
    trees.plantnet(tmp_path)
    splits = plantnet300k(tmp_path, check_metadata=True)
    # sorted as text, as published models have them
    assert splits.class_table.ids == ("1355868", "1355870", "99")
    assert splits.class_table.names == ("Lactuca virosa L.", "Lactuca muralis", "Œnothera été")
    assert splits.class_table.parents["genus"] == ("Lactuca", "Lactuca", "Œnothera")
    assert splits.class_table.counts == (4, 4, 4)
    for part in ("train", "val", "test"):
        assert set(folder_of(splits, part)) == {("1355868", 0), ("1355870", 1), ("99", 2)}
    assert plantnet_metadata(tmp_path)["train990"]["author"] == "Zoë"


@pytest.mark.parametrize(
    ("name", "genus"),
    [
        ("Lactuca virosa L.", "Lactuca"),
        ("Lactuca_virosa", "Lactuca"),
        ("Œnothera été", "Œnothera"),
        ("Carex sp.", "Carex"),
        ("Carex cf. hirta", "Carex"),
        ("Capsella bursa-pastoris (L.) Medik.", "Capsella"),
        ("Quercus robur subsp. pedunculiflora", "Quercus"),
        ("×Fatshedera lizei", "Fatshedera"),
        ("× Fatshedera lizei", "Fatshedera"),
        ("x Fatshedera lizei", "Fatshedera"),
        ("Mentha × piperita", "Mentha"),
        ("Mentha ×piperita L.", "Mentha"),
        ("Mentha x piperita", "Mentha"),
        # names that are not scientific have no genus
        *((name, "") for name in ("species 01", "species one", "Species 01", "Species s01", "Class_7")),
        *((name, "") for name in ("Group a", "oak", "Oak", "pink primrose", "apple_pie", "Egyptian Mau")),
        *((name, "") for name in ("001.Black_footed_Albatross", "n01440764", "LATIN CAPITAL LETTER A")),
        *((name, "") for name in ("Audi TT 2011", "QUERCUS robur", "Quercus L.", "Quercus Robur", "銀杏 樹")),
        *((name, "") for name in ("1355868", "×", "× x", "", "  ", "_")),
    ],
)
def test_a_genus_is_read_from_scientific_names_only(name, genus):
    assert genus_of(name) == genus


def test_plantnet_class_missing_from_val(tmp_path):
    trees.plantnet(tmp_path, missing_from_val="99")
    with pytest.warns(UserWarning, match=r"1 of 3 classes have no image in the val split \(Œnothera été\)"):
        splits = plantnet300k(tmp_path)
    assert splits.val.targets.tolist() == [0, 1]


@pytest.mark.errors
def test_plantnet_of_another_version(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train is missing. Get Pl@ntNet-300K"):
        plantnet300k(tmp_path)
    trees.plantnet(tmp_path)
    names = tmp_path / "plantnet300K_species_id_2_name.json"
    names.write_text(json.dumps({"1355868": "Lactuca virosa", "7": "Bellis", "99": "x"}))
    message = r"2_name.json is of another version.*1 of its ids have no folder \(7\), 1 folders .*\(1355870\)"
    with pytest.raises(ValueError, match=message):
        plantnet300k(tmp_path)
    names.write_text("{")
    with pytest.raises(ValueError, match=r"2_name.json is not JSON"):
        plantnet300k(tmp_path)
    names.write_text("[]")
    with pytest.raises(ValueError, match=r"2_name.json must hold an object"):
        plantnet300k(tmp_path)
    names.unlink()
    with pytest.raises(FileNotFoundError, match=r"2_name.json is missing"):
        plantnet300k(tmp_path)
    (tmp_path / "plantnet300K_metadata.json").write_text(json.dumps({"a": {"species_id": "1"}}))
    with pytest.raises(ValueError, match=r"metadata.json is of another version"):
        plantnet_metadata(tmp_path)


def test_imagenet(tmp_path):
    trees.class_folders(tmp_path / "train", {"n02": 20, "n01": 10}, suffix=".JPEG")
    trees.class_folders(tmp_path / "val", {"n02": 3, "n01": 2}, suffix=".JPEG")
    (tmp_path / "LOC_synset_mapping.txt").write_text("n01 tench, Tinca tinca\nn02 goldfish\n")
    splits = imagenet(tmp_path, val_fraction=0.1)
    assert splits.class_table.ids == ("n01", "n02")
    assert splits.class_table.names == ("tench, Tinca tinca", "goldfish")
    assert splits.class_table.counts == (9, 18)
    assert sorted(folder_of(splits, "val")) == [("n01", 0), ("n02", 1), ("n02", 1)]
    assert [Path(p).parts[-3] for p in splits.val.paths] == ["train"] * 3
    assert [Path(p).parts[-3] for p in splits.test.paths] == ["val"] * 5
    published = imagenet(tmp_path, val_fraction=0)
    assert len(published.train) == 30
    assert list(published.val.paths) == list(published.test.paths)


@pytest.mark.errors
def test_imagenet_with_unsorted_validation_images(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train is missing. Get ILSVRC 2012"):
        imagenet(tmp_path)
    trees.class_folders(tmp_path / "train", {"n01": 2})
    trees.image(tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(ValueError, match=r"val holds 1 images outside the class folders"):
        imagenet(tmp_path)


def test_imagenet_lt(tmp_path):
    lines = {"train": [], "val": [], "test": []}
    for c, wnid in enumerate(["n01", "n02", "n03"]):
        for part, count in {"train": 3 - c, "val": 1, "test": 1}.items():
            for i in range(count):
                name = f"{'val' if part == 'test' else 'train'}/{wnid}/{part} {i}.JPEG"
                trees.image(tmp_path / "images" / name)
                lines[part].append(f"{name} {c}\n")
    lists = tmp_path / "lists"
    lists.mkdir()
    for part, rows in lines.items():
        (lists / f"ImageNet_LT_{part}.txt").write_text("".join(rows[::-1]))
    splits = imagenet_lt(tmp_path / "images", lists=lists)
    assert splits.class_table.counts == (3, 2, 1)
    assert folder_of(splits, "train")[:2] == [("n03", 2), ("n02", 1)]
    assert folder_of(splits, "test") == [("n03", 2), ("n02", 1), ("n01", 0)]
    assert splits.test[0][0].shape == (3, 224, 224)
    with pytest.raises(FileNotFoundError, match=r"ImageNet_LT_train.txt is missing. Get the list files"):
        imagenet_lt(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"test 0.JPEG is missing|train 0.JPEG is missing"):
        imagenet_lt(tmp_path, lists=lists)


def test_inaturalist(tmp_path):
    trees.inaturalist(tmp_path)
    splits = inaturalist2018(tmp_path)
    assert splits.class_table.names == ("Bufo bufo", "Quercus ilex")
    assert splits.class_table.parents["genus"] == ("Bufo", "Quercus")
    assert splits.class_table.counts == (3, 3)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [6, 2, 6]
    for part in ("train", "val", "test"):
        assert set(folder_of(splits, part)) == {("0", 0), ("1", 1)}
    (tmp_path / "categories.json").unlink()
    assert inaturalist2018(tmp_path).class_table.names == ("0", "1")


@pytest.mark.errors
def test_inaturalist_of_another_version(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train2018.json is missing. Get the images"):
        inaturalist2018(tmp_path)
    trees.inaturalist(tmp_path)
    (tmp_path / "categories.json").write_text(json.dumps([{"id": 0, "name": "Bufo bufo"}]))
    with pytest.raises(ValueError, match=r"train2018.json is of another version .* lack 1, which it has"):
        inaturalist2018(tmp_path)
    (tmp_path / "categories.json").write_text(json.dumps([{"name": "Bufo bufo"}]))
    with pytest.raises(ValueError, match=r"categories.json has no list of categories with id and name"):
        inaturalist2018(tmp_path)
    (tmp_path / "categories.json").unlink()
    content = json.loads((tmp_path / "val2018.json").read_text())
    del content["annotations"][0]["category_id"]
    (tmp_path / "val2018.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"val2018.json is not an iNaturalist 2018 annotation file"):
        inaturalist2018(tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_list_with_parts(tmp_path, suffix):
    rows = {"file": [], "species": [], "split": []}
    for i, (species, part) in enumerate(
        [("œillet", "train"), ("ash", "train"), ("œillet", "val"), ("ash", "test"), ("œillet", "test")]
    ):
        trees.image(tmp_path / "data" / f"{i}.png", seed=i)
        rows["file"].append(f"data/{i}.png")
        rows["species"].append(species)
        rows["split"].append(part)
    path = tmp_path / f"list{suffix}"
    if suffix == ".csv":
        lines = [",".join(rows), *(",".join(row) for row in zip(*rows.values(), strict=True))]
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pyarrow.table(rows), path)
    with pytest.warns(UserWarning, match=r"list\.\w+: 1 of 2 classes have no image in the val split \(ash\)"):
        splits = image_list(path, path_column="file", label_column="species")
    assert splits.class_table.names == ("ash", "œillet")
    assert splits.train.targets.tolist() == [1, 0]
    assert [Path(p).name for p in splits.test.paths] == ["3.png", "4.png"]
    assert splits.test.targets.tolist() == [0, 1]
    assert splits.val[0][1] == 1


def test_list_of_50000_classes(tmp_path):
    trees.image(tmp_path / "0.png")
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{i}.png {i % 50_000}\n" for i in range(100_000)))
    trees.image(tmp_path / "test" / "0.png")
    (tmp_path / "test.txt").write_text("".join(f"test/{i}.png {i}\n" for i in range(50_000)))
    splits = image_lists(path, test=tmp_path / "test.txt", val_fraction=0)
    assert len(splits.class_table) == 50_000
    assert set(splits.class_table.counts) == {2}
    assert splits.train.paths[99_999] == str(tmp_path / "99999.png")
    assert int(splits.train.targets[99_999]) == 49_999


def test_labels_by_a_given_class_table(tmp_path):
    for i in range(3):
        trees.image(tmp_path / f"{i}.png", seed=i)
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{i}.png,{7 + i % 2}\n" for i in range(3)))
    table = ClassTable(["oak", "ash", "elm"], ["8", "7", "1"])
    with pytest.warns(UserWarning, match="1 of 3 classes have no image in the train split"):
        splits = image_list(tmp_path / "list.csv", class_table=table)
    assert splits.train.targets.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"list.csv, row 1: the class 7 is none of the 1 classes \(8\)"):
        image_list(tmp_path / "list.csv", class_table=ClassTable(["8"]))


@pytest.mark.errors
def test_list_errors_have_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no.csv is missing. Expected a text file"):
        image_list(tmp_path / "no.csv")
    path = tmp_path / "list.csv"
    path.write_text("path,class\na.png,1\n")
    with pytest.raises(ValueError, match=r"list.csv has no column 'label'; its columns are path, class"):
        image_list(path)
    path.write_text("path,label\na.png,oak\nb.png\n")
    with pytest.raises(ValueError, match=r"list.csv cannot be read as .csv"):
        image_list(path)
    path.write_text("path,label\na.png,1\nb.png,\n")
    with pytest.raises(ValueError, match=r"list.csv has 1 empty fields in column 'label'"):
        image_list(path)
    path.write_text("path,label,split\na.png,1,training\n")
    with pytest.raises(ValueError, match="column 'split' must hold train, val or test, got 'training'"):
        image_list(path)
    path.write_text("path,label\na.png,1\n")
    with pytest.raises(
        FileNotFoundError, match=r"a.png is missing. It is the first image of the train split"
    ):
        image_list(path)
    (tmp_path / "list.txt").write_text("a.png 1\nb.png\n")
    with pytest.raises(ValueError, match=r"list.txt, line 2: expected a path and a class, got 'b.png'"):
        image_list(tmp_path / "list.txt")
    (tmp_path / "list.parquet").write_text("not parquet")
    with pytest.raises(ValueError, match=r"list.parquet cannot be read as .parquet"):
        image_list(tmp_path / "list.parquet")


def test_shuffled_epochs_over_files_see_every_image_once(tmp_path):
    trees.class_folders(tmp_path / "train", {"a": 7, "b": 6}, suffix=".png")
    trees.class_folders(tmp_path / "test", {"a": 2, "b": 2}, suffix=".png")
    splits = image_folder(tmp_path, image_size=8, val_fraction=0)
    targets = torch.cat([target for _, target in DataLoader(splits.train, batch_size=4, shuffle=True)])
    assert targets.bincount().tolist() == [7, 6]
