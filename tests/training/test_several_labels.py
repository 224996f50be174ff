"""A recipe with ``labels: several``: trained, scored, calibrated, measured and used in the ordinary way."""

import csv

import pytest
import torch
import yaml
from typer.testing import CliRunner

from shortlist import ClassTable, Model
from shortlist.cli import app
from shortlist.cli.suite import suite_app
from shortlist.datasets import DATASETS, DatasetInfo, Splits, TensorSplit
from shortlist.datasets.label_sets import LabelPairs
from shortlist.losses import LABEL_SET_LOSSES
from shortlist.models.label_set_head import predicted_sizes
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from shortlist.training.fit import train
from tests.training.small import silent

C = 5
RECIPE = {
    "name": "several",
    "labels": "several",
    "data": "easy_sets",
    "model": {"name": "mlp", "hidden": [16]},
    "optimizer": {"lr": 0.1},
    "selection": {"metric": "last"},
    "epochs": 15,
    "batch_size": 32,
    "loggers": [],
    "predictors": {
        "top2": {"name": "topk", "k": 2},
        "conformal": {"name": "conformal", "coverage": 0.9},
    },
}


def easy_sets() -> Splits:
    """Rows whose inputs are their labels, with a little noise."""
    generator, parts = torch.Generator().manual_seed(0), {}
    for part in ("train", "val", "test"):
        labels = torch.rand(512, C, generator=generator) < 0.4
        labels[:, 0] |= ~labels.any(1)
        inputs = labels.float() + 0.05 * torch.randn(512, C, generator=generator)
        parts[part] = LabelPairs(TensorSplit(inputs, labels.int().argmax(1)), labels)
    counts = parts["train"].label_sets.labels.sum(0).tolist()
    return Splits(**parts, class_table=ClassTable([f"class {j}" for j in range(C)], counts=counts))


@pytest.fixture(scope="module", autouse=True)
def registered():
    DATASETS["easy_sets"] = DatasetInfo(easy_sets, several_labels=True)
    yield
    del DATASETS["easy_sets"]


@pytest.fixture(scope="module", params=LABEL_SET_LOSSES)
def run(request, registered, tmp_path_factory):
    recipe = make_recipe(RECIPE, [f"loss={request.param}"])
    return train(recipe, tmp_path_factory.mktemp(request.param) / "run", progress=silent)


def f1(set_of: list[set[int]], labels: list[set[int]]) -> float:
    pairs = zip(set_of, labels, strict=True)
    return sum(2 * len(s & y) / (len(s) + len(y)) for s, y in pairs) / len(labels)


def highest(scores: list[float], size: int) -> set[int]:
    return set(sorted(range(C), key=lambda j: -scores[j])[:size])


def test_easy_label_sets_are_learned_with_their_sizes(run):
    found = run.results.label_sets
    assert found["at_true.f1"] > 0.97 and found["at_predicted.f1"] > 0.9 and found["size.exact"] > 0.8
    assert ("above_threshold.f1" in found) == (run.recipe.loss.name == "binary_ce")


def test_metrics_are_those_of_loops_over_the_pictures(run):
    scores, target = run.load_scores("test")
    sizes = predicted_sizes(run.load_scores("test", "size")[0][:, 0], num_classes=C)
    photos: dict[int, int] = {}  # first pair of each
    labels: dict[int, set[int]] = {}
    numbers = run.load_scores("test", "photo")[0][:, 0].long().tolist()
    for pair, (photo, label) in enumerate(zip(numbers, target.tolist(), strict=True)):
        photos.setdefault(photo, pair)
        labels.setdefault(photo, set()).add(label)
    wanted = [{j for j in range(C) if of[j]} for of in easy_sets().test.label_sets.labels.tolist()]
    assert [labels[photo] for photo in range(512)] == wanted
    rows = [(scores[photos[photo]].tolist(), int(sizes[photos[photo]])) for photo in range(512)]
    found = run.results.label_sets
    made = [highest(row, len(y)) for (row, _), y in zip(rows, wanted, strict=True)]
    assert found["at_true.f1"] == pytest.approx(f1(made, wanted))
    made = [highest(row, size) for row, size in rows]
    assert found["at_predicted.f1"] == pytest.approx(f1(made, wanted))
    exact = sum(size == len(y) for (_, size), y in zip(rows, wanted, strict=True)) / 512
    assert found["size.exact"] == pytest.approx(exact)
    assert run.results.metrics()["at_true.f1"].value == found["at_true.f1"]


def test_sets_promise_a_share_of_the_labels(run):
    scores, target = run.scored("test")
    inside = run.predictors["conformal"](scores).gather(1, target[:, None]).double().mean()
    coverage = run.results.sets["conformal"].coverage.micro.value
    assert coverage == pytest.approx(float(inside)) and 0.85 < coverage <= 1
    assert len(target) == int(easy_sets().test.label_sets.labels.sum())


def test_the_model_lists_classes_of_new_rows(run):
    model, data = Model.load(run.path), easy_sets()
    inputs = data.test.split.inputs[:20]
    first = torch.searchsorted(data.test.rows, torch.arange(20))
    wanted = run.predictors["top2"](run.scored("test")[0][first])
    assert torch.equal(model.predictors["top2"](model.scores(inputs)), wanted)


def test_the_commands_work(run, tmp_path):
    def said(*words):
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == 0, result.output
        return result.output

    before = run.results.to_json()
    assert "conformal" in said("evaluate", run.path)
    assert Run.open(run.path).results.to_json() == before
    said("report", run.path, "-o", tmp_path / "page.html")
    assert "top2" in (tmp_path / "page.html").read_text()
    said("predict", run.path, run.path / "scores" / "test.safetensors", "-o", tmp_path / "lists.csv")
    with (tmp_path / "lists.csv").open(newline="") as file:
        assert {line["name"] for line in csv.DictReader(file)} == {f"class {j}" for j in range(C)}
    assert "at_true.f1" in said("compare", run.path, "--metrics", "at_true.f1", "--json")


def test_predicted_sizes_are_whole_numbers_from_one_to_the_number_of_classes():
    z = torch.tensor([-50.0, 0.5413, 2.0, 50.0])  # means 1, 2, 3.127, 51
    assert predicted_sizes(z, num_classes=4).tolist() == [1, 2, 3, 4]


def test_a_training_is_repeated_to_the_bit(tmp_path):
    recipe = make_recipe(RECIPE, ["loss=sparse_top", "epochs=2"])
    runs = [train(recipe, tmp_path / name, progress=silent) for name in "ab"]
    first, second = (run.load_scores("test")[0] for run in runs)
    assert torch.equal(first, second)


def test_a_suite_chooses_by_metrics_of_label_sets(tmp_path):
    content = {
        "name": "small",
        "base": RECIPE | {"loss": "binary_ce", "epochs": 2},
        "grid": {"optimizer.lr": [0.001, 0.1]},
        "tune": {"metric": "at_true.f1", "seeds": [0]},
        "seeds": [0, 1, 2],
        "baseline": "bce",
        "methods": {"bce": {}, "sparse": {"overrides": ["loss=sparse_top"]}},
        "metrics": ["at_true.f1", "above_threshold.f1"],
    }
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(content))
    result = CliRunner().invoke(suite_app, ["run", str(tmp_path / "suite.yaml"), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    with (tmp_path / "small" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and {row["grid_point"] for row in rows} == {"lr=0.1"}
    for row in rows:
        run = Run.open(tmp_path / "small" / row["run"])
        assert float(row["at_true.f1"]) == run.results.label_sets["at_true.f1"]
        assert float(row["val"]) == run.results_of("val").label_sets["at_true.f1"]
