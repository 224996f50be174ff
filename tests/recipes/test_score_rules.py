"""Every combination that would go wrong in silence is refused when the recipe is read, with a remedy."""

import pytest
import torch

from shortlist import ClassTable
from shortlist.predictors import Conformal
from shortlist.predictors.thresholds import Macro
from shortlist.recipes.build import build_data, build_predictor
from shortlist.recipes.parts import build_parts
from shortlist.recipes.recipe import RecipeError, make_recipe
from shortlist.scores import PriorRecord, ScoreMap

MACRO = {"two": {"name": "topk", "k": 2, "macro": True}}
TEST_ROWS = {"name": "cifar10_lt", "root": "x", "val_is_test": True}
LAST = {"metric": "last"}
FAR = {"strangeness": "distance"}


@pytest.mark.errors
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"loss": "sparse_top"}, "labels must be several for the loss sparse_top, got one"),
        ({"labels": "several"}, "labels must be one for the data glyphs, got several"),
        ({"labels": "several", "data": "several_glyphs"}, "labels must be one for the loss cross_entropy"),
        (
            {"labels": "several", "data": "several_glyphs", "loss": "shared_ce", "sampler": "class_balanced"},
            "sampler must be left out for labels: several",
        ),
        (
            {"labels": "several", "data": "several_glyphs", "loss": "binary_ce", "novelty": FAR},
            "novelty.strangeness: distance must be left out for labels: several",
        ),
        ({"loss": "pairwise_margin"}, "loss.name must not be pairwise_margin.*a table of margins"),
        (
            {"loss": "logit_adjusted", "adjust": {"tau": 1}},
            "adjust.tau must not be 1: .*logit_adjusted leave out 1 times.* write 0",
        ),
        (
            {"loss": {"name": "logit_adjusted", "tau": 0.5}, "adjust": {"tau": 0.5}},
            "adjust.tau must not be 0.5: .* leave out 0.5 times",
        ),
        ({"loss": "balanced_ce", "adjust": {"tau": 1}}, "adjust.tau must not be 1: .*balanced_ce"),
        (
            {"sampler": "class_balanced", "adjust": {"tau": 1}},
            "adjust.tau must not be 1: .*cross_entropy on class-balanced batches",
        ),
        (
            {"second_stage": "retrain_classifier", "adjust": {"tau": 1}},
            "adjust.tau must not be 1: .*on class-balanced batches",
        ),
        (
            {"loss": "ldam", "adjust": {"temperature": 1}, "predictors": MACRO},
            "predictors.two.macro must be false: .*loss ldam .*leave adjust.temperature out",
        ),
        (
            {"loss": "noised_topk", "adjust": {"temperature": 2, "tau": 1}},
            "adjust.tau must be left out: the class priors in the scores",
        ),
        (
            {"adjust": {"temperature": 1, "weight_normalization": 1}, "predictors": MACRO},
            "predictors.two.macro must be false: .*scores of normalized weights are unknown",
        ),
        (
            {"second_stage": "weight_scaling", "adjust": {"temperature": 1}, "predictors": MACRO},
            "predictors.two.macro must be false: the class priors in the scores",
        ),
        (
            {"adjust": {"class_shifts": True}},
            "adjust.class_shifts must be left out: .*loss cross_entropy are log-posteriors",
        ),
        (
            {"loss": "focal", "adjust": {"class_shifts": True, "temperature": 2}},
            "adjust.class_shifts must be left out: .*leave adjust.temperature out",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "loss": "focal", "adjust": {"class_shifts": True}},
            "adjust.class_shifts must be left out: .*write adjust.tau: cross_fit",
        ),
        (
            {"data": TEST_ROWS},
            "selection.metric must not be top1: .*Write selection.metric: last",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "adjust": {"tau": "fit"}},
            "adjust.tau must not be fit: .*Write adjust.tau: cross_fit",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "adjust": {"temperature": "fit"}},
            "adjust.temperature must not be fit: the validation rows are the test rows",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "predictors": {"five": {"name": "average_k", "k": 5}}},
            "predictors.five must not be average_k, which is calibrated",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "predictors": {"sure": {"name": "conformal"}}},
            "predictors.sure must not be conformal, which is calibrated",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "loss": "ldam", "predictors": MACRO},
            "predictors.two.macro must be false: .*write adjust.tau: cross_fit",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "loss": "average_k", "adjust": {"predict_from": "choose"}},
            "adjust.predict_from: choose takes the head with the better selection.metric",
        ),
        (
            {"adjust": {"tau": "cross_fit", "temperature": 2}},
            "adjust.temperature must be left out with adjust.tau: cross_fit, which fits both, got 2",
        ),
        (
            {"loss": "focal", "adjust": {"predict_from": "proposal"}},
            "adjust.predict_from must be left out for the loss focal",
        ),
        (
            {"loss": "average_k", "adjust": {"predict_from": "choose"}, "selection": LAST},
            "adjust.predict_from: choose takes the head with the better selection.metric.*got 'last'",
        ),
        (
            {"predictors": {"two": {"name": "average_k", "k": 2, "activation": "sigmoid"}}},
            "predictors.two.activation must be softmax",
        ),
        (
            {
                "loss": "assume_negative",
                "predictors": {"two": {"name": "average_k", "k": 2, "activation": "sigmoid"}},
            },
            "predictors.two.activation must be softmax.*left as they are by adjust.temperature: 1",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "loss": "logit_adjusted", "sampler": "class_balanced"},
            "sampler class_balanced and the loss logit_adjusted must not come together",
        ),
        (
            {"loss": "balanced_ce", "second_stage": "retrain_classifier"},
            "the second stage and the loss balanced_ce must not come together",
        ),
        (
            {"loss": {"name": "cross_entropy", "class_balanced": 0.99}, "sampler": "class_balanced"},
            "sampler class_balanced and class weights must not come together",
        ),
        (
            {"reweighting": {"after": 3}, "sampler": "class_balanced"},
            "sampler class_balanced and class weights must not come together",
        ),
        (
            {"adjust": {"weight_normalization": 1, "tau": "cross_fit"}},
            "adjust.tau must not be cross_fit with adjust.weight_normalization",
        ),
        (
            {"predictors": {"sure": {"name": "pointwise_error", "macro": True}}},
            "predictors.sure.macro must be false: pointwise_error takes no class priors",
        ),
        (
            {"predictors": {"two": {"name": "topk", "k": 2, "tau": 0.5}}},
            "predictors.two.tau is a power of the class priors: write macro: true with it",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "rule": "macro"}}},
            "predictors.sure.macro must be true: the rule macro ",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "score": {"name": "prevalence_adjusted"}}}},
            "predictors.sure.macro must be true: the score prevalence_adjusted ",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "score": "lac", "macro": True}}},
            "predictors.sure.macro must be false for the score lac.* write rule: macro",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "rule": {"name": "macro", "level": 3}}}},
            "predictors.sure.rule.level: Input should be a valid string, got 3",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "rule": {"name": "makro"}}}},
            "predictors.sure.rule.name must be one of marginal, macro, .* did you mean 'macro'",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "score": {"name": "raps", "k": 3}}}},
            "predictors.sure.score.k: unknown key",
        ),
        (
            {"predictors": {"sure": {"name": "conformal", "score": {"name": "raps", "penalty": -1}}}},
            "predictors.sure.score: penalty must be >= 0, got -1",
        ),
        (
            {"loss": "logit_adjusted", "predictors": {"sure": {"name": "average_error"}}},
            "predictors.sure must not be average_error: it trusts .* Write adjust.tau: 0",
        ),
        (
            {
                "loss": "average_k",
                "adjust": {"predict_from": "proposal", "temperature": 1},
                "predictors": {"two": {"name": "average_k", "k": 2, "activation": "sigmoid"}},
            },
            "predictors.two.activation must be softmax",
        ),
        (
            {"data": TEST_ROWS, "selection": LAST, "loss": "average_k", "adjust": {"predict_from": "choose"}},
            "adjust.predict_from: choose takes the head",
        ),
        (
            {
                "data": TEST_ROWS,
                "selection": {"metric": "top5"},
                "loss": "average_k",
                "adjust": {"predict_from": "choose"},
            },
            "adjust.predict_from must not be choose: the validation rows are the test rows",
        ),
        (
            {"second_stage": "weight_scaling", "adjust": {"tau": "cross_fit"}},
            "adjust.tau must not be cross_fit with second_stage weight_scaling",
        ),
    ],
)
def test_what_would_go_wrong_in_silence_is_refused(content, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe(content)


@pytest.mark.parametrize(
    "content",
    [
        {"predictors": MACRO, "adjust": {"tau": 1}},  # converts from what the scores contain
        {"loss": "logit_adjusted", "predictors": MACRO},
        {"loss": "logit_adjusted", "adjust": {"tau": 0}},  # puts the priors back
        {"loss": "logit_adjusted", "reweighting": {"after": 3}},  # with the margins that keep it consistent
        {
            "loss": {"name": "logit_adjusted", "weighting": "plain"},
            "reweighting": {"after": 0},
            "adjust": {"tau": 1},
        },  # such weights are in the scores: tau 1 takes them out
        {"loss": "logit_adjusted", "adjust": {"tau": 0}, "predictors": {"sure": {"name": "average_error"}}},
        {"loss": "ldam", "sampler": "class_balanced"},  # fitted
        {"loss": "ldam", "predictors": MACRO},  # fitted on the validation rows
        {"adjust": {"weight_normalization": 1}, "predictors": MACRO},
        {"data": TEST_ROWS, "selection": LAST, "adjust": {"tau": "cross_fit"}, "predictors": MACRO},
        {
            "data": TEST_ROWS,
            "selection": LAST,
            "loss": "ldam",
            "predictors": {"one": {"name": "topk", "k": 1}},
        },
        {"loss": "average_k", "adjust": {"predict_from": "choose"}, "selection": {"metric": "average5"}},
        {
            "loss": "assume_negative",
            "adjust": {"temperature": 1},
            "predictors": {"two": {"name": "average_k", "k": 2, "activation": "sigmoid"}},
        },
    ],
)
def test_what_goes_together_is_taken(content):
    make_recipe(content)


@pytest.mark.errors
def test_an_importance_of_no_class_with_calibration_rows_is_refused_before_the_training():
    data = {"name": "gaussian_genera", "num_classes": 10, "num_genera": 3, "dim": 4, "num_rows": 200}
    data |= {"num_val_rows": 6, "num_test_rows": 100}
    base = {"data": data, "model": {"name": "linear"}, "epochs": 1, "loggers": []}
    present = build_data(make_recipe(base)).val.targets.bincount(minlength=10) > 0

    def recipe(importance, **options):
        rule = {"name": "macro", "importance": importance.tolist(), **options}
        return make_recipe(
            base | {"predictors": {"some": {"name": "conformal", "score": "lac", "rule": rule}}}
        )

    build_parts(recipe(present.float()))
    build_parts(recipe((~present).float(), classes="all"))
    with pytest.raises(
        ValueError, match=r"predictors.some: importance must be above 0 for some class with cal"
    ):
        build_parts(recipe((~present).float()))


def test_macro_sets_of_a_recipe_are_about_the_average_class_or_genus():
    table = ClassTable(names="abcd", counts=(40, 30, 20, 10), parents={"genus": ("x", "y", "x", "x")})
    priors, even = PriorRecord.training(table.class_counts), PriorRecord.balanced(4)
    recipe = make_recipe(
        {
            "predictors": {
                "classes": {"name": "conformal", "macro": True},
                "genera": {"name": "conformal", "macro": True, "rule": {"name": "macro", "level": "genus"}},
                "plain": {"name": "conformal", "rule": {"name": "macro", "level": "genus"}, "score": "lac"},
                "raps": {"name": "conformal", "score": {"name": "raps", "penalty": "1e-2", "k_reg": 3}},
            }
        }
    )
    assert recipe.predictors["raps"].options["score"] == {"name": "raps", "penalty": 0.01, "k_reg": 3}
    for contains, shifted in ((priors, False), (even, True)):
        score_map = ScoreMap(4, contains=contains)
        built = {key: build_predictor(recipe, key, table, score_map) for key in recipe.predictors}
        assert isinstance(built["classes"], Conformal) and built["classes"].rule == Macro()
        genera = Macro(level="genus", groups=(0, 1, 0, 0))
        assert isinstance(built["genera"], Conformal) and built["genera"].rule == genera
        assert isinstance(built["plain"], Conformal) and built["plain"].rule == genera
        assert (built["classes"].shift is not None) == shifted
        weights = torch.tensor([2 / 3, 2.0, 2 / 3, 2 / 3]) / priors.priors
        torch.testing.assert_close(built["genera"].weights, weights.float())
    with pytest.raises(ValueError, match=r"level must be one of the table's \(genus\), got 'family'"):
        family = make_recipe(
            {
                "predictors": {
                    "sets": {"name": "conformal", "macro": True, "rule": {"name": "macro", "level": "family"}}
                }
            }
        )
        build_predictor(family, "sets", table, ScoreMap(4, contains=priors))
