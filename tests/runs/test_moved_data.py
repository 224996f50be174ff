"""A run remembers where its data lie, wherever it is used from, and can be told where they lie now."""

import shutil

import pytest
from typer.testing import CliRunner

from shortlist.cli import app
from shortlist.recipes.content import training_hash
from shortlist.recipes.places import moved, with_absolute_places
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import Run, RunError
from shortlist.training.fit import resume, train
from tests.datasets import trees

CONTENT = {
    "data": {"name": "image_folder", "root": "photos", "image_size": 32},
    "model": {"name": "small_cnn", "width": 4},
    "epochs": 1,
    "batch_size": 8,
    "predictors": {"top2": {"name": "topk", "k": 2}},
    "loggers": [],
}


def test_places_are_absolute_and_no_part_of_what_a_training_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = make_recipe(CONTENT)
    stored = with_absolute_places(recipe)
    assert stored.data.options == {"root": str(tmp_path / "photos"), "image_size": 32}
    assert training_hash(stored) == training_hash(recipe)
    listed = make_recipe({"data": {"name": "image_list", "path": "a.csv", "root": "b"}})
    assert with_absolute_places(listed).data.options == {
        "path": str(tmp_path / "a.csv"),
        "root": str(tmp_path / "b"),
    }
    assert with_absolute_places(make_recipe({})) == make_recipe({})


@pytest.mark.errors
def test_data_without_one_place_cannot_be_moved(tmp_path):
    with pytest.raises(ValueError, match="the data set glyphs is not read from one place"):
        moved(make_recipe({}), tmp_path)
    with pytest.raises(ValueError, match=r"--data must be the place of the data, got .*nowhere"):
        moved(make_recipe(CONTENT), tmp_path / "nowhere")


def test_a_run_is_used_from_elsewhere_after_its_data_were_moved(tmp_path, monkeypatch):
    trees.class_folders(tmp_path / "photos", {"ash": 12, "elm": 12, "oak": 12})
    monkeypatch.chdir(tmp_path)
    run = train(make_recipe(CONTENT), "run")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "run", tmp_path / "elsewhere" / "run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = Run.open("run")
    before = run.results.to_json()
    assert run.recipe.data.options["root"] == str(tmp_path / "photos")
    (run.path / "scores" / "test.safetensors").unlink()  # made again from the data
    with pytest.warns(UserWarning, match="made again"):
        assert resume(run.path).results.to_json() == before

    shutil.move(tmp_path / "photos", tmp_path / "moved")
    (run.path / "scores" / "test.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="photos"), pytest.warns(UserWarning, match="made again"):
        resume(run.path)
    with pytest.warns(UserWarning, match="made again"):
        assert resume(run.path, data="../moved").results.to_json() == before
    for words in (["report", "run"], ["index", "run"]):
        result = CliRunner().invoke(app, [*words, "--data", str(tmp_path / "moved")])
        assert result.exception is None and "pictures" not in result.stderr, result.output
    novelty = ["calibrate", "run", "--set", "novelty={strangeness: distance, level: 0.5}"]
    assert "photos" in str(CliRunner().invoke(app, novelty).exception)
    result = CliRunner().invoke(app, [*novelty, "--data", str(tmp_path / "moved")])
    assert result.exception is None and Run.open("run").recipe.data.options["root"] == str(tmp_path / "moved")


@pytest.mark.errors
def test_other_data_are_not_taken_for_the_moved_ones(tmp_path, monkeypatch):
    trees.class_folders(tmp_path / "photos", {"ash": 12, "elm": 12})
    trees.class_folders(tmp_path / "others", {"ash": 12, "elm": 13})
    monkeypatch.chdir(tmp_path)
    content = CONTENT | {"predictors": {"top1": {"name": "topk", "k": 1}}}
    run = train(make_recipe(content), "run")
    RunFolder(run.path).set_state("trained")  # as a run that was stopped before its end
    with pytest.raises(RunError, match="began with other data: their classes or training counts differ"):
        resume("run", data="others")
    assert resume("run").state == "finished"
