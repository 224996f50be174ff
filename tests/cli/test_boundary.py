"""Every verb ends in a result or in one line, whatever is amiss."""

import os
import subprocess
import sys

import pytest

import shortlist.cli
from shortlist._messages import MAX_MESSAGE
from shortlist.cli import run_command
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.training.fit import train
from tests.test_bounded_files import BOMB
from tests.training.small import RECIPE, silent, write_recipe


def said_by(command, monkeypatch, capsys, *words):
    """The one line on stderr of a command that ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["shortlist", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        command()
    said = capsys.readouterr()
    lines = said.err.strip().split("\n")
    assert stop.value.code == 2 and len(lines) == 1 and "Traceback" not in said.err, said.err
    assert len(lines[0]) <= MAX_MESSAGE + 100
    return lines[0]


def failing(error):
    def command():
        raise error

    return lambda: run_command(command)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("error", "words", "message"),
    [
        (
            TypeError("no\nnumber"),
            ("train",),
            "shortlist: train failed: TypeError: no number; SHORTLIST_DEBUG=1 ",
        ),
        (
            KeyError("a"),
            ("suite", "run", "data"),
            "shortlist: suite run failed: KeyError: 'a'; SHORTLIST_DEBUG",
        ),
        (RecursionError("too deep"), ("data", "check"), "data check failed: RecursionError: too deep"),
        (MemoryError(), ("evaluate", "run"), "shortlist: evaluate failed: MemoryError; SHORTLIST_DEBUG=1"),
        (AssertionError(), ("--json",), "shortlist: the command failed: AssertionError; SHORTLIST_DEBUG=1"),
        (ValueError("k is 3"), ("train",), "shortlist: k is 3"),
        (RuntimeError("x" * 10**6), ("train",), "characters left out"),
        (ValueError("x" * 10**6), ("train",), "characters left out"),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            ("train",),
            "shortlist: train cannot import torchvision, which is of another version or build than torch",
        ),
        (
            ImportError("no pyarrow"),
            ("train",),
            "train failed: ImportError: no pyarrow; SHORTLIST_",
        ),
    ],
)
def test_any_error_is_one_line(error, words, message, monkeypatch, capsys):
    assert message in said_by(failing(error), monkeypatch, capsys, *words)


def test_the_user_can_stop_and_look(monkeypatch):
    for error in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            failing(error)()
    monkeypatch.setenv("SHORTLIST_DEBUG", "1")
    with pytest.raises(TypeError, match="no number"):
        failing(TypeError("no number"))()


@pytest.mark.errors
@pytest.mark.parametrize("verb", [("train",), ("suite", "run"), ("suite", "status")])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("about: " + 5000 * "[" + 5000 * "]", "nested too deep"),
        (BOMB, "too long"),
        ("about: [" + ", ".join(["x" * 99] * 5000) + "]", "characters left out"),
    ],
)
def test_odd_recipes_and_suites(verb, text, message, monkeypatch, capsys, tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    line = said_by(shortlist.cli.main, monkeypatch, capsys, *verb, path)
    assert message in line and ("odd.yaml" in line)


@pytest.mark.errors
def test_deep_json_in_any_file_that_is_named(monkeypatch, capsys, tmp_path):
    path = tmp_path / "odd.json"
    path.write_text("[" * 5000 + "]" * 5000)
    assert "odd.json" in said_by(shortlist.cli.main, monkeypatch, capsys, "data", "describe", path)
    line = said_by(
        shortlist.cli.main, monkeypatch, capsys, "papers", "figure", "level_sets", "--numbers", path
    )
    assert "odd.json" in line and "nested too deep" in line


DAMAGES = {
    "deep": lambda path: path.write_text("[" * 5000 + "]" * 5000),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 3),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return train(make_recipe(RECIPE, ["epochs=1"]), folder, progress=silent)


@pytest.mark.errors
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("file", "verb"),
    [
        ("model/class_table.json", ("evaluate",)),
        ("model/predictors/average2.json", ("evaluate",)),
        ("model/predictors/average2.*.safetensors", ("evaluate",)),
        ("scores/declared.json", ("calibrate",)),
        ("scores/val.safetensors", ("calibrate",)),
        ("recipe.yaml", ("calibrate",)),
        ("checkpoints/last.ckpt", ("train", "--resume")),
    ],
)
def test_a_damaged_file_of_a_run_is_named(file, verb, damage, run, monkeypatch, capsys):
    if (file, damage) == ("checkpoints/last.ckpt", "pipe"):
        pytest.skip("a run without a checkpoint is trained from its first epoch")
    (path,) = run.path.glob(file)
    info = run.path / "run.json"
    kept, state = path.read_bytes(), info.read_text()
    if verb[0] == "train":
        RunFolder(run.path).set_state("started")
    DAMAGES[damage](path)
    try:
        line = said_by(shortlist.cli.main, monkeypatch, capsys, *verb, run.path)
    finally:
        path.unlink()
        path.write_bytes(kept)
        info.write_text(state)
    assert "SHORTLIST_DEBUG" not in line and str(run.path) in line
    assert path.name in line or path.stem.split(".")[0] in line


@pytest.mark.slow
@pytest.mark.errors
def test_a_failure_in_a_real_shell(tmp_path):
    """Also of what is raised deep inside a library, with nothing of it to be seen unless asked for."""
    recipe = write_recipe(tmp_path, accelerator="no such thing")
    for debug, lines in (("0", 1), ("1", 10)):
        done = subprocess.run(
            [sys.executable, "-m", "shortlist", "train", recipe, "--out", tmp_path / "run"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"SHORTLIST_DEBUG": debug},
        )
        assert done.returncode != 0 and (done.stderr.count("\n") >= 10) == (lines == 10), done.stderr
