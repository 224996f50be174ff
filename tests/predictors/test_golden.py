import numpy as np
import pytest
import torch

from shortlist.predictors import AverageK, CalibrationWarning, Conformal
from shortlist.predictors.conformity import APS, LAC, RAPS


def lists(sets):
    return [row.nonzero().squeeze(1).tolist() for row in sets]


def test_average_k_thresholds_sizes_and_accuracies(golden):
    cases = [case for case in golden("metrics").cases if case["kind"] == "average_k"]
    assert len(cases) == 9
    for case in cases:
        inputs = golden("metrics").inputs(case)
        predictor = AverageK(case["params"]["K"], activation="none")
        if case["mean_size"] != case["params"]["K"]:
            with pytest.warns(CalibrationWarning, match="average size on the 30 calibration rows is 2.1333"):
                predictor.calibrate(inputs["p"])
            assert predictor.report.ties > 1
        else:
            predictor.calibrate(inputs["p"])
        assert float(predictor.threshold) == case["threshold"]
        sets = predictor(inputs["p"])
        assert predictor.report.average_size == int(sets.sum()) / len(sets)
        assert predictor.report.average_size == pytest.approx(case["mean_size"], abs=1e-12)
        hit = sets.gather(1, inputs["y"][:, None]).double()
        assert float(hit.mean()) == pytest.approx(case["accuracy"], abs=1e-12)


def test_bounded_average_k(golden):
    shared = golden("places").shared
    cases = [case for case in golden("places").cases if case["kind"] == "bounded_average_k"]
    assert len(cases) == 5
    for case in cases:
        predictor = AverageK(**case["params"]).calibrate(shared["cal_logits"])
        assert float(predictor.threshold) == pytest.approx(float(case["threshold"]), abs=1e-12)
        assert predictor.report.average_size == case["mean_size"]
        assert lists(predictor(shared["cal_logits"][:12])) == case["sets_of_first_12"]
        assert float(predictor(shared["cal_logits"]).sum(1).double().mean()) == case["mean_size"]


def torchcp_cases(golden):
    return [case for case in golden("conformal").cases if case["kind"].startswith("torchcp")]


def test_conformal_quantiles_and_sets(golden):
    shared = golden("conformal").shared
    cases = torchcp_cases(golden)
    assert len(cases) == 10
    for case in cases:
        options = case["params"]
        kind = case["kind"].removeprefix("torchcp_")
        score = {"LAC": LAC(), "APS": APS()}.get(kind)
        score = score or RAPS(penalty=options["penalty"], k_reg=options["kreg"])
        predictor = Conformal(coverage=1 - options["alpha"], score=score)
        randomized = options["randomized"]  # their draw is how much is left out, ours how much is in
        # and without draws, all of the class's own probability counts for them
        draws = 1 - shared["U_cal"] if randomized else torch.ones(len(shared["cal_labels"]))
        predictor.update(shared["cal_logits"], shared["cal_labels"], uniform=draws)
        predictor.finish()
        assert float(predictor.threshold) == pytest.approx(case["q_hat"], abs=1e-12)
        draws = 1 - shared["U_test"] if randomized else torch.ones(len(shared["test_labels"]), 1)
        sets = predictor(shared["test_logits"], uniform=draws)
        assert lists(sets) == [sorted(row) for row in case["sets"]]
        hit = sets.gather(1, shared["test_labels"][:, None]).double()
        assert float(hit.mean()) == pytest.approx(case["coverage"], abs=1e-12)


def test_the_sets_of_a_second_library(golden):
    shared = golden("conformal").shared
    draws = torch.tensor(np.random.RandomState(0).uniform(size=200))
    compared = 0
    for case in golden("conformal").cases:
        options = case["params"]
        # the class at which the sum reaches the threshold is always in, or never; a draw is another rule
        last = options.get("include_last_label")
        if case["kind"] not in ("mapie_lac", "mapie_aps") or last not in (None, False, True):
            continue
        score = LAC() if case["kind"] == "mapie_lac" else APS()
        predictor = Conformal(coverage=1 - options["alpha"], score=score)
        predictor.update(shared["cal_logits"], shared["cal_labels"], uniform=1 - draws)
        predictor.finish()
        assert float(predictor.threshold) == pytest.approx(case["quantile"], abs=1e-12)
        share = torch.full((len(shared["test_logits"]), 1), 0.0 if last else 1.0)
        found = predictor(shared["test_logits"], uniform=share)
        assert lists(found) == [sorted(row) for row in case["sets"]]
        compared += 1
    assert compared == 6
