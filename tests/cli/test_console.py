"""What the verbs print."""

import io
import json
import re
import warnings
from itertools import pairwise
from types import SimpleNamespace

import torch
from rich.console import Console
from typer.testing import CliRunner

from shortlist._progress import each, progress_report
from shortlist.class_table import ClassTable
from shortlist.cli import app
from shortlist.cli._console import warnings_as_lines, working
from shortlist.cli._results import metrics_table, promise_lines
from shortlist.metrics import evaluate
from shortlist.predictors import Conformal, TopK
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.training.small import RECIPE


def test_numbers_are_never_cut_in_a_narrow_window():
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(400, 30, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    name = "a_predictor_with_a_long_name_of_its_own"
    predictors = {name: Conformal(coverage=0.9).calibrate(scores, target), "top5": TopK(5)}
    table = ClassTable(names=[str(i) for i in range(30)], counts=[10] * 10 + [50] * 10 + [500] * 10)
    results = evaluate(scores, target, predictors, table)
    shown = io.StringIO()
    Console(file=shown, width=80).print(metrics_table(results, "Test rows"))
    text = shown.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    coverage = results.sets[name].coverage
    line = next(line for line in text.splitlines() if "a_predictor" in line)
    numbers = [float(number) for number in re.findall(r"(?<!±)\b\d+\.\d+", line)]
    groups = [100 * group.value for group in coverage.groups.values()]
    wanted = [100 * coverage.micro.value, 100 * coverage.macro.value, *groups]
    assert numbers[:5] == [round(value, 1) for value in wanted]


def results_of(coverage: float, wrong: int, **options):
    """Results on 200 rows whose first guess is wrong for so many, of sets with a promised coverage."""
    target = torch.arange(200) % 4
    guess = target.clone()
    guess[:wrong] = (guess[:wrong] + 1) % 4
    scores = 4.0 * torch.nn.functional.one_hot(guess, 4) + torch.rand(200, 4) / 100
    predictors = {"asked": Conformal(coverage=coverage, **options).calibrate(scores, target), "top2": TopK(2)}
    return evaluate(scores, target, predictors, ClassTable(names="abcd", counts=[9, 9, 9, 9]))


def test_a_promise_below_the_first_guess_is_told_with_what_to_do():
    low = results_of(0.9, wrong=13)  # the first guess is right for 93.5 %
    note = promise_lines(low)[-1]
    assert note.startswith("asked: It promises 90.0 %, but the first guess alone is right for 93.5 %: ")
    assert "coverage: 0.97." in note and len(promise_lines(low)) == 2
    assert float(low.sets["asked"].size.micro.value) < 1  # there are empty sets, as it says
    assert len(promise_lines(results_of(0.95, wrong=13))) == 1
    assert "for 99.5 %" in promise_lines(results_of(0.99, wrong=1))[-1]
    assert "coverage: 0.999." in promise_lines(results_of(0.99, wrong=1))[-1]


def test_train_and_evaluate_print_it(tmp_path, monkeypatch):
    changes = {"epochs": 1, "predictors": {"lac": {"name": "conformal", "coverage": 0.05}}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE | changes))
    command = ["train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")]
    for words in (command, ["evaluate", str(tmp_path / "run")]):
        said = CliRunner().invoke(app, words).stdout
        assert "lac: It promises 5.0 %, but the first guess alone is right for " in said


def rewritten(capsys) -> list[str]:
    """What one line said, one text after the other; each covers the one before."""
    said = capsys.readouterr().err
    assert said.startswith("\r") and said.endswith("\n") and said.count("\n") == 1
    texts = said[1:-1].split("\r")
    assert all(len(after) >= len(before.rstrip()) for before, after in pairwise(texts))
    return [text.rstrip() for text in texts]


def test_progress_in_a_pipe_says_epoch_loss_time_left_and_whose_metrics(monkeypatch, capsys):
    clock = iter([0.0, 30.0, 30.0, 60.0])
    monkeypatch.setattr("shortlist._progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress_report() as report:
        report("training", 1, 10, {"epoch": 1, "epochs": 2})
        report("training", 5, 10, {"epoch": 1, "epochs": 2, "train_loss": 1.25, "val_top1": 0.5})
        report("training", 5, 10, {"epoch": 2, "epochs": 2, "train_loss": 1.25, "val_top1": 0.5})
        report("training", 10, 10, {"epoch": 2, "epochs": 2, "train_loss": 0.5, "val_top1": 0.75})
    assert rewritten(capsys) == [
        "training: 10 %; epoch 1 of 2",
        "training: 50 %; 0.133/s; 38 s left; epoch 1 of 2, loss 1.25; on validation rows: top1 50.0",
        "training: 100 %; 0.15/s; epoch 2 of 2, loss 0.5; on validation rows: top1 75.0",
    ]


def test_a_note_does_not_go_into_the_line_of_progress(capsys):
    with progress_report() as report, warnings_as_lines():
        report("reading", 1, 2)
        warnings.warn("mind the gap", stacklevel=1)
        report("reading", 2, 2)
    lines = capsys.readouterr().err.split("\n")
    assert lines[0] == "\rreading: 50 %" and lines[1] == "shortlist: note: mind the gap"
    assert lines[2].startswith("\rreading: 100 %") and lines[3] == ""


def test_the_time_left_is_told_before_the_first_tenth(monkeypatch, capsys):
    clock = iter([0.0, 2.0, 8.0, 9.0])
    monkeypatch.setattr("shortlist._progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress_report() as report:
        for done in (0, 1, 2, 3):
            report("training", done, 40, {})
    # two steps took 8 s, 38 are left
    assert rewritten(capsys) == ["training: 0 %", "training: 5 %; 0.25/s; 2 min 32 s left"]


def test_work_tells_what_is_shown_after_a_second_and_can_be_done_again(monkeypatch, capsys):
    """Of four steps the first takes half a second; the same work is done a second time."""
    clock = iter([0.0, 0.5, 2.0, 3.0, 4.0, 10.0, 12.0, 14.0])
    monkeypatch.setattr("shortlist._progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert list(each("alone", "ab")) == ["a", "b"]  # nothing is shown, and no clock is read
    with progress_report():
        assert list(each("linking", "abcd")) == ["a", "b", "c", "d"]
        assert list(each("linking", iter("xy"), 2)) == ["x", "y"]
    assert rewritten(capsys) == [
        "linking: 50 %; 1/s; 2 s left",
        "linking: 75 %; 1/s; 1 s left",
        "linking: 100 %; 1/s",
        "linking: 50 %; 0.5/s; 2 s left",
        "linking: 100 %; 0.5/s",
    ]


def test_scripts_that_read_json_get_no_progress(monkeypatch, capsys):
    clock = iter([0.0, 5.0, 9.0])
    monkeypatch.setattr("shortlist._progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with working(as_json=True):
        assert list(each("linking", "ab")) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_a_training_tells_its_last_metrics_last(tmp_path):
    told = []
    content = RECIPE | {"epochs": 3, "predictors": {}}
    run = train(make_recipe(content), tmp_path / "run", progress=lambda *what: told.append(what))
    trained = [what for what in told if what[0] == "training"]
    assert [what[1] for what in trained] == sorted(what[1] for what in trained)
    last, line = trained[-1], run.epochs[-1]
    assert last[1] == last[2] == 3 * (600 // 64) and (last[3]["epoch"], last[3]["epochs"]) == (3, 3)
    assert {name: value for name, value in last[3].items() if "epoch" not in name} == {
        name: value for name, value in line.items() if name == "train_loss" or name.startswith("val_")
    }
