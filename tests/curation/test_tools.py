"""Building, checking and describing data sets."""

import json
import math
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

import shortlist.datasets
from shortlist.class_table import ClassTable
from shortlist.curation.build import apply_plan, build_benchmark, plan_benchmark
from shortlist.curation.check import check_images, difference_hash, near_pairs
from shortlist.curation.describe import describe, draw_lorenz, gini, lorenz_curve, open_dataset
from shortlist.datasets import DatasetInfo
from shortlist.datasets.embeddings import save_embeddings
from shortlist.datasets.folders import image_folder
from tests.datasets import trees

# 4 genera; class sizes from too few to many
COUNTS = {"Acer": [4, 5, 12], "Bellis": [30], "Œnanthe": [7, 21], "Quercus": [2]}
EPITHETS = ("alba", "nigra", "rubra")


@pytest.fixture
def source(tmp_path) -> Path:
    for genus, sizes in COUNTS.items():
        for i, size in enumerate(sizes):
            folder = tmp_path / "source" / f"{genus} {EPITHETS[i]}"
            folder.mkdir(parents=True)
            for n in range(size):
                (folder / f"{n}.jpg").write_bytes(f"{genus}{i}{n}".encode())
    return tmp_path / "source"


def test_plan_follows_the_recipe(source):
    plan = plan_benchmark(source, genus_fraction=1.0)
    kept = {f"{g} {EPITHETS[i]}": n for g, sizes in COUNTS.items() for i, n in enumerate(sizes) if n > 4}
    assert list(plan.class_table.names) == sorted(kept)
    for index, name in enumerate(plan.class_table.names):
        n = kept[name]
        parts = [part for _, target, part in plan.rows if target == index]
        held = math.ceil(n / 10)
        assert (parts.count("val"), parts.count("test"), parts.count("train")) == (held, held, n - 2 * held)
        assert plan.class_table.counts[index] == n - 2 * held
        assert all(Path(path).parent.name == name for path, target, _ in plan.rows if target == index)
    assert len({path for path, _, _ in plan.rows}) == sum(kept.values())
    assert plan.left_out == {
        "genera not drawn": 0,
        "classes of those": 0,
        "classes with fewer than 5 images": 2,
        "images": 6,
    }


def test_genera_are_drawn_uniformly_and_whole(source):
    seen = []
    for seed in range(200):
        plan = plan_benchmark(source, genus_fraction=0.5, min_images=3, seed=seed)
        genera = set(plan.class_table.parents["genus"])
        expected = sum(sum(n >= 3 for n in COUNTS[genus]) for genus in genera)
        assert len(plan.class_table) == expected
        seen += sorted(genera)
    # two of four genera each time, of which Quercus has no class left
    for genus in ("Acer", "Bellis", "Œnanthe"):
        assert abs(seen.count(genus) - 100) < 5 * math.sqrt(200 / 4)
    assert "Quercus" not in seen


@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_benchmark_is_made_of_links_and_reads_back(source, tmp_path, link):
    before = sorted(p.relative_to(source) for p in source.rglob("*"))
    dest = tmp_path / "made"
    plan = build_benchmark(source, dest, genus_fraction=1.0, link=link)
    assert sorted(p.relative_to(source) for p in source.rglob("*")) == before
    files = [p for p in dest.rglob("*.jpg")]
    assert len(files) == len(plan.rows)
    for file in files:
        original = source / file.parent.name / file.name
        assert os.path.samefile(file, original)
        assert file.is_symlink() == (link == "symbolic")
    splits = image_folder(dest)
    assert splits.class_table == plan.class_table
    assert {part: len(getattr(splits, part)) for part in ("train", "val", "test")} == plan.sizes()
    metadata = json.loads((dest / "metadata.json").read_text(encoding="utf-8"))
    entry = metadata["images"][str(files[0].relative_to(dest))]
    assert entry["split"] == files[0].parts[-3]
    assert entry["class"] == files[0].parts[-2]
    table = splits.class_table
    assert table.parents["genus"][table.ids.index(entry["class"])] == entry["class"].split()[0]
    assert metadata["options"]["seed"] == 0
    assert not list(tmp_path.glob(".*"))


def test_two_levels_and_lists_name_the_genus(tmp_path):
    lines = ["path,label,genus"]
    for genus, name, n in [("G1", "a/b", 5), ("G1", "c", 6), ("G2", "d", 5)]:
        for i in range(n):
            safe = name.replace("/", "-")
            file = tmp_path / "two" / genus / safe / f"{i}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x")
            lines.append(f"two/{genus}/{safe}/{i}.jpg,{name},{genus}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    nested = plan_benchmark(tmp_path / "two", genus_fraction=1)
    assert nested.class_table.parents["genus"] == ("G1", "G1", "G2")
    listed = plan_benchmark(tmp_path / "list.csv", genus_fraction=1)
    assert listed.class_table.names == ("a/b", "c", "d")
    apply_plan(listed, tmp_path / "made")
    assert sorted(p.name for p in (tmp_path / "made" / "train").iterdir()) == ["a_b", "c", "d"]


def photos_of(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        for n in range(5):
            (root / name / f"{n}.jpg").write_bytes(f"{name} {n}".encode())
    return root


def test_folders_without_scientific_names_have_no_genus(tmp_path):
    """A common first word is no genus: each class is drawn for itself, and the table has no such level."""
    photos_of(tmp_path / "source", [f"species {i:02}" for i in range(20)])
    plan = build_benchmark(tmp_path / "source", tmp_path / "made")
    assert len(plan.class_table) == 20 and plan.class_table.parents == {}
    assert image_folder(tmp_path / "made").class_table == plan.class_table
    some = plan_benchmark(tmp_path / "source", genus_fraction=0.25)
    assert len(some.class_table) == 5 and some.left_out["classes of those"] == 15


def test_scientific_names_beside_others(tmp_path):
    names = ["Quercus robur", "Quercus alba", "unknown oak", "unknown tree"]
    plan = plan_benchmark(photos_of(tmp_path / "source", names))
    assert plan.class_table.parents == {"genus": ("Quercus", "Quercus", "", "")}
    assert describe(plan.class_table).parents == {"genus": 1}


def test_english_names_with_the_form_of_scientific_ones_have_no_genus(tmp_path):
    """A capital and small letters make no genus: "Great tit" and "Great spotted woodpecker" share none."""
    english = [
        "Great tit",
        "Great spotted woodpecker",
        "Speed limit 50",
        "Speed limit 80",
        "No entry",
        "Sea gull",
    ]
    folders = photos_of(tmp_path / "english", english)
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in folders.rglob("*.jpg")]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]))
    assert plan_benchmark(folders).class_table.parents == {}
    assert plan_benchmark(tmp_path / "list.csv").class_table.parents == {}
    latin = ["Buteo buteo", "Papaver rhoeas", "Parus major", "Pica pica", "Quercus robur", "Turdus merula"]
    plan = plan_benchmark(photos_of(tmp_path / "latin", latin))
    assert plan.class_table.parents == {"genus": tuple(name.split()[0] for name in latin)}


@pytest.mark.errors
def test_build_refuses_to_overwrite_and_names_what_is_wrong(source, tmp_path):
    dest = tmp_path / "made"
    dest.mkdir()
    (dest / "precious").write_text("mine")
    with pytest.raises(ValueError, match=r"made exists and is not empty"):
        build_benchmark(source, dest, genus_fraction=1.0)
    assert [p.name for p in dest.iterdir()] == ["precious"]
    with pytest.raises(FileNotFoundError, match=r"nowhere is missing. Expected <source>/<class>"):
        plan_benchmark(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"genus_fraction must be <= 1, got 2"):
        plan_benchmark(source, genus_fraction=2)
    with pytest.raises(ValueError, match="min_images must be >= 3"):
        plan_benchmark(source, min_images=2)
    with pytest.raises(ValueError, match="has min_images = 1000 images"):
        plan_benchmark(source, min_images=1000)
    plan = plan_benchmark(source, genus_fraction=1.0)
    Path(plan.rows[-1][0]).unlink()
    with pytest.raises(FileNotFoundError, match="is listed but missing"):
        apply_plan(plan, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert not list(tmp_path.glob(".*"))


def slow_pairs(hashes: list[int], limit: int) -> list[list[int]]:
    return [[i, j] for (i, a), (j, b) in combinations(enumerate(hashes), 2) if (a ^ b).bit_count() <= limit]


@pytest.mark.parametrize("limit", range(8))
def test_near_pairs_are_all_pairs_within_the_distance(limit):
    rng = np.random.default_rng(limit)
    base = [int(rng.integers(2**63)) for _ in range(20)]
    hashes = set(base)
    for number in base:
        for flips in range(1, 10):
            for _ in range(3):
                bits = rng.choice(64, flips, replace=False)
                hashes.add(number ^ sum(1 << int(bit) for bit in bits))
    hashes = sorted(hashes)
    found = near_pairs(np.array(hashes, dtype=np.uint64), max_distance=limit)
    assert found.tolist() == slow_pairs(hashes, limit)
    assert len(found) > 0 or limit == 0


def test_difference_hash_by_hand(tmp_path):
    rows = np.zeros((8, 9), np.uint8)
    rows[0] = [0, 9, 8, 9, 9, 200, 1, 2, 3]  # brighter to the right? 1 0 1 0 1 0 1 1
    path = tmp_path / "x.png"
    Image.fromarray(rows).save(path)
    assert difference_hash(path) == 0b10101011 << 56
    Image.new("L", (50, 50), 77).save(path)
    assert difference_hash(path) is None


@pytest.fixture
def flawed(tmp_path) -> Path:
    """Eight good images and one of each flaw."""
    root = tmp_path / "set"
    trees.class_folders(root / "train", {"a": 4, "b": 2}, suffix=".png")
    trees.class_folders(root / "val", {"a": 1, "b": 1}, suffix=".png", seed=50)
    (root / "train" / "a" / "empty.jpg").touch()
    trees.truncate(trees.image(root / "train" / "b" / "cut.jpg", seed=60, size=(300, 300)))
    twin = (root / "train" / "a" / "image 0.png").read_bytes()
    (root / "train" / "b" / "twin.png").write_bytes(twin)  # in two classes
    with Image.open(root / "train" / "b" / "image 1.png") as image:
        changed = ImageEnhance.Brightness(image.resize((60, 50))).enhance(1.1)
        changed.save(root / "val" / "b" / "similar.jpg", quality=80)  # in two splits
    Image.new("RGB", (20, 20), (9, 9, 9)).save(root / "train" / "a" / "flat1.png")
    Image.new("RGB", (21, 20), (9, 9, 9)).save(root / "train" / "a" / "flat2.png")
    return root


@pytest.mark.parametrize("workers", [0, 2])
def test_check_finds_each_flaw_once(flawed, workers):
    before = {p: p.read_bytes() for p in flawed.rglob("*") if p.is_file()}
    seen = []
    report = check_images(flawed, workers=workers, progress=lambda done, total: seen.append((done, total)))
    names = [[str(Path(p).relative_to(flawed)) for p in group] for group in report.duplicates]
    assert names == [["train/a/image 0.png", "train/b/twin.png"]]
    near = [[str(Path(p).relative_to(flawed)) for p in group] for group in report.near_duplicates]
    assert near == [["train/b/image 1.png", "val/b/similar.jpg"]]
    assert report.across_parts == report.near_duplicates
    assert report.across_classes == report.duplicates
    assert report.empty == [str(flawed / "train/a/empty.jpg")]
    assert list(report.unreadable) == [str(flawed / "train/b/cut.jpg")]
    assert report.num_images == len(before) == len(seen)
    assert seen[-1] == (len(before), len(before))
    assert not report.clean()
    assert {p: p.read_bytes() for p in flawed.rglob("*") if p.is_file()} == before


def test_check_without_near_and_of_a_list(flawed, tmp_path):
    report = check_images(flawed, near=False, workers=0)
    assert report.near_duplicates == report.across_parts == []
    assert len(report.unreadable) == 1
    lines = ["path,label,split", "set/train/a/image 0.png,1,train", "set/train/b/twin.png,1,test"]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    report = check_images(tmp_path / "list.csv", workers=0)
    assert len(report.across_parts) == 1
    assert report.across_classes == []
    (tmp_path / "list.csv").write_text("\n".join(lines[:2]))
    assert check_images(tmp_path / "list.csv", workers=0).clean()


@pytest.mark.errors
def test_check_errors_have_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is missing"):
        check_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no images"):
        check_images(tmp_path)
    with pytest.raises(ValueError, match="max_distance must be < 8, got 9"):
        check_images(tmp_path, max_distance=9)


@pytest.mark.parametrize("seed", range(5))
def test_gini_is_the_mean_difference(seed):
    counts = torch.randint(0, 50, (30,), generator=torch.Generator().manual_seed(seed))
    x = counts.double().tolist()
    pairs = sum(abs(a - b) for a in x for b in x)
    assert gini(counts) == pytest.approx(pairs / (2 * len(x) * sum(x)), abs=1e-12)
    classes, images = lorenz_curve(counts)
    ordered = sorted(x)
    assert images.tolist() == pytest.approx([sum(ordered[:i]) / sum(x) for i in range(31)])
    assert classes.tolist() == pytest.approx([i / 30 for i in range(31)])


def test_description_by_hand(tmp_path):
    table = ClassTable(
        list("abcdef"), counts=[200, 101, 100, 20, 19, 0], parents={"genus": ["x", "x", "y", "y", "z", "z"]}
    )
    found = describe(table)
    assert found.groups == {"few": 2, "medium": 2, "many": 2}
    assert (found.largest, found.smallest, found.empty_classes) == (200, 19, 1)
    assert found.imbalance == pytest.approx(200 / 19)
    assert found.half_of_images == 2  # 200 < 220 <= 301
    assert found.parents == {"genus": 3}
    assert found.sizes == {"train": 440}
    assert describe(ClassTable(["a", "b"], counts=[5, 5])).half_of_images == 1
    draw_lorenz(table.class_counts, tmp_path / "lorenz.svg")
    assert "<svg" in (tmp_path / "lorenz.svg").read_text(encoding="utf-8")


def test_open_dataset_by_name(tmp_path, monkeypatch):
    def on_disk(root, *, size=1):
        return ("disk", root, size)

    def built_in(*, size=1):
        return ("built in", size)

    monkeypatch.setattr(
        shortlist.datasets,
        "DATASETS",
        {"a": DatasetInfo(on_disk, on_disk=True), "b": DatasetInfo(built_in)},
        raising=False,
    )
    assert open_dataset("a", root=tmp_path, size=3) == ("disk", tmp_path, 3)
    assert open_dataset("b", size=2) == ("built in", 2)
    with pytest.raises(ValueError, match="a is read from disk: root must be its folder, got None"):
        open_dataset("a")
    with pytest.raises(ValueError, match="b is built in and takes no root"):
        open_dataset("b", root=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"c is neither a path nor the name of a data set \(a, b\)"):
        open_dataset("c")


def test_open_dataset_finds_the_kind_of_a_path(tmp_path):
    trees.plantnet(tmp_path / "plants")
    assert open_dataset(str(tmp_path / "plants")).class_table.names[0] == "Lactuca virosa L."
    trees.class_folders(tmp_path / "folder", {"a": 5, "b": 5})
    assert open_dataset(str(tmp_path / "folder")).class_table.names == ("a", "b")
    (tmp_path / "list.txt").write_text("".join(f"folder/a/image {i}.jpg {i % 2}\n" for i in range(5)))
    with pytest.warns(UserWarning, match="1 of 2 classes"):
        assert len(open_dataset(str(tmp_path / "list.txt")).train) == 3
    (tmp_path / "vectors").mkdir()
    save_embeddings(tmp_path / "vectors" / "train.safetensors", torch.randn(30, 2), torch.arange(30) % 3)
    assert open_dataset(str(tmp_path / "vectors")).train.inputs.shape == (24, 2)
    with pytest.raises(FileNotFoundError, match="nowhere is neither a path nor the name of a data set"):
        open_dataset("nowhere")
