"""What data say about rows is kept with the scores of a run, row for row."""

import csv
import warnings
from collections import Counter

import pytest
import torch

from shortlist._row_facts import observation_number
from shortlist.recipes import build_data, make_recipe
from shortlist.runs import Run, RunError
from shortlist.training import train
from tests.datasets import trees

BASE = {
    "name": "facts",
    "data": {"name": "glyphs", "characters": "abcdefghij", "train_images": 200, "photos": 4},
    "model": {"name": "small_cnn"},
    "epochs": 1,
    "batch_size": 32,
    "selection": {"metric": "last"},
    "predictors": {"top2": {"name": "topk", "k": 2}},
    "loggers": [],
}


def quiet(*_):
    pass


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("apart", [False, True])
def test_a_run_keeps_the_observations_of_its_rows_and_of_further_photos(tmp_path, cache, apart):
    changes = [f"data.cache={cache}", *(["calibration.rows=separate"] if apart else [])]
    recipe = make_recipe(BASE, changes)
    data = build_data(recipe)
    run = train(recipe, tmp_path / "run", progress=quiet)
    parts = ("val", "calibration", "test") if apart else ("val", "test")
    seen: list[set[int]] = []
    for part in parts:
        split, further = getattr(data, part), data.further[part]
        scores, target, facts = run.photos(part)
        assert len(scores) == len(target) == len(split) + len(further) == len(facts)
        assert torch.equal(run.facts(part).observation, split.facts.observation)
        assert torch.equal(facts.observation, torch.cat([split.facts.observation, further.facts.observation]))
        assert torch.equal(target, torch.cat([split.targets, further.targets]))
        assert torch.equal(scores[: len(split)], run.load_scores(part)[0])
        # each object has one photo in the split, and one to four in all
        photos = Counter(Counter(facts.observation.tolist()).values())
        assert len(split) == sum(photos.values()) and set(photos) <= {1, 2, 3, 4}
        seen.append(set(facts.observation.tolist()))
    assert sum(map(len, seen)) == len(set.union(*seen))  # no object in two parts


def test_facts_are_sealed_with_the_other_files_of_a_run(tmp_path, cache):
    run = train(make_recipe(BASE, [f"data.cache={cache}"]), tmp_path / "run", progress=quiet)
    assert {"scores/facts_val.safetensors", "scores/facts_test_further.safetensors"} <= set(run.info["files"])
    path = run.path / "scores" / "facts_test.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(RunError, match=r"facts_test.safetensors"):
        Run.open(run.path).facts("test")


def test_rows_that_cannot_be_read_have_no_facts_and_data_without_any_no_file(tmp_path):
    rows = []
    for i in range(40):
        trees.image(tmp_path / f"{i}.png", seed=i)
        split = ("train", "train", "val", "test")[i // 2 % 4]
        rows.append({"path": f"{i}.png", "label": "ab"[i % 2], "split": split, "observation": f"o{i // 4}"})
    bad = next(i for i, row in enumerate(rows) if row["split"] == "test")
    trees.truncate(tmp_path / f"{bad}.png")
    with (tmp_path / "list.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    data = {"name": "image_list", "path": str(tmp_path / "list.csv"), "image_size": 16}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = train(make_recipe(BASE | {"data": data}), tmp_path / "run", progress=quiet)
    expected = [
        observation_number(r["observation"]) for i, r in enumerate(rows) if r["split"] == "test" and i != bad
    ]
    assert run.facts("test").observation.tolist() == expected
    assert len(run.load_scores("test")[1]) == len(expected)
    assert run.facts("train") is None and not run.has_scores("test_further")
