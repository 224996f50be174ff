"""Weight normalisation on saved scores, and calibration that is done whole or not at all."""

import json

import pytest
import torch
from safetensors.torch import save_file

from shortlist.adjust import normalise_classifier
from shortlist.metrics import Results
from shortlist.predictors import AverageK, load
from shortlist.training.build import build_data
from shortlist.training.fit import load_model, train
from shortlist.training.module import predicted_scores
from shortlist.training.predict import predict_files
from shortlist.training.recipe import make_recipe
from shortlist.training.runs import Run, RunError
from shortlist.training.scoring import (
    adjust_scores,
    calibrate_run,
    class_norms,
    evaluate_run,
    load_adjustment,
)
from tests.training.small import RECIPE


def silent(*_):
    pass


def trained(path, *overrides) -> Run:
    return train(make_recipe(RECIPE, ["epochs=2", *overrides]), path, report=silent)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "plain")


def adjusted(run, part="test"):
    scores, _ = run.load_scores(part)
    return adjust_scores(scores, load_adjustment(run), run.class_table.class_counts)


@pytest.mark.parametrize("tau", [1.0, 0.5, -0.3])
@pytest.mark.parametrize(
    ("overrides", "layer"),
    [([], "head"), (["head.bias=false"], "head"), (["loss=average_k", "loss.k=2"], "head.set_head")],
)
def test_scores_are_those_of_the_normalised_classifier(overrides, layer, tau, tmp_path):
    run = trained(tmp_path / "run", *overrides, f"adjust.weight_normalisation={tau}")
    data = build_data(run.recipe)
    network = load_model(run)
    normalised = normalise_classifier(network, name=layer, tau=tau)
    with torch.no_grad():
        torch.testing.assert_close(predicted_scores(network(data.test.inputs)), run.load_scores("test")[0])
        expected = predicted_scores(normalised(data.test.inputs))
    torch.testing.assert_close(adjusted(run), expected, rtol=1e-4, atol=1e-5)
    results = Results.load(run.path / "results.json")
    top1 = float((expected.argmax(1) == data.test.targets).double().mean())
    assert results.figures()["top1.micro"].value == pytest.approx(top1)


def test_temperature_tau_and_predictors_follow_the_normalisation(plain, tmp_path):
    overrides = ["adjust.weight_normalisation=1", "adjust.temperature=2.0", "adjust.tau=1.0"]
    run = trained(tmp_path / "run", *overrides)
    norms, offsets = class_norms(load_model(run))
    counts = run.class_table.class_counts.clamp(min=1).float()
    for part in ("val", "test"):
        scores, _ = plain.load_scores(part)  # the training is the same
        expected = ((scores - offsets) / norms + offsets) / 2 - (counts / counts.sum()).log()
        shift = adjusted(run, part) - expected
        torch.testing.assert_close(shift, shift[:, :1].expand_as(shift), rtol=0, atol=1e-4)
    threshold = AverageK(2).calibrate(adjusted(run, "val")).threshold
    torch.testing.assert_close(load(run.predictor_paths()["average2"]).threshold, threshold)


def test_predict_agrees_with_the_results(tmp_path):
    run = trained(tmp_path / "run", "adjust.weight_normalisation=1")
    scores, target = run.load_scores("test")
    save_file({"scores": scores}, tmp_path / "new.safetensors")
    predict_files(run, [tmp_path / "new.safetensors"], tmp_path / "lists.jsonl", predictor="average2")
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
        assert first["score"] == pytest.approx(float(chance[row].max()), rel=1e-5)


def test_scaled_weights_have_scaled_norms(tmp_path):
    run = trained(
        tmp_path / "run", "loss=cross_entropy", "second_stage=weight_scaling", "second_stage.epochs=1"
    )
    network = load_model(run)
    weight = network.head.head.weight * network.head.log_scale.exp()[:, None]
    norms, offsets = run.load_norms()
    torch.testing.assert_close(norms, weight.detach().norm(dim=1))
    assert torch.equal(offsets, network.head.head.bias.detach())


def test_a_trained_run_is_normalised_and_back_without_training(plain):
    before = (plain.path / "results.json").read_text()
    calibrate_run(plain, make_recipe(plain.recipe.model_dump(), ["adjust.weight_normalisation=1"]))
    assert evaluate_run(plain).to_json() != before
    calibrate_run(plain)
    evaluate_run(plain)
    assert (plain.path / "results.json").read_text() == before


@pytest.mark.errors
def test_scores_without_a_linear_classifier_have_no_norms(tmp_path):
    run = trained(tmp_path / "run", "loss=ldam")
    with pytest.raises(RunError, match="needs the scores of a linear classifier"):
        calibrate_run(run, make_recipe(run.recipe.model_dump(), ["adjust.weight_normalisation=1"]))
    tensors = {"scores": torch.zeros(2, 12), "target": torch.zeros(2, dtype=torch.int64)}
    norms = (torch.arange(12.0), torch.zeros(12))
    run.save_scores("val", *tensors.values(), norms)
    with pytest.raises(ValueError, match=r"class weights of finite norm > 0"):
        calibrate_run(run, make_recipe(run.recipe.model_dump(), ["adjust.weight_normalisation=1"]))


def test_predictors_that_the_recipe_no_longer_has_are_gone(tmp_path):
    """They were calibrated on scores at another temperature: their sizes would not be what they promise."""
    run = trained(tmp_path / "run")
    changes = ["adjust.temperature=0.2", "predictors={only2.5: {name: average_k, k: 2.5}}"]
    calibrate_run(run, make_recipe(run.recipe.model_dump(), changes))
    assert list(run.predictor_paths()) == ["only2.5"]
    assert len(list((run.path / "predictors").iterdir())) == 2  # its description and its state
    assert list(evaluate_run(run).sets) == ["only2.5"]


@pytest.mark.errors
def test_a_calibration_that_fails_changes_nothing(tmp_path):
    run = trained(tmp_path / "run")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    changes = ["adjust.temperature=0.2", "predictors.top99={name: topk, k: 99}"]
    with pytest.raises(ValueError, match="99"):
        calibrate_run(run, make_recipe(run.recipe.model_dump(), changes))
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_names_of_predictors_may_have_dots(tmp_path):
    changes = ["predictors={a2.5: {name: average_k, k: 2.5}, a2.7: {name: average_k, k: 2.7}}"]
    run = trained(tmp_path / "run", *changes)
    sizes = {
        name: sets.size.micro.value for name, sets in Results.load(run.path / "results.json").sets.items()
    }
    assert set(sizes) == {"a2.5", "a2.7"} and sizes["a2.5"] < sizes["a2.7"]
