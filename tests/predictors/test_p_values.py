"""P-values of strangeness against counting loops and published numbers."""

import math

import pytest
import torch

from shortlist.predictors.p_values import (
    adjusted_p_values,
    benjamini_hochberg,
    class_p_values,
    class_steps,
    macro_p_values,
    macro_steps,
    pooled_p_values,
    pooled_steps,
)


def long_tailed(n=300, c=6, m=50, *, step=None, seed=0):
    """Calibration rows of a long-tailed set whose rare classes are stranger, and new rows."""
    generator = torch.Generator().manual_seed(seed)
    shares = 1.0 / torch.arange(1, c + 1)
    target = torch.multinomial(shares, n, replacement=True, generator=generator)
    values = torch.randn(n, generator=generator, dtype=torch.float64) + target
    new = 3 * torch.randn(m, generator=generator, dtype=torch.float64) + 2
    if step is not None:
        values, new = (values / step).round() * step, (new / step).round() * step
    return values, target, new


def counted(new, known):
    return [(1 + sum(k >= x for k in known)) / (len(known) + 1) for x in new]


def test_published_p_values(golden):
    shared = golden("novelty").shared
    case = golden("novelty").cases[0]
    new, known = shared["test"], shared["calibration"]
    p_values = pooled_p_values(new, known)
    assert p_values.tolist() == pytest.approx(case["p_values"], abs=1e-12)
    # the published code finds the rank as floor((n + 1) (1 - p)), in floats 32.99... for p = 28 / 61
    ranks = (61 * (1 - p_values)).floor()
    rounded_down = ranks < (61 * (1 - p_values)).round()
    assert rounded_down.nonzero().tolist() == [[13]]
    table = pooled_steps(known, delta=0.1).table
    assert table[60 - ranks.long().clamp_max(60)].tolist() == pytest.approx(case["simes"], abs=1e-9)
    ours = pooled_p_values(new, known, delta=0.1)
    assert torch.equal(ours, table[60 - (61 * (1 - p_values)).round().long()])
    assert adjusted_p_values(p_values).tolist() == pytest.approx(case["bh_adjusted"], abs=1e-12)
    found = benjamini_hochberg(p_values, level=0.1)
    assert found.nonzero().squeeze(1).tolist() == case["rejected_at_0_1"]
    flagged = new > pooled_steps(known).cutoff(0.05)
    assert flagged.nonzero().squeeze(1).tolist() == case["flagged_at_0_05"]


def test_published_p_values_by_class(golden):
    shared = golden("novelty").shared
    case = golden("novelty").cases[1]
    p_values = class_p_values(shared["test"], shared["calibration"], shared["class_labels"], num_classes=4)
    assert torch.allclose(p_values, torch.tensor(case["p_values"], dtype=torch.float64), atol=1e-12, rtol=0)
    flagged = (p_values <= 0.1).all(1)
    assert flagged.nonzero().squeeze(1).tolist() == case["flagged_at_0_1"]


@pytest.mark.parametrize("step", [None, 0.5], ids=["spread", "ties"])
def test_pooled_and_class_p_values_are_counted(step):
    known, target, new = long_tailed(step=step)
    assert pooled_p_values(new, known).tolist() == pytest.approx(
        counted(new.tolist(), known.tolist()), abs=1e-15
    )
    by_class = class_p_values(new, known, target, num_classes=8)
    for c in range(8):
        assert by_class[:, c].tolist() == pytest.approx(
            counted(new.tolist(), known[target == c].tolist()), abs=1e-15
        )
    largest = class_steps(known, target, num_classes=8)(new)
    assert torch.equal(largest, by_class[:, :6].amax(1))  # two classes have no rows
    assert torch.equal(class_steps(known, target, num_classes=8, classes="all")(new), by_class.amax(1))


@pytest.mark.parametrize("step", [None, 0.5], ids=["spread", "ties"])
@pytest.mark.parametrize("classes", ["present", "all"])
def test_macro_p_values_are_those_of_the_weighted_threshold(step, classes):
    """The threshold is the smallest value q with weights of at least 1 - a + max w up to it."""
    known, target, new = long_tailed(step=step)
    counts = target.bincount(minlength=8).tolist()
    total = 6 if classes == "present" else 8
    weights = [1 / (total * counts[c]) for c in target.tolist()]
    p_values = macro_p_values(new, known, target, num_classes=8, classes=classes)
    for level in (0.05, 0.1, 0.2, 0.3, 0.5, 0.9):
        bound = 1 - level + max(weights) - 1e-12
        reached = [
            q
            for q in sorted(known.tolist())
            if sum(w for w, g in zip(weights, known.tolist(), strict=True) if g <= q) >= bound
        ]
        q = min(reached, default=math.inf)
        assert ((p_values <= level + 1e-12) == (new > q)).all()
        assert float(macro_steps(known, target, num_classes=8, classes=classes).cutoff(level)) == q


def test_the_order_of_the_rows_does_not_matter_to_the_bit():
    known, target, _ = long_tailed(step=0.5)
    shuffled = torch.randperm(len(known))
    for find in (class_steps, macro_steps):
        first = find(known, target, num_classes=6)
        second = find(known[shuffled], target[shuffled], num_classes=6)
        assert torch.equal(first.values, second.values)
        new = first.values.unique()
        assert torch.equal(first(new), second(new))
        assert torch.equal(first.table, second.table)


@pytest.mark.parametrize("level", [0.05, 0.1, 1 - 0.9, 0.3, 0.999, 0.001])
def test_the_cutoff_says_the_same_as_the_p_value(level):
    known, target, new = long_tailed(n=199, step=0.5)
    new = torch.cat([new, known])
    for steps in (
        pooled_steps(known),
        pooled_steps(known, delta=0.1),
        class_steps(known, target, num_classes=6),
        macro_steps(known, target, num_classes=6),
    ):
        assert torch.equal(new > steps.cutoff(level), steps(new) <= level + 1e-12)


def test_rows_in_single_precision_are_compared_as_they_are():
    known = torch.tensor([0.1, 0.2, 0.3])
    assert pooled_p_values(torch.tensor([0.2]), known).item() == 0.75
    assert pooled_p_values(torch.tensor([0.2], dtype=torch.float64), known).item() == 0.75  # 0.2f > 0.2
    assert pooled_p_values(torch.tensor([0.20000001], dtype=torch.float64), known).item() == 0.5


def test_benjamini_hochberg_takes_the_largest_number_that_fits():
    p_values = torch.tensor([0.9, 0.03, 0.001, 0.04, 0.2], dtype=torch.float64)
    ranked = sorted(p_values.tolist())
    for level in (0.004, 0.01, 0.05, 0.07, 0.3, 0.95):
        r = max([r for r in range(1, 6) if ranked[r - 1] <= level * r / 5], default=0)
        expected = [p in ranked[:r] for p in p_values.tolist()]
        assert benjamini_hochberg(p_values, level=level).tolist() == expected


def test_adjusted_p_values_are_scipys():
    stats = pytest.importorskip("scipy.stats")
    p_values = torch.rand(200, dtype=torch.float64).square()
    expected = stats.false_discovery_control(p_values.numpy())
    assert torch.allclose(adjusted_p_values(p_values), torch.from_numpy(expected), atol=1e-12)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda v, t: pooled_p_values(v, v[:, None]),
            r"calibration must be .* shape \(n,\), got .* \(3, 1\)",
        ),
        (lambda v, t: pooled_p_values(v * math.nan, v), "strangeness must be numbers, got NaN in row 0"),
        (lambda v, t: pooled_p_values(v, v, delta=1.0), "delta must be < 1, got 1.0"),
        (lambda v, t: class_p_values(v, v, t[:2], num_classes=3), r"target must be int64 .* \(3,\), got"),
        (lambda v, t: macro_p_values(v, v, t, num_classes=2), r"target must be in \[0, 2\), got 2"),
        (lambda v, t: macro_p_values(v, v, t - 1, num_classes=3), r"target must be in \[0, 3\), got -1"),
        (lambda v, t: macro_p_values(v, v, t, num_classes=3, classes="some"), "classes must be one of"),
        (lambda v, t: macro_steps(v[:0], t[:0], num_classes=3), "needs at least 1 row, got 0"),
        (lambda v, t: benjamini_hochberg(v, level=0.0), "level must be > 0, got 0.0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]))
