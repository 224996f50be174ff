"""Data that grow: an added image moves no other, observations stay together, test images stay frozen."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
from PIL import Image

from shortlist.class_table import ClassTable
from shortlist.curation.build import apply_plan, plan_benchmark
from shortlist.datasets.about import about_of_data

CLASSES = ("Quercus robur", "Quercus petraea", "Acer campestre")


def write(path: Path, rows: list[dict]) -> Path:
    names = sorted({name for row in rows for name in row})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def make_rows(folder: Path, numbers, photos: int = 2) -> list[dict]:
    """Observations with photos, each image another; of a class by the number of the observation."""
    folder.mkdir(exist_ok=True)
    rows = []
    for number in numbers:
        for photo in range(photos):
            path = folder / f"{number}-{photo}.png"
            if not path.exists():
                Image.new("RGB", (4, 4), (number % 256, number // 256, photo)).save(path)
            row = {"path": str(path), "label": CLASSES[number % 3], "observation": f"o{number}"}
            rows.append(
                row | {"organ": "leaf", "author": f"a{number}", "license": "CC0", "date": "2026-05-01"}
            )
    return rows


def parts_of(plan) -> dict[str, str]:
    return {path: part for path, _, part in plan.rows}


def plan_of(tmp_path, rows, **options):
    options = {"genus_fraction": 1.0, "held_out": 0.2, "split": "hash"} | options
    return plan_benchmark(write(tmp_path / "list.csv", rows), **options)


def test_an_added_image_moves_no_other_and_observations_stay_together(tmp_path):
    rows = make_rows(tmp_path / "images", range(60))
    before = parts_of(plan_of(tmp_path, rows))
    more = make_rows(tmp_path / "images", range(60, 200))
    after = parts_of(plan_of(tmp_path, more[:140] + rows + more[140:]))
    assert len(after) == 400 and {path: after[path] for path in before} == before
    together = {}
    for path, part in after.items():
        together.setdefault(Path(path).stem.split("-")[0], set()).add(part)
    assert all(len(found) == 1 for found in together.values())
    shares = [sum(part == name for part in after.values()) / 400 for name in ("train", "val", "test")]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.09)  # three standard deviations of 200 draws
    other = parts_of(plan_of(tmp_path, rows, seed=1))
    assert other != before


@pytest.mark.errors
def test_exact_shares_are_refused_for_observations_with_several_photos(tmp_path):
    rows = make_rows(tmp_path / "images", range(30))
    with pytest.raises(ValueError, match="split must be 'hash'"):
        plan_of(tmp_path, rows, split="share")
    with pytest.raises(ValueError, match="keep_split goes with"):
        plan_of(tmp_path, rows, split="share", keep_split=tmp_path)


def hashes(folder: Path) -> dict[str, set[str]]:
    return {
        part: {hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / part).rglob("*.png")}
        for part in ("train", "val", "test")
    }


def test_frozen_test_images_never_enter_training_over_ten_rounds(tmp_path):
    first = tmp_path / "round-0"
    rows = make_rows(tmp_path / "images", range(40))
    apply_plan(plan_of(tmp_path, rows), first)
    frozen = hashes(first)["test"]
    assert len(frozen) > 8
    known = hashes(first)
    for number in range(1, 11):
        rows = rows + make_rows(tmp_path / "images", range(40 * number, 40 * number + 40))
        # the same bytes under another name and observation; another photo of a test observation
        copied = next((first / "test").rglob("*.png"))
        copy = tmp_path / "images" / f"copy-{number}.png"
        copy.write_bytes(copied.read_bytes())
        own = json.loads((first / "metadata.json").read_text())["images"][str(copied.relative_to(first))]
        photo = make_rows(tmp_path / "more", [1000 + number], photos=1)[0]
        odd = [
            {"path": str(copy), "label": own["class"], "observation": f"copy{number}"},
            photo | {"observation": own["observation"], "label": own["class"]},
        ]
        plan = plan_of(
            tmp_path, rows + odd, keep_split=first if number % 2 else tmp_path / f"round-{number - 1}"
        )
        assert plan.left_out["copies of held-out images"] == 1
        assert plan.left_out["photos of frozen test observations"] >= 1
        folder = tmp_path / f"round-{number}"
        apply_plan(plan, folder)
        found = hashes(folder)
        assert found["test"] == frozen and not frozen & (found["train"] | found["val"])
        assert known["train"] <= found["train"] and known["val"] <= found["val"]  # nothing moved
        known = found


def test_a_copy_of_feedback_is_told_by_the_name_that_says_what_was_sent(tmp_path):
    """A store keeps copies without metadata: other bytes, under the SHA-256 of what the person sent."""
    first = tmp_path / "first"
    apply_plan(plan_of(tmp_path, make_rows(tmp_path / "images", range(40))), first)
    sent = next((first / "test").rglob("*.png"))
    copy = tmp_path / hashlib.sha256(sent.read_bytes()).hexdigest()
    copy.write_bytes(sent.read_bytes() + b"other bytes")
    rows = [*make_rows(tmp_path / "images", range(40)), {"path": str(copy), "label": CLASSES[0]}]
    plan = plan_of(tmp_path, rows, keep_split=first)
    assert plan.left_out["copies of held-out images"] == 1 and str(copy) not in parts_of(plan)


def read_images(folder: Path) -> dict[str, dict]:
    return json.loads((folder / "metadata.json").read_text())["images"]


def test_a_benchmark_grows_from_all_of_the_earlier_one(tmp_path):
    """The source has new photos alone, and names classes by their ids, as votes do."""
    rows = make_rows(tmp_path / "images", range(40))
    for row in rows:
        row["label"] = row["label"].replace("Acer campestre", "Acer a/b")  # whose id is another
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    apply_plan(plan_of(tmp_path, rows), first)
    new = make_rows(tmp_path / "images", range(40, 60))
    for row in new:
        row["label"] = row["label"].replace("Acer campestre", "Acer a_b")
    new += [row | {"label": "Tilia"} for row in make_rows(tmp_path / "images", [1000], photos=1)]
    plan = plan_of(tmp_path, new, keep_split=first, min_images=60, genus_fraction=0.01)
    apply_plan(plan, second)
    before, after = hashes(first), hashes(second)
    assert (
        after["test"] == before["test"] and before["train"] < after["train"] and before["val"] < after["val"]
    )
    assert plan.taken_over == {"images taken over": 80, "new images": 40, "corrected labels": 0}
    assert len(plan.class_table) == 3 and plan.left_out["images"] == 1
    old, grown = ClassTable.load(first / "class_table.json"), ClassTable.load(second / "class_table.json")
    assert (old.names, old.ids, old.parents) == (grown.names, grown.ids, grown.parents)
    assert "Acer a/b" in grown.names and "Acer a_b" in grown.ids
    sources = {entry["source"]: entry for entry in read_images(second).values()}
    for entry in read_images(first).values():
        assert sources[entry["source"]] == entry
    # the same photos once more: nothing is there twice, and a corrected label replaces the old one
    changed = next(row for row in new if sources[row["path"]]["split"] == "train")
    again = [row | ({"label": "Quercus robur"} if row is changed else {}) for row in new[:-1]]
    plan = plan_of(tmp_path, again, keep_split=second)
    assert plan.taken_over["new images"] == 0 and len(plan.rows) == 120
    assert plan.taken_over["corrected labels"] == (changed["label"] != "Quercus robur")
    apply_plan(plan, third)
    assert hashes(third) == after
    labels = {entry["source"]: entry["class"] for entry in read_images(third).values()}
    assert labels[changed["path"]] == "Quercus robur"


@pytest.mark.errors
def test_images_of_the_earlier_benchmark_that_are_missing_are_not_forgotten_in_silence(tmp_path):
    first = tmp_path / "first"
    apply_plan(plan_of(tmp_path, make_rows(tmp_path / "images", range(40))), first)
    gone = sorted((first / "train").rglob("*.png"))[:3]
    for path in gone:
        path.unlink()
    with pytest.raises(
        ValueError, match=f"3 of 80 images of the earlier benchmark are missing, such as {first}"
    ):
        plan_of(tmp_path, make_rows(tmp_path / "images", range(40, 50)), keep_split=first)


@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_photos_that_were_deleted_from_a_store_are_in_no_later_benchmark(tmp_path, link):
    store = tmp_path / "feedback"
    rows = make_rows(tmp_path / "images", range(40))
    copies = store / "images" / "ab"
    copies.mkdir(parents=True)
    (store / "feedback.json").touch()
    for row in rows[:30]:
        row["path"] = str(Path(row["path"]).rename(copies / Path(row["path"]).name))
    first = tmp_path / "first"
    apply_plan(plan_of(tmp_path, rows), first, link=link)
    parts = {entry["source"]: entry["split"] for entry in read_images(first).values()}
    deleted = [
        next(row["path"] for row in rows[:30] if parts[row["path"]] == part) for part in ("train", "test")
    ]
    for path in deleted:
        Path(path).unlink()
    plan = plan_of(tmp_path, rows[30:], keep_split=first)
    assert plan.left_out["photos that were deleted from the store of feedback"] == 2
    apply_plan(plan, tmp_path / "second", link=link)
    kept = {entry["source"] for entry in read_images(tmp_path / "second").values()}
    assert kept == {row["path"] for row in rows} - set(deleted)


def test_a_changed_frozen_image_is_refused(tmp_path):
    first = tmp_path / "first"
    apply_plan(plan_of(tmp_path, make_rows(tmp_path / "images", range(40))), first)
    image = next((first / "test").rglob("*.png"))
    image.unlink()
    with pytest.raises(ValueError, match="is a frozen test image: it must be as it was"):
        plan_of(tmp_path, make_rows(tmp_path / "images", range(50)), keep_split=first)
    with pytest.raises(ValueError, match=r"must be metadata.json of a benchmark"):
        (tmp_path / "other.json").write_text("{}")
        plan_of(tmp_path, make_rows(tmp_path / "images", range(50)), keep_split=tmp_path / "other.json")


def test_tables_of_votes_are_read_and_invalid_items_left_out(tmp_path):
    rows = make_rows(tmp_path / "images", range(60))
    photos = [
        {"item": row["observation"], **{k: row[k] for k in ("path", "organ", "author")}} for row in rows
    ]
    labels = [
        {"item": f"o{number}", "label": CLASSES[number % 3], "weight": 3, "valid": "true"}
        for number in range(60)
    ]
    labels[5]["valid"] = labels[6]["valid"] = "false"
    labels[7]["label"] = "!bad_image"
    labels.append({"item": "lost", "label": CLASSES[0], "weight": 3, "valid": "true"})
    write(tmp_path / "photos.csv", photos)
    plan = plan_benchmark(
        write(tmp_path / "labels.csv", labels),
        images=tmp_path / "photos.csv",
        genus_fraction=1.0,
        split="hash",
        held_out=0.2,
    )
    assert len(plan.rows) == 2 * 57
    assert plan.left_out["items without a valid label"] == 2
    assert plan.left_out["items that people rejected"] == 1
    assert plan.left_out["items without a photo"] == 1
    assert not {Path(path).stem.split("-")[0] for path, _, _ in plan.rows} & {"5", "6", "7"}
    # rows with gaps, and photos that were deleted since, stop nothing
    Path(photos[0]["path"]).unlink()
    write(
        tmp_path / "photos.csv",
        [*photos, {"path": photos[2]["path"], "item": " "}, {"path": "", "item": "o9"}],
    )
    bad = [{"item": " ", "label": CLASSES[0], "valid": "true"}, {"item": "o99", "label": "", "valid": "true"}]
    options = {"images": tmp_path / "photos.csv", "split": "hash", "held_out": 0.2}
    plan = plan_benchmark(write(tmp_path / "labels.csv", labels + bad), **options)
    assert len(plan.rows) == 2 * 57 - 1 and plan.left_out["rows without item or label"] == 2
    assert plan.left_out["photos without path or item"] == 2 and plan.left_out["photos that are gone"] == 1
    # without photos an item is a path
    own = [{"item": row["path"], "label": row["label"], "valid": "1"} for row in rows[1::2]]
    assert len(plan_of(tmp_path, own).rows) == 60
    with pytest.raises(ValueError, match="column 'valid' must hold true or false"):
        plan_of(tmp_path, [own[0] | {"valid": "perhaps"}])


def test_what_is_known_travels_into_the_benchmark_and_the_index(tmp_path):
    rows = make_rows(tmp_path / "images", range(40))
    apply_plan(plan_of(tmp_path, rows), tmp_path / "made")
    about = about_of_data("image_folder", {"root": str(tmp_path / "made")})
    image = next((tmp_path / "made" / "train").rglob("*.png"))
    number = image.stem.split("-")[0]
    assert about(str(image)) == {
        "author": f"a{number}",
        "license": "CC0",
        "date": "2026-05-01",
        "organ": "leaf",
        "observation": f"o{number}",
    }


def test_copies_without_a_suffix_get_one_by_their_content(tmp_path):
    rows = make_rows(tmp_path / "images", range(40), photos=1)
    for row in rows:
        bare = Path(row["path"]).with_suffix("")
        Path(row["path"]).rename(bare)
        row["path"] = str(bare)
    apply_plan(plan_of(tmp_path, rows), tmp_path / "made")
    assert len(list((tmp_path / "made").rglob("*.png"))) == 40
