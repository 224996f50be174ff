"""A run is a value: what is changed in its folder later does not change it."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.model import ModelError
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run, RunError
from shortlist.runs.scoring import calibrate_again
from tests.run_factory import finished_run

TABLE = ClassTable(("a", "b", "c"), counts=(30, 20, 10))
RECIPE = {"name": "some", "predictors": {"top2": {"name": "topk", "k": 2}}, "adjust": {"temperature": 1.0}}


@pytest.fixture
def folder(tmp_path):
    generator = torch.Generator().manual_seed(0)
    parts = {
        part: (torch.randn(60, 3, generator=generator), torch.arange(60) % 3) for part in ("val", "test")
    }
    return finished_run(tmp_path / "run", make_recipe(RECIPE), parts, TABLE).path


def test_an_opened_run_cannot_be_changed(folder):
    run = Run.open(folder)
    with pytest.raises(FrozenInstanceError):
        run.info = {}
    assert run.results is run.results and run.recipe is run.recipe and run.predictors is run.predictors


def test_a_model_without_calibration_rows_is_refused_and_a_calibration_adds_them(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 3, generator=generator), torch.arange(60) % 3
    with monkeypatch.context() as old:
        old.setattr("shortlist.model.files.FORMAT", "shortlist model 5")
        run = finished_run(tmp_path / "run", make_recipe(RECIPE), {"val": rows, "test": rows}, TABLE)
    with pytest.raises(ModelError, match=r"'shortlist model 5'.* shortlist calibrate"):
        _ = Run.open(run.path).predictors
    after = calibrate_again(Run.open(run.path), make_recipe(RECIPE))
    assert set(after.predictors) == set(make_recipe(RECIPE).predictors)


def test_a_calibration_anew_does_not_change_a_run_that_was_opened_before(folder):
    read, unread = Run.open(folder), Run.open(folder)
    before, scale = read.results.to_json(), float(read.score_map.scale)
    changed = make_recipe(RECIPE, ["predictors={only: {name: topk, k: 1}}", "adjust.temperature=0.5"])
    after = calibrate_again(read, changed)
    assert (set(after.predictors), float(after.score_map.scale)) == ({"only"}, 2.0)
    assert (read.results.to_json(), float(read.score_map.scale), read.state) == (before, scale, "finished")
    for part in ("recipe", "results", "saved"):
        with pytest.raises(RunError, match="is damaged or was changed"):
            getattr(unread, part)
    assert set(Run.open(folder).results.sets) == {"only"}
