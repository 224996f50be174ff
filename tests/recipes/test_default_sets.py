"""A recipe that names no predictors gets good sets, for as many classes as there are."""

import pytest

from shortlist.recipes.content import recipe_content
from shortlist.recipes.default_sets import complete_recipe, without_default_predictors
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_again
from shortlist.training.fit import train
from tests.training.small import RECIPE

BARE = {key: value for key, value in RECIPE.items() if key != "predictors"} | {"epochs": 1}


@pytest.mark.parametrize(("classes", "k"), [(2, 1), (3, 1), (4, 2), (9, 4), (10, 5), (1000, 5)])
def test_lists_fit_the_number_of_classes(classes, k):
    recipe = complete_recipe(make_recipe(BARE), classes)
    options = {key: (section.name, section.options) for key, section in recipe.named_predictors.items()}
    assert options == {
        f"top{k}": ("topk", {"k": k}),
        f"average{k}": ("average_k", {"k": k}),
        "conformal90": ("conformal", {"coverage": 0.9}),
    }
    assert without_default_predictors(recipe).predictors is None


def test_predictors_that_are_named_stay_and_none_may_be_named():
    for named in ({}, {"top2": {"name": "topk", "k": 2}}):
        recipe = make_recipe(BARE | {"predictors": named})
        assert complete_recipe(recipe, 12) is recipe
        assert list(without_default_predictors(recipe).named_predictors) == list(named)


def test_nothing_is_calibrated_on_test_rows():
    data = RECIPE["data"] | {"val_is_test": True}
    recipe = make_recipe(BARE | {"data": data, "selection": {"metric": "last"}})
    assert list(complete_recipe(recipe, 12).named_predictors) == ["top5"]


def test_a_run_writes_the_defaults_into_its_recipe(tmp_path):
    run = train(make_recipe(BARE), tmp_path / "run")
    again = Run.open(run.path)
    assert list(again.recipe.named_predictors) == ["top5", "average5", "conformal90"]
    assert set(again.results.sets) == {"top5", "average5", "conformal90"}
    bare = recipe_content(make_recipe(BARE))
    assert recipe_content(without_default_predictors(again.recipe)) == bare
    only = make_recipe(again.recipe.model_dump(), ["predictors={only: {name: topk, k: 3}}"])
    assert list(calibrate_again(again, only).predictors) == ["only"]
    assert set(calibrate_again(again, make_recipe(BARE)).predictors) == {"top5", "average5", "conformal90"}
