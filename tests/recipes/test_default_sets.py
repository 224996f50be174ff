"""A recipe that names no predictors gets good sets, for as many classes as there are."""

import math

import pytest
import torch

from shortlist.predictors import Conformal, calibrate_highest
from shortlist.recipes.content import recipe_content
from shortlist.recipes.default_sets import complete_recipe, without_default_predictors
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_again
from shortlist.training.fit import train
from tests.training.small import RECIPE

BARE = {key: value for key, value in RECIPE.items() if key != "predictors"} | {"epochs": 1}


def highest_by_sorting(scores, target):
    """Return the highest coverage whose lists have at most three classes on average, by its definition."""
    p = scores.double().softmax(1)
    fit = sorted(1 - float(row[y]) for row, y in zip(p, target.tolist(), strict=True))
    short = [0.9]
    for coverage in (0.95, 0.98, 0.99):
        rank = math.ceil((len(fit) + 1) * coverage - 1e-9)
        if rank <= len(fit) and float((1 - p <= fit[rank - 1] + 1e-6).sum(1).double().mean()) <= 3:
            short.append(coverage)
    return max(short)


@pytest.mark.parametrize(("classes", "k"), [(2, 1), (3, 1), (4, 2), (9, 4), (10, 5), (1000, 5)])
def test_lists_fit_the_number_of_classes(classes, k):
    recipe = complete_recipe(make_recipe(BARE), classes)
    options = {key: (section.name, section.options) for key, section in recipe.named_predictors.items()}
    assert options == {
        f"top{k}": ("topk", {"k": k}),
        f"average{k}": ("average_k", {"k": k}),
        "conformal": ("conformal", {}),
    }
    assert recipe.named_predictors["conformal"].chooses_coverage
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
    assert list(again.recipe.named_predictors) == ["top5", "average5", "conformal"]
    assert set(again.results.sets) == {"top5", "average5", "conformal"}
    found = again.predictors["conformal"]
    scores, target = again.scored("val")
    assert found.coverage == highest_by_sorting(scores, target)
    assert found.promise.rows_also.endswith("chose the coverage")
    bare = recipe_content(make_recipe(BARE))
    assert recipe_content(without_default_predictors(again.recipe)) == bare
    only = make_recipe(again.recipe.model_dump(), ["predictors={only: {name: topk, k: 3}}"])
    assert list(calibrate_again(again, only).predictors) == ["only"]
    assert set(calibrate_again(again, make_recipe(BARE)).predictors) == {"top5", "average5", "conformal"}


@pytest.mark.parametrize(
    ("spread", "rows", "coverage"),
    [(1.0, 400, 0.9), (5.0, 400, 0.95), (6.0, 400, 0.98), (9.0, 400, 0.99), (9.0, 60, 0.98), (9.0, 12, 0.9)],
)
def test_the_default_promise_is_the_highest_with_short_lists(spread, rows, coverage):
    generator = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(rows, 30, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    found = calibrate_highest(Conformal, scores, target)
    assert found.coverage == highest_by_sorting(scores, target) == coverage
    assert torch.equal(found.threshold, Conformal(coverage).calibrate(scores, target).threshold)


def test_of_few_classes_lists_have_at_most_half_on_average():
    scores = torch.rand(200, 4, generator=torch.Generator().manual_seed(0)) / 100
    scores[torch.arange(200), torch.arange(200) % 4] += 3.0
    target = torch.arange(200) % 4
    target[:8] = (target[:8] + 1) % 4  # 96 % are right; more is to be had with all four alone
    assert calibrate_highest(Conformal, scores, target).coverage == 0.95


def test_a_coverage_that_a_largest_size_cannot_promise_is_not_taken():
    generator = torch.Generator().manual_seed(0)
    scores = 9 * torch.randn(400, 30, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    in_two = int((scores.topk(2).indices == target[:, None]).any(1).sum())
    assert math.ceil(401 * 0.95) <= in_two < math.ceil(401 * 0.98)

    def make(coverage: float) -> Conformal:
        return Conformal(coverage, at_most=2)

    chosen = calibrate_highest(make, scores, target)
    assert chosen.coverage == 0.95 and chosen.promise.holds
    assert calibrate_highest(Conformal, scores, target).coverage == 0.99


@pytest.mark.errors
def test_auto_is_a_coverage_of_conformal_alone():
    with pytest.raises(ValueError, match=r"predictors\.sets\.coverage: .*auto"):
        make_recipe(BARE | {"predictors": {"sets": {"name": "average_error", "coverage": "auto"}}})
    with pytest.raises(ValueError, match=r"predictors\.sets\.coverage: .*much"):
        make_recipe(BARE | {"predictors": {"sets": {"name": "conformal", "coverage": "much"}}})
    recipe = make_recipe(BARE | {"predictors": {"sets": {"name": "conformal", "coverage": "auto"}}})
    assert recipe_content(recipe)["predictors"]["sets"]["coverage"] == "auto"
