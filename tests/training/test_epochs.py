"""Which epochs are validated, kept and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count

import pytest
import torch

from shortlist.losses import LABEL_SET_LOSSES
from shortlist.recipes.loss_sections import LOSS_SECTIONS
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.kept_epoch import KeptEpoch, kept_epoch_of
from shortlist.runs.network import load_network
from shortlist.runs.run import Run
from shortlist.training.fit import resume, train
from shortlist.training.module import SetClassifier
from tests.training.small import RECIPE, Stop, epochs_of, same_numbers, silent, write_recipe

STEPS = 9  # of an epoch


def stopped_after(epochs, path, overrides):
    """A run that fails in the middle of the epoch after so many."""

    def report(what, done, total, *_):
        if what == "training" and done == STEPS * epochs + 4:
            raise Stop

    with pytest.raises(Stop):
        train(make_recipe(RECIPE, overrides), path, progress=report)
    return Run.open(path)


def epoch_of(run, name, folder="checkpoints"):
    return torch.load(run.path / folder / f"{name}.ckpt", weights_only=True)["epoch"]


# With this rate the metric falls from epoch to epoch: the best is an early one, where most scores are tied.
FALLING = [
    "epochs=8",
    "optimizer.lr=0.5",
    "selection.metric=top1",
    "predictors={top2: {name: topk, k: 2}}",
]


def test_the_last_epoch_is_kept_to_go_on_from_also_where_it_is_not_the_best(tmp_path):
    run = stopped_after(6, tmp_path / "run", FALLING)
    values = [float(line["val_top1"]) for line in epochs_of(run)]
    assert epoch_of(run, "best") == values.index(max(values)) < 5
    assert epoch_of(run, "last") == 5 == len(values) - 1


@pytest.fixture(scope="module")
def every_third(tmp_path_factory):
    recipe = make_recipe(RECIPE, [*FALLING, "validate_every=3"])
    return train(recipe, tmp_path_factory.mktemp("runs") / "third", progress=silent)


def test_validation_every_n_epochs_and_after_the_last(every_third):
    lines = epochs_of(every_third)
    validated = [i for i, line in enumerate(lines) if line["val_top1"]]
    assert validated == [2, 5, 7] and len(lines) == 8
    assert all(line["train_loss"] for line in lines)
    assert all(not line["val_macro_top5"] for i, line in enumerate(lines) if i not in validated)
    best = max(validated, key=lambda i: float(lines[i]["val_top1"]))
    assert epoch_of(every_third, "best") == best and epoch_of(every_third, "last") == 7
    kept = kept_epoch_of(every_third.info)
    assert kept == KeptEpoch(best + 1, 8, "top1", float(lines[best]["val_top1"]))
    share = f"{100 * float(lines[best]['val_top1']):.1f} %"
    assert kept.words() == (
        f"Epoch {best + 1} of 8 was kept: it has the best top1 on the validation rows, {share}."
    )


def test_the_training_is_the_same_however_often_it_is_validated(every_third, tmp_path):
    always = train(make_recipe(RECIPE, FALLING), tmp_path / "always", progress=silent)
    for often, seldom in zip(epochs_of(always), epochs_of(every_third), strict=True):
        assert all(often[key] == value for key, value in seldom.items() if value)


@pytest.mark.parametrize("more", [[], ["validate_every=3"], ["selection.patience=2"]])
def test_progress_says_which_epoch_its_numbers_are_of(more, tmp_path):
    """By the lines of epochs.csv: the numbers in the middle of an epoch are those of an epoch before."""
    told = []
    run = train(
        make_recipe(RECIPE, [*FALLING, *more]),
        tmp_path / "run",
        progress=lambda what, done, total, metrics=(): told.append((what, done, dict(metrics))),
    )
    found = [(done, metrics) for what, done, metrics in told if what == "training"]
    lines = epochs_of(run)
    for done, metrics in found[:-1]:
        assert metrics["epoch"] == -(-done // STEPS)
    for _, metrics in found:
        if "train_loss" in metrics:
            assert metrics["train_loss"] == float(lines[int(metrics["loss_epoch"]) - 1]["train_loss"])
        if "val_top1" in metrics:
            assert metrics["val_top1"] == float(lines[int(metrics["measured_epoch"]) - 1]["val_top1"])
    last, kept = found[-1][1], kept_epoch_of(run.info)
    assert last["epoch"] == last["loss_epoch"] == last["measured_epoch"] == kept.epochs == len(lines)
    assert sum("val_top1" in metrics for _, metrics in found) > STEPS


@pytest.mark.parametrize("epochs", [1, 4, 7])
def test_a_resumed_run_is_validated_at_the_same_epochs(epochs, every_third, tmp_path):
    run = stopped_after(epochs, tmp_path / "run", [*FALLING, "validate_every=3"])
    same_numbers(resume(run.path, progress=silent), every_third)


@pytest.mark.parametrize("metric", ["last", "loss"])
def test_only_validated_epochs_are_chosen(metric, tmp_path):
    overrides = ["epochs=5", "validate_every=2", f"selection.metric={metric}"]
    run = train(make_recipe(RECIPE, overrides), tmp_path / "run", progress=silent)
    lines = epochs_of(run)
    assert [i for i, line in enumerate(lines) if line["val_top1"]] == [1, 3, 4]
    by_loss = min((1, 3, 4), key=lambda i: float(lines[i]["train_loss"]))
    assert epoch_of(run, "best") == (4 if metric == "last" else by_loss)
    loss = float(lines[by_loss]["train_loss"])
    want = (5, None) if metric == "last" else (by_loss + 1, loss)
    kept = kept_epoch_of(run.info)
    assert (kept.epoch, kept.value) == want and kept.epochs == 5
    reason = "the last one" if metric == "last" else f"the lowest training loss, {loss:.4g}"
    assert kept.words().endswith(f"{reason}.")


@pytest.mark.parametrize("every", [1, 2])
def test_patience_counts_validated_epochs_and_a_stopped_training_is_over(every, tmp_path):
    more = ["epochs=12", "selection.patience=2", f"validate_every={every}"]
    second = ["second_stage=retrain_classifier", "second_stage.epochs=2"]
    run = train(make_recipe(RECIPE, [*FALLING, *more, *second]), tmp_path / "run", progress=silent)
    lines = epochs_of(run)
    values = [float(line["val_top1"]) for line in lines if line["val_top1"]]
    assert len(values) == len(lines) // every and len(lines) < 12
    assert values.index(max(values)) == len(values) - 3  # two without a better one
    kept = kept_epoch_of(run.info)
    assert kept.second_stage and kept.epochs == 2 and " of the second stage was kept" in kept.words()
    assert kept.epoch == epoch_of(run, "best", "second_stage") + 1
    assert kept.value == run.epochs[len(lines) + kept.epoch - 1]["val_top1"]
    before = (run.path / "results.json").read_text()
    RunFolder(run.path).set_state("started")  # as if killed between the stages
    for path in (run.path / "second_stage").iterdir():
        path.unlink()
    resume(run.path, progress=silent)
    assert epochs_of(run) == lines and (run.path / "results.json").read_text() == before


def test_a_run_with_deferred_weights_is_resumed(tmp_path):
    overrides = ["epochs=3", "reweighting.after=1"]
    whole = train(make_recipe(RECIPE, overrides), tmp_path / "whole", progress=silent)
    for epochs in (1, 2):  # before and after the weights have started
        run = stopped_after(epochs, tmp_path / f"stopped{epochs}", overrides)
        same_numbers(resume(run.path, progress=silent), whole)
    plain = train(make_recipe(RECIPE, ["epochs=3"]), tmp_path / "plain", progress=silent)
    losses = [[float(line["train_loss"]) for line in epochs_of(run)] for run in (whole, plain)]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5) and losses[0][1] != losses[1][1]


def test_every_loss_with_class_weights_can_be_reweighted():
    from shortlist.recipes.build import build_data, build_model
    from shortlist.recipes.parts import Parts

    data = build_data(make_recipe(RECIPE))
    for name in set(LOSS_SECTIONS) - {"role", "pairwise_margin", *LABEL_SET_LOSSES}:
        recipe = make_recipe(RECIPE, [f"loss={name}", "reweighting.after=0", "reweighting.beta=0.9"])
        sample = data.train[0][0]
        parts = Parts.of(recipe, data, sample, build_model(recipe, 12, sample))
        SetClassifier(recipe, parts).on_train_batch_start(None, 0)
        counts = data.class_table.class_counts.double()
        weight = 0.1 / (1 - 0.9 ** counts.clamp(min=1))
        torch.testing.assert_close(parts.loss.weight.double(), weight / weight.mean(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "number", [pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGTERM)]
)
def test_a_stopped_run_says_how_to_go_on_and_does_not_look_finished(number, tmp_path):
    recipe = write_recipe(tmp_path, epochs=500)
    folder = tmp_path / "a run"
    process = subprocess.Popen(
        [sys.executable, "-m", "shortlist", "train", str(recipe), "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # jobs in the background ignore it
    )
    deadline = time.monotonic() + 120
    while not (folder / "checkpoints" / "last.ckpt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    out, said = process.communicate(timeout=120)
    assert process.returncode == {signal.SIGINT: 1, signal.SIGTERM: 143}[number] and not out
    assert f"stopped; to go on: shortlist train --resume '{folder}'" in said
    assert json.loads((folder / "run.json").read_text())["state"] == "started"


@pytest.mark.errors
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss.k=0"], "k must be an integer >= 1, got 0"),
        (["selection.metric=top50"], "selection.metric must be for at most 12 classes, got top50"),
        (["selection.metric=average0"], "selection.metric must be for at most 12 classes, got average0"),
        (["predictors.top2.k=50"], r"predictors.top2.k must be <= the number of classes \(12\), got 50"),
        (["predictors.conformal.coverage=2"], "predictors.conformal: coverage must be"),
        (["loss=average_k", "loss.k=2", "second_stage=weight_scaling"], "head must be .* got TwoHead"),
        (["loss=ldam", "adjust.weight_normalization=1"], "adjust.weight_normalization must be left out"),
        (["model.hidden=[-3]"], "model: mlp .*cannot be made|hidden must be"),
        (["accelerator=abacus"], "abacus"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_found_before_training_and_leaves_no_folder(overrides, message, tmp_path):
    def report(what, *_):
        assert what != "training"

    with pytest.raises(ValueError, match=message):
        train(make_recipe(RECIPE, overrides), tmp_path / "run", progress=report)
    assert not list(tmp_path.iterdir())


def test_a_new_folder_can_be_resumed_from_its_first_moment(tmp_path, monkeypatch):
    seen = []
    rename = type(tmp_path).rename
    monkeypatch.setattr(
        type(tmp_path), "rename", lambda a, b: (seen.append({p.name for p in a.iterdir()}), rename(a, b))[1]
    )
    run = RunFolder.create(tmp_path / "new" / "run", make_recipe(RECIPE))
    assert seen == [{"recipe.yaml", "run.json"}] and run.state == "started"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run"]


def test_the_seconds_of_each_epoch_are_kept(tmp_path, monkeypatch):
    """By a clock that ticks once each time it is read: at the start of an epoch and after each step."""
    monkeypatch.setattr("shortlist.training.callbacks.perf_counter", count().__next__)
    stopped_after(2, tmp_path / "run", ["epochs=4"])
    run = resume(tmp_path / "run", progress=silent)
    assert run.info["epoch_seconds"] == [STEPS] * 4
    assert "seconds" not in epochs_of(run)[0]


def test_metrics_may_have_any_number(tmp_path):
    overrides = ["epochs=1", "selection.metric=macro_average2.50"]
    run = train(make_recipe(RECIPE, overrides), tmp_path / "run", progress=silent)
    assert "val_macro_average2.50" in epochs_of(run)[0]
    assert load_network(run) is not None


def test_other_processes_do_not_wait_for_one_that_has_nothing_to_train(every_third, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert resume(every_third.path, progress=silent).state == "finished"
