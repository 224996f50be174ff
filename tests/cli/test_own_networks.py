"""Every verb that opens a model takes ``--network``, by one shared option, also from the current folder."""

import json
import sys
from pathlib import Path

import pytest
import torch
import typer

from shortlist import ClassTable, Model
from shortlist.cli import app
from shortlist.predictors import AverageK, TopK
from shortlist.recipes.recipe import make_recipe
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.training.fit import train
from tests.commands import run
from tests.datasets.trees import image
from tests.index.small import SMALL
from tests.training.small import silent

CODE = """
import torch
from torch import nn


def make(num_classes=2):
    torch.manual_seed(7)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 6), nn.Linear(6, num_classes))


def make_wider():
    torch.manual_seed(7)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 9), nn.Linear(9, 2))
"""
WITHOUT = {  # they read files of runs, data or answers, and never make the network of a model
    *("demo", "init", "train", "suite run", "suite status", "compare", "report", "doctor", "releases"),
    *(
        "papers page",
        "papers figure",
        "papers table",
        "papers ask",
        "suite init",
        "people add",
        "people list",
        "people revoke",
    ),
    *(f"data {name}" for name in ("build", "check", "describe", "grow", "votes")),
    *(f"feedback {name}" for name in ("stats", "export", "import", "review", "drift", "delete")),
}


def verbs() -> dict[str, typer.core.TyperCommand]:
    """All verbs of the command, by what a user types."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        below = getattr(command, "commands", None)
        found |= {name: command} if below is None else {f"{name} {key}": one for key, one in below.items()}
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to work in: a module of one's own, photos, and a model that only this module can make."""
    root = tmp_path_factory.mktemp("own")
    (root / "my_networks.py").write_text(CODE)
    for part, count in {"train": 8, "val": 4, "test": 4}.items():
        for kind, name in enumerate(("ash", "oak")):
            for i in range(count):
                image(
                    root / "photos" / part / name / f"{i}.png", seed=900 * kind + i + len(part), size=(9, 9)
                )
    space: dict = {}
    exec(CODE, space)
    table = ClassTable(names=("ash", "oak"), counts=(8, 8))
    scores = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    predictors = {"top1": TopK(1), "average1": AverageK(1).calibrate(scores)}
    parts = {
        "score_map": ScoreMap(2, contains=PriorRecord.training(table.class_counts)),
        "predictors": predictors,
        "classifier": "2",
        "preprocessing": SMALL,
    }
    for name in ("make", "make_wider"):
        Model.from_parts(space[name](), table, **parts).save(root / f"model-{name}")
    return root


@pytest.fixture
def here(place, monkeypatch):
    """The commands are typed in that folder, which Python does not look into by itself."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(place))])
    monkeypatch.delitem(sys.modules, "my_networks", raising=False)
    return place


OWN = ("--network", "my_networks:make")


def test_every_verb_that_opens_a_model_has_the_one_option():
    options = {
        name: next((one for one in command.params if "--network" in one.opts), None)
        for name, command in verbs().items()
    }
    allow = {name for name, verb in verbs().items() if any("--allow-code" in one.opts for one in verb.params)}
    assert {name for name, option in options.items() if option is not None} - allow == set()
    have = {name: option for name, option in options.items() if option is not None}
    assert set(have) == set(options) - WITHOUT, "say of a new verb whether it opens a model"
    assert len({option.help for option in have.values()}) == 1
    tried = {verb.__name__ for verb in TRIED}
    assert set(have) == tried | {"serve"}


def predict(*more):
    return run("predict", "model-make", "photos/test/oak/0.png", "--predictor", "top1", *more)


def embed(*more):
    return run("embed", "model-make", "photos", "-o", "features", "--workers", 1, *more)


def score(*more):
    return run("score", "model-make", "photos", "-o", "scores", "--split", "test", "--workers", 1, *more)


def index(*more):
    return run("index", "model-make", "--images", "photos/train", "--out", "index", "--workers", 1, *more)


def release(*more):
    return run("release", "model-make", "--data", "photos", "--to", "releases", *more)


def evaluate(*more):
    _ = Path("scores").exists() or score(*OWN)
    return run("evaluate", "model-make", "--scores", "scores", *more)


def calibrate(*more):
    _ = Path("scores").exists() or score(*OWN)
    return run("calibrate", "model-make", "--scores", "scores", "-o", "again", *more)


def join(*more):
    _ = Path("features").exists() or embed(*OWN)
    recipe = {
        "data": {"name": "embeddings", "root": "features"},
        "model": {"name": "linear"},
        "epochs": 1,
        "predictors": {"top1": {"name": "topk", "k": 1}},
    }
    if not Path("run").exists():
        train(make_recipe(recipe), Path("run"), progress=silent)
    return run("join", "run", "-o", "joined", *more)


def export(*more):
    return run("export", "model-make", "-o", "exported", "--format", "torch", *more)


TRIED = (predict, embed, score, index, release, evaluate, calibrate, join, export)


@pytest.mark.parametrize("verb", TRIED)
def test_the_verb_says_what_it_needs_and_then_works(here, verb):
    code, _, err = verb()
    assert code == 2 and "--network MODULE:FUNCTION" in err, err
    sys.path[:] = [one for one in sys.path if one != str(here)]
    code, _, err = verb(*OWN)
    assert code == 0, err


def test_serve_opens_it_too(here, monkeypatch):
    services = []
    monkeypatch.setattr("shortlist.serve.serve", lambda service, **_: services.append(service.make()))
    code, _, err = run("serve", "model-make", "--port", 0)
    assert code == 2 and "--network MODULE:FUNCTION" in err, err
    code, _, err = run("serve", "model-make", "--port", 0, *OWN)
    assert code == 0 and len(services[0].model.classes) == 2, err


def test_the_old_model_of_a_release_may_have_another_network(here):
    first = ("release", "model-make_wider", "--data", "photos", "--to", "two", "--network")
    assert run(*first, "my_networks:make_wider")[0] == 0
    second = ("release", "model-make", "--data", "photos", "--to", "two", "--tolerance", 0.9, *OWN)
    code, _, err = run(*second)
    assert code == 2 and "does not fit the weights" in err, err
    code, said, err = run(*second, "--old-network", "my_networks:make_wider", "--json")
    assert code == 0 and json.loads(said)["released"] == 2, err
