"""One training keeps the best epochs of several metrics, and other runs begin with them."""

import os
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from shortlist.cli import app
from shortlist.model import Model
from shortlist.recipes.content import recipe_hash, training_hash
from shortlist.runs.doctor import examine_run
from shortlist.runs.kept_epoch import kept_epoch_of
from shortlist.runs.run import Run, RunError
from shortlist.training.fit import resume, train
from tests.training.small import Stop, epochs_of, silent, small

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*"),
    pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning"),
]

METRICS = ("macro_top1", "macro_average3", "loss", "last")
RETRAINED = ["second_stage={name: retrain_classifier, epochs: 2}"]
SCALED = ["second_stage={name: weight_scaling, epochs: 2}"]
MANY = ["epochs=7", "loss=cross_entropy", "optimizer.lr=0.3"]  # so that the best epochs differ


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Run:
    """A run that keeps the epochs of all metrics."""
    recipe = small(*MANY, f"selection.keep=[{', '.join(METRICS)}]")
    return train(recipe, tmp_path_factory.mktemp("source") / "run", progress=silent)


def numbers_of(run: Run) -> list:
    """All that was computed of held-out rows."""
    scores = [run.load_scores(part) for part in ("val", "test")]
    return [(run.path / "results.json").read_text(), [x.tolist() for pair in scores for x in pair]]


def test_the_best_epoch_of_each_metric_is_kept(source):
    lines = epochs_of(source)
    columns = {"macro_top1": "val_macro_top1", "macro_average3": "val_macro_average3", "loss": "train_loss"}
    kept = {}
    for metric, column in columns.items():
        values = [float(line[column]) for line in lines]
        best = values.index(min(values) if metric == "loss" else max(values))
        checkpoint = torch.load(source.path / f"checkpoints/best_{metric}.ckpt", weights_only=True)
        kept[metric] = checkpoint["epoch"]
        assert kept[metric] == best, metric
    assert len({*kept.values(), kept_epoch_of(source.info).epoch - 1, 6}) > 2  # or this shows nothing
    assert not (source.path / "checkpoints/best_last.ckpt").exists()


@pytest.mark.parametrize(
    ("metric", "second"),
    [
        ("macro_top1", []),
        ("last", RETRAINED),
        *(pytest.param("macro_top1", second, marks=pytest.mark.slow) for second in (RETRAINED, SCALED)),
        *(pytest.param(metric, [], marks=pytest.mark.slow) for metric in ("macro_average2", *METRICS[1:])),
    ],
)
def test_a_run_of_kept_epochs_has_the_numbers_of_a_training_of_its_own(source, tmp_path, metric, second):
    recipe = small(*MANY, f"selection.metric={metric}", *second)
    alone = train(recipe, tmp_path / "alone", progress=silent)
    told = []
    made = train(recipe, tmp_path / "made", first_stage=source.path, progress=lambda *a: told.append(a[0]))
    assert numbers_of(made) == numbers_of(alone)
    assert kept_epoch_of(made.info) == kept_epoch_of(alone.info)
    assert "training" not in told and ("second stage" in told) == bool(second)
    assert (tmp_path / "made" / made.info["first_stage_from"]).resolve() == source.path
    assert "first_stage_from" not in alone.info
    assert examine_run(made.path) == []
    assert Model.load(made.path).classes.ids == Model.load(alone.path).classes.ids
    shared = source.path / "checkpoints/last.ckpt"
    assert os.path.samefile(made.path / "checkpoints/last.ckpt", shared)


def test_what_is_kept_does_not_change_a_run(source, tmp_path):
    alone = train(small(*MANY), tmp_path / "alone", progress=silent)
    assert numbers_of(alone) == numbers_of(source)
    assert recipe_hash(alone.recipe) == recipe_hash(source.recipe)
    assert training_hash(alone.recipe) == training_hash(source.recipe)


def test_a_stopped_run_of_kept_epochs_goes_on(source, tmp_path):
    recipe = small(*MANY, "selection.metric=macro_top1", *RETRAINED)
    alone = train(recipe, tmp_path / "alone", progress=silent)

    def stop(what: str, done: int, total: int, *_: object) -> None:
        if what == "second stage" and done > total // 2:
            raise Stop

    with pytest.raises(Stop):
        train(recipe, tmp_path / "made", first_stage=source.path, progress=stop)
    assert Run.open(tmp_path / "made").state == "started"
    assert numbers_of(resume(tmp_path / "made", progress=silent)) == numbers_of(alone)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (["selection.metric=top3"], "has not kept the best epoch by top3: it has macro_average2, macro_top1"),
        (["optimizer.lr=0.1"], "was trained with another optimizer"),
        (["seed=1"], "was trained with another seed"),
        (["selection.metric=macro_top1", "selection.patience=2"], "another selection"),
    ],
)
def test_other_trainings_are_refused(source, tmp_path, changes, fault):
    with pytest.raises(RunError, match=fault):
        train(small(*MANY, *changes), tmp_path / "made", first_stage=source.path, progress=silent)
    assert not (tmp_path / "made").exists()


def test_a_run_that_is_not_finished_is_no_source(tmp_path):
    def stop(*_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        train(
            small(), tmp_path / "begun", progress=lambda what, *_: stop() if what == "scoring val" else None
        )
    with pytest.raises(RunError, match="is not finished: its state is 'trained'"):
        train(small(), tmp_path / "made", first_stage=tmp_path / "begun", progress=silent)


def test_a_damaged_epoch_is_refused(source, tmp_path):
    copy = Path(shutil.copytree(source.path, tmp_path / "copy"))
    file = copy / "checkpoints/best_macro_top1.ckpt"
    file.unlink()  # its other names must not change
    file.write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"best_macro_top1.ckpt is damaged"):
        train(
            small(*MANY, "selection.metric=macro_top1"), tmp_path / "made", first_stage=copy, progress=silent
        )
    assert not (tmp_path / "made").exists()


def test_more_classes_than_there_are_cannot_be_kept(tmp_path):
    with pytest.raises(ValueError, match=r"selection.keep must be for at most 12 classes, got top13"):
        train(small("selection.keep=[top13]"), tmp_path / "run", progress=silent)


def test_the_command(source, tmp_path):
    made = tmp_path / "made"
    words = ["train", "--from", str(source.path), "--set", "selection.metric=macro_top1", "--out", str(made)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert (
        Run.open(made).recipe.selection.metric == "macro_top1" and Run.open(made).recipe.selection.keep == []
    )
    wrong = CliRunner().invoke(app, words[:-2])
    assert wrong.exit_code != 0 and "--from needs --out" in str(wrong.exception)


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/guides/runs.md").read_text()
    section = page.split("## One training, several runs")[1].split("```")[1]
    monkeypatch.chdir(tmp_path)
    for line in section.strip().splitlines():
        fewer = ["--set", "epochs=2"] if "--from" not in line else []
        done = CliRunner().invoke(app, [*shlex.split(line)[1:], *fewer])
        assert done.exit_code == 0, (line, done.output)
    assert len(list(tmp_path.glob("runs/*/results.json"))) == 3
