"""The reference numbers of METHODS-3: places and several photos, in float64."""

import json
from pathlib import Path

import pytest
import torch

from shortlist.predictors.at_place import place_posterior
from shortlist.predictors.thresholds import weighted_thresholds

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "places.json").read_text())
INPUTS = {
    name: torch.tensor(values, dtype=torch.float64 if "logits" in name or name == "priors" else torch.int64)
    for name, values in GOLDEN["shared_inputs"].items()
}


def cases(kind):
    found = [case for case in GOLDEN["cases"] if case["kind"] == kind]
    return [pytest.param(case, id=json.dumps(case["params"])[:60]) for case in found]


@pytest.mark.parametrize("case", cases("place"))
def test_posterior_thresholds_and_sets_of_a_place(case):
    weights = torch.tensor(case["params"]["weights"], dtype=torch.float64)
    target = INPUTS["cal_labels"]
    calibration = place_posterior(INPUTS["cal_logits"], weights, INPUTS["priors"])
    new = place_posterior(INPUTS["test_logits"], weights, INPUTS["priors"])
    first = torch.tensor(case["test_posteriors"], dtype=torch.float64)
    assert torch.allclose(new[: len(first)], first, rtol=0, atol=1e-12)
    inside = weights > 0
    importance = weights * (target.bincount(minlength=len(weights)) > 0)
    thresholds = weighted_thresholds(
        1 - calibration.gather(1, target[:, None]).squeeze(1),
        target,
        importance / importance.sum(),
        1 - case["params"]["alpha"],
    )
    expected = [value for value in case["thresholds"] if value is not None]
    assert thresholds[inside].tolist() == pytest.approx(expected, abs=1e-12)
    sets = inside & (1 - new <= thresholds)
    assert [row.nonzero().squeeze(1).tolist() for row in sets] == case["sets"]
