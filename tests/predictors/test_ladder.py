import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.predictors import AverageK, CalibrationWarning, Conformal, Ladder, ladder as ladder_module

LEVELS = (0.05, 0.29, 0.5, 0.8, 0.9, 0.95, 0.99)
SIZES = (1, 1.5, 2, 3)


def rows(seed: int, n: int, c: int, *, tied: bool):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, c, generator=generator)
    scores = (2 * scores).round() / 2 if tied else scores
    return scores, torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans(), st.booleans())
def test_sets_of_every_level_are_those_of_the_predictors(seed, n, tied, macro):
    scores, target = rows(seed, n, 6, tied=tied)
    new, _ = rows(seed + 1, 20, 6, tied=tied)
    priors = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.06, 0.04]) if macro else None
    own = torch.full((6,), 1 / 6) if macro else None
    ladder = Ladder.of_rows(scores, target, priors=priors, scores_priors=own)
    rank, budget = ladder.entries(ladder.values(new))
    options = {"priors": priors, "scores_priors": own}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        for level in LEVELS:
            predictor = Conformal(
                coverage=level, rule="marginal", score="prevalence_adjusted" if macro else "lac", **options
            ).calibrate(scores, target)
            sets = rank < ladder.coverage_rank(level)
            assert np.array_equal(sets, predictor(new).numpy()), level
            assert np.array_equal(ladder.sets_of_coverage(ladder.values(new), level), sets)
            # what the page does
            assert np.array_equal(rank / (ladder.rows + 1) < level - 1e-9, sets)
            assert ladder.size_at(level) == pytest.approx(float(predictor(scores).sum(1).double().mean()))
        for size in SIZES:
            predictor = AverageK(size, **options).calibrate(scores)
            sets = budget <= ladder.size_budget(size)
            assert np.array_equal(sets, predictor(new).numpy()), size
            assert np.array_equal(ladder.sets_of_size(ladder.values(new), size), sets)
            hits = predictor(scores).gather(1, target[:, None]).double().mean()
            assert ladder.coverage_at(size) == pytest.approx(float(hits))


def test_entries_grow_with_the_order_of_classes():
    scores, target = rows(0, 200, 8, tied=False)
    ladder = Ladder.of_rows(scores, target)
    new, _ = rows(1, 50, 8, tied=False)
    entries, order = ladder.entries(ladder.values(new)), new.argsort(1, descending=True).numpy()
    for found in entries:
        assert (np.diff(np.take_along_axis(found, order, 1), axis=1) >= 0).all()


def test_top_shares_are_counted():
    scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 3.0, 1.0]])
    ladder = Ladder.of_rows(scores, torch.tensor([0, 2, 0]))
    assert [ladder.coverage_of_top(k) for k in (1, 2, 3)] == [
        1 / 3,
        2 / 3,
        1.0,
    ]  # of equal ones, the last place


def test_rows_are_left_out_by_their_target():
    scores, target = rows(0, 40, 5, tied=False)
    with_more = Ladder.of_rows(torch.cat([scores, scores[:3]]), torch.cat([target, torch.full((3,), -100)]))
    ladder = Ladder.of_rows(scores, target)
    assert torch.equal(with_more.true_values, ladder.true_values)
    assert torch.equal(with_more.pooled, ladder.pooled)


def test_of_very_many_rows_some_are_drawn_without_a_look_at_them(monkeypatch):
    monkeypatch.setattr(ladder_module, "MAX_ROWS", 100)
    scores, target = rows(0, 300, 5, tied=False)
    ladder = Ladder.of_rows(scores, target)
    assert ladder.rows == 100
    other = Ladder.of_rows(-scores, target)  # the same rows, whatever their values
    kept = scores.softmax(1).gather(1, target[:, None]).squeeze(1)
    at = torch.isin(kept, ladder.true_values)
    expected = (-scores).softmax(1).gather(1, target[:, None]).squeeze(1)[at]
    assert torch.equal(other.true_values, expected.sort(descending=True).values)


def test_only_the_largest_values_are_kept(monkeypatch):
    scores, target = rows(0, 50, 40, tied=False)
    whole = Ladder.of_rows(scores, target)
    monkeypatch.setattr(ladder_module, "MAX_SIZE", 3)
    ladder = Ladder.of_rows(scores, target)
    assert torch.equal(ladder.pooled, whole.pooled[: 3 * 50 + 1])
    assert ladder.max_size == 3 and ladder.size_at(0.5) == whole.size_at(0.5)
    assert ladder.size_at(0.98) is None and whole.size_at(0.98) > 3
    new, _ = rows(1, 30, 40, tied=False)
    budget = ladder.entries(ladder.values(new))[1]
    assert np.array_equal(budget, np.minimum(whole.entries(whole.values(new))[1], 151))


def test_tensors_and_back():
    scores, target = rows(3, 30, 4, tied=False)
    ladder = Ladder.of_rows(scores, target, priors=torch.full((4,), 0.25))
    again = Ladder.from_tensors(ladder.to_tensors())
    assert np.array_equal(again.entries(again.values(scores))[0], ladder.entries(ladder.values(scores))[0])
    assert again.num_classes == 4
    broken = ladder.to_tensors() | {"pooled": ladder.pooled.flip(0)}
    with pytest.raises(ValueError, match="pooled of a ladder must be values, the largest first"):
        Ladder.from_tensors(broken)


@pytest.mark.errors
def test_bad_input_is_named():
    scores, target = rows(0, 10, 4, tied=False)
    ladder = Ladder.of_rows(scores, target)
    with pytest.raises(ValueError, match="coverage must be < 1, got 1"):
        ladder.coverage_rank(1.0)
    with pytest.raises(ValueError, match=r"size must be from 0.1 to 3.9, got 4"):
        ladder.size_budget(4)
    with pytest.raises(ValueError, match="scores must have 4 classes, got 5"):
        ladder.values(torch.zeros(1, 5))
    with pytest.raises(ValueError, match="at least 1 row"):
        Ladder.of_rows(scores, torch.full((10,), -100))
