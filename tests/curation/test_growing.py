"""Data that grow: an added image moves no other, observations stay together, test images stay frozen."""

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shortlist.class_table import ClassTable
from shortlist.curation.build import apply_plan, plan_benchmark
from shortlist.curation.grow import plan_growth
from shortlist.datasets.about import about_of_data
from shortlist.datasets.folders import image_folder
from shortlist.inputs import read_rows
from tests.commands import output_of

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


def growth_of(tmp_path, rows, old, *, theta=0.5, min_voters=1, **options):
    """The plan of a benchmark that grows by one vote for each observation, which is enough here."""
    votes = {
        row["observation"]: {"item": row["observation"], "user": "ann", "label": row["label"]} for row in rows
    }
    photos = [{name: value for name, value in row.items() if name not in ("label", "observation")}
              | {"item": row["observation"]} for row in rows]  # fmt: skip
    write(tmp_path / "votes.csv", list(votes.values()))
    write(tmp_path / "photos.csv", photos)
    files = {"votes": tmp_path / "votes.csv", "images": tmp_path / "photos.csv"}
    return plan_growth(old, **files, theta=theta, min_voters=min_voters, **options)


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
        plan = growth_of(tmp_path, rows + odd, first if number % 2 else tmp_path / f"round-{number - 1}")
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
    row = {"path": str(copy), "label": CLASSES[0], "observation": "other"}
    plan = growth_of(tmp_path, [*make_rows(tmp_path / "images", range(40)), row], first)
    assert plan.left_out["copies of held-out images"] == 1 and str(copy) not in parts_of(plan)


def read_images(folder: Path) -> dict[str, dict]:
    return json.loads((folder / "metadata.json").read_text())["images"]


def test_a_benchmark_grows_from_all_of_the_earlier_one(tmp_path):
    """Votes have new photos alone, and name classes by their ids."""
    rows = make_rows(tmp_path / "images", range(40))
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    ids = dict(zip(CLASSES, ("1355868", "urn:a/b", ".hidden"), strict=True))
    table = ClassTable(
        CLASSES, list(ids.values()), parents={"genus": ["Quercus"] * 2 + ["Acer"], "family": ["F", "F", "S"]}
    )
    table.save(tmp_path / "class_table.json")  # beside the list
    apply_plan(plan_of(tmp_path, rows), first)
    new = make_rows(tmp_path / "images", range(40, 60))
    for row in new:
        row["label"] = ids[row["label"]]
    new += [row | {"label": "Tilia"} for row in make_rows(tmp_path / "images", [1000], photos=1)]
    plan = growth_of(tmp_path, new, first)
    apply_plan(plan, second)
    before, after = hashes(first), hashes(second)
    assert (
        after["test"] == before["test"] and before["train"] < after["train"] and before["val"] < after["val"]
    )
    counts = {"images taken over": 80, "new images": 40, "corrected labels": 0, "new classes": 0}
    assert plan.taken_over == counts and plan.waiting == {"Tilia": 1}
    old, grown = ClassTable.load(first / "class_table.json"), ClassTable.load(second / "class_table.json")
    assert (table.names, table.ids, table.parents) == (old.names, old.ids, old.parents)
    assert (old.names, old.ids, old.parents) == (grown.names, grown.ids, grown.parents)
    assert {path.name for path in (second / "train").iterdir()} == {"1355868", "urn:a_b", "hidden"}
    assert image_folder(second).class_table == grown
    sources = {entry["source"]: entry for entry in read_images(second).values()}
    for entry in read_images(first).values():
        assert sources[entry["source"]] == entry
    # the same photos once more: nothing is there twice, and a corrected label replaces the old one
    changed = next(row for row in new if sources[row["path"]]["split"] == "train")
    other = next(id for id in ids.values() if id != changed["label"])
    again = [
        row | ({"label": other} if row["observation"] == changed["observation"] else {}) for row in new[:-1]
    ]
    plan = growth_of(tmp_path, again, second)
    assert plan.taken_over["new images"] == 0 and len(plan.rows) == 120
    assert plan.taken_over["corrected labels"] == 2
    apply_plan(plan, third)
    assert hashes(third) == after
    labels = {entry["source"]: entry["class"] for entry in read_images(third).values()}
    assert labels[changed["path"]] == other
    # a photo that people reject is left out, unless it is a test image
    frozen = next(row for row in rows if sources[row["path"]]["split"] == "test")
    bad = [
        row | {"label": "!bad_image"}
        for row in [*rows, *new]
        if row["observation"] in (frozen["observation"], changed["observation"])
    ]
    plan = growth_of(tmp_path, bad, third)
    assert plan.left_out == {"photos that people rejected": 2, "photos of frozen test observations": 2}
    assert len(plan.rows) == 118 and changed["path"] not in {path for path, _, _ in plan.rows}


def test_a_proposal_becomes_a_class_when_enough_observations_have_it(tmp_path):
    rows = make_rows(tmp_path / "images", range(40))
    apply_plan(plan_of(tmp_path, rows), tmp_path / "first")
    spellings = (
        "!new:Quercus  ilex",
        "!new:quercus ilex",
        "Quercus ilex",
    )  # squeezed; by most votes; a plain label
    oaks = [
        row | {"label": spellings[place // 2 % 3]}
        for place, row in enumerate(make_rows(tmp_path / "images", range(40, 46)))
    ]
    known = [row | {"label": "!new:acer CAMPESTRE"} for row in make_rows(tmp_path / "images", [50])]
    long = [row | {"label": f"!new:{'é' * 200}"} for row in make_rows(tmp_path / "images", range(51, 57))]
    plan = growth_of(tmp_path, oaks[:8] + known, tmp_path / "first")
    assert plan.waiting == {"Quercus ilex": 4} and len(plan.class_table) == 3
    assert plan.taken_over["new images"] == 2  # of the class that has this name but for its case
    plan = growth_of(tmp_path, oaks + known + long, tmp_path / "first")
    assert plan.waiting == {} and plan.taken_over["new classes"] == 2 and plan.taken_over["new images"] == 26
    apply_plan(plan, tmp_path / "second")
    table = ClassTable.load(tmp_path / "second" / "class_table.json")
    assert table.names == table.ids == (*sorted(CLASSES), "Quercus ilex", "é" * 200)
    assert table.parents == {"genus": ("Acer", "Quercus", "Quercus", "Quercus", "")}
    with pytest.warns(UserWarning, match="2 of 5 classes have no image in the test split"):
        splits = image_folder(tmp_path / "second")
    assert splits.class_table == table and splits.class_table.counts[3] >= 6
    # a photo of the first benchmark that was a new species all along
    moved = [row | {"label": "!new:Quercus ilex"} for row in rows if row["label"] == CLASSES[0]]
    plan = growth_of(tmp_path, moved, tmp_path / "second")
    kept = {entry["source"]: entry["split"] for entry in read_images(tmp_path / "second").values()}
    wrong = [row for row in moved if kept[row["path"]] != "test"]
    assert plan.taken_over["corrected labels"] == len(wrong) > 10 and plan.taken_over["new classes"] == 0
    # the class that lost all its training images stays in the table
    assert plan.class_table.counts[plan.class_table.ids.index(CLASSES[0])] == 0


def test_synonyms_of_a_checklist_are_one_proposal(tmp_path):
    apply_plan(plan_of(tmp_path, make_rows(tmp_path / "images", range(40))), tmp_path / "first")
    taxa = "id,name,author,family,synonyms,common_names_fr,gbif\n"
    taxa += "x/1,Quercus ilex,L.,Fagaceae,Quercus smilax L.|Quercus gramuntia,chêne vert|yeuse,2879098\n"
    taxa += "x/2,Acer campestre,L.,Sapindaceae,Acer hebecarpum,érable,\n"
    (tmp_path / "names.csv").write_text(taxa)
    labels = ("!new:Quercus smilax", "!new:x/1", "!new:Quercus ilex L.", "!new:Quercus gramuntia")
    rows = [
        row | {"label": labels[place % 4]}
        for place, row in enumerate(make_rows(tmp_path / "images", range(40, 46), photos=1))
    ]
    maples = make_rows(tmp_path / "images", [50], photos=1)
    rows += [row | {"label": "!new:Acer hebecarpum"} for row in maples]  # a synonym of a class that is there
    few = growth_of(tmp_path, rows[:3], tmp_path / "first", names=tmp_path / "names.csv")
    assert few.waiting == {"Quercus ilex": 3}
    plan = growth_of(tmp_path, rows, tmp_path / "first", names=tmp_path / "names.csv")
    assert plan.waiting == {} and plan.taken_over["new images"] == 7
    table = plan.class_table
    assert (table.ids[-1], table.names[-1], table.authors[-1]) == ("x/1", "Quercus ilex", "L.")
    assert table.synonyms[-1] == ("Quercus smilax L.", "Quercus gramuntia")
    assert table.common_names == {"fr": ((), (), (), ("chêne vert", "yeuse"))}
    assert table.external == {"gbif": ("", "", "", "2879098")} and table.parents["genus"][-1] == "Quercus"
    assert (
        table.ids[dict((path, index) for path, index, _ in plan.rows)[maples[0]["path"]]] == "Acer campestre"
    )
    apply_plan(plan, tmp_path / "second")
    again = growth_of(
        tmp_path, rows, tmp_path / "second"
    )  # without a checklist: the table knows its synonyms
    assert again.waiting == {"Acer hebecarpum": 1} and again.taken_over["new images"] == 0
    assert again.class_table == table


def test_a_checklist_tells_of_the_classes_of_a_first_benchmark(tmp_path):
    names = ["Quercus robur", "Quercus sessiliflora", "x/3", "Acer campestre L.", "Great tit"]
    rows = [
        row | {"label": names[place % 5]}
        for place, row in enumerate(make_rows(tmp_path / "images", range(50), photos=1))
    ]
    taxa = "id,name,author,family,synonyms,common_names_fr,gbif\n"
    taxa += "x/1,Quercus robur,L.,Fagaceae,Quercus pedunculata Ehrh.,chêne pédonculé|rouvre,2878688\n"
    taxa += "x/2,Quercus petraea,(Matt.) Liebl.,Fagaceae,Quercus sessiliflora Salisb.,chêne sessile,\n"
    taxa += "x/3,Fagus sylvatica,L.,Fagaceae,,hêtre,2882316\nx/4,Acer campestre,L.,Sapindaceae,,,\n"
    (tmp_path / "names.csv").write_text(taxa)
    plan = plan_of(tmp_path, rows, names=tmp_path / "names.csv")
    assert plan.unmatched == ["Great tit"]
    table = plan.class_table
    assert list(table.ids) == sorted(names)
    about = dict(zip(table.ids, range(5), strict=True))

    def said(id: str) -> tuple:
        place = about[id]
        family, french = table.parents["family"][place], table.common_names["fr"][place]
        facts = (table.names[place], table.authors[place], family, table.synonyms[place], french)
        return (*facts, table.external["gbif"][place])

    french = ("chêne pédonculé", "rouvre")
    oak = ("Quercus robur", "L.", "Fagaceae", ("Quercus pedunculata Ehrh.",), french, "2878688")
    assert said("Quercus robur") == oak
    # a synonym has no author of its own, and its class is found by the accepted name
    accepted = ("Quercus petraea (Matt.) Liebl.",)
    assert said("Quercus sessiliflora") == (
        *("Quercus sessiliflora", "", "Fagaceae", accepted, ("chêne sessile",), ""),
    )
    assert said("x/3") == ("Fagus sylvatica", "L.", "Fagaceae", (), ("hêtre",), "2882316")
    assert said("Acer campestre L.") == ("Acer campestre L.", "L.", "Sapindaceae", (), (), "")
    assert said("Great tit") == ("Great tit", "", "", (), (), "")
    apply_plan(plan, tmp_path / "first")
    assert ClassTable.load(tmp_path / "first" / "class_table.json") == table
    # what a table says counts before the checklist
    mine = ClassTable(sorted(names), authors=["mine", *[""] * 4], synonyms=[["A"], *[[]] * 4])
    mine.save(tmp_path / "class_table.json")
    table = plan_of(tmp_path, rows, names=tmp_path / "names.csv").class_table
    assert (table.authors[0], table.synonyms[0], table.parents["family"][0]) == (
        "mine",
        ("A",),
        "Sapindaceae",
    )
    words = ("data", "build", tmp_path / "list.csv", tmp_path / "new", "--names", tmp_path / "names.csv")
    printed = output_of(*words, "--split", "hash")
    assert "not in the checklist: Great tit" in printed
    assert json.loads(output_of(*words, "--split", "hash", "--json"))["not_in_checklist"] == ["Great tit"]


def test_observations_with_a_flagged_photo_wait(tmp_path):
    def noisy(numbers, side=64):
        rows = make_rows(tmp_path / f"images-{side}", numbers)
        for place, row in enumerate(rows):
            levels = np.random.default_rng([side, numbers[0], place]).integers(
                0, 256, (side, side), dtype=np.uint8
            )
            Image.fromarray(levels).save(row["path"])
        return rows

    apply_plan(plan_of(tmp_path, noisy(range(40)), held_out=0.4), tmp_path / "first")
    new = noisy(range(40, 50)) + noisy(range(50, 53), side=16)
    Image.new("L", (64, 64), 9).save(new[0]["path"])  # nothing sharp in it
    assert growth_of(tmp_path, new, tmp_path / "first").taken_over["new images"] == 26
    plan = growth_of(tmp_path, new, tmp_path / "first", keep_good=0.9)
    taken = {path for path, _, _ in plan.rows}
    assert taken.isdisjoint(row["path"] for row in [*new[:2], *new[-6:]])  # whole observations
    assert 4 <= plan.left_out["observations with a blurred or small photo, which wait"] <= 7


def test_flagged_photos_wait_in_a_first_benchmark_and_are_named_by_the_check(tmp_path):
    rows = make_rows(tmp_path / "images", range(60), photos=1)
    for place, row in enumerate(rows):
        side = 16 if place in (3, 4) else 64
        levels = np.random.default_rng(place).integers(0, 256, (side, side), dtype=np.uint8)
        Image.fromarray(levels).save(row["path"])
    for place in (7, 8):
        Image.new("L", (64, 64), place).save(rows[place]["path"])  # nothing sharp in it
    assert len(plan_of(tmp_path, rows).rows) == 60
    plan = plan_of(tmp_path, rows, keep_good=0.9)  # k = floor(61 * 0.1 / 2) = 3: below the third smallest
    paths = [row["path"] for row in rows]
    assert {path for path, _, _ in plan.rows} == set(paths) - {paths[place] for place in (3, 4, 7, 8)}
    assert plan.left_out["observations with a blurred or small photo, which wait"] == 4
    (tmp_path / "images" / "broken.png").write_bytes(b"no image")  # which is said of it, and no more
    words = ("data", "check", tmp_path / "images", "--no-near", "--workers", 0)
    report = json.loads(output_of(*words, "--keep-good", 0.9, "--json", code=1))
    assert (report["blurred"], report["small"]) == ([*paths[7:9]], [*paths[3:5]])
    assert f"small: {paths[3]}" in output_of(*words, "--keep-good", 0.9, code=1)
    assert "blurred" not in output_of(*words, code=1)


def test_classes_whose_names_differ_in_case_alone_have_two_folders(tmp_path):
    rows = make_rows(tmp_path / "images", range(40))
    for place, row in enumerate(rows):
        row["label"] = ("Oak", "oak", "..", "a/b", "a_b")[place // 2 % 5]
    apply_plan(plan_of(tmp_path, rows, min_images=3), tmp_path / "made")
    folders = {path.name for path in (tmp_path / "made" / "train").iterdir()}
    assert folders == {"Oak", "oak-2", "class", "a_b-2", "a_b"}
    table = image_folder(tmp_path / "made").class_table
    assert table.ids == table.names == ("..", "Oak", "a/b", "a_b", "oak")
    for split, part in zip(("train", "val", "test"), read_splits(tmp_path / "made"), strict=True):
        assert part == {
            entry["source"]: entry["class"]
            for entry in read_images(tmp_path / "made").values()
            if entry["split"] == split
        }
    # votes for "oak" and "Oak" are votes for two classes; "OAK" could be either
    votes = [
        row | {"label": label}
        for row, label in zip(
            make_rows(tmp_path / "images", range(60, 63), photos=1), ("Oak", "oak", "OAK"), strict=True
        )
    ]
    plan = growth_of(tmp_path, votes, tmp_path / "made")
    assert plan.taken_over["new images"] == 2 and plan.left_out["votes for a name of several classes"] == 1
    assert [plan.class_table.ids[index] for _, index, _ in plan.rows[-2:]] == ["Oak", "oak"]


def read_splits(folder: Path) -> list[dict[str, str]]:
    """The label that training reads for each image of a split, by the file that the image is linked from."""
    sources = {str(folder / name): entry["source"] for name, entry in read_images(folder).items()}
    rows = read_rows(folder)
    labeled = [
        (sources[str(rows.address(row))], rows.labels[row], rows.splits[row]) for row in range(len(rows))
    ]
    return [
        {path: label for path, label, part in labeled if part == split} for split in ("train", "val", "test")
    ]


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
        growth_of(tmp_path, make_rows(tmp_path / "images", range(40, 50)), first)


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
    plan = growth_of(tmp_path, rows[30:], first)
    assert plan.left_out["photos that were deleted from the store of feedback"] == 2
    apply_plan(plan, tmp_path / "second", link=link)
    kept = {entry["source"] for entry in read_images(tmp_path / "second").values()}
    assert kept == {row["path"] for row in rows} - set(deleted)


def test_photos_of_a_benchmark_are_told_by_their_paths_wherever_one_stands(tmp_path, monkeypatch):
    apply_plan(plan_of(tmp_path, make_rows(tmp_path / "images", range(40))), tmp_path / "first")
    rejected, corrected = sorted((tmp_path / "first/train").rglob("*.png"))[::40][:2]
    label = next(name for name in CLASSES if name != corrected.parent.name)
    rows = [
        {"path": str(rejected), "observation": "bad", "label": "!bad_image"},
        {"path": str(corrected), "observation": "other", "label": label},
    ]
    whole = growth_of(tmp_path, rows, tmp_path / "first")
    assert len(whole.rows) == 79 and whole.taken_over["corrected labels"] == 1
    monkeypatch.chdir(tmp_path)
    assert sorted(growth_of(tmp_path, rows, "first").rows) == sorted(whole.rows)


def test_a_changed_frozen_image_is_refused(tmp_path):
    first = tmp_path / "first"
    apply_plan(plan_of(tmp_path, make_rows(tmp_path / "images", range(40))), first)
    image = next((first / "test").rglob("*.png"))
    image.unlink()
    with pytest.raises(ValueError, match="is a frozen test image: it must be as it was"):
        growth_of(tmp_path, make_rows(tmp_path / "images", range(50)), first)
    with pytest.raises(ValueError, match=r"must be metadata.json of a benchmark"):
        (tmp_path / "other.json").write_text("{}")
        growth_of(tmp_path, make_rows(tmp_path / "images", range(50)), tmp_path / "other.json")


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


def test_a_photo_with_two_labels_gets_neither(tmp_path):
    """Two observations of the same bytes: no vote tells which is right, and no alphabet either."""
    first, rows = tmp_path / "round-0", make_rows(tmp_path / "images", range(40), photos=1)
    apply_plan(plan_of(tmp_path, rows), first)
    fresh = make_rows(tmp_path / "images", range(50, 54), photos=1)
    known = next(row for row in rows if parts_of(plan_of(tmp_path, rows))[row["path"]] == "train")
    odd = []
    for row, label in ((fresh[0], 1), (fresh[1], None), (known, 1), (rows[1], None)):
        copy = tmp_path / "more" / Path(row["path"]).name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(Path(row["path"]).read_bytes())
        other = CLASSES[(CLASSES.index(row["label"]) + 1) % 3] if label else row["label"]
        odd.append({"path": str(copy), "label": other, "observation": f"again-{copy.stem}"})
    plan = growth_of(tmp_path, fresh + odd[:2], first)
    assert plan.left_out["photos with different labels in two observations"] == 2
    assert sum(plan.left_out.get(f"copies of {part} images", 0) for part in ("training", "held-out")) == 1
    assert {path for path, *_ in plan.rows} & {fresh[0]["path"], odd[0]["path"]} == set()
    assert len(plan.rows) == 40 + 3
    # a photo of the earlier data stays as it was, whatever a copy of it is called
    plan = growth_of(tmp_path, odd[2:], first)
    names = {"copies of training images, with another label, which does not count"}
    assert names <= set(plan.left_out) and plan.taken_over["corrected labels"] == 0
    plan = growth_of(tmp_path, [known | {"label": odd[2]["label"], "observation": "x"}, odd[2], known], first)
    assert plan.left_out["photos with different labels in two observations"] == 3
    assert plan.taken_over["corrected labels"] == 0 and len(plan.rows) == 40


@pytest.mark.parametrize("with_table", [False, True])
def test_a_class_without_photos_is_named_when_it_is_left_out(tmp_path, with_table):
    for label, number in (("Acer campestre", 5), ("Quercus robur", 5), ("Tilia cordata", 0)):
        folder = tmp_path / "photos" / label
        folder.mkdir(parents=True)
        for photo in range(number):
            Image.new("RGB", (4, 4), (photo, number, len(label))).save(folder / f"{photo}.png")
    if with_table:
        names = ["Acer campestre", "Quercus robur", "Tilia cordata", "Ulmus minor"]
        ClassTable(names=names).save(tmp_path / "photos" / "class_table.json")
    missing = ["Tilia cordata", "Ulmus minor"][: 1 + with_table]
    words = ("data", "build", tmp_path / "photos", tmp_path / "data", "--split", "hash")
    said = output_of(*words)
    assert [line.partition(": ")[2] for line in said.splitlines() if line.startswith("without an")] == missing
    content = json.loads(output_of(*words, "--json"))
    assert content["without_images"] == missing and content["classes"] == 2
