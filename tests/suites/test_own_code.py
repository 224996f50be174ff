"""Suites with code of somebody's own: refused before anything is run, or run in whatever process it takes."""

import sys

import pytest
import yaml

import shortlist.suites.worker as worker
from shortlist import _named_code
from shortlist._named_code import code_of_command
from shortlist.runs.run import Run
from shortlist.suites.plan import Task
from shortlist.suites.run import run_suite
from shortlist.suites.starter import starter_suite
from shortlist.suites.suite import SuiteError, load_suite
from tests.suites.test_suite import BASE

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*"),
]
CODE = """
from pathlib import Path
from shortlist.predictors import TopK
Path(__file__).with_name("imported").touch()
class Mine(TopK):
    pass
def near(scores, target):
    return ((scores.argmax(1) - target).abs() <= 1).double()
"""
MINE = "predictors={mine: {name: 'suite_code:Mine', k: 2}}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A module in the current folder, of which nothing is allowed or imported yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.delenv("SHORTLIST_ALLOW_CODE", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "suite_code.py").write_text(CODE)
    with code_of_command():
        yield tmp_path
    sys.modules.pop("suite_code", None)


def suite_of(folder, methods, **changes):
    content = {"name": "own", "base": BASE | changes, "seeds": [0], "methods": methods}
    (folder / "suite.yaml").write_text(yaml.safe_dump(content | {"metrics": ["top1.micro"]}, sort_keys=False))
    return load_suite(folder / "suite.yaml")


@pytest.mark.errors
@pytest.mark.parametrize("how", [{"from": "ce"}, {"posterior": True}])
def test_code_of_a_method_without_a_training_is_refused_before_the_first_run(folder, how):
    suite = suite_of(folder, {"ce": {}, "other": {**how, "overrides": [MINE]}})
    with pytest.raises(SuiteError, match=r"own: predictors.mine.name is 'suite_code:Mine'.*--allow-code"):
        run_suite(suite, folder / "runs")
    assert not (folder / "runs").exists() and not (folder / "imported").exists()


@pytest.mark.parametrize("trusted", [True, False])
def test_runs_of_scores_are_made_where_nothing_was_trained(folder, monkeypatch, trusted):
    """As if each run had a process of its own: none knows what another one was allowed."""
    if trusted:
        (folder / "settings" / "shortlist").mkdir(parents=True)
        (folder / "settings" / "shortlist" / "settings.yaml").write_text("trusted_code: [suite_code]\n")
    make = worker._make

    def elsewhere(task: Task, *rest) -> None:
        with code_of_command():
            _named_code._ALLOWED.clear()
            make(task, *rest)

    monkeypatch.setattr(worker, "_make", elsewhere)
    methods = {
        "ce": {"grid": {"optimizer.lr": [0.1, 0.2]}},
        "cold": {"from": "ce", "overrides": ["adjust.temperature=0.5"]},
        "limit": {"posterior": True},
    }
    base = {"evaluation": {"metrics": {"near": "suite_code:near"}}}
    base |= {"predictors": {"mine": {"name": "suite_code:Mine", "k": 2}}}
    suite = suite_of(folder, methods, **base)
    state = run_suite(suite, folder / "runs", allow_code=not trusted)
    assert not state.failed
    for path in ("cold/default/seed-0", "limit/default/seed-0"):
        run = Run.open(folder / "runs" / "own" / path)
        scores, target = run.scored("test")
        near = ((scores.argmax(1) - target).abs() <= 1).double().mean()
        assert run.results.metrics()["metric.near.micro"].value == pytest.approx(near)


LOSSES = """
import numpy
from torch import nn, tensor
class Loss(nn.Module):
    def __init__(self, margin: float = 1.0):
        super().__init__()
    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target)
class Good(Loss):
    grid = {"margin": (0.5, 1)}
class Listed(Loss):
    grid = ["margin"]
class Single(Loss):
    grid = {"margin": 0.5}
class Word(Loss):
    grid = {"margin": "12"}
class Empty(Loss):
    grid = {"margin": []}
class Tensors(Loss):
    grid = {"margin": [tensor(0.5)]}
class Arrays(Loss):
    grid = {"margin": list(numpy.linspace(0, 1, 3))}
class Endless(Loss):
    grid = {"margin": [0.5, float("inf")]}
class Unknown(Loss):
    grid = {"margins": [0.5]}
"""


@pytest.mark.errors
def test_a_grid_that_cannot_be_searched_is_refused_when_the_suite_is_written(folder):
    (folder / "suite_code.py").write_text(LOSSES)
    good = starter_suite(BASE, name="mine", losses=["focal"], mine=["suite_code:Good"])
    assert good.content["methods"]["Good"]["grid"] == {"loss.margin": [0.5, 1]}
    for name in ("Listed", "Single", "Word", "Empty", "Tensors", "Arrays"):
        with pytest.raises(ValueError, match=rf"grid of suite_code:{name} must hold a list .*, got "):
            starter_suite(BASE, name="mine", losses=["focal"], mine=[f"suite_code:{name}"])
    for name, message in {"Endless": "loss.margin: .*finite", "Unknown": "margins: unknown key"}.items():
        with pytest.raises(ValueError, match=message):
            starter_suite(BASE, name="mine", losses=["focal"], mine=[f"suite_code:{name}"])


@pytest.mark.errors
def test_a_loss_that_is_no_class_is_refused_by_the_name_of_its_option(folder):
    (folder / "suite_code.py").write_text(LOSSES)
    for name in ("suite_code", "focal", ""):
        with pytest.raises(ValueError, match=rf"^--mine must be package.module:Class, .*got '{name}'$"):
            starter_suite(BASE, name="mine", mine=[name])
    for name in ("suite_code:", "suite_code:Nothing", "suite_code:numpy", "no_such_module:Loss"):
        with pytest.raises(ValueError, match=r"^--mine "):
            starter_suite(BASE, name="mine", mine=[name])


def test_the_table_of_a_new_suite_has_own_metrics_and_the_sets_of_the_recipe(folder):
    predictors = {"mine": {"name": "suite_code:Mine", "k": 2}, "average5": {"name": "average_k", "k": 5}}
    parts = {"predictors": predictors, "selection": {"metric": "average5"}}
    parts["evaluation"] = {"metrics": {"near": "suite_code:near"}}
    made = starter_suite(BASE | parts, name="mine", losses=["focal"])
    assert made.content["metrics"] == [
        *("top1.micro", "top5.micro", "top5.macro", "metric.near.micro"),
        *("sets.mine.coverage.micro", "sets.average5.coverage.micro"),
    ]
    plain = {key: value for key, value in BASE.items() if key != "predictors"}
    content = starter_suite(plain, name="mine", losses=["focal"]).content
    assert content["metrics"] == made.content["metrics"][:3]
