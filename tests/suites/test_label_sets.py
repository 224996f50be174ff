import json
from pathlib import Path
from statistics import fmean

import pytest
import torch
import yaml
from typer.testing import CliRunner

from shortlist.cli.suite import suite_app
from shortlist.suites.label_sets import (
    is_label_set_suite,
    load_label_set_suite,
    run_label_set_suite,
    table_of,
)
from shortlist.suites.suite import SuiteError

ROOT = Path(__file__).parents[2]
CONTENT = {
    "task": "label_sets",
    "name": "small",
    "data": {"name": "several_glyphs", "max_classes": 6, "train_images": 60, "pictures": 64},
    "model": {"name": "small_cnn", "width": 2},
    "epochs": 1,
    "batch_size": 32,
    "seeds": [0, 1],
    "grid": {"lr": [0.01, 0.1]},
    "methods": {"bce": "binary_ce", "sparse": "sparse_top"},
    "baseline": "bce",
    "metrics": ["at_true.f1", "at_predicted.f1", "above_threshold.f1"],
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path_factory.getbasetemp() / "several_glyphs"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def write(folder: Path, **changes) -> Path:
    file = folder / "suite.yaml"
    file.write_text(yaml.safe_dump(CONTENT | changes))
    return file


@pytest.mark.slow
def test_a_suite_is_run_chosen_by_validation_rows_and_not_repeated(tmp_path):
    file = write(tmp_path)
    result = CliRunner().invoke(suite_app, ["run", str(file), "--out", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "runs" / "small"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json"))
    assert len(files) == 2 * (2 + 1)  # both points with seed 0, the chosen one with seed 1
    found = {name: json.loads((folder / name).read_text()) for name in files}
    for method in ("bce", "sparse"):
        values = {p: found[f"{method}/lr={p}/seed-0.json"]["val"]["at_true.f1"] for p in ("0.01", "0.1")}
        best = max(values, key=values.__getitem__)
        assert f"- chosen: {method}: lr={best}" in result.stdout
        mean = fmean(found[f"{method}/lr={best}/seed-{seed}.json"]["test"]["at_true.f1"] for seed in (0, 1))
        (row,) = [line for line in result.stdout.splitlines() if line.startswith(f"| {method} |")][:1]
        assert row.split(" | ")[1] == f"{100 * mean:.1f}"
    assert any(
        line.startswith("| sparse |") and line.endswith("| - |") for line in result.stdout.splitlines()
    )
    again: list[str] = []
    suite = load_label_set_suite(file)
    run_label_set_suite(suite, tmp_path / "runs", watch=again.append)
    assert again == []
    shown = CliRunner().invoke(suite_app, ["status", str(file), "--out", str(tmp_path / "runs")])
    assert shown.stdout.strip() == table_of(suite, folder)
    with pytest.raises(SuiteError, match="was made with other settings"):
        run_label_set_suite(suite.model_copy(update={"epochs": 2}), tmp_path / "runs")


@pytest.mark.slow
def test_two_processes_find_the_same_numbers(tmp_path):
    suite = load_label_set_suite(write(tmp_path, grid={"lr": [0.1]}))
    one, two = (run_label_set_suite(suite, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert table_of(suite, one) == table_of(suite, two)


def test_the_suite_that_comes_with_it():
    path = ROOT / "recipes" / "cpu" / "multi_label.yaml"
    assert is_label_set_suite(path)
    suite = load_label_set_suite(path)
    assert suite.name == path.stem
    runs = len(suite.methods) * (len(suite.grid["lr"]) + len(set(suite.seeds) - set(suite.tune.seeds)))
    assert f"{runs} trained runs" in suite.about


@pytest.mark.errors
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"a": "focal"}, "baseline": "a"}, "methods.a must be one of binary_ce, .* got 'focal'"),
        ({"baseline": "ce"}, "baseline must be one of bce, sparse, got 'ce'"),
        ({"metrics": ["top5"]}, "metrics must be one of .*at_true.f1.* got 'top5'"),
        ({"grid": {"lr": []}}, "grid.lr"),
        ({"epoch": 3}, "epoch: Extra inputs are not permitted"),
    ],
)
def test_bad_suites(tmp_path, changes, message):
    with pytest.raises(SuiteError, match=message):
        load_label_set_suite(write(tmp_path, **changes))
