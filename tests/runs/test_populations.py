"""Results, report and command line have lists by number of photos, by group and at a place."""

import json
import re

import pytest
import torch

from shortlist import ClassTable
from shortlist.metrics import Results, measure_place, measure_populations
from shortlist.place import Place
from shortlist.predictors import CalibrationRows
from shortlist.recipes import make_recipe
from shortlist.report.page import make_page
from shortlist.runs import Run
from tests.commands import run as shortlist
from tests.metrics.test_populations import CLASSES, draw, facts_of
from tests.run_factory import finished_run

COUNTS = list(range(CLASSES, 0, -1))
RECIPE = {
    "data": {"name": "gaussian_genera", "num_classes": CLASSES},
    "predictors": {"top2": {"name": "topk", "k": 2}, "sure": {"name": "conformal", "coverage": 0.85}},
    "loggers": [],
}


def kept_rows(drawn, frequencies) -> CalibrationRows:
    scores, target, observation, organs = drawn
    facts = facts_of(observation, organs)
    return CalibrationRows.of_rows(scores.float(), target, priors=frequencies, facts=facts)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose test part has single photos, and further ones beside them."""
    val, test = draw(300, seed=1), draw(200, seed=2)
    first = torch.zeros(len(test[1]), dtype=torch.bool)
    seen: set[int] = set()
    for row, number in enumerate(test[2].tolist()):
        first[row] = number not in seen
        seen.add(number)
    scores, facts = {"val": (val[0].float(), val[1])}, {"val": facts_of(*val[2:])}
    for part, rows in {
        "test": first.nonzero().squeeze(1),
        "test_further": (~first).nonzero().squeeze(1),
    }.items():
        scores[part] = test[0][rows].float(), test[1][rows]
        facts[part] = facts_of(*test[2:]).take(rows)
    table = ClassTable([f"kind {c}" for c in range(CLASSES)], counts=COUNTS)
    run = finished_run(
        tmp_path_factory.mktemp("run") / "run", make_recipe(RECIPE), scores, table, facts=facts
    )
    order = torch.cat([first.nonzero().squeeze(1), (~first).nonzero().squeeze(1)])
    organs = [test[3][row] for row in order.tolist()]
    return run, val, (test[0][order], test[1][order], test[2][order], organs)


def test_results_have_the_numbers_of_the_metric(finished):
    run, val, (scores, target, observation, organs) = finished
    rows = kept_rows(val, torch.tensor(COUNTS) / sum(COUNTS))
    facts = facts_of(observation, organs)
    expected = measure_populations(rows, scores.float(), target, facts=facts, coverage=0.85)
    found = Run.open(run.path).results.populations
    assert found == expected and list(found.photos) == ["1", "2", "3", "4"]
    # all other numbers are of single photos
    assert Run.open(run.path).results.rows == len(set(observation.tolist()))
    assert Results.from_json(run.results.to_json()) == run.results


def test_the_model_keeps_observations_and_groups_of_its_calibration_rows(finished):
    run, val, _ = finished
    kept = Run.open(run.path).saved.calibration_rows
    expected = kept_rows(val, torch.tensor(COUNTS) / sum(COUNTS))
    for photos in range(1, 5):
        assert torch.equal(kept.objects(photos), expected.objects(photos))
    codes, names = kept.facts.groups["organ"]
    assert tuple(names) == ("flower", "leaf") and torch.equal(codes, expected.facts.groups["organ"][0])


def test_the_page_shows_them(finished):
    run = finished[0]
    page, _ = make_page([run.path], pictures=False)
    assert "By number of photos" in page and "Promises for groups of photos" in page
    text = re.sub(r"<[^>]+>", " ", page[page.index("by photos") :])
    line = run.results.populations.photos["3"]
    wanted = f"3 {line.objects} {line.calibration} {100 * line.own.coverage.value:.1f}"
    assert wanted in " ".join(text.split())
    leaves = run.results.populations.groups["organ"]["leaf"]
    assert f"leaf {leaves.objects} {leaves.calibration} {100 * leaves.own.coverage.value:.1f}" in " ".join(
        text.split()
    )


def test_the_command_prints_them(finished):
    run = finished[0]
    code, out, _ = shortlist("evaluate", run.path)
    assert code == 0 and "Lists that promise 85.0 %" in out
    line = run.results.populations.photos["2"]
    assert re.search(
        rf"^\s*2\s+{line.objects}\s+{line.calibration}\s.*{line.own.size:.2f}\s", out, re.MULTILINE
    )
    assert re.search(r"^\s*flower\s", out, re.MULTILINE)


def test_evaluation_at_a_place(finished, tmp_path):
    run, val, (scores, target, observation, _) = finished
    (tmp_path / "meadow.csv").write_text("id,weight\nkind 1,3\nkind 4,1\nkind 6,2\nyeti,1\n")
    code, out, _ = shortlist("evaluate", run.path, "--place", tmp_path / "meadow.csv", "--json")
    assert code == 0
    found = json.loads(out)
    weights = torch.zeros(CLASSES, dtype=torch.float64)
    weights[[1, 4, 6]] = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64) / 6
    assert torch.equal(weights, Place.from_csv(tmp_path / "meadow.csv").vector(run.class_table))
    rows = kept_rows(val, torch.tensor(COUNTS) / sum(COUNTS))
    expected = measure_place(
        rows, scores.float(), target, weights, facts=facts_of(observation), coverage=0.85
    )
    assert (found["classes"], found["unknown"], found["coverage"]) == (3, ["yeti"], 0.85)
    assert found["lists"]["own"]["coverage"]["value"] == expected.own.coverage.value
    assert found["lists"]["common"]["size"] == expected.common.size
    code, out, _ = shortlist("evaluate", run.path, "--place", tmp_path / "meadow.csv", "--coverage", 0.7)
    assert (
        code == 0 and "70.0 % at meadow (3 classes)" in out and "1 name is no class of the model: yeti" in out
    )


@pytest.mark.errors
@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("kind 1\n", ("--split", "val"), "--place goes with the test rows of a run"),
        ("kind 1\n", ("--coverage", "1.5"), "coverage must be"),
        ("yeti\n", (), "must name at least 1 class of the model"),
        ("kind 1,-2\n", (), "must be a finite number >= 0, got -2"),
        ("", (), "got an empty file"),
    ],
)
def test_places_that_cannot_be_measured(finished, tmp_path, content, options, message):
    (tmp_path / "place.csv").write_text(content)
    code, _, err = shortlist("evaluate", finished[0].path, "--place", tmp_path / "place.csv", *options)
    assert code != 0 and message in " ".join(err.split())


@pytest.mark.errors
def test_a_coverage_needs_a_place(finished):
    code, _, err = shortlist("evaluate", finished[0].path, "--coverage", 0.8)
    assert code != 0 and "--coverage is for --place" in err
