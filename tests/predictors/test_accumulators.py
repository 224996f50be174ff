"""Accumulators of calibration rows, and a predictor of one's own that needs no more than four methods."""

import copy
import itertools
import pickle
import re

import pytest
import torch
from torch import Tensor, nn

from shortlist._named_code import allow_code, code_of_command
from shortlist.predictors import (
    PREDICTORS,
    Accumulator,
    AverageK,
    CalibrationReport,
    Conformal,
    Finished,
    NoveltyDetector,
    Rows,
    SetPredictor,
    load,
    save,
)

FOUR = ("add", "merge", "state", "finish")


class Largest(SetPredictor):
    """All classes whose probability is above the smallest one that was ever the largest of a row."""

    calibrated_buffers = ("lowest",)
    lowest: Tensor

    def __init__(self, share: float = 1.0) -> None:
        super().__init__(activation="softmax")
        self.share = share

    def measure(self, scores, target):
        return {"best": self.values(scores).amax(1)}

    def accumulator(self, max_rows=None):
        return Rows(lambda rows: self._lowest(rows))  # which cannot be pickled

    def forward(self, scores):
        return self.values(self.checked(scores)) >= self.lowest

    def _lowest(self, rows):
        return Finished({"lowest": self.share * rows["best"].amin()}, CalibrationReport(rows=len(rows)))


def scores(n=100, seed=0):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))


@pytest.mark.errors
@pytest.mark.parametrize("missing", FOUR)
def test_an_accumulator_that_lacks_something_cannot_be_created(missing):
    methods = {name: lambda self, *_: {} for name in FOUR if name != missing}
    with pytest.raises(TypeError, match=f"abstract.*{missing}"):
        type("Partial", (Accumulator,), methods)()


@pytest.mark.errors
@pytest.mark.parametrize("missing", ["accumulator", "measure", "forward"])
def test_a_predictor_that_lacks_an_accumulator_cannot_be_created(missing):
    """Such a predictor took 50 rows, merged 50 others, and was calibrated on 50."""
    methods = {
        name: vars(Largest)[name]
        for name in ("__init__", "measure", "accumulator", "forward", "calibrated_buffers")
        if name != missing
    }
    methods["__init__"] = lambda self: SetPredictor.__init__(self, activation="softmax")
    with pytest.raises(TypeError, match=f"abstract.*{missing}"):
        type("Partial", (SetPredictor,), methods)()


def test_four_methods_make_a_predictor_that_merges_in_any_grouping(tmp_path):
    rows = scores()
    whole = Largest(0.5).calibrate(rows)
    lowest = 0.5 * min(max(row) for row in rows.softmax(1).tolist())
    assert float(whole.lowest) == pytest.approx(lowest) and whole.report.rows == 100
    assert whole.options() == {"share": 0.5}
    assert repr(whole) == "Largest(share=0.5, calibrated on 100 rows)"
    for order in itertools.permutations(range(3)):
        parts = [Largest(0.5) for _ in range(3)]
        for part, some in zip(parts, rows.split(40), strict=True):
            part.update(some)
        first, second, third = (parts[i] for i in order)
        third.merge(second)
        first.merge(pickle.loads(pickle.dumps(third)))
        assert torch.equal(first.finish().lowest, whole.lowest) and first.report == whole.report
    save(whole, tmp_path / "sets")
    name = f"{Largest.__module__}:Largest"
    with pytest.raises(ValueError, match=re.escape(f"predictor is '{name}', and what is opened never runs")):
        load(tmp_path / "sets")
    with code_of_command():  # which forgets what is allowed
        allow_code(name)
        again = load(tmp_path / "sets")
    assert type(again) is Largest and torch.equal(again(rows), whole(rows))


@pytest.mark.errors
def test_a_predictor_that_no_other_process_could_import_is_not_saved(tmp_path):
    class Inner(Largest):
        pass

    with pytest.raises(ValueError, match=r"predictor must be one of topk, .* got .*Inner of"):
        save(Inner(0.5).calibrate(scores()), tmp_path / "sets")
    assert not list(tmp_path.iterdir())


@pytest.mark.errors
def test_whether_it_is_calibrated_is_saved_and_not_guessed():
    """Without a NaN in a buffer called threshold, a new predictor was loaded as one that is calibrated."""
    rows = scores()
    fresh = Largest()
    fresh.load_state_dict(Largest().state_dict())
    assert not fresh.calibrated
    with pytest.raises(RuntimeError, match="Largest is not calibrated"):
        fresh(rows)
    done, again = Largest().calibrate(rows), Largest()
    again.load_state_dict(done.state_dict())
    assert again.calibrated and torch.equal(again(rows), done(rows))
    again.load_state_dict(Largest().state_dict())  # what it knew is gone
    assert not again.calibrated and again.lowest is None
    for name in ("lowest", "calibrated", "num_classes"):
        model, lacking = nn.Sequential(Largest()), nn.Sequential(done).state_dict()
        del lacking[f"0.{name}"]
        with pytest.raises(RuntimeError, match=f"Missing key.*0.{name}"):
            model.load_state_dict(lacking)
        assert not model[0].calibrated


def test_a_threshold_that_is_no_number_is_calibrated_all_the_same():
    predictor = AverageK(2).calibrate(scores())
    predictor.threshold = torch.tensor(torch.nan)
    again = AverageK(2)
    again.load_state_dict(predictor.state_dict())
    assert again.calibrated and not again(scores()).any()


@pytest.mark.errors
def test_a_file_of_the_format_before_is_refused_by_name(tmp_path):
    save(AverageK(2).calibrate(scores()), tmp_path / "sets")
    path = tmp_path / "sets.json"
    path.write_text(path.read_text().replace("shortlist predictor 4", "shortlist predictor 3"))
    with pytest.raises(
        ValueError, match=r"sets\.json is not a predictor .*'shortlist predictor 3', not '.* 4'"
    ):
        load(path)
    save(NoveltyDetector().calibrate(scores=scores()), path)
    with pytest.raises(ValueError, match=r"name must be one of topk, .* got 'novelty'"):
        load(path)


@pytest.mark.parametrize("name", PREDICTORS)
def test_the_arguments_alone_make_the_rows_that_are_added(name):
    """Of a predictor with added rows, a copy finishes to the same bits, and the first is as it was."""
    kind = PREDICTORS[name]
    if kind.takes_taxonomy or not kind.needs_calibration:
        return
    predictor = kind(0.5)
    predictor.update(scores(), torch.arange(100) % 5)
    done = copy.deepcopy(predictor).finish()
    assert not predictor.calibrated and torch.equal(predictor.finish().threshold, done.threshold)


def test_rows_are_columns_of_any_shape_and_type():
    whole, first, second = (Rows(Rows.state) for _ in range(3))
    posterior, organ = scores(3000).softmax(1), torch.arange(3000) % 4
    for start in range(0, 3000, 700):
        some = slice(start, start + 700)
        whole.add({"posterior": posterior[some], "organ": organ[some]})
    first.add({"posterior": posterior[:1000], "organ": organ[:1000]})
    second.add({"posterior": posterior[1000:], "organ": organ[1000:]})
    first.merge(second.state())
    first.merge({})
    for rows in (whole, first):
        assert len(rows) == 3000 and "organ" in rows and "observation" not in rows
        assert torch.equal(rows["posterior"], posterior) and torch.equal(rows["organ"], organ)
    first.add({"posterior": posterior[:2].double(), "shares": torch.tensor([0.5, 0.25])})
    assert first["posterior"].dtype == torch.float64 and first["organ"][-2:].tolist() == [1, 1]
    assert first["shares"].sum() == 3000.75
    assert first.finish().keys() == {"posterior", "organ", "shares"}
    with pytest.raises(ValueError, match="at least 1 row that is not left out, got 0"):
        Rows(Rows.state).finish()


def test_rows_with_votes_and_rows_with_classes_join_in_any_order():
    rows, target = scores(), torch.arange(100) % 5
    votes = nn.functional.one_hot(target, 5).double() + 0.5
    parts = [(rows[:30], target[:30]), (rows[30:60], votes[30:60]), (rows[60:], target[60:])]
    found = []
    for order in itertools.permutations(parts):
        predictor = Conformal(coverage=0.8)
        for part in order:
            predictor.update(*part)
        found.append(predictor.finish())
    assert all(torch.equal(one.threshold, found[0].threshold) for one in found)
    assert {one.report for one in found} == {found[0].report} and found[0].report.rows == 100
