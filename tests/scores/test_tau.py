import math

import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.scores import TauFit, fit_tau
from tests.scores.rows import HALF, calibrated_rows, random_priors


def balanced_errors(logits, target, priors, grid):
    """Loops; a tie with the true class is an error."""
    errors = []
    for tau in grid.tolist():
        by_class: dict[int, list[bool]] = {}
        for scores, true in zip(logits.tolist(), target.tolist(), strict=True):
            adjusted = [s - tau * math.log(p) for s, p in zip(scores, priors.tolist(), strict=True)]
            wrong = any(adjusted[j] >= adjusted[true] for j in range(len(scores)) if j != true)
            by_class.setdefault(true, []).append(wrong)
        errors.append(sum(sum(wrongs) / len(wrongs) for wrongs in by_class.values()) / len(by_class))
    return errors


@given(c=st.integers(2, 5), n=st.integers(1, 20), seed=st.integers(0, 999), same=st.booleans())
def test_curve_is_the_balanced_error(c, n, seed, same):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, c, dtype=torch.float64, generator=generator)
    target = torch.randint(c, (n,), generator=generator)
    priors = random_priors(c, seed)
    if same:  # two classes as frequent as each other, and ties
        priors[1] = priors[0]
        priors /= priors.sum()
        logits = logits.round()
    grid = torch.tensor([-0.37, 0.0, 0.21, 0.83, 1.0, 1.71, 2.9], dtype=torch.float64)
    fit = fit_tau(logits, target, source_priors=priors, grid=grid, standard_errors=0)
    assert fit.curve.tolist() == pytest.approx(balanced_errors(logits, target, priors, grid), abs=1e-12)
    assert fit.balanced_error == pytest.approx(min(fit.curve.tolist()), abs=1e-12)
    assert fit.num_absent == c - len(set(target.tolist()))
    assert torch.equal(fit.grid, grid)


def test_default_grid():
    logits, target = calibrated_rows(n=50)
    fit = fit_tau(logits, target, source_priors=random_priors(6))
    assert isinstance(fit, TauFit)
    assert fit.grid.tolist() == pytest.approx([0.05 * i for i in range(61)])
    assert len(fit.curve) == 61 and 0.0 <= fit.balanced_error <= 1.0


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([(1.9, 6.1)], 4.0),  # right at 2..6
        ([(1.9, 5.1)], 3.0),  # right at 2..5: the lower middle
        ([(0.9, 2.1), (3.9, 7.1)], 5.0),  # 1..2 and 4..7: the longer run
        ([(0.9, 2.1), (3.9, 5.1)], 1.0),  # as long: the smaller taus
        ([(-1.0, 9.0)], 1.0),  # right everywhere, 0..8: no middle but the grid's
        ([(4.9, 9.0)], 6.0),  # right at 5..8, which does not hold 1
    ],
)
def test_ties_go_to_the_middle_of_the_longest_plateau(offsets, expected):
    """Each pair is one row of a class between a frequent and a rare one, right in between."""
    priors = torch.tensor([1.0, math.exp(-1), math.exp(-2)], dtype=torch.float64)
    logits = torch.tensor([[low, 0.0, -high] for low, high in offsets], dtype=torch.float64)
    fit = fit_tau(
        logits,
        torch.ones(len(offsets), dtype=torch.int64),
        source_priors=priors / priors.sum(),
        grid=torch.arange(9.0, dtype=torch.float64),
        standard_errors=0,
    )
    assert fit.tau == expected


def test_tau_is_the_middle_of_those_within_a_standard_error():
    """Rows of the rare class become right one after another as tau grows, those of the other wrong."""
    priors = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    gap, grid = math.log(2), torch.arange(0.0, 2.01, 0.1, dtype=torch.float64)
    rare = torch.tensor([[gap * (0.05 + 0.1 * i), 0.0, -99.0] for i in range(10)], dtype=torch.float64)
    often = torch.tensor([[0.0, -gap * (1.25 + 0.4 * i), -99.0] for i in range(10)], dtype=torch.float64)
    logits, target = torch.cat([rare, often]), torch.tensor([1] * 10 + [0] * 10)
    fit = fit_tau(logits, target, source_priors=priors, grid=grid)
    # class 1 is all right from tau = 1.0 on, class 0 all right up to 1.2: no error, no standard error
    assert (fit.tau, fit.balanced_error, fit.standard_error) == (pytest.approx(1.1), 0.0, 0.0)
    never = torch.tensor([[0.0, -99.0, 0.0]] * 2, dtype=torch.float64)
    logits, target = torch.cat([logits, never]), torch.cat([target, torch.tensor([1, 1])])
    fit = fit_tau(logits, target, source_priors=priors, grid=grid)
    assert fit.standard_error == pytest.approx(math.sqrt(1 / 6 * 5 / 6 / 12) / 2)  # 0.054
    # as good is what costs one row more, 0.5 / 12 or 0.5 / 10: from 0.9 on, and up to 1.6
    assert fit.tau == pytest.approx(1.2)
    assert fit.balanced_error == pytest.approx(1 / 12)
    least = fit_tau(logits, target, source_priors=priors, grid=grid, standard_errors=0)
    assert least.tau == pytest.approx(1.1)


def test_masked_targets_are_wrong_at_any_tau():
    logits, target = torch.tensor([[-math.inf, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    for priors in ([0.5, 0.5], [0.6, 0.4], [0.4, 0.6]):
        fit = fit_tau(logits, target, source_priors=torch.tensor(priors))
        assert fit.curve.min() >= 0.5
        assert fit.curve[0] == 0.5
    assert fit_tau(logits[:1], target[:1], source_priors=torch.tensor([0.5, 0.5])).balanced_error == 1


def test_tau_of_scores_without_information_is_1():
    target = torch.arange(30) % 3
    fit = fit_tau(torch.zeros(30, 3), target, source_priors=torch.tensor([0.7, 0.2, 0.1]))
    assert fit.tau == pytest.approx(1.0) and fit.balanced_error == pytest.approx(2 / 3)


def test_tau_of_the_true_posterior_is_near_1():
    priors = torch.tensor([0.9, 0.1], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(20000, generator=generator) < 0.1).long()
    x = 2 * target - 1 + torch.randn(20000, dtype=torch.float64, generator=generator)
    logits = torch.stack([-x, x], dim=1) + priors.log()
    fit = fit_tau(logits, target, source_priors=priors)
    # A threshold t away from the best costs t^2 phi(1) / 2; errors differ by noise of order
    # sqrt(phi(1) t / (4 * 2000)), so that t is of order 0.07, and tau off by 2 t / log 9.
    assert fit.tau == pytest.approx(1.0, abs=4 * 0.07 * 2 / math.log(9))
    assert fit.balanced_error == pytest.approx(0.1587, abs=4 * 0.5 * math.sqrt(0.1587 * 0.8413 / 2000))


def test_masked_target_is_an_error_at_every_tau():
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [1.0, -torch.inf, -torch.inf], [3.0, 0.0, -torch.inf]])
    fit = fit_tau(logits, torch.tensor([1, 1, 0]), source_priors=torch.tensor([0.25, 0.5, 0.25]))
    assert fit.curve.tolist() == [0.5] * 61


def test_ignored_rows_count_for_nothing_even_if_nan():
    logits, target = calibrated_rows(n=300)
    priors = random_priors(6)
    more = torch.cat([logits, torch.full((2, 6), math.nan, dtype=torch.float64)])
    more_target = torch.cat([target, torch.tensor([-100, -100])])
    assert (
        fit_tau(more, more_target, source_priors=priors)[:2]
        == fit_tau(logits, target, source_priors=priors)[:2]
    )


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_fit_takes_any_precision(dtype):
    logits, target = calibrated_rows(n=400)
    logits = logits.to(dtype)
    low, high = (
        fit_tau(scores, target, source_priors=random_priors(6)) for scores in (logits, logits.double())
    )
    assert low[:2] == high[:2]
    assert all(isinstance(value, float) for value in low[:2])


def test_blocks_of_rows_add_up(monkeypatch):
    logits, target = calibrated_rows(n=101)
    priors = random_priors(6)
    whole = fit_tau(logits, target, source_priors=priors)
    monkeypatch.setattr("shortlist.scores.held_out_rows._BLOCK", 60)  # ten rows
    assert torch.equal(fit_tau(logits, target, source_priors=priors).curve, whole.curve)


def test_absent_classes_are_counted_and_left_out():
    logits, target = calibrated_rows()
    keep = target != 2
    assert fit_tau(logits[keep], target[keep], source_priors=random_priors(6)).num_absent == 1


# errors

LOGITS, TARGET = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
PRIORS = torch.tensor([0.75, 0.25])
NAN = LOGITS.clone()
NAN[1, 0] = math.nan


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_tau(NAN, TARGET, source_priors=PRIORS), "logits must be finite, .* got nan"),
        (lambda: fit_tau(LOGITS, TARGET, source_priors=PRIORS, grid=torch.tensor([])), "grid must be"),
        (
            lambda: fit_tau(LOGITS, TARGET, source_priors=PRIORS, standard_errors=-1.0),
            "standard_errors must be .*got -1.0",
        ),
        (lambda: fit_tau(LOGITS, TARGET, source_priors=PRIORS, grid=torch.tensor([1.0, 0.0])), "ascending"),
        (
            lambda: fit_tau(LOGITS, TARGET, source_priors=torch.tensor([1.0, 0.0])),
            "source_priors must be > 0, got 0.0 for class 1",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
