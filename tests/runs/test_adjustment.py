"""Weight normalization on saved scores, and calibration that is done whole or not at all."""

import json

import pytest
import torch
from safetensors.torch import save_file
from scipy.optimize import minimize

from shortlist import Model
from shortlist.cli.predict import predict_files
from shortlist.metrics import Results
from shortlist.models.classifiers import class_norms
from shortlist.models.heads import head_scores
from shortlist.predictors import AverageK
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import load_network
from shortlist.runs.run import Run, RunError
from shortlist.runs.score_maps import complete_map
from shortlist.runs.scoring import calibrate_again, evaluate_run
from shortlist.scores import ScoreMap, fit_normalization, fit_temperature, normalize_classifier
from shortlist.training.fit import train
from tests.run_factory import seal
from tests.training.small import RECIPE, silent

# log-posteriors; and for normalized weights as they are, no sets that would need their priors
PLAIN = RECIPE | {"loss": {"name": "cross_entropy"}}
RAW = ["adjust.temperature=1", "predictors={average2: {name: average_k, k: 2}}"]


def adjusted_run(path, *overrides) -> Run:
    return train(make_recipe(PLAIN, ["epochs=2", *overrides]), path, progress=silent)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return adjusted_run(tmp_path_factory.mktemp("runs") / "plain")


def adjusted(run, part="test"):
    return run.scored(part)[0]


@pytest.mark.parametrize("tau", [1.0, 0.5, -0.3])
@pytest.mark.parametrize(
    ("overrides", "layer"),
    [([], "head"), (["head.bias=false"], "head"), (["loss=average_k", "loss.k=2"], "head.set_head")],
)
def test_scores_are_those_of_the_normalized_classifier(overrides, layer, tau, tmp_path):
    changes = [f"adjust.weight_normalization={tau}", "adjust.normalized_offset=kept", *RAW]
    run = adjusted_run(tmp_path / "run", *overrides, *changes)
    data = build_data(run.recipe)
    network = load_network(run)
    normalized = normalize_classifier(network, name=layer, tau=tau)
    with torch.no_grad():
        torch.testing.assert_close(head_scores(network(data.test.inputs)), run.load_scores("test")[0])
        expected = head_scores(normalized(data.test.inputs))
    torch.testing.assert_close(adjusted(run), expected, rtol=1e-4, atol=1e-5)
    results = Results.load(run.path / "results.json")
    top1 = float((expected.argmax(1) == data.test.targets).double().mean())
    assert results.metrics()["top1.micro"].value == pytest.approx(top1)


def test_temperature_tau_and_predictors_follow_the_normalization(plain, tmp_path):
    overrides = ["adjust.weight_normalization=1", "adjust.normalized_offset=kept", "adjust.tau=1.0"]
    run = adjusted_run(tmp_path / "run", *overrides)
    norms, offsets = class_norms(load_network(run))["set"]
    counts = run.class_table.class_counts.clamp(min=1).float()
    log_priors = (counts / counts.sum()).log()
    val, target = plain.load_scores("val")  # the training is the same
    beta, exponent = likeliest((val - offsets) / norms + offsets, log_priors, target)
    for part in ("val", "test"):
        scores, _ = plain.load_scores(part)
        posterior = beta * ((scores - offsets) / norms + offsets) + exponent * log_priors
        shift = adjusted(run, part) - (posterior - log_priors)
        torch.testing.assert_close(shift, shift[:, :1].expand_as(shift), rtol=0, atol=1e-4)
    threshold = AverageK(2).calibrate(adjusted(run, "val")).threshold
    torch.testing.assert_close(run.predictors["average2"].threshold, threshold)


def likeliest(scores, log_priors, target):
    """Scale and prior exponent with the greatest likelihood, by scipy."""

    def nll(coefficients):
        beta, exponent = coefficients
        log_p = (beta * scores.double() + exponent * log_priors.double()).log_softmax(1)
        return -float(log_p.gather(1, target[:, None]).mean())

    return minimize(nll, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}).x


def test_predict_agrees_with_the_results(tmp_path):
    run = adjusted_run(tmp_path / "run", "adjust.weight_normalization=1")
    scores, target = run.load_scores("test")
    save_file({"scores": scores}, tmp_path / "new.safetensors")
    predict_files(
        Model.load(run.path), [tmp_path / "new.safetensors"], tmp_path / "lists.jsonl", choice="average2"
    )
    lines = [json.loads(line) for line in (tmp_path / "lists.jsonl").read_text().splitlines()]
    hits = [
        any(c["in_set"] and c["class"] == true for c in line["candidates"])
        for line, true in zip(lines, target.tolist(), strict=True)
    ]
    measured = Results.load(run.path / "results.json").sets["average2"].coverage.micro.value
    assert sum(hits) / len(hits) == pytest.approx(measured)
    chance = adjusted(run).softmax(1)
    for row in (0, 17):
        first = lines[row]["candidates"][0]
        assert first["probability"] == pytest.approx(float(chance[row].max()), rel=1e-5)


def test_scaled_weights_have_scaled_norms(tmp_path):
    run = adjusted_run(
        tmp_path / "run", "loss=cross_entropy", "second_stage=weight_scaling", "second_stage.epochs=1"
    )
    network = load_network(run)
    weight = network.head.head.weight * network.head.log_scale.exp()[:, None]
    norms, offsets = run.load_norms()
    torch.testing.assert_close(norms, weight.detach().norm(dim=1))
    assert torch.equal(offsets, network.head.head.bias.detach())


def test_a_trained_run_is_normalized_and_back_without_training(plain):
    before = (plain.path / "results.json").read_text()
    own = plain.recipe
    calibrate_again(plain, make_recipe(own.model_dump(), ["adjust.weight_normalization=1"]))
    assert (plain.path / "results.json").read_text() != before
    calibrate_again(plain, own)
    assert (plain.path / "results.json").read_text() == before


@pytest.mark.errors
def test_scores_without_a_linear_classifier_have_no_norms(tmp_path):
    run = adjusted_run(tmp_path / "run", "loss=ldam")
    with pytest.raises(RunError, match="needs the scores of a linear classifier"):
        calibrate_again(run, make_recipe(run.recipe.model_dump(), ["adjust.weight_normalization=1"]))
    tensors = {"scores": torch.zeros(2, 12), "target": torch.zeros(2, dtype=torch.int64)}
    norms = (torch.arange(12.0), torch.zeros(12))
    RunFolder(run.path).save_scores("val", {"set": tensors["scores"]}, tensors["target"], {"set": norms})
    seal(run)
    with pytest.raises(ValueError, match=r"norms must be > 0, got 0 for class 0"):
        calibrate_again(run, make_recipe(run.recipe.model_dump(), ["adjust.weight_normalization=1"]))


def test_predictors_that_the_recipe_no_longer_has_are_gone(tmp_path):
    """They were calibrated on scores at another temperature: their sizes would not be what they promise."""
    run = adjusted_run(tmp_path / "run")
    changes = ["adjust.temperature=0.2", "predictors={only2.5: {name: average_k, k: 2.5}}"]
    recipe = make_recipe(run.recipe.model_dump(), changes)
    run = calibrate_again(run, recipe)
    assert Model.load(run.path).predictors.keys() == {"only2.5"}
    assert len(list((run.path / "model" / "predictors").iterdir())) == 2  # its description and its state
    assert list(evaluate_run(run).sets) == ["only2.5"]


@pytest.mark.errors
def test_a_calibration_that_fails_changes_nothing(tmp_path):
    run = adjusted_run(tmp_path / "run")
    (run.path / ".lock").touch()
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    changes = ["adjust.temperature=0.2", "predictors.top99={name: topk, k: 99}"]
    with pytest.raises(ValueError, match="99"):
        calibrate_again(run, make_recipe(run.recipe.model_dump(), changes))
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_names_of_predictors_may_have_dots(tmp_path):
    changes = ["predictors={a2.5: {name: average_k, k: 2.5}, a2.7: {name: average_k, k: 2.7}}"]
    run = adjusted_run(tmp_path / "run", *changes)
    sizes = {
        name: sets.size.micro.value for name, sets in Results.load(run.path / "results.json").sets.items()
    }
    assert set(sizes) == {"a2.5", "a2.7"} and sizes["a2.5"] < sizes["a2.7"]


def test_the_strength_of_normalization_is_fitted_on_validation_rows(plain):
    plain = Run.open(plain.path)  # another test calibrated it since
    own, counts = plain.recipe, plain.class_table.class_counts.double()
    fit = ["adjust.weight_normalization=fit", "adjust.normalized_by=prior", "adjust.normalized_offset=scaled"]
    run = calibrate_again(plain, make_recipe(own.model_dump(), [*fit, *RAW]))
    scores, target = run.load_scores("val")
    priors = counts / counts.sum()
    want = fit_normalization(scores, target, *run.load_norms(), offset="scaled", priors=priors).tau
    assert f"weights normalized with tau {want:.4g}, fitted on" in run.score_map.note
    divided = run.load_scores("test")[0] / priors.float() ** want
    torch.testing.assert_close(adjusted(run), divided, rtol=1e-4, atol=1e-5)
    calibrate_again(plain, own)


def test_nearly_equal_classes_have_no_prior_exponent_and_the_note_says_so():
    generator = torch.Generator().manual_seed(0)
    log_posterior = 2 * torch.randn(300, 6, generator=generator)
    target = torch.multinomial(log_posterior.softmax(1), 1, generator=generator).squeeze(1)
    recipe = make_recipe(RECIPE, ["loss={name: noised_topk, k: 2}"])
    counts = torch.tensor([27, 28, 28, 27, 28, 27])
    scores = 3 * log_posterior
    found = complete_map(recipe, ScoreMap(6, contains=None), scores, target, counts, rows="validation rows")
    temperature = fit_temperature(scores, target)
    assert float(found.scale.mean()) == pytest.approx(1 / temperature, rel=0.02)
    assert "and prior exponent 0 (priors are nearly equal: not fitted), fitted on 300" in found.note
