"""Verbs that may take long name what they wrote, and a next command that the program takes."""

import shlex

import pytest
import typer
from typer.main import get_command

import shortlist.cli
from shortlist.recipes.recipe import make_recipe
from shortlist.training import train
from tests.commands import run
from tests.datasets.trees import class_folders
from tests.training.small import silent, write_recipe

pytestmark = pytest.mark.filterwarnings("ignore")
TREES = {
    "model": {"name": "small_cnn"},
    "loss": {"name": "cross_entropy"},
    "epochs": 1,
    "batch_size": 8,
    "predictors": {"top2": {"name": "topk", "k": 2}, "sure": {"name": "conformal", "coverage": 0.8}},
    "loggers": [],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Photos in folders and a run on them."""
    folder = tmp_path_factory.mktemp("next")
    class_folders(folder / "images", {"ash": 12, "oak": 12, "yew": 14})
    data = {"name": "image_folder", "root": str(folder / "images"), "image_size": 16}
    train(make_recipe(TREES | {"data": data}), folder / "run", progress=silent)
    return folder


def parse(words):
    """Require that these words are a command with options and arguments that it has."""
    command = get_command(shortlist.cli.app)
    context = typer.Context(command, info_name="shortlist")
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
        context = typer.Context(command, parent=context)
    command.parse_args(context, list(words))


def next_of(wrote, *words):
    """Call a verb, which must name what it wrote; returns the next command."""
    code, out, err = run(*words)
    assert code == 0, out + err
    assert str(wrote) in out, out
    [line] = [line for line in err.splitlines() if line.startswith("Next: ")]
    assert err.splitlines()[-1] == line
    name, *command = shlex.split(line.removeprefix("Next: "))
    assert name == "shortlist"
    parse(command)
    return command


def test_verbs_of_a_run_name_the_next_command(world, tmp_path):
    place = world / "run"
    assert next_of(place, "calibrate", place) == ["evaluate", str(place)]
    assert next_of(place / "results.json", "evaluate", place) == ["report", str(place)]
    assert next_of("run", "compare", place) == ["report", str(place)]
    page = tmp_path / "page.html"
    assert next_of(page, "report", place, "-o", page, "--no-pictures") == ["compare", str(place)]
    assert next_of(place / "index", "index", place) == ["serve", str(place)]


def test_scores_lead_to_measures_and_a_model_that_is_served(world, tmp_path):
    place, scores = world / "run", tmp_path / "my scores"
    measure = next_of(scores, "score", place, world / "images", "-o", scores)
    assert measure == ["evaluate", str(place), "--scores", str(scores)]  # a space is quoted
    assert run(*measure)[0] == 0
    made = tmp_path / "made"
    again = next_of(made, "calibrate", place, "--scores", scores, "-o", made)
    assert again == ["serve", str(made)]


def test_features_and_benchmarks_lead_to_a_recipe(world, tmp_path):
    features, built = tmp_path / "features", tmp_path / "built"
    assert next_of(features, "embed", world / "run", world / "images", "-o", features) == [
        "init",
        str(features),
    ]
    words = ("data", "build", world / "images", built)
    assert "Next:" not in run(*words)[2]  # only the plan
    made = next_of(built, *words, "--apply")
    assert made == ["init", str(built)] and run(*made, "-o", tmp_path / "recipe.yaml")[0] == 0


def test_a_suite_leads_to_its_report_and_json_has_no_such_line(tmp_path):
    recipe = write_recipe(tmp_path, epochs=1)
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"name: tiny\nbase: {recipe}\nmethods: {{plain: {{}}}}\nseeds: [0]\n")
    assert next_of(tmp_path / "tiny", "suite", "run", suite, "--out", tmp_path) == [
        "report",
        str(tmp_path / "tiny"),
    ]
    code, _, err = run("suite", "run", suite, "--out", tmp_path, "--json")
    assert code == 0 and "Next:" not in err
