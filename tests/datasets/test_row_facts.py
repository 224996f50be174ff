"""Observations and groups of rows: how data sets read them, keep them together and hand them on."""

import csv
import json
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from shortlist._row_facts import ALONE, RowFacts, observation_number
from shortlist.curation.build import apply_plan, plan_benchmark
from shortlist.datasets import embeddings, image_folder, image_list, image_lists, plantnet300k
from shortlist.datasets.glyphs import glyphs
from shortlist.datasets.partition import proportional_split
from shortlist.datasets.splits import ChangedSplit, TensorSplit, facts_of
from tests.datasets import trees

ORGANS = ("leaf", "flower", "")


def write_list(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def listed(root: Path, objects: int, *, splits: tuple[str, ...] = ("",)) -> list[dict[str, str]]:
    """Rows of a list: object i is of class i % 2 and has 1 + i % 3 photos."""
    rows = []
    for i in range(objects):
        for photo in range(1 + i % 3):
            trees.image(root / f"{i}-{photo}.png", seed=10 * i + photo)
            said = {"obs_id": f"o{i}", "organ": ORGANS[(i + photo) % 3], "camera": f"c{photo}"}
            rows.append({"path": f"{i}-{photo}.png", "label": "ab"[i % 2], **said})
            if splits != ("",):
                rows[-1]["split"] = splits[i % len(splits)]
    return rows


def names_of(facts: RowFacts, column: str) -> list[str]:
    codes, names = facts.groups[column]
    return ["" if code == ALONE else names[code] for code in codes.tolist()]


def test_facts_of_texts_are_the_same_in_every_file():
    first = RowFacts.of_columns({"observation": ["a", None, "b", " a"], "organ": ["leaf", "", "bark", None]})
    second = RowFacts.of_columns({"observation": ["b", ""], "organ": ["fruit", "leaf"]})
    assert first is not None and second is not None
    assert first.observation.tolist() == [observation_number(x) for x in ("a", "", "b", "a")]
    assert first.observation[1] == ALONE and first.observation[2] == second.observation[0]
    both = RowFacts.joined([(first, 4), (None, 2), (second, 2)])
    assert len(both) == 8
    assert names_of(both, "organ") == ["leaf", "", "bark", "", "", "", "fruit", "leaf"]
    # rows of no observation are objects themselves
    assert len(set(both.objects.tolist())) == 6 and both.objects[0] == both.objects[3]
    assert RowFacts.of_columns({"observation": ["", None], "organ": ["", ""]}) is None
    assert RowFacts.joined([(None, 3)]) is None


def test_facts_are_saved_and_read(tmp_path):
    facts = RowFacts.of_columns({"observation": ["a", "b", ""], "organ": ["été", "", "bark"]})
    facts.save(tmp_path / "facts.safetensors")
    read = RowFacts.load(tmp_path / "facts.safetensors")
    assert read.plain() == facts.plain()
    assert read.plain()["group.organ"] == ["été", None, "bark"]
    save_file({"targets": torch.zeros(3)}, tmp_path / "none.safetensors")
    assert RowFacts.load(tmp_path / "none.safetensors") is None


@pytest.mark.errors
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"observation": torch.zeros(3)}, "observation must be whole numbers"),
        ({"group.organ": torch.zeros(3, 1, dtype=torch.int64)}, "group.organ must be whole numbers"),
    ],
)
def test_columns_that_are_none_are_refused(tmp_path, tensors, message):
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=rf"x.safetensors cannot be read: {message}"):
        RowFacts.load(tmp_path / "x.safetensors")


def test_a_drawn_split_keeps_the_photos_of_an_object_together():
    generator = torch.Generator().manual_seed(0)
    objects = torch.randint(400, (1000,), generator=generator)
    targets = objects % 3
    split = proportional_split(targets, fraction=0.1, objects=objects, generator=generator)
    assert sorted(torch.cat(split).tolist()) == list(range(1000))
    held = [set(objects[rows].tolist()) for rows in split]
    assert not held[0] & held[1] and not held[0] & held[2] and not held[1] & held[2]
    every = Counter(number % 3 for number in set(objects.tolist()))
    for part in held[1:]:  # a tenth of the objects of each class, rounded up
        assert Counter(number % 3 for number in part) == {c: -(-n // 10) for c, n in every.items()}


def test_objects_of_one_photo_are_drawn_as_rows_are():
    targets, objects = torch.arange(60) % 4, torch.randperm(60) + 7
    draws = [
        proportional_split(targets, objects=numbers, generator=torch.Generator().manual_seed(3))
        for numbers in (None, objects)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*draws, strict=True))


def test_a_list_hands_on_observations_and_groups(tmp_path):
    path = write_list(tmp_path / "list.csv", listed(tmp_path, 40))
    splits = image_list(path, group_columns=("organ", "camera"), val_fraction=0.2)
    seen: dict[int, str] = {}
    for name in ("train", "val", "test"):
        part = getattr(splits, name)
        files = [Path(file).stem.split("-") for file in part.paths]
        assert part.facts.observation.tolist() == [observation_number(f"o{i}") for i, _ in files]
        assert names_of(part.facts, "organ") == [ORGANS[(int(i) + int(k)) % 3] for i, k in files]
        assert names_of(part.facts, "camera") == [f"c{k}" for _, k in files]
        for number in part.facts.observation.tolist():
            assert seen.setdefault(number, name) == name  # never torn apart
    assert {name for name in seen.values()} == {"train", "val", "test"}


def test_a_list_that_tears_observations_apart_is_warned_of(tmp_path):
    rows = listed(tmp_path, 20, splits=("train", "train", "train", "val", "test"))
    whole = write_list(tmp_path / "whole.csv", rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image_list(whole)
    rows[-1] |= {"obs_id": "o0", "split": "val"}  # o0 is for training
    message = r"1 observations have photos in the train and in the val split"
    with pytest.warns(UserWarning, match=message):
        image_list(write_list(tmp_path / "torn.csv", rows))


def test_lists_of_each_split(tmp_path):
    rows = listed(tmp_path, 12)
    parts = {"train": rows[:8], "val": rows[8:14], "test": rows[14:]}
    files = {part: write_list(tmp_path / f"{part}.csv", some) for part, some in parts.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = image_lists(**files)
    for part, some in parts.items():
        numbers = [observation_number(row["obs_id"]) for row in some]
        assert getattr(splits, part).facts.observation.tolist() == numbers


def test_plantnet_says_observation_and_organ(tmp_path):
    trees.plantnet(tmp_path)
    assert facts_of(plantnet300k(tmp_path).train).observation is None  # the small one has no obs_id
    path = tmp_path / "plantnet300K_metadata.json"
    said = json.loads(path.read_text())
    for number, entry in enumerate(said.values()):
        entry |= {"obs_id": str(number // 2), "organ": "leaf" if number % 2 else "bark"}
    path.write_text(json.dumps(said))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = plantnet300k(tmp_path)
    for part in (splits.train, splits.val, splits.test):
        entries = [said[Path(file).stem] for file in part.paths]
        assert part.facts.observation.tolist() == [observation_number(e["obs_id"]) for e in entries]
        assert names_of(part.facts, "organ") == [e["organ"] for e in entries]
    path.unlink()
    assert facts_of(plantnet300k(tmp_path).train) is None


def test_a_built_benchmark_hands_on_what_the_list_said(tmp_path):
    (tmp_path / "photos").mkdir()
    path = write_list(tmp_path / "photos" / "list.csv", listed(tmp_path / "photos", 60))
    plan = plan_benchmark(path, min_images=3, held_out=0.2, split="hash")
    apply_plan(plan, tmp_path / "built")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is torn apart
        splits = image_folder(tmp_path / "built")
    said = json.loads((tmp_path / "built" / "metadata.json").read_text())["images"]
    for part in (splits.train, splits.val, splits.test):
        entries = [said[str(Path(file).relative_to(tmp_path / "built"))] for file in part.paths]
        assert part.facts.observation.tolist() == [observation_number(e["observation"]) for e in entries]
        assert names_of(part.facts, "organ") == [e.get("organ", "") for e in entries]


def test_embeddings_hand_on_arrays(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for part, rows in {"train": 30, "test": 12}.items():
        known = {"observation": torch.arange(rows) // 3 + (100 if part == "test" else 0)}
        known["group.organ"] = torch.arange(rows) % 2
        tensors = {"embeddings": torch.randn(rows, 4, generator=generator), "targets": torch.arange(rows) % 2}
        save_file({**tensors, **known}, tmp_path / f"{part}.safetensors")
    splits = embeddings(tmp_path, val_fraction=0.2)
    for part in (splits.train, splits.val, splits.test):
        numbers = part.rows  # among all rows of the files
        expected = torch.where(numbers < 30, numbers // 3, 100 + (numbers - 30) // 3)
        assert torch.equal(part.facts.observation, expected)
        assert names_of(part.facts, "organ") == [str(number % 2) for number in numbers.tolist()]
    assert not set(splits.train.facts.observation.tolist()) & set(splits.val.facts.observation.tolist())


def test_changed_rows_keep_their_facts():
    facts = RowFacts(torch.tensor([4, 4, 9]), {})
    split = TensorSplit(torch.zeros(3, 2), torch.tensor([0, 1, 0]), facts=facts)
    changed = ChangedSplit(split, torch.tensor([2, 0]), torch.tensor([1, 1]))
    assert facts_of(changed).observation.tolist() == [9, 4]


def test_further_glyphs_leave_the_splits_as_they_are(tmp_path):
    options = {"characters": "abcdefghij", "train_images": 200, "cache": tmp_path}
    single, several = glyphs(**options), glyphs(**options, photos=4)
    again = glyphs(**options, photos=4)  # from the cache
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(single, part).inputs, getattr(several, part).inputs)
        assert facts_of(getattr(single, part)) is None
    assert not single.further and set(several.further) == {"val", "test"}
    for part in ("val", "test"):
        first, further = getattr(several, part), several.further[part]
        assert torch.equal(further.inputs, again.further[part].inputs)
        assert torch.equal(further.facts.observation, again.further[part].facts.observation)
        row = {number: i for i, number in enumerate(first.facts.observation.tolist())}
        of = [row[number] for number in further.facts.observation.tolist()]
        assert torch.equal(further.targets, first.targets[of])
        photos = Counter(Counter(of).values())
        assert len(row) == len(first) and set(photos) == {1, 2, 3}  # besides the first one
        assert not bool((further.inputs == first.inputs[of]).flatten(1).all(1).any())
    # objects of different splits are different ones
    assert not set(several.val.facts.observation.tolist()) & set(several.test.facts.observation.tolist())


@pytest.mark.errors
def test_photos_must_be_a_count(tmp_path):
    with pytest.raises(ValueError, match=r"photos must be .*got 0"):
        glyphs(photos=0, cache=tmp_path)
