"""What people are shown agrees with what is measured: one order, one set of probabilities."""

import csv
import itertools
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shortlist import ClassTable, Model
from shortlist.cli.predict import predict_files
from shortlist.metrics import Results
from shortlist.predictors import TopK
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.training.small import RECIPE, silent


def shown_run(path, *overrides):
    return train(make_recipe(RECIPE, ["epochs=3", *overrides]), path, progress=silent)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """Scores that leave the class priors out, so that order and probabilities differ."""
    return shown_run(tmp_path_factory.mktemp("runs") / "run", "loss=logit_adjusted", "loss.zero_counts=floor")


def posterior_of(run, inputs):
    """The posterior under the training priors, by hand from the network and the counts."""
    model = Model.load(run.path)
    counts = run.class_table.class_counts.clamp(min=1).double()
    with torch.no_grad():
        output = model.network(inputs).double()
    return (output + (counts / counts.sum()).log()).softmax(1)


def test_likelihood_is_of_the_probabilities_that_are_shown(balanced):
    data = build_data(balanced.recipe)
    posterior = posterior_of(balanced, data.test.inputs)
    model = Model.load(balanced.path)
    shown = model.probabilities(model.scores(data.test.inputs))
    torch.testing.assert_close(shown.double(), posterior, rtol=1e-4, atol=1e-6)
    nll = -posterior.gather(1, data.test.targets[:, None]).log().mean()
    results = Results.load(balanced.path / "results.json")
    assert results.scores.nll.value == pytest.approx(float(nll), rel=1e-4)
    confidence, guess = posterior.max(1)
    bins = (confidence * 15).long().clamp(max=14)
    right = (guess == data.test.targets).double()
    gaps = torch.zeros(15, dtype=torch.float64).index_add_(0, bins, right - confidence).abs().sum()
    assert results.scores.calibration_error.value == pytest.approx(float(gaps) / len(right), abs=2e-3)


def test_lists_are_in_the_order_that_is_measured(balanced, tmp_path):
    data = build_data(balanced.recipe)
    model = Model.load(balanced.path)
    scores = model.scores(data.test.inputs)
    lists = model.short_lists(data.test.inputs, "top2", at_least=4)
    for row, candidates in enumerate(lists):
        assert [c.index for c in candidates] == scores[row].topk(4).indices.tolist()
        assert [c.in_set for c in candidates] == [True, True, False, False]
    right = [c[0].index == true for c, true in zip(lists, data.test.targets.tolist(), strict=True)]
    top1 = Results.load(balanced.path / "results.json").metrics()["top1.micro"].value
    assert sum(right) / len(right) == pytest.approx(top1)
    falls = [a.probability >= b.probability for c in lists for a, b in itertools.pairwise(c)]
    assert not all(falls)  # the probabilities are of other priors than the order
    save_file({"scores": balanced.load_scores("test")[0]}, tmp_path / "new.safetensors")
    out = tmp_path / "lists.jsonl"
    predict_files(model, [tmp_path / "new.safetensors"], out, choice="top2", top=4)
    written = [json.loads(line)["candidates"] for line in out.read_text().splitlines()]
    assert [[c["class"] for c in one] for one in written] == [[c.index for c in one] for one in lists]


def test_scores_without_a_meaning_have_no_probabilities(tmp_path):
    changes = ["loss=ldam", "adjust.temperature=1", "predictors={top2: {name: topk, k: 2}}"]
    run = shown_run(tmp_path / "run", *changes, "loss.zero_counts=floor")
    scores = Results.load(run.path / "results.json").scores
    assert scores.nll.value is None and scores.calibration_error.value is None
    save_file({"scores": run.load_scores("test")[0]}, tmp_path / "new.safetensors")
    predict_files(Model.load(run.path), [tmp_path / "new.safetensors"], tmp_path / "lists.csv", top=3)
    lines = list(csv.DictReader((tmp_path / "lists.csv").read_text().splitlines()))
    assert {line["probability"] for line in lines} == {""}
    order = [int(line["class"]) for line in lines if line["item"].endswith(":7")]
    assert order == run.scored("test")[0][7].topk(3).indices.tolist()


@pytest.mark.parametrize(("after", "words"), [(2, "the training priors"), (0, "given priors")])
def test_class_weights_count_if_the_kept_epoch_had_them(after, words, tmp_path):
    """The first epoch is kept: with weights from epoch 0 on it had them, with weights from epoch 2 on not."""
    overrides = ["loss=cross_entropy", f"reweighting.after={after}", "reweighting.beta=0.99", "epochs=1"]
    run = shown_run(tmp_path / "run", *overrides)
    contains = run.declared["set"].contains
    assert contains.words() == words
    weight = run.loss_weight
    assert bool((weight == 1).all()) == (after > 0)
    counts = run.class_table.class_counts.clamp(min=1).double()
    expected = (counts / counts.sum() * weight).log()
    torch.testing.assert_close(contains.log_priors, expected - expected.logsumexp(0), rtol=1e-6, atol=1e-6)


def test_csv_cells_that_a_spreadsheet_would_run_are_escaped(tmp_path):
    names = ['=HYPERLINK("http://x", "oak")', "+1", "@SUM(A1)", "-ash", "oak", "\tbeech"]
    table = ClassTable(names=names, ids=[str(i) for i in range(6)], counts=[1] * 6)
    model = Model.from_parts(nn.Identity(), table, predictors={"top6": TopK(6)})
    save_file({"scores": -torch.arange(6.0)[None]}, tmp_path / "s.safetensors")
    predict_files(model, [tmp_path / "s.safetensors"], tmp_path / "lists.csv")
    with (tmp_path / "lists.csv").open(newline="") as file:
        written = [line["name"] for line in csv.DictReader(file)]
    assert written == ["'" + names[0], "+1", "'@SUM(A1)", "'-ash", "oak", "'\tbeech"]
    predict_files(model, [tmp_path / "s.safetensors"], tmp_path / "lists.jsonl")
    (line,) = (tmp_path / "lists.jsonl").read_text().splitlines()
    assert [c["name"] for c in json.loads(line)["candidates"]] == names  # data for programs stays as it is
