"""Runs that were moved, changed or damaged: they go on to the same numbers, or say what is wrong."""

import shutil
import socket

import pytest
import torch
import yaml

from shortlist import Model
from shortlist.model import ModelError, files as model_files
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.doctor import examine_run
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import load_network
from shortlist.runs.run import Run, RunError
from shortlist.runs.scoring import calibrate_again, calibrate_run, evaluate_run
from shortlist.training.fit import resume, train
from tests.run_factory import seal
from tests.training.small import RECIPE, epochs_of, silent
from tests.training.test_epochs import FALLING, epoch_of, stopped_after


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Run:
    return train(make_recipe(RECIPE, ["epochs=2"]), tmp_path_factory.mktemp("runs") / "run", progress=silent)


@pytest.fixture
def copied(finished, tmp_path) -> Run:
    return Run.open(shutil.copytree(finished.path, tmp_path / "copy"))


@pytest.mark.errors
def test_a_recipe_of_a_larger_network_than_the_weights_takes_no_memory(copied):
    recipe = yaml.safe_load((copied.path / "recipe.yaml").read_text())
    recipe["model"]["hidden"] = [10**6, 10**6]
    (copied.path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    seal(copied)
    with pytest.raises(ValueError, match="too large for its weights"):
        load_network(Run.open(copied.path))


@pytest.mark.slow
def test_a_moved_run_remembers_its_best_epoch(tmp_path):
    """The best is an early epoch: it was not to be seen again after the move."""
    whole = train(make_recipe(RECIPE, FALLING), tmp_path / "whole", progress=silent)
    run = stopped_after(6, tmp_path / "here", FALLING)
    best = epoch_of(run, "best")
    run.path.rename(tmp_path / "there")
    moved = resume(tmp_path / "there", progress=silent)
    assert epoch_of(moved, "best") == best == epoch_of(whole, "best") < 5
    assert torch.equal(moved.load_scores("test")[0], whole.load_scores("test")[0])


def test_what_a_kill_left_is_gone_when_the_run_goes_on(tmp_path):
    run = stopped_after(1, tmp_path / "run", [])
    left = run.path / "checkpoints" / f".tmp-{2**22 + 1}-0123abcd-{socket.gethostname()}" / "best.ckpt"
    left.parent.mkdir()
    left.touch()
    resume(run.path, progress=silent)
    assert sorted(path.name for path in left.parents[1].iterdir()) == ["best.ckpt", "last.ckpt"]


def test_metrics_of_an_epoch_have_the_rate_it_was_trained_with(tmp_path):
    """At the end of an epoch the next one's is set already."""
    recipe = make_recipe(RECIPE, ["schedule={name: milestones, milestones: [2, 3]}"])
    run = train(recipe, tmp_path / "run", progress=silent)
    factor = recipe.schedule.factor
    expected = [0.05, 0.05, 0.05 * factor, 0.05 * factor**2]
    assert [float(line["lr"]) for line in epochs_of(run)] == pytest.approx(expected)


@pytest.mark.errors
@pytest.mark.parametrize("changes", [{"epochs": 3}, {"batch_size": 32}, {"optimizer": {"name": "adam"}}])
def test_a_training_does_not_go_on_by_another_recipe(changes, tmp_path):
    run = stopped_after(1, tmp_path / "run", [])
    file = run.path / "recipe.yaml"
    before = file.read_text()
    file.write_text(yaml.safe_dump(yaml.safe_load(before) | changes))
    with pytest.raises(RunError, match=r"recipe.yaml was changed since the training began"):
        resume(run.path, progress=silent)
    file.write_text(yaml.safe_dump(yaml.safe_load(before) | {"workers": 1, "about": "on a larger machine"}))
    run.check_recipe()


@pytest.mark.errors
def test_a_calibration_that_is_stopped_is_noticed(copied, tmp_path, monkeypatch):
    recipe = make_recipe(copied.recipe.model_dump(), ["adjust.tau=0.5"])
    saved = []

    def stop_at_the_second(predictor, path):
        saved.append(path)
        if len(saved) == 2:
            raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(model_files, "save", stop_at_the_second)
        with pytest.raises(OSError, match="no space"):
            calibrate_again(copied, recipe)
    with pytest.raises(ModelError, match="was stopped while it was calibrated: calibrate it again"):
        Model.load(copied.path)
    copied = calibrate_again(copied, recipe)
    assert copied.state == "finished" and copied.recipe.adjust.tau == 0.5
    assert copied.score_map.now.power == 0.5
    there = (copied.path / "results.json").read_text()
    calibrate_again(copied, copied.recipe)
    assert (copied.path / "results.json").read_text() == there


@pytest.mark.errors
def test_a_calibration_that_cannot_be_measured_changes_nothing(copied):
    """Test rows are measured first: what was calibrated before still stands whole."""
    (copied.path / "scores" / "test.safetensors").write_bytes(b"other")
    before = {path: path.read_bytes() for path in copied.path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"test\.safetensors is damaged"):
        calibrate_again(copied, make_recipe(copied.recipe.model_dump(), ["adjust.tau=0.5"]))
    assert {path: path.read_bytes() for path in copied.path.rglob("*") if path.is_file()} == before


@pytest.mark.errors
def test_calibrating_waits_for_nobody_and_for_the_end_of_training(copied, tmp_path):
    with RunFolder(copied.path).locked(), pytest.raises(RunError, match="in use"):
        calibrate_again(copied, copied.recipe)
    run = stopped_after(1, tmp_path / "run", [])
    with pytest.raises(RunError, match="is not finished: go on with shortlist train --resume"):
        calibrate_again(run, run.recipe)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("file", "content", "call", "message"),
    [
        ("run.json", "[]", lambda run: Run.open(run.path), "must hold a mapping of keys to values, got list"),
        (
            "run.json",
            '{"format": "shortlist run 3"}',
            lambda run: Run.open(run.path),
            "its checksum is of other content",
        ),
        ("run.json", "\xff", lambda run: Run.open(run.path), "run.json is no text"),
        (
            "model/score_map.json",
            "{}",
            lambda run: run.scored("test"),
            "score_map.json is damaged or was changed",
        ),
        ("model/model.json", "{}", lambda run: run.scored("test"), "model.json is damaged or was changed"),
        ("scores/declared.json", "[]", calibrate_run, "declared.json is damaged or was changed"),
        ("scores/test.safetensors", "", evaluate_run, "test.safetensors is damaged or was changed"),
        ("model/network.safetensors", "half", load_network, "network.safetensors is damaged or was changed"),
    ],
)
def test_damaged_files_are_named(file, content, call, message, copied):
    (copied.path / file).write_bytes(content.encode("latin1"))
    with pytest.raises((RunError, ModelError), match=message):
        call(copied)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("file", "call", "message"),
    [
        ("model/score_map.json", evaluate_run, "score_map.json is missing"),
        ("model/predictors/average2.json", evaluate_run, "average2.json is missing"),
        ("model/model.json", evaluate_run, "model.json is missing"),
        ("model/score_map.json", lambda run: Model.load(run.path), "score_map.json is missing"),
        ("model/predictors/average2.json", lambda run: Model.load(run.path), "average2.json is missing"),
        ("scores/declared.json", calibrate_run, "declared.json is missing"),
    ],
)
def test_what_is_missing_is_named_and_no_number_changes(file, call, message, copied):
    before = (copied.path / "results.json").read_text()
    (copied.path / file).unlink()
    with pytest.raises((RunError, ModelError), match=message):
        call(copied)
    assert (copied.path / "results.json").read_text() == before


@pytest.mark.errors
def test_a_run_that_lost_its_best_epoch_does_not_take_another(copied):
    RunFolder(copied.path).set_state("trained")
    (copied.path / "model" / "network.safetensors").unlink()
    (copied.path / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(RunError, match=r"has lost its best epoch: .*best.ckpt is missing"):
        resume(copied.path, progress=silent)


@pytest.mark.errors
def test_a_run_of_an_earlier_format_is_refused_by_name(copied):
    info = (copied.path / "run.json").read_text()
    (copied.path / "run.json").write_text(info.replace("shortlist run 3", "shortlist run 1"))
    with pytest.raises(
        RunError, match=r"by an earlier version \(shortlist run 1\), whose runs have no manifest"
    ):
        Run.open(copied.path)


@pytest.mark.errors
def test_half_a_checkpoint_is_named(tmp_path):
    run = stopped_after(1, tmp_path / "run", [])
    last = run.path / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(RunError, match=r"last.ckpt cannot be read"):
        resume(run.path, progress=silent)


@pytest.mark.errors
@pytest.mark.parametrize("metric", ["top1", "average2"])
def test_a_training_that_diverged_says_so(metric, tmp_path):
    changes = ["optimizer.lr=1e30", "loss=cross_entropy", "epochs=1", f"selection.metric={metric}"]
    with pytest.raises(ValueError, match=r"the training diverged; try a smaller optimizer.lr"):
        train(make_recipe(RECIPE, changes), tmp_path / "run", progress=silent)


@pytest.mark.errors
@pytest.mark.skipif(torch.cuda.is_available(), reason="it has what is asked for")
def test_a_machine_without_what_the_recipe_wants(tmp_path):
    with pytest.raises(ValueError, match="this machine cannot train with accelerator gpu, devices 1"):
        train(make_recipe(RECIPE, ["accelerator=gpu"]), tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_networks_of_vectors_take_images_by_their_size(model, tmp_path):
    data = {"name": "glyphs", "characters": "abcdefghijkl", "train_images": 120}
    data["cache"] = str(tmp_path / "cache")
    recipe = make_recipe(RECIPE | {"data": data, "model": {"name": model}, "epochs": 1})
    run = train(recipe, tmp_path / "run", progress=silent)
    assert load_network(run)(torch.zeros(3, 1, 32, 32)).shape == (3, 12)


def findings(run: Run) -> dict[str, str]:
    return {one.file: one.remedy for one in examine_run(run.path)}


@pytest.mark.errors
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("results.json", "evaluate"),
        ("model/score_map.json", "calibrate"),
        ("model/predictors/average2.json", "calibrate"),
        ("model/network.safetensors", "train --resume"),
        ("model/class_table.json", "train --resume"),
        ("model/model.json", "train --resume"),
        ("scores/val.safetensors", "train --resume"),
        ("scores/declared.json", "train --resume"),
        ("epochs.csv", "train --resume"),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
def test_what_the_doctor_says_restores_every_number(file, command, gone, copied):
    """The commands are those of the shell, on a run whose file is gone or has one bit flipped."""
    whole = {name: (copied.path / name).read_bytes() for name in copied.info["files"]}
    assert findings(copied) == {}
    path = copied.path / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.unlink()
    if not gone:
        path.write_bytes(content)
    (remedy,) = findings(copied).values()
    assert remedy.startswith(f"shortlist {command} {copied.path}")
    if command == "evaluate":
        evaluate_run(copied)
    elif command == "calibrate":
        calibrate_again(copied, copied.recipe)
    else:
        with pytest.warns(UserWarning, match=f"made again from the checkpoints: {file}"):
            resume(copied.path, progress=silent)
    assert findings(copied) == {} and copied.state == "finished"
    for name in ("results.json", "epochs.csv", "scores/test.safetensors", "scores/val.safetensors"):
        assert (copied.path / name).read_bytes() == whole[name], name


@pytest.mark.errors
@pytest.mark.parametrize("file", ["recipe.yaml", "checkpoints/best.ckpt"])
def test_what_nothing_else_holds_is_not_made_up(file, copied):
    (copied.path / file).write_bytes(b"other")
    (remedy,) = findings(copied).values()
    assert "put it back from a copy" in remedy
    with pytest.raises(RunError, match=rf"{file} is (missing or )?damaged"):
        resume(copied.path, progress=silent)


@pytest.mark.errors
def test_damage_is_not_taken_into_the_manifest_by_a_calibration(copied):
    (copied.path / "epochs.csv").write_text("epoch,lr\n0,0.5\n")
    calibrate_again(copied, copied.recipe)
    assert list(findings(copied)) == ["epochs.csv"]


@pytest.mark.errors
def test_the_doctor_names_strangers_leftovers_and_unfinished_runs(copied, tmp_path):
    (copied.path / "results_val.json").write_text("{}")
    (copied.path / "scores" / ".tmp-1-0123abcd-elsewhere").mkdir()
    assert list(findings(copied)) == ["results_val.json", "scores/.tmp-1-0123abcd-elsewhere"]
    assert not copied.has_results("val")
    with pytest.raises(RunError, match=r"results_val.json is not a file that was written here"):
        copied.results_of("val")
    run = stopped_after(1, tmp_path / "run", [])
    assert findings(run) == {"run.json": f"shortlist train --resume {run.path}"}


@pytest.mark.errors
def test_files_of_another_run_are_not_taken_for_its_own(copied, tmp_path):
    """Same sizes, same shapes, all whole, of the same recipe with another seed."""
    other = train(make_recipe(RECIPE, ["epochs=2", "seed=1"]), tmp_path / "other", progress=silent)
    for name in ("results.json", "scores/test.safetensors", "model/score_map.json", "model/model.json"):
        mixed = Run.open(shutil.copytree(copied.path, tmp_path / name.replace("/", "-")))
        shutil.copy(other.path / name, mixed.path / name)
        with pytest.raises((RunError, ModelError), match=rf"{name} is damaged or was changed"):
            mixed.results if name == "results.json" else evaluate_run(mixed)


@pytest.mark.errors
def test_nothing_is_removed_where_the_data_are_gone(copied, monkeypatch):
    """What is whole of the run stays, since it could not be made again."""
    (copied.path / "model" / "network.safetensors").write_bytes(b"damaged")
    before = {path: path.read_bytes() for path in copied.path.rglob("*") if path.is_file()}

    def gone(*_, **__):
        raise FileNotFoundError("the data are gone")

    monkeypatch.setattr("shortlist.recipes.parts.build_data", gone)
    with pytest.raises(FileNotFoundError), pytest.warns(UserWarning, match="made again from the checkpoints"):
        resume(copied.path, progress=silent)
    after = {path: path.read_bytes() for path in copied.path.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before


def test_files_of_somebody_else_in_a_run_stay(copied):
    (copied.path / "model" / "notes.txt").write_text("mine")
    (copied.path / "results_mine.json").write_text("mine")
    (copied.path / "scores" / "val.safetensors").unlink()
    with pytest.warns(UserWarning, match="made again from the checkpoints: scores/val"):
        resume(copied.path, progress=silent)
    assert (copied.path / "model" / "notes.txt").read_text() == "mine"
    assert (copied.path / "results_mine.json").read_text() == "mine"


@pytest.mark.errors
def test_a_calibration_that_was_stopped_may_be_finished_by_training(copied, monkeypatch):
    """The scores are made again there: they may differ in a digit, and are taken into the manifest."""
    RunFolder(copied.path).set_state(
        "calibrating", rewriting=("recipe.yaml", "model/model.json", "results.json")
    )
    scores, target = copied.load_scores("test")
    assert resume(copied.path, progress=silent).state == "finished"
    RunFolder(copied.path).save_scores("test", {"set": scores + 1}, target)
    assert findings(copied) == {}
