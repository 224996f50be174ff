import json

import pytest

from shortlist.papers.figures import FIGURES, load_figure, write_figure
from tests.commands import invoke

SMALL = {"n": 8, "k": 2}


def test_all_are_listed_with_their_options():
    text = invoke(
        "papers",
        "figure",
    ).stdout
    for name, about in FIGURES.items():
        assert f"{name}: {about}\n" in text
    assert "RUNS... k=5 bins=8" in text


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_options_with_defaults(name):
    figure = load_figure(name)
    may_be_none = ("losses", "shown", "run")
    assert all(value is not None or key in may_be_none for key, value in figure.options().items())
    runs = ("class_size", "topk_against_average_k", "error_against_tau", "average_k_sensitivity")
    runs += ("weight_norms", "error_by_group", "set_sizes", "scatter", "sweep")
    assert figure.takes_runs == (name in runs)


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_drawing_and_numbers_are_written(tmp_path, suffix):
    path = tmp_path / "deep" / f"network{suffix}"
    result = invoke(
        "papers", "figure", "splitter_network", "--set", "n=8", "--set", "k=2", "-o", path, "--json"
    )
    assert result.exit_code == 0, result.output
    numbers = json.loads(path.with_suffix(".json").read_text())
    assert numbers == json.loads(result.stdout)
    assert numbers == json.loads(json.dumps(load_figure("splitter_network").measure(**SMALL)))
    start = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}[suffix]
    assert path.read_bytes().startswith(start)
    assert len(list(path.parent.iterdir())) == 2  # nothing half written is left


def test_numbers_are_drawn_again_to_the_same_bytes(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    assert (
        invoke("papers", "figure", "splitter_network", "--set", "n=8", "--set", "k=2", "-o", first).exit_code
        == 0
    )
    result = invoke(
        "papers", "figure", "splitter_network", "--numbers", first.with_suffix(".json"), "-o", second
    )
    assert result.exit_code == 0, result.output
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.errors
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["level_set"], "name must be one of level_sets, .*, got 'level_set'"),
        (["level_sets", "-o", "a.gif"], r"--out must end in .svg, .pdf or .png, got a.gif"),
        (["level_sets", "runs/x"], "level_sets is not made from runs, got runs/x"),
        (["class_size"], "class_size is made from runs: name at least one run folder"),
        (["splitter_network", "--set", "m=3"], r"option must be one of n, k, got 'm'"),
        (["splitter_network", "--set", "n"], r"--set wants KEY=VALUE, as in k=2, got 'n'"),
        (["splitter_network", "--set", "n=[1"], r"--set n: '\[1' is not a YAML value"),
        (["splitter_network", "--numbers", "x.json", "--set", "n=4"], r"--numbers draws what was measured"),
    ],
)
def test_bad_input_is_said(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        raise invoke("papers", "figure", *words).exception
    assert not list(tmp_path.iterdir())


@pytest.mark.errors
def test_other_endings_are_refused(tmp_path):
    figure = load_figure("splitter_network")
    with pytest.raises(ValueError, match=r"path must end in .svg, .pdf or .png, got .*x.html"):
        write_figure(figure, figure.measure(**SMALL), tmp_path / "x.html")


@pytest.mark.errors
def test_numbers_of_something_else_and_places_that_cannot_be(tmp_path):
    (tmp_path / "other.json").write_text('{"losses": []}')
    result = invoke(
        "papers", "figure", "splitter_network", "--numbers", tmp_path / "other.json", "-o", tmp_path / "a.svg"
    )
    assert isinstance(result.exception, ValueError) and "--numbers must be those" in str(result.exception)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").touch()
    places = {"folder.svg": IsADirectoryError, "file/a.svg": NotADirectoryError}
    for place, error in places.items():
        result = invoke("papers", "figure", "splitter_network", "--set", "n=8", "-o", tmp_path / place)
        assert isinstance(result.exception, error)
