"""The reference numbers of METHODS-3: places and several photos, in float64."""

import json
from pathlib import Path

import pytest
import torch

from shortlist._row_facts import RowFacts
from shortlist.predictors.calibration_rows import CalibrationRows
from shortlist.predictors.population import Population

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "places.json").read_text())
INPUTS = {
    name: torch.tensor(values, dtype=torch.float64 if "logits" in name or name == "priors" else torch.int64)
    for name, values in GOLDEN["shared_inputs"].items()
}


def cases(kind):
    found = [case for case in GOLDEN["cases"] if case["kind"] == kind]
    return [pytest.param(case, id=json.dumps(case["params"])[:60]) for case in found]


@pytest.mark.parametrize("case", cases("place"))
def test_a_population_of_a_place(case):
    weights = torch.tensor(case["params"]["weights"], dtype=torch.float64)
    rows = CalibrationRows.of_rows(
        INPUTS["cal_logits"], INPUTS["cal_labels"], priors=INPUTS["priors"], dtype=torch.float64
    )
    place = Population(rows, rows.objects(), importance=weights, frequency=weights)
    coverage = 1 - case["params"]["alpha"]
    thresholds = place.thresholds(coverage)[(weights > 0).numpy()]
    assert thresholds.tolist() == pytest.approx([v for v in case["thresholds"] if v is not None], abs=1e-12)
    values = place.values(INPUTS["test_logits"])
    first = torch.tensor(case["test_posteriors"], dtype=torch.float64)
    assert torch.allclose(torch.from_numpy(values.fit)[: len(first)], first, rtol=0, atol=1e-12)
    sets = place.sets_of_coverage(values, coverage)
    assert [row.nonzero()[0].tolist() for row in sets] == case["sets"]


@pytest.mark.parametrize("case", cases("photos"))
def test_a_population_of_several_photos(case):
    observation = INPUTS["photo_observation"]  # the first photos of an observation count in these numbers
    rows = CalibrationRows(
        INPUTS["observation_labels"][observation],
        INPUTS["photo_logits"].log_softmax(1),
        None,
        INPUTS["photo_logits"].shape[1],
        facts=RowFacts(observation),
    )
    population = Population(rows, rows.objects(case["params"]["photos"]))
    assert population.size == case["observations"]
    thresholds = population.thresholds(1 - case["params"]["alpha"])
    assert thresholds.tolist() == pytest.approx([case["threshold"]] * len(thresholds), abs=1e-12)


@pytest.mark.parametrize("case", cases("bounded_average_k"))
def test_bounded_average_size_in_a_population(case):
    size, at_least, at_most = (case["params"][name] for name in ("k", "at_least", "at_most"))
    rows = CalibrationRows.of_rows(INPUTS["cal_logits"], INPUTS["cal_labels"], dtype=torch.float64)
    population = Population(rows, rows.objects())
    bounds = {"at_least": at_least, "at_most": at_most}
    sets = population.sets_of_size(population.values(INPUTS["cal_logits"]), size, **bounds)
    assert [row.nonzero()[0].tolist() for row in sets[:12]] == case["sets_of_first_12"]
    assert sets.sum(1).mean() == pytest.approx(case["mean_size"], abs=1e-12)
    found = population._size_threshold(size, at_least, at_most)
    assert found == pytest.approx(float(case["threshold"]), abs=1e-12)
