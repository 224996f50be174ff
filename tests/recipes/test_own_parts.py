"""Losses, data sets, predictors and metrics of somebody's own, by ``package.module:Name``."""

import json
import sys
from typing import Any

import pytest
import torch
import yaml
from torch.nn.functional import cross_entropy

import shortlist
from shortlist import Model, Run
from shortlist._named_code import code_of_command
from shortlist.recipes import RecipeError, check_code, make_recipe
from shortlist.recipes.build import build_data, build_loss
from tests.commands import run, shell
from tests.training.small import silent

CODE = """
from pathlib import Path
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from shortlist import ClassTable
from shortlist.datasets import Splits, TensorSplit
from shortlist.losses import ScoreMeaning
from shortlist.predictors import CalibrationReport, Finished, Rows, SetPredictor

Path(__file__).with_name("imported").touch()
print("something that would spoil --json")

class MarginLoss(nn.Module):
    def __init__(self, margin: float = 1.0, class_counts=None, weight=None):
        super().__init__()
        self.margin, self.counts, self.class_weight = margin, class_counts, weight
    def forward(self, logits, target):
        true = nn.functional.one_hot(target, logits.shape[1])
        return cross_entropy(logits - self.margin * true, target, self.class_weight)

class KnownLoss(MarginLoss):
    meaning = ScoreMeaning(without_priors=0.0)

class TwoHeads(nn.Module):
    needs = frozenset({"two_heads"})
    def forward(self, heads, target):
        return sum(cross_entropy(scores, target) for scores in heads)

class NeedsOther(MarginLoss):
    needs = {"two_head"}

class NeedsWord(MarginLoss):
    needs = "two_heads"

class PerRow(MarginLoss):
    def forward(self, logits, target):
        return cross_entropy(logits, target, reduction="none")

class Nothing(MarginLoss):
    def forward(self, logits, target):
        return None

class Constant(MarginLoss):
    def forward(self, logits, target):
        return torch.tensor(1.0)

class Breaks(nn.Module):
    def __init__(self):
        raise KeyError("no such thing")

def blobs(rows: int = 120, spread: float = 1.0) -> Splits:
    generator = torch.Generator().manual_seed(0)
    centers = 2 * torch.randn(6, 4, generator=generator)
    def part():
        target = torch.arange(rows) % 6
        return TensorSplit(centers[target] + spread * torch.randn(rows, 4, generator=generator), target)
    return Splits(part(), part(), part(), ClassTable([f"c{i}" for i in range(6)], counts=[rows // 6] * 6))

def nothing():
    return []

class Above(SetPredictor):
    needs_target = True
    def __init__(self, quantile: float = 0.1):
        super().__init__(activation="softmax")
        self.quantile = quantile
    def measure(self, scores, target):
        return {"true": self.values(scores).gather(1, target[:, None])[:, 0]}
    def accumulator(self, max_rows=None):
        return Rows(self.finished)
    def finished(self, rows):
        threshold = rows["true"].quantile(self.quantile)
        return Finished({"threshold": threshold}, CalibrationReport(rows=len(rows)))
    def forward(self, scores):
        return self.values(self.checked(scores)) >= self.threshold

def near(scores, target):
    return ((scores.argmax(1) - target).abs() <= 1).double()

def price(scores, target):
    return (scores.argmax(1) - target).abs()

def one_number(scores, target):
    return torch.tensor(1.0)

def fails(scores, target):
    raise IndexError("no such row")

def half_nan(scores, target):
    return torch.where(target % 2 == 0, torch.nan, 1.0)
"""
RECIPE = {
    "name": "own",
    "data": {"name": "mine.parts:blobs", "rows": 120},
    "model": {"name": "mlp", "hidden": [8]},
    "loss": {"name": "mine.parts:MarginLoss", "margin": "5e-1"},
    "predictors": {
        "above": {"name": "mine.parts:Above", "quantile": 0.2},
        "top2": {"name": "topk", "k": 2},
    },
    "evaluation": {"metrics": {"near": "mine.parts:near"}, "costs": {"price": "mine.parts:price"}},
    "epochs": 2,
    "loggers": [],
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in the current folder and nowhere else, of which nothing is allowed or imported yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.delenv("SHORTLIST_ALLOW_CODE", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(entry for entry in sys.path if entry)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "parts.py").write_text(CODE)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    with code_of_command():
        yield tmp_path / "mine"
    for name in [name for name in sys.modules if name.startswith("mine")]:
        del sys.modules[name]


@pytest.fixture
def trained(package, tmp_path):
    """The folder of a run of all these parts, which nobody allows to be run any more."""
    code, out, err = run("train", "recipe.yaml", "--out", "run", "--allow-code", "--json")
    assert code == 0, err
    assert "something that would spoil" in err
    json.loads(out)
    return tmp_path / "run"


def own(**changes):
    return make_recipe(RECIPE | changes)


def test_a_recipe_of_own_parts_runs_to_the_end(trained):
    opened = Run.open(trained)
    assert opened.state == "finished" and opened.results.rows == 120
    scores, target = opened.scored("test")
    guess = scores.argmax(1)
    metrics = opened.results.metrics()
    assert metrics["metric.near.micro"].value == pytest.approx(((guess - target).abs() <= 1).double().mean())
    by_class = [(guess[target == c] - c).abs().double().mean() for c in range(6)]
    assert metrics["cost.price.macro"].value == pytest.approx(sum(by_class) / 6)
    price: Any = metrics["cost.price.micro"]
    assert price.low < price.value < price.high
    assert opened.score_map.now is not None and "fitted" in opened.score_words  # the safe default of a loss
    shortlist.allow_code("mine.parts:Above")
    val, true = opened.scored("val")
    threshold = val.softmax(1).gather(1, true[:, None]).quantile(0.2)
    assert torch.equal(opened.predictors["above"](scores), scores.softmax(1) >= threshold)


def test_nothing_is_imported_unless_it_is_allowed(trained, package):
    (package / "imported").unlink()
    for name in [name for name in sys.modules if name.startswith("mine")]:
        del sys.modules[name]
    words = {
        ("train", "recipe.yaml", "--out", "other"): "data.name is 'mine.parts:blobs'",
        ("train", "--resume", "run"): "data.name is 'mine.parts:blobs'",
        ("evaluate", "run"): "predictor is 'mine.parts:Above'",
        ("calibrate", "run"): "loss.name is 'mine.parts:MarginLoss'",
        ("compare", "run"): "predictor is 'mine.parts:Above'",
        ("report", "run"): "predictor is 'mine.parts:Above'",
        ("predict", "run", "run/scores/test.safetensors", "--out", "lists.csv"): "predictor is",
        ("serve", "run"): "predictor is",
    }
    for verb, message in words.items():
        code, out, err = run(*verb)
        lines = err.strip().splitlines()
        assert code == 2 and not out and len(lines) == 1 and message in lines[0], (verb, err)
        assert "--allow-code" in lines[0], verb
        assert not (package / "imported").exists() and "mine.parts" not in sys.modules, verb
    with pytest.raises(ValueError, match=r"Above'.* shortlist\.allow_code\('mine\.parts:Above'\)"):
        Model.load("run")
    assert not (package / "imported").exists()


def test_every_verb_takes_own_parts_that_are_allowed(trained, tmp_path):
    second = run("train", "recipe.yaml", "--set", "seed=1", "--out", "second", "--allow-code")
    third = run("train", "recipe.yaml", "--set", "loss=cross_entropy", "--out", "third", "--allow-code")
    assert second[0] == third[0] == 0
    before = (trained / "results.json").read_text()
    for verb in (("train", "--resume", "run"), ("evaluate", "run"), ("calibrate", "run")):
        code, _, err = run(*verb, "--allow-code")
        assert code == 0, (verb, err)
    assert (trained / "results.json").read_text() == before
    code, out, _ = run("compare", "run", "second", "third", "--allow-code", "--csv")
    assert code == 0 and "cost.price.micro" in out and "mine.parts:MarginLoss" in out
    best = shortlist_best("cost.price.micro")
    assert best == min(("mine.parts:MarginLoss", "cross_entropy"), key=lambda label: cost_of(label))
    code, _, err = run("report", "run", "third", "--allow-code", "-o", "page.html")
    assert code == 0, err
    page = (tmp_path / "page.html").read_text()
    assert "cost: price" in page and "metric: near" in page
    code, _, err = run(
        "predict",
        "run",
        "run/scores/test.safetensors",
        "-o",
        "lists.csv",
        "--predictor",
        "above",
        "--allow-code",
    )
    assert code == 0, err
    assert len({line.split(",")[0] for line in (tmp_path / "lists.csv").read_text().splitlines()[1:]}) == 120
    code, _, err = run("export", "run", "-o", "exported", "--format", "torch", "--allow-code")
    assert code == 0 and (tmp_path / "exported/predictors").is_dir(), err


def test_metrics_of_ones_own_are_tested_over_rows(trained):
    """Two runs of one seed each: the bootstrap, beside the normal distribution of the mean difference."""
    assert run("train", "recipe.yaml", "--set", "loss=focal", "--out", "other", "--allow-code")[0] == 0
    asked = ("compare", "run", "other", "--json", "--metrics", "cost.price.micro")
    code, out, err = run(*asked, "--allow-code")
    assert code == 0, err
    best = json.loads(out)["best"]["cost.price.micro"]
    shortlist.allow_code("mine.parts:Above")
    scored = [Run.open(name).scored("test") for name in ("run", "other")]
    costs = [(scores.argmax(1) - target).abs().double() for scores, target in scored]
    difference = costs[0] - costs[1]
    error = difference.std() / len(difference) ** 0.5
    p = 2 * torch.special.ndtr(-(difference.mean() / error).abs()).item()
    assert abs(best["difference"]) == pytest.approx(difference.mean().abs().item())
    assert best["p_value"] == pytest.approx(p, abs=0.05) and "bootstrap" in best["test"]


def runs():
    return {"mine.parts:MarginLoss": ["run", "second"], "cross_entropy": ["third"]}


def cost_of(label):
    values: Any = [Run.open(folder).results.metrics()["cost.price.micro"].value for folder in runs()[label]]
    return sum(values) / len(values)


def shortlist_best(metric):
    code, out, _ = run("compare", "run", "second", "third", "--allow-code", "--json", "--metrics", metric)
    assert code == 0
    return json.loads(out)["best"][metric]["row"]


def test_facts_of_a_loss_are_taken_once_its_code_may_run(package):
    two = own(loss="mine.parts:TwoHeads", adjust={"predict_from": "proposal"})  # nothing is known yet
    assert not (package / "imported").exists()
    check_code(two, allow_code=True)
    with pytest.raises(RecipeError, match=r"adjust.predict_from must be left out for the loss mine"):
        check_code(own(adjust={"predict_from": "proposal"}), allow_code=True)
    with pytest.raises(RecipeError, match=r"adjust.class_shifts must be left out: the scores of the loss"):
        check_code(own(loss="mine.parts:KnownLoss", adjust={"class_shifts": True}), allow_code=True)
    check_code(own(adjust={"class_shifts": True}), allow_code=True)


def test_a_loss_gets_its_options_in_their_types_and_what_is_known_of_the_classes(package):
    recipe = own(loss={"name": "mine.parts:MarginLoss", "margin": "5e-1", "class_balanced": 0.9})
    check_code(recipe, allow_code=True)
    loss: Any = build_loss(recipe, build_data(recipe))
    assert loss.margin == 0.5 and loss.counts.tolist() == [20] * 6 and len(loss.class_weight) == 6
    logits, target = torch.randn(3, 6), torch.tensor([0, 3, 5])
    moved = logits.clone()
    moved[torch.arange(3), target] -= 0.5
    assert torch.allclose(loss(logits, target), cross_entropy(moved, target, loss.class_weight))


@pytest.mark.errors
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"name": "mine.parts:MarginLoss", "margn": 1}}, "loss.margn: unknown key; did you"),
        ({"loss": {"name": "mine.parts:MarginLoss", "margin": "x"}}, "loss.margin: .*number"),
        ({"loss": {"name": "mine.parts:TwoHeads", "class_balanced": 0.9}}, "class_balanced: unknown key"),
        (
            {"loss": {"name": "mine.parts:MarginLoss", "margin": float("nan")}},
            "margin must be finite, got nan",
        ),
        ({"loss": {"name": "mine.parts:MarginLoss", "margin": [1.0, float("inf")]}}, "margin must be finite"),
        (
            {"data": {"name": "mine.parts:blobs", "spread": float("inf")}},
            "data: spread must be finite, got inf",
        ),
        ({"loss": "mine.parts:NeedsOther"}, "needs of mine.parts:NeedsOther must be .* got 'two_head'"),
        ({"loss": "mine.parts:NeedsWord"}, "needs of mine.parts:NeedsWord must be a set .* got 'two_heads'"),
        ({"loss": "mine.parts:near"}, "loss.name must name a class of .*Module, got 'mine.parts:near'"),
        ({"loss": "mine.parts:Above"}, "loss.name must name a loss of scores and target"),
        ({"loss": "mine.parts:Missing"}, "loss.name must be package.module:function"),
        ({"loss": "mine.missing:Loss"}, "loss.name needs mine.missing, which cannot be imported"),
        ({"loss": "../mine:Loss"}, "loss.name must be package.module:function, got '../mine:Loss'"),
        ({"loss": "mine.parts:Path.home"}, "loss.name must be package.module:function"),
        ({"data": {"name": "mine.parts:blobs", "row": 3}}, "data.row: unknown key; did you mean 'rows'"),
        ({"predictors": {"a": {"name": "mine.parts:MarginLoss"}}}, "predictor must name a class"),
        ({"predictors": {"a": {"name": "mine.parts:Above", "q": 1}}}, "predictors.a.q: unknown key"),
        ({"predictors": {"a": {"name": "mine.parts:Above", "macro": True}}}, "a.macro must be false"),
        ({"evaluation": {"metrics": {"near": "mine.parts:none"}}}, "evaluation.metric.near must be package"),
    ],
)
def test_wrong_own_parts_are_named_before_anything_is_done(changes, message, package):
    with pytest.raises(ValueError, match=message):
        check_code(own(**changes), allow_code=True)


@pytest.mark.errors
def test_own_code_that_fails_is_one_line(package):
    wrong = {
        ("loss=mine.parts:Breaks",): "loss: mine.parts:Breaks with no options cannot be made (KeyError:",
        ("data=mine.parts:nothing",): "data.name: mine.parts:nothing must return shortlist.datasets.Splits",
        (
            "evaluation.costs={price: 'mine.parts:one_number'}",
        ): "cost.price must return a number for each row",
        (
            "evaluation.metrics={near: 'mine.parts:fails'}",
        ): "metric.near cannot be computed (IndexError: no such",
        (
            "evaluation.metrics={near: 'mine.parts:half_nan'}",
        ): "metric.near must return finite numbers, got nan",
        (
            "loss=mine.parts:PerRow",
        ): "loss mine.parts:PerRow must return one number that depends on the scores, got torch.float32 (",
        ("loss=mine.parts:Nothing",): "depends on the scores, got NoneType",
        (
            "loss=mine.parts:Constant",
        ): "must return one number that depends on the scores, got torch.float32 ()",
    }
    for number, (words, message) in enumerate(wrong.items()):
        changes = [part for word in words for part in ("--set", word)]
        code, _, err = run("train", "recipe.yaml", *changes, "--out", f"failed-{number}", "--allow-code")
        assert code == 2 and message in err.strip().splitlines()[-1], err


@pytest.mark.errors
@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import no_such_package", "1 / 0", "def ("])
def test_a_module_that_cannot_be_imported_is_named(text, package):
    (package / "broken.py").write_text(text)
    with pytest.raises(ValueError, match=r"loss.name needs mine.broken, which cannot be imported"):
        check_code(own(loss="mine.broken:Loss"), allow_code=True)


def test_a_trusted_package_may_run_in_recipes_and_not_in_what_is_opened(trained, tmp_path):
    settings = tmp_path / "settings" / "shortlist"
    settings.mkdir(parents=True)
    (settings / "settings.yaml").write_text("trusted_code: [mine]\n")
    assert shortlist.train(own(), tmp_path / "again", progress=silent).state == "finished"
    code, _, err = run("evaluate", "run")
    assert code == 0, err  # this process has trained with it
    again = shell("evaluate", "run", PYTHONPATH=":".join(sys.path))
    assert again.returncode == 2 and "what is opened never runs code" in again.stderr


def test_a_run_is_the_same_whether_its_code_was_allowed_when_it_was_read(trained):
    assert Run.open(trained).has_recipe(own())
    for name in ("MarginLoss", "blobs", "Above", "near", "price"):
        shortlist.allow_code(f"mine.parts:{name}")
    assert Run.open(trained).has_recipe(own())
