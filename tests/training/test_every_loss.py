"""Every loss of a recipe, from training to sets, on data whose posterior is known."""

import warnings

import pytest
import torch

from shortlist import Model
from shortlist.datasets.gaussians import gaussian_genera
from shortlist.metrics import Results
from shortlist.predictors import CalibrationWarning
from shortlist.recipes.loss_use import NOT_FROM_A_RECIPE, TRAINABLE_LOSSES, needs_of
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.training.small import silent

CLASSES = 60
SIZES = ("average3", "top3")
BASE = {
    "data": {
        "name": "gaussian_genera",
        "num_classes": CLASSES,
        "num_genera": 12,
        "dim": 10,
        "num_rows": 6000,
        "num_val_rows": 2000,
        "num_test_rows": 6000,
    },
    "model": {"name": "linear"},
    "optimizer": {"lr": 0.3},
    "selection": {"metric": "top3"},
    "epochs": 8,
    "loggers": [],
    "predictors": {
        "average3": {"name": "average_k", "k": 3},
        "average3_macro": {"name": "average_k", "k": 3, "macro": True},
        "top3": {"name": "topk", "k": 3},
        "top3_macro": {"name": "topk", "k": 3, "macro": True},
        "lac": {"name": "conformal", "coverage": 0.9},
        "aps": {"name": "conformal", "coverage": 0.9, "score": "aps"},
    },
}
NAMES = [name for name in TRAINABLE_LOSSES if not needs_of(name) & {*NOT_FROM_A_RECIPE, "label_sets"}]
# what makes each of them learn in 8 epochs; nothing else is tuned
OPTIONS = {
    "assume_negative": ["optimizer.lr=3.0", "loss.negative_weight=1.0"],
    "balanced_ce": ["optimizer.lr=0.002"],
    "expected_positive": ["optimizer.lr=10.0", "loss.beta=0.1"],
    "ranked_topk": ["loss.distribution=[0.5, 0, 0.5]", "loss.candidates=16", "loss.steepness=1.0"],
    "role": ["optimizer.lr=30.0", "loss.size_weight=0.01"],
    "smooth_topk": ["optimizer.lr=1.0", "loss.temperature=1.0"],
    "two_parameter_margin": ["loss.tau_others=0.5"],
}


def recipe_of(name: str):
    options = [f"loss={name}", *OPTIONS.get(name, [])]
    fields = type(make_recipe(BASE, options[:1]).loss).model_fields
    options += ["loss.k=3"] * ("k" in fields) + ["loss.zero_counts=floor"] * ("zero_counts" in fields)
    return make_recipe(BASE, options)


# How far the probabilities are off: promised against found, as a share of all rows (see calibration_error),
# and their distance to the exact posterior (total variation).
# These are the stated errors of docs/explanations/scores.md.
ERRORS = {
    "cross_entropy": (0.04, 0.14),
    "topk_hinge": (0.08, 0.30),
    "convex_topk_hinge": (0.06, 0.22),
    "calibrated_topk_hinge": (0.11, 0.36),
    "smooth_topk": (0.09, 0.30),
    "noised_topk": (0.10, 0.35),
    "imbalanced_noised_topk": (0.20, 0.40),
    "assume_negative": (0.10, 0.26),
    "average_k": (0.06, 0.28),
    "expected_positive": (0.06, 0.36),
    "role": (0.16, 0.40),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_sets_of_every_loss_mean_what_they_say(name, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        run = train(recipe_of(name), tmp_path / "run", progress=silent)
    sets = Results.load(run.path / "results.json").sets
    # macro-optimal sets cover the average class at least as often, within the noise of its few rows, and so
    # the run has nothing to warn of
    helped = all(sets[f"{k}_macro"].coverage.macro.value > sets[k].coverage.macro.value - 0.02 for k in SIZES)
    words = " ".join(str(warning.message) for warning in caught)
    said = {k for k in SIZES if f"predictors.{k}_macro: macro coverage is lower" in words}
    assert helped and not said
    # a default conformal set is not vacuous (of 60 classes), and keeps its promise
    for score, most in (("lac", 12), ("aps", 12 if name != "role" else 45)):
        assert sets[score].size.micro.value < most
        spread = (0.09 / len(targets_of(run, "val")) + 0.09 / len(targets_of(run, "test"))) ** 0.5
        assert sets[score].coverage.micro.value == pytest.approx(0.9, abs=4 * spread)
    # the probabilities that predict shows are calibrated to the stated error
    model, data = Model.load(run.path), gaussian_genera(**run.recipe.data.options)
    probabilities = model.probabilities(model.scores(data.test.inputs))
    calibration, distance = ERRORS.get(name, (0.06, 0.20))
    assert calibration_error(probabilities, data.test.targets) < calibration
    posterior = data.log_posterior(data.test.inputs).exp()
    assert float((probabilities - posterior).abs().sum(1).mean()) / 2 < distance


def targets_of(run, part):
    return run.load_scores(part)[1]


def calibration_error(probabilities: torch.Tensor, target: torch.Tensor) -> float:
    """Over ten bins of all probabilities of all classes, weighed by their mass: promised against found."""
    promised, found = probabilities.double().flatten(), torch.zeros_like(probabilities).double()
    found = found.scatter(1, target[:, None], 1.0).flatten()
    number = (promised * 10).long().clamp(max=9)
    gaps = [float((promised - found)[number == i].sum().abs()) for i in range(10)]
    return sum(gaps) / len(target)
