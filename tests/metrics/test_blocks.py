"""Scores that come in pieces give the numbers of all of them at once, to the bit."""

import dataclasses

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.metrics import evaluate, rows as row_numbers
from shortlist.metrics.rows import measure_rows
from shortlist.predictors import AverageK, Conformal, TopK

C = 37
TABLE = ClassTable([f"class {i}" for i in range(C)], counts=range(3, 3 + 5 * C, 5))


def rows_of(n, seed=0, *, ties=False, ignored=False, nan=False):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(n, C, generator=generator)
    target = torch.randint(C, (n,), generator=generator)
    if ties:
        scores = scores.round()
    if nan:
        scores[::7, 3] = torch.nan
        scores[::5, target[0]] = torch.nan
    if ignored:
        target[1::3] = -100
    return scores, target


def predictors(nan=False):
    if nan:  # those of the library refuse a NaN
        return {"above": lambda scores: scores > 1.0}
    scores, target = rows_of(60, seed=1)
    made = {"top": TopK(3), "average": AverageK(2.5), "promise": Conformal(coverage=0.8, score="aps")}
    return {name: one.calibrate(scores, target) for name, one in made.items()}


def same(first, second):
    """Whether two results are the same, to the bit; NaN is the same as NaN."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first.nan_to_num(-7.0), second.nan_to_num(-7.0))
    if isinstance(first, int):
        return first == second
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return all(same(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", [{}, {"ties": True}, {"ignored": True}, {"nan": True}])
@pytest.mark.parametrize("ties", ["against", "expected"])
@pytest.mark.parametrize(("n", "rows"), [(1, 5), (2, 1), (41, 7), (42, 7), (41, 100)])
def test_pieces_give_the_same_numbers(kind, ties, n, rows, monkeypatch):
    scores, target = rows_of(n, **kind)
    options = {"num_classes": C, "activation": "softmax", "ties": ties, "ignore_index": -100}
    for shown in (None, lambda scores: scores + 0.25, lambda scores: None):
        whole = measure_rows(scores, target, predictors("nan" in kind), shown=shown, **options)
        pieces = iter(scores.split(rows))
        found = measure_rows(pieces, target, predictors("nan" in kind), shown=shown, **options)
        with monkeypatch.context() as patch:
            patch.setattr(row_numbers, "_BLOCK", 3 * C + 1)  # three rows
            small = measure_rows(scores, target, predictors("nan" in kind), shown=shown, **options)
        for field in dataclasses.fields(whole):
            want = getattr(whole, field.name)
            assert same(getattr(found, field.name), want), field.name
            assert same(getattr(small, field.name), want), field.name


@pytest.mark.parametrize("kind", [{}, {"ties": True, "ignored": True}, {"nan": True}])
def test_pieces_are_evaluated_as_a_whole(kind):
    scores, target = rows_of(41, **kind)
    sets = predictors("nan" in kind)
    whole = evaluate(scores, target, sets, TABLE, num_resamples=50)
    found = evaluate(iter(scores.split(6)), target, sets, TABLE, num_resamples=50)
    assert found.to_json() == whole.to_json()


def test_first_guesses_and_own_likelihoods():
    scores, target = rows_of(50, ties=True)
    options = {"num_classes": C, "activation": "softmax", "ties": "against", "ignore_index": -100}
    found = measure_rows(scores, target, {}, shown=lambda scores: None, **options)
    assert found.guess.tolist() == [row.index(max(row)) for row in scores.tolist()]
    want = torch.nn.functional.cross_entropy(scores.double(), target, reduction="none")
    torch.testing.assert_close(found.score_nll, want, rtol=1e-5, atol=1e-5)
    assert found.nll.isnan().all()
    scores[3, 5] = scores[3, 9] = torch.nan
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        found = measure_rows(scores.to(dtype), target, {}, **options)
        assert torch.equal(found.guess, scores.to(dtype).argmax(1))


def test_no_piece_is_larger_than_a_block(monkeypatch):
    monkeypatch.setattr(row_numbers, "_BLOCK", 4 * C)
    scores, target = rows_of(23)
    seen = []
    looking = {"looking": lambda scores: seen.append(scores.shape) or scores > 0}
    evaluate([scores[:9], scores[9:]], target, looking, TABLE, num_resamples=0)
    assert [rows for rows, _ in seen] == [4, 4, 1, 4, 4, 4, 2]


@pytest.mark.errors
def test_pieces_that_do_not_go_together():
    scores, target = rows_of(10)
    for pieces, message in (
        ([scores[:4]], r"scores must have a row for each target \(10\), got 4"),
        ([scores, scores], r"scores must have a row for each target \(10\), got 20 or more"),
        ([scores[:4], scores[4:, :30]], r"scores must have 37 classes, got 30"),
        ([scores[0]], r"scores must be a floating tensor of shape \(n, c\), got torch.float32 \(37,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(pieces, target, {}, TABLE, num_resamples=0)
    with pytest.raises(ValueError, match=r"target must be in \[0, 37\) or -100, got 37"):
        evaluate([scores], target.fill_(37), {}, TABLE)
