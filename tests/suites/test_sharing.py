"""Runs of a suite that differ only in selection or in a second stage share one training."""

import re
from pathlib import Path

import pytest
import yaml

import shortlist.papers
from shortlist.runs.run import Run
from shortlist.suites.run import run_suite
from shortlist.suites.state import SuiteState
from shortlist.suites.suite import load_suite
from shortlist.training import fit
from tests.suites.test_suite import BASE

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*"),
]
METHODS = {
    "ce": {},
    "by_class": {"overrides": ["selection.metric=macro_top1"]},
    "retrained": {"overrides": ["second_stage.name=retrain_classifier", "second_stage.epochs=1"]},
    "other": {"overrides": ["optimizer.lr=0.01"]},
}


def suite_file(folder: Path, **changes) -> Path:
    content = {"name": "shared", "base": BASE | {"epochs": 3}, "seeds": [0, 1], "methods": METHODS}
    file = folder / "suite.yaml"
    content |= {"metrics": ["top1.micro", "top1.macro"]} | changes
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


@pytest.fixture
def trained(monkeypatch) -> list[Path]:
    """The folders in which a first stage is trained."""
    folders, run_stage = [], fit.run_stage

    def count(stage, run, *args):
        folders.extend([run.path] if stage.title == "training" else [])
        run_stage(stage, run, *args)

    monkeypatch.setattr(fit, "run_stage", count)
    return folders


@pytest.mark.slow
def test_the_published_suites_that_share_trainings(tmp_path):
    """By selection alone, but for two suites that share first stages."""
    counts = {}
    for file in sorted((Path(shortlist.papers.__file__).parent / "suites").glob("*.yaml")):
        total = SuiteState(load_suite(file), tmp_path)
        runs = sum(1 for cell in total.cells if cell.method.trains for _ in total.all_runs(cell))
        trainings = total.count()[0]["trained"]
        if runs != trainings:
            counts[file.stem] = (runs, trainings)
    selections = {
        "garcin2022_imagenet": (18, 15),
        "garcin2022_imagenet_lt": (60, 36),
        "garcin2022_plantnet300k": (72, 45),
        "garcin2023_other_networks": (240, 168),
        "garcin2023_plantnet300k": (80, 56),
    }
    by_each_metric = {
        "petersen2022_alpha": (264, 132),
        "petersen2022_backbones": (470, 235),
        "petersen2022_candidates": (168, 84),
        "petersen2022_cifar100": (158, 79),
        "petersen2022_imagenet": (510, 255),
        "petersen2022_imagenet21kp": (676, 169),
    }
    assert counts == selections | by_each_metric | {
        "menon2021_imagenet_lt": (90, 70),
        "menon2021_inaturalist": (150, 120),
    }
    page = Path(__file__).parents[2] / "docs/reference/suites.md"
    rows = re.findall(r"^\| `(\w+)`.* \| (\d+) \| (\d+) \|$", page.read_text(), re.M)
    assert {name: (int(runs), int(trainings)) for name, runs, trainings in rows} == counts
    assert [sum(column) for column in zip(*selections.values(), strict=True)] == [470, 320]


@pytest.mark.slow
def test_one_training_for_all_that_share_it(tmp_path, trained):
    suite = load_suite(suite_file(tmp_path))
    assert SuiteState(suite, tmp_path / "shared").count()[0] == {"trained": 4, "of others": 4}
    state = run_suite(suite, tmp_path)
    assert not state.failed and len(trained) == 4
    for method in METHODS:
        alone = suite.model_copy(update={"name": "alone", "methods": {method: suite.methods[method]}})
        run_suite(alone, tmp_path)
        for seed in (0, 1):
            pair = [tmp_path / name / method / "default" / f"seed-{seed}" for name in ("shared", "alone")]
            texts = [(path / "results.json").read_text() for path in pair]
            assert texts[0] == texts[1], method
            runs = [Run.open(path) for path in pair]
            assert runs[0].recipe.selection.metric == runs[1].recipe.selection.metric
            assert ("first_stage_from" in runs[0].info) == (method in ("by_class", "retrained"))
            assert runs[0].info["seconds"] >= 0  # to a tenth: a short run may take none
    assert len(trained) == 4 + 8


def test_a_method_that_comes_later_uses_what_was_kept(tmp_path, trained):
    first = {name: METHODS[name] for name in ("ce", "by_class")}
    run_suite(load_suite(suite_file(tmp_path, methods=first, seeds=[0])), tmp_path)
    assert len(trained) == 1
    later = first | {
        "macro_retrained": {"overrides": ["selection.metric=macro_top1", *METHODS["retrained"]["overrides"]]},
        "last": {"overrides": ["selection.metric=last"]},
        "top3": {"overrides": ["selection.metric=top3"]},  # of which no epoch was kept
    }
    state = run_suite(load_suite(suite_file(tmp_path, methods=later, seeds=[0])), tmp_path)
    assert not state.failed
    assert [path.parent.parent.name for path in trained] == ["ce", "top3"]


def test_a_shared_training_that_was_begun_goes_on(tmp_path, trained):
    """Not the first of the runs, but the one that a stopped process had begun."""
    suite = load_suite(suite_file(tmp_path, seeds=[0]))
    state = SuiteState(suite, tmp_path / "shared")
    cell = state.cells[1]
    recipe = state.sharing.keeping(cell, cell.points[0], state.recipe(cell, cell.points[0], 0))

    def stop(what: str, done: int, total: int, *_: object) -> None:
        if what == "training" and done > total // 2:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fit.train(recipe, tmp_path / "shared/by_class/default/seed-0", progress=stop)
    trained.clear()
    assert not run_suite(suite, tmp_path).failed
    assert [path.parent.parent.name for path in trained] in (["by_class", "other"], ["other", "by_class"])
    assert "first_stage_from" in Run.open(tmp_path / "shared/ce/default/seed-0").info


def test_runs_that_stop_early_share_nothing(tmp_path):
    base = BASE | {"selection": {"metric": "top1", "patience": 2}}
    suite = load_suite(suite_file(tmp_path, base=base))
    assert SuiteState(suite, tmp_path / "shared").count()[0] == {"trained": 6, "of others": 2}
