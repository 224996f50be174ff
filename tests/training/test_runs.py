import json
import os
import shutil
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from shortlist.metrics import Results
from shortlist.recipes.recipe import load_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import load_network
from shortlist.runs.run import Run, RunError
from shortlist.runs.score_writer import ScoreWriter
from shortlist.runs.scoring import evaluate_run
from shortlist.training.fit import resume, train
from tests.commands import command
from tests.training.small import RECIPE, Stop, epochs_of, same_numbers, silent, small, write_recipe


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(small(), tmp_path_factory.mktemp("runs") / "finished", progress=silent)


def test_a_run_leaves_everything_behind(finished):
    assert finished.state == "finished"
    assert len(epochs_of(finished)) == 4
    assert {"val_macro_average2", "val_top5", "train_loss", "lr"} <= set(epochs_of(finished)[0])
    results = Results.load(finished.path / "results.json")
    assert results.rows == 300 and set(results.sets) == set(RECIPE["predictors"])
    assert Run.open(finished.path).recipe == small()
    # the package's version may leave out what build it is
    assert finished.info["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {p.name for p in (finished.path / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert not list(finished.path.rglob(".*[0-9a-f]-*"))  # no temporary file is left


def test_the_best_epoch_is_the_one_that_is_scored(finished):
    best = max(range(4), key=lambda i: float(epochs_of(finished)[i]["val_macro_average2"]))
    state = torch.load(finished.path / "checkpoints" / "best.ckpt", weights_only=True)
    assert state["epoch"] == best
    model = load_network(finished)
    scores, target = finished.load_scores("test")
    from shortlist.recipes.build import build_data

    data = build_data(finished.recipe)
    with torch.no_grad():
        assert torch.allclose(model(data.test.inputs), scores, atol=1e-6)
    assert torch.equal(target, data.test.targets)
    saved = load_file(finished.path / "model" / "network.safetensors")
    assert all(torch.equal(saved[key], value) for key, value in model.state_dict().items())


def test_results_are_those_of_the_predictors_on_the_scores(finished):
    from shortlist.predictors import AverageK, Conformal, TopK
    from shortlist.priors import class_priors

    val, val_target = finished.scored("val")
    test, target = finished.scored("test")
    priors = class_priors(finished.class_table.class_counts, zero_counts="floor")
    mine = {
        "top2": TopK(2),
        "average2": AverageK(2).calibrate(val),
        "average2_macro": AverageK(2, priors=priors).calibrate(val),
        "conformal": Conformal(coverage=0.8).calibrate(val, val_target),
    }
    results = evaluate_run(finished)
    for name, predictor in mine.items():
        hits = predictor(test).gather(1, target[:, None]).double().mean()
        assert results.sets[name].coverage.micro.value == pytest.approx(float(hits))


@pytest.mark.parametrize("loss", ["noised_topk", "average_k", "role"])
def test_a_resumed_run_has_the_numbers_of_an_uninterrupted_one(loss, tmp_path, finished):
    overrides = [] if loss == "noised_topk" else [f"loss={loss}", "loss.k=2", "epochs=3"]
    whole = finished if not overrides else train(small(*overrides), tmp_path / "whole", progress=silent)

    def stop_in_epoch_2(what, done, total, *_):
        if done == 9 * 1 + 5:  # in the middle of the second epoch of 9 steps
            raise Stop

    with pytest.raises(Stop):
        train(small(*overrides), tmp_path / "stopped", progress=stop_in_epoch_2)
    assert Run.open(tmp_path / "stopped").state == "started"
    same_numbers(resume(tmp_path / "stopped", progress=silent), whole)


def test_resuming_a_finished_run_changes_nothing(finished):
    before = {p: p.stat().st_mtime_ns for p in finished.path.rglob("*") if p.is_file() and p.name != ".lock"}
    resume(finished.path, progress=silent)
    assert before == {p: p.stat().st_mtime_ns for p in before}


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.mark.slow  # four trainings, three of which have to start Python and to import Lightning
def test_a_killed_run_goes_on_and_loses_at_most_an_epoch(tmp_path, finished):
    """SIGKILL at three moments of one run, which then ends with the numbers of an uninterrupted one."""
    recipe = write_recipe(tmp_path)
    folder = tmp_path / "killed"
    start = command("train", recipe, "--out", folder)
    lines_before = 0
    for lines_wanted in (1, 2, 3):
        process = subprocess.Popen(
            start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            file = folder / "epochs.csv"
            if file.is_file() and len(file.read_text().splitlines()) > lines_wanted:
                break
            time.sleep(0.005)
        process.kill()
        process.wait()
        run = Run.open(folder)
        lines = len((folder / "epochs.csv").read_text().splitlines()) - 1
        assert lines >= lines_before
        lines_before = lines - 1  # the checkpoint of the last line may not have been written yet
        start = command("train", "--resume", folder)
    same_numbers(resume(run.path, progress=silent), finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        {"loss": {"name": "average_k", "k": 2}},
        {"loss": {"name": "cross_entropy"}, "reweighting": {"beta": 0.99, "after": 0}},
    ],
    ids=["a choice over the whole batch", "class weights"],
)
def test_two_processes_train_as_one(tmp_path, loss):
    """The same global batches, a loss of the whole batch, the same numbers."""
    changes = {"model": {"name": "mlp", "hidden": [16]}, "epochs": 2, **loss}
    recipe = write_recipe(tmp_path, accelerator="cpu", **changes)
    words = ("train", recipe, "--out", tmp_path / "two", "--devices", 2, "--json")
    done = subprocess.run(command(*words), capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout.splitlines()[-1])
    two = Run.open(tmp_path / "two")
    one = train(load_recipe(recipe, ["devices=1"]), tmp_path / "one", progress=silent)
    for a, b in zip(epochs_of(one), epochs_of(two), strict=True):
        assert {k: float(v) for k, v in a.items()} == pytest.approx(
            {k: float(v) for k, v in b.items()}, abs=1e-4
        )
    assert torch.allclose(one.load_scores("test")[0], two.load_scores("test")[0], atol=1e-4)


@pytest.mark.errors
def test_folders_are_not_shared_by_accident(finished, tmp_path):
    with pytest.raises(RunError, match=r"finished exists: choose another --out, continue that run"):
        train(small(), finished.path, progress=silent)
    with pytest.raises(ValueError, match=r"top9.k must be <= .*Besides, .*finished exists: choose"):
        train(small("predictors={top9: {name: topk, k: 99}}"), finished.path, progress=silent)
    assert finished.state == "finished"
    with (
        RunFolder(finished.path).locked(),
        pytest.raises(RunError, match="in use: another process is working in it"),
    ):
        resume(finished.path, progress=silent)
    with pytest.raises(RunError, match="no such folder"):
        Run.open(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"it has no run.json and recipe.yaml"):
        Run.open(tmp_path / "empty")
    other = tmp_path / "other"
    other.mkdir()
    (other / "recipe.yaml").write_text("{}")
    (other / "run.json").write_text('{"format": "shortlist run 7"}')
    with pytest.raises(RunError, match="its format is 'shortlist run 7'"):
        Run.open(other)


@pytest.mark.parametrize(
    "overrides",
    [
        ["second_stage=retrain_classifier", "second_stage.epochs=2"],
        ["second_stage=weight_scaling", "second_stage.epochs=2", "loss=cross_entropy"],
        ["reweighting.after=1"],
        ["sampler=class_balanced"],
        ["precision=bf16-mixed"],
        ["optimizer=adamw", "optimizer.lr=0.01", "optimizer.clip_norm=1.0"],
        ["schedule=milestones", "schedule.milestones=[1]", "schedule.warm_up=0.5"],
        ["steps=10"],
        ["selection.patience=1", "selection.metric=loss"],
        ["adjust={temperature: fit, tau: fit}"],
        ["adjust={temperature: 2.0, tau: fit}", "loss=cross_entropy"],
        ["adjust.tau=fit"],
        ["adjust.tau=cross_fit"],
        ["adjust.weight_normalization=1"],
        ["loggers=[csv, tensorboard]"],
        ["loss=ldam", "optimizer.lr=0.05"],
        ["data.label_noise=0.4"],
        ["selection.metric=last"],
        ["data.max_per_class=5", "batch_size=8", "epochs=8", "optimizer.lr=0.01"],
    ],
    ids=lambda overrides: overrides[0],
)
def test_settings_run(overrides, tmp_path):
    run = train(small("epochs=2", *overrides), tmp_path / "run", progress=silent)
    assert run.state == "finished"
    assert Results.load(run.path / "results.json").scores.topk[1].micro.value > 1.5 / 12
    if overrides[0].startswith("second_stage"):
        first = torch.load(run.path / "checkpoints/best.ckpt", weights_only=True)["state_dict"]
        second = load_file(run.path / "model" / "network.safetensors")
        features = [key for key in second if "head" not in key]
        assert features and all(torch.equal(second[key], first[f"model.{key}"]) for key in features)
    if overrides[0] == "data.max_per_class=5":
        assert max(run.class_table.counts) == 5
    if overrides[0] == "selection.metric=last":
        assert torch.load(run.path / "checkpoints/best.ckpt", weights_only=True)["epoch"] == 1
    if overrides[0] == "steps=10":
        assert (
            torch.load(run.path / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 18
        )  # 2 epochs of 9
    if overrides[0] == "loggers=[csv, tensorboard]":
        names = {path.name.split(".")[0] for path in (run.path / "logs").iterdir()}
        assert names >= {"metrics", "events"}


def test_label_noise_stays_within_the_genus_and_in_the_training_part(tmp_path):
    from shortlist.recipes.build import build_data

    clean, noisy = build_data(small()), build_data(small("data.label_noise=0.5"))
    groups = clean.class_table.parent_index("genus")[0]
    changed = clean.train.targets != noisy.train.targets
    assert torch.equal(groups[clean.train.targets], groups[noisy.train.targets])
    assert 0.3 < float(changed.double().mean()) < 0.45  # half of them, of which 3/4 in groups of 4
    assert torch.equal(clean.val.targets, noisy.val.targets)
    assert torch.equal(clean.test.targets, noisy.test.targets)


def test_scores_go_to_the_disk_batch_by_batch(tmp_path, monkeypatch):
    added, add = [], ScoreWriter.add

    def noted(writer, scores, target):
        added.append(len(target))
        add(writer, scores, target)

    monkeypatch.setattr(ScoreWriter, "add", noted)
    run = train(small("epochs=1", "data.num_test_rows=700"), tmp_path / "run", progress=silent)
    assert added == [200, 256, 256, 188]  # validation rows, then test rows
    assert run.score_shape("test") == (700, 12)


@pytest.mark.errors
def test_a_run_whose_scores_do_not_fit_on_the_disk_is_not_trained(tmp_path, monkeypatch):
    free = 4 * 12 * (200 + 300) - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    message = (
        r"needs 0\.0 GB for the scores of 500 validation and test rows x 12 classes, got 0\.0 GB of free"
    )
    with pytest.raises(RunError, match=message):
        train(small(), tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()
