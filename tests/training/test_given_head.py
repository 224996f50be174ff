"""A head that somebody trained elsewhere is scored, calibrated and measured; nothing is trained."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from shortlist.model import Model
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import RecipeError
from shortlist.runs.doctor import examine_run
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import Run
from shortlist.training.fit import resume, train
from shortlist.training.remake import find_lost
from tests.commands import output_of
from tests.training.small import RECIPE, Stop, same_numbers, silent, small

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*"),
    pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning"),
]


def write_head(folder: Path, classes: int = 12) -> Path:
    """Weights of a linear classifier by the nearest mean of the training rows, without a training."""
    train_rows = build_data(small()).train
    inputs = torch.stack([train_rows[row][0] for row in range(len(train_rows))])
    mean = torch.stack([inputs[train_rows.targets == c].mean(0) for c in range(classes)])
    save_file({"head.weight": mean, "head.bias": -mean.square().sum(1) / 2}, folder / "head.safetensors")
    return folder / "head.safetensors"


def given(head: Path, *overrides: str):
    """The recipe that measures the head."""
    settings = ["model=linear", f"model.weights_file={head}", "epochs=0", "loss=cross_entropy"]
    return small(*settings, *overrides)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("given")
    head = write_head(folder)
    return head, train(given(head), folder / "run", progress=silent)


def expected_scores(head: Path, run: Run, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the head by a matrix product, and the classes."""
    weights = load_file(head)
    split = getattr(build_data(run.recipe), part)
    inputs = np.stack([split[row][0].numpy() for row in range(len(split))]).astype(np.float64)
    scores = inputs @ weights["head.weight"].numpy().T.astype(np.float64) + weights["head.bias"].numpy()
    return scores, split.targets.numpy()


def test_scores_and_accuracies_are_those_of_the_head(measured):
    head, run = measured
    for part in ("val", "test"):
        scores, targets = expected_scores(head, run, part)
        saved, saved_targets = run.load_scores(part)
        np.testing.assert_allclose(saved.numpy(), scores, atol=1e-5)
        assert saved_targets.tolist() == targets.tolist()
    assert run.results.metrics()["top1.micro"].value > 0.3  # or this head shows nothing
    hits = (np.argsort(-scores, axis=1)[:, :3] == targets[:, None]).any(axis=1)
    assert run.results.metrics()["top3.micro"].value == pytest.approx(hits.mean())


def test_sets_are_calibrated_on_validation_rows_and_the_model_is_saved(measured):
    """Average-2 sets: all classes above the probability that 2 of each validation row exceed on average."""
    head, run = measured
    val, test = (np.exp(expected_scores(head, run, part)[0]) for part in ("val", "test"))
    val, test = val / val.sum(1, keepdims=True), test / test.sum(1, keepdims=True)
    ordered = np.sort(val.ravel())[::-1]
    between = ordered[2 * len(val) - 1 : 2 * len(val) + 1].mean()
    sets = test >= between
    expected = sets[np.arange(len(sets)), expected_scores(head, run, "test")[1]].mean()
    assert run.results.metrics()["sets.average2.coverage.micro"].value == pytest.approx(expected)
    model = Model.load(run.path / "model")
    rows = torch.stack([build_data(run.recipe).test[row][0] for row in range(4)])
    scores = torch.as_tensor(expected_scores(head, run, "test")[0][:4])
    assert torch.allclose(model.network(rows).double(), scores, atol=1e-5)
    promise = run.predictors["conformal"].promise
    assert promise is not None and promise.rows == 200 and promise.rows_also == ""


def test_a_stopped_run_goes_on_to_the_same_numbers(measured, tmp_path):
    head, run = measured

    def stop(what: str, *_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        train(given(head), tmp_path / "run", progress=stop)
    assert Run.open(tmp_path / "run").state != "finished"
    same_numbers(run, resume(tmp_path / "run", progress=silent))


def test_lost_files_are_made_again(measured, tmp_path):
    head, run = measured
    again = train(given(head, "selection.keep=[macro_top1, last]"), tmp_path / "run", progress=silent)
    for name in ("epochs.csv", "results.json", "model/network.safetensors"):
        (again.path / name).unlink()
    with pytest.warns(UserWarning, match="made again from the checkpoints"):
        made = resume(again.path, progress=silent)
    same_numbers(run, made)
    # another run may begin with it
    other = given(head, "selection.metric=macro_top1")
    same_numbers(made, train(other, tmp_path / "other", first_stage=made.path))
    assert not find_lost(RunFolder(made.path)) and not examine_run(made.path)


def test_verbs_take_a_run_without_training(measured, tmp_path):
    head, run = measured
    recipe = tmp_path / "recipe.json"
    changes = {"model": {"name": "linear", "weights_file": str(head)}, "loss": "cross_entropy", "epochs": 0}
    recipe.write_text(json.dumps(RECIPE | changes))
    said = output_of("train", recipe, "--out", tmp_path / "given")
    assert "Nothing was trained" in said
    same_numbers(run, Run.open(tmp_path / "given"))
    trained = train(small("model=linear", "loss=cross_entropy"), tmp_path / "trained", progress=silent)
    said = output_of("compare", run.path, trained.path, "--metrics", "top1.micro", "--json")
    values = [row["metrics"]["top1.micro"]["value"] for row in json.loads(said)["rows"]]
    assert values == [each.results.metrics()["top1.micro"].value for each in (run, trained)]
    output_of("report", run.path, trained.path, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "nothing was trained" in page


def test_a_classifier_is_trained_on_given_features(tmp_path):
    """A second stage begins with the given network, also where its classifier is for other classes."""
    head = write_head(tmp_path, classes=7)
    with pytest.warns(UserWarning, match="left as drawn: head.weight"):
        run = train(given(head, "second_stage={name: retrain_classifier, epochs: 2}"), tmp_path / "run")
    assert len(run.epochs) == 2 and run.info["kept_epoch"]["second_stage"]


@pytest.mark.errors
def test_nothing_to_measure_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"epochs must be >= 1 without model\.weights_file, got 0"):
        small("epochs=0")
    head = write_head(tmp_path, classes=7)
    wanted = r"epochs must be >= 1: .*has no fitting head\.weight, head\.bias"
    with pytest.warns(UserWarning, match="left as drawn"), pytest.raises(ValueError, match=wanted):
        train(given(head), tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()
