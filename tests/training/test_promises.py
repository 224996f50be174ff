"""Promises from a recipe to the finished model, and the rows that only calibrate."""

import json
import shutil

import pytest
import torch

from shortlist import Model
from shortlist.predictors import Conformal, Measured, Promise, TopK
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import RecipeError, make_recipe
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_again, evaluate_run
from shortlist.sentences import promise_in_short, promise_words
from shortlist.training.fit import train
from tests.commands import output_of
from tests.training.small import RECIPE, silent

SMALL = RECIPE | {"epochs": 2}


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Run:
    return train(make_recipe(SMALL), tmp_path_factory.mktemp("runs") / "shared", progress=silent)


@pytest.fixture(scope="module")
def separate(tmp_path_factory) -> Run:
    recipe = make_recipe(SMALL, ["calibration={rows: separate, fraction: 0.4}", "seed=3"])
    return train(recipe, tmp_path_factory.mktemp("runs") / "separate", progress=silent)


def words_of(*words: object) -> str:
    return " ".join(output_of(*words).split())


def test_the_model_keeps_what_is_promised_and_what_came_of_it(shared):
    promises, results = Model.load(shared.path).promises, shared.results
    assert promises == {name: sets.promise for name, sets in results.sets.items()}
    conformal = promises["conformal"]
    assert (conformal.about, conformal.level, conformal.rows) == ("rows", 0.8, 200)
    assert conformal.measured.rows == 300
    assert conformal.measured.coverage == results.sets["conformal"].coverage.micro.value
    assert conformal.rows_also == "chose the epoch and fitted the score map"
    words = promise_words(conformal)
    assert "80 of 100" in words and "Measured on 300 photos" in words
    assert "These photos also chose the epoch and fitted the score map, so the promise is not exact." in words
    assert promises["average2"].size == 2 and promises["top2"].measured.rows == 300


def test_verbs_say_the_promise(shared, tmp_path):
    promise = Model.load(shared.path).promises["conformal"]
    words = promise_words(promise)
    assert f"conformal: {words}" in words_of("evaluate", shared.path)
    before = (shared.path / "model" / "model.json").read_bytes()
    on_validation = words_of("evaluate", shared.path, "--split", "val")
    assert "80 of 100" in on_validation and "Measured" not in on_validation
    assert (shared.path / "model" / "model.json").read_bytes() == before
    torch.save({"scores": shared.load_scores("test")[0]}, tmp_path / "scores.pt")
    said = words_of(
        "predict",
        shared.path,
        tmp_path / "scores.pt",
        "-o",
        tmp_path / "lists.csv",
        "--predictor",
        "conformal",
    )
    assert said.endswith(f"conformal: {promise_in_short(promise)} (-v says more)")
    assert "conformal: 80 of 100 such lists contain the right class." in words_of("compare", shared.path)
    again = shutil.copytree(shared.path, tmp_path / "again")
    assert "80 of 100 such lists contain the right class." in words_of("calibrate", again)


def test_rows_that_only_calibrate(separate):
    whole = build_data(make_recipe(SMALL, ["seed=3"]))
    data = build_data(separate.recipe)
    chosen, apart = data.val.rows, data.calibration.rows
    assert (len(chosen), len(apart)) == (120, 80)
    assert sorted([*chosen.tolist(), *apart.tolist()]) == list(range(200))
    assert torch.equal(data.calibration.targets, whole.val.targets[apart])
    again = build_data(separate.recipe)
    assert torch.equal(again.calibration.rows, apart)  # the same with the same seed
    assert len(separate.load_scores("val")[0]) == 120

    scores, target = separate.load_scores("calibration")
    assert torch.equal(target, data.calibration.targets)
    mapped = separate.score_map(scores)
    predictors = separate.predictors
    want = Conformal(coverage=0.8).calibrate(mapped, target).threshold
    assert torch.equal(predictors["conformal"].threshold, want)
    assert "fitted on 120 validation rows" in separate.score_map.words()
    promise = Model.load(separate.path).promises["conformal"]
    assert (promise.rows, promise.rows_also) == (80, "") and "not exact" not in promise_words(promise)


def test_a_calibration_anew_forgets_what_was_measured_before(separate, tmp_path):
    run = Run.open(shutil.copytree(separate.path, tmp_path / "again"))
    changed = make_recipe(run.recipe.model_dump(), ["predictors.conformal.coverage=0.6"])
    run = calibrate_again(run, changed)
    found = Model.load(run.path).promises["conformal"]
    assert (found.level, found.rows) == (0.6, 80)
    assert found == run.results.sets["conformal"].promise
    assert evaluate_run(run).sets["conformal"].promise == found


def test_what_else_the_rows_did_is_read_from_the_recipe(tmp_path):
    from shortlist.recipes.score_rules import also_used_for

    plain = {"loss": {"name": "cross_entropy"}, "epochs": 5}

    def said(*changes):
        return also_used_for(make_recipe(plain, list(changes)), "set")

    assert said() == "chose the epoch"
    assert said("selection.metric=last") == said("selection.metric=loss") == said("epochs=1") == ""
    assert said("adjust.temperature=fit") == "chose the epoch and fitted the score map"
    assert said("selection.metric=last", "adjust.tau=fit") == "fitted the score map"
    assert said("adjust.tau=cross_fit") == "chose the epoch"  # the map is fitted on training rows
    assert said("adjust.temperature=fit", "calibration.rows=separate") == ""


@pytest.mark.errors
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["calibration.rows=apart"], "calibration.rows: Input should be 'shared' or 'separate'"),
        (["calibration.fraction=1.0"], "calibration.fraction: Input should be less than 1"),
        (["calibration.fraction=0.3"], "fraction goes with rows: separate, got rows: shared"),
        (
            ["data.val_is_test=true", "selection.metric=last", "calibration.rows=separate", "predictors={}"],
            "calibration.rows must not be separate: the validation rows are the test rows",
        ),
    ],
)
def test_calibration_rows_that_cannot_be(changes, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe({}, changes)


@pytest.mark.errors
def test_too_few_rows_to_part():
    few = RECIPE["data"] | {"num_val_rows": 2}
    with pytest.raises(ValueError, match="fraction must leave rows on both sides of 2 validation rows"):
        build_data(make_recipe(RECIPE | {"data": few}, ["calibration={rows: separate, fraction: 0.9}"]))


def test_a_model_from_parts_takes_promises_or_asks_the_predictors(shared, tmp_path):
    model = Model.load(shared.path)
    parts = {"score_map": model.score_map, "spec": model.spec}
    made = Model.from_parts(model.network, model.classes, predictors={"top": TopK(3)}, **parts)
    assert made.promises == {"top": Promise("nothing", size=3)}
    told = Promise("nothing", size=3).with_measured(Measured(10, 0.9, 0.5, 1.0, 3.0))
    made = Model.from_parts(
        model.network, model.classes, predictors={"top": TopK(3)}, promises={"top": told}, **parts
    )
    made.save(tmp_path / "made")
    assert Model.load(tmp_path / "made").promises == {"top": told}
    assert (
        json.loads((tmp_path / "made" / "model.json").read_text())["promises"]["top"]["measured"]["rows"]
        == 10
    )
    with pytest.raises(ValueError, match=r"promises must be of the predictors \(none\), got 'top'"):
        Model.from_parts(model.network, model.classes, promises={"top": told}, **parts)
