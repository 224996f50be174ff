"""A recipe with ``novelty`` makes a detector of strangers, which the finished model carries."""

import pytest
import torch

from shortlist import Model
from shortlist.predictors import FeatureMeans, NoveltyDetector
from shortlist.recipes.build import build_data
from shortlist.recipes.content import training_hash
from shortlist.recipes.recipe import RecipeError, make_recipe
from shortlist.runs.features import unaugmented
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_again
from shortlist.training.fit import train
from tests.training.small import RECIPE, silent

PLAIN = RECIPE | {"loss": {"name": "cross_entropy"}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    overrides = ["epochs=1", "novelty={strangeness: distance, level: 0.2}"]
    return train(make_recipe(PLAIN, overrides), tmp_path_factory.mktemp("runs") / "far", progress=silent)


def test_the_detector_is_that_of_the_features(run):
    model, data = Model.load(run.path), build_data(run.recipe)
    assert model.novelty is not None and model.novelty.options()["level"] == 0.2

    def features(split):
        return model.features(torch.stack([split[i][0] for i in range(len(split))]))

    means = FeatureMeans(num_classes=len(data.class_table), dim=features(data.val).shape[1])
    means.update(features(unaugmented(data.train, data.val)), data.train.targets)
    found = model.novelty.means
    assert torch.allclose(found, means.means(), atol=1e-5)
    expected = NoveltyDetector(strangeness="distance", means=found, level=0.2).calibrate(
        features=features(data.val)
    )
    test = features(data.test)
    assert model.novelty.report.rows == len(data.val)
    assert torch.allclose(model.novelty.values, expected.values, atol=1e-4)
    assert (model.novelty.p_values(features=test) - expected.p_values(features=test)).abs().max() < 0.02


def test_it_is_calibrated_again_without_training(run):
    for strangeness in ("energy", "probability"):
        change = f"novelty={{strangeness: {strangeness}, rule: macro, level: 0.4}}"
        recipe = make_recipe(run.recipe.model_dump(), [change])
        assert training_hash(recipe) == training_hash(run.recipe)
        model = Model.load(calibrate_again(run, recipe).path)
        scores, target = Run.open(run.path).scored("val")
        expected = NoveltyDetector(strangeness=strangeness, rule="macro", level=0.4)
        expected.calibrate(target, scores=scores)
        assert torch.equal(model.novelty.table, expected.table)
        assert torch.equal(model.novelty.values, expected.values)
    calibrate_again(run, make_recipe(run.recipe.model_dump(), ["novelty=null"]))
    assert Model.load(run.path).novelty is None


def test_too_few_rows_change_nothing_on_disk(run):
    before = Run.open(run.path).info
    recipe = make_recipe(run.recipe.model_dump(), ["novelty={strangeness: energy, level: 0.0001}"])
    with pytest.raises(ValueError, match=r"can never flag anything: it needs at least 9999 calibration rows"):
        calibrate_again(run, recipe)
    assert Run.open(run.path).info == before


@pytest.mark.errors
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{strangeness: far}", "novelty.strangeness"),
        ("{level: 2}", "novelty.level"),
        ("{rule: macro, delta: 0.1}", "delta goes with rule: pooled, got rule: macro"),
        ("{means: 3}", "novelty.means"),
    ],
)
def test_faults_are_named(section, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe(PLAIN, [f"novelty={section}"])


@pytest.mark.errors
@pytest.mark.parametrize("strangeness", ["distance", "energy"])
def test_too_few_rows_are_told_before_the_training(tmp_path, strangeness):
    """A trained run whose detector is refused could not be finished."""
    novelty = f"novelty={{strangeness: {strangeness}, rule: class, level: 0.001}}"
    steps = []
    with pytest.raises(ValueError, match=r"novelty: .* can never flag anything: it needs at least 999"):
        train(make_recipe(PLAIN, [novelty]), tmp_path / "run", progress=lambda what, *_: steps.append(what))
    assert "training" not in steps and not (tmp_path / "run").exists()


@pytest.mark.errors
def test_test_rows_do_not_calibrate_it():
    plain = {**PLAIN, "predictors": {}, "selection": {"metric": "last"}}
    with pytest.raises(RecipeError, match="novelty must be left out: the validation rows are the test rows"):
        make_recipe(plain, ["data.val_is_test=true", "novelty={strangeness: energy}"])
