"""Metrics of strangers and the test of exchangeability, against loops and scipy."""

import math

import pytest
import torch

from shortlist.metrics import exchangeability_test, false_alarm_rate, novelty_auroc, novelty_power


def flagged_rows():
    target = torch.randint(-1, 4, (200,))
    strangeness = (torch.rand(200) + 0.3 * (target == -1)).mul(20).round() / 20
    return strangeness, target


def test_false_alarms_by_class_and_power():
    strangeness, target = flagged_rows()
    flags = strangeness > 0.8
    by_class = [
        sum(f for f, t in zip(flags.tolist(), target.tolist(), strict=True) if t == c)
        / target.tolist().count(c)
        for c in range(4)
    ]
    found = false_alarm_rate(flags, target, num_classes=5, average="none")
    assert found[:4].tolist() == pytest.approx(by_class) and math.isnan(found[4])
    macro = false_alarm_rate(flags, target, num_classes=5, average="macro")
    assert float(macro) == pytest.approx(sum(by_class) / 4)
    micro = sum(f for f, t in zip(flags.tolist(), target.tolist(), strict=True) if t >= 0)
    assert float(false_alarm_rate(flags, target, num_classes=5)) == pytest.approx(
        micro / int((target >= 0).sum())
    )
    groups = torch.tensor([0, 0, 2, 2, 2])
    grouped = false_alarm_rate(flags, target, num_classes=5, average="group", groups=groups)
    assert grouped[[0, 2]].tolist() == pytest.approx(
        [sum(by_class[:2]) / 2, sum(by_class[2:]) / 2]
    ) and math.isnan(grouped[1])
    power = sum(flags[target == -1].tolist()) / target.tolist().count(-1)
    assert float(novelty_power(flags, target)) == pytest.approx(power)


def test_the_area_counts_pairs():
    strangeness, target = flagged_rows()
    pairs = [
        (new > known) + (new == known) / 2
        for new in strangeness[target == -1].tolist()
        for known in strangeness[target != -1].tolist()
    ]
    assert float(novelty_auroc(strangeness, target)) == pytest.approx(sum(pairs) / len(pairs))
    assert math.isnan(novelty_auroc(strangeness, target.clamp_min(0)))
    assert math.isnan(novelty_auroc(strangeness, torch.full_like(target, -1)))


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_the_statistic_and_its_chance_are_scipys(shift):
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(1)
    known = torch.randn(60, generator=generator, dtype=torch.float64)
    new = torch.randn(40, generator=generator, dtype=torch.float64) + shift
    expected = stats.ks_2samp(known.numpy(), new.numpy(), method="exact")
    found = exchangeability_test(known, new, generator=generator)
    assert found.statistic == pytest.approx(expected.statistic, abs=1e-12)
    spread = math.sqrt(expected.pvalue * (1 - expected.pvalue) / 999)
    assert abs(found.p_value - expected.pvalue) < 4 * spread + 1e-3


@pytest.mark.parametrize("step", [None, 0.5], ids=["spread", "ties"])
def test_the_level_of_the_test_holds(step):
    """Of 300 exchangeable samples of 12 and 9 rows, at most about a fifth has a p-value of at most 0.2."""
    generator = torch.Generator().manual_seed(2)
    rejected = 0
    for _ in range(300):
        rows = torch.randn(21, generator=generator)
        rows = rows if step is None else (rows / step).round()
        rejected += (
            exchangeability_test(rows[:12], rows[12:], num_permutations=49, generator=generator).p_value
            <= 0.2
        )
    assert 0.05 < rejected / 300 < 0.2 + 3 * math.sqrt(0.16 / 300)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda v, t: false_alarm_rate(v, t, num_classes=3),
            "flags must be a bool .* got torch.float32",
        ),
        (lambda v, t: novelty_power(v > 0, t[:2]), r"target must be int64 of shape \(3,\), got"),
        (lambda v, t: novelty_auroc(v > 0, t), "strangeness must be a floating tensor .* got torch.bool"),
        (lambda v, t: exchangeability_test(v, v[:0]), "new must be at least 1 number, got none"),
        (lambda v, t: exchangeability_test(v * math.nan, v), "calibration must be .* got NaN"),
        (lambda v, t: exchangeability_test(t, v), "calibration must be a floating tensor"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, -1]))
