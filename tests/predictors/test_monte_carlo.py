"""The promises, counted over many draws: of strangers that are flagged, and of lists that are confirmed.

Each promise is an inequality of a mean over draws; a tolerance of four standard errors is allowed.
"""

import math
import random

import pytest
import torch

from shortlist.predictors import AdaptingThreshold, ShrinkingThreshold
from shortlist.predictors.p_values import (
    benjamini_hochberg,
    class_steps,
    macro_steps,
    pooled_p_values,
    pooled_steps,
)

pytestmark = pytest.mark.slow

# five classes, from common to rare; the rarer, the stranger its rows are: the model knows them less
SHARES = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
LEVEL = 0.05


def draw(n, generator):
    target = torch.multinomial(SHARES, n, replacement=True, generator=generator)
    return torch.randn(n, generator=generator) + 0.35 * target, target


def false_alarms(make_steps, n, draws=400):
    """Mean share of flagged rows of each class (c,), in units of which the standard error is known."""
    generator = torch.Generator().manual_seed(0)
    rates = torch.zeros(draws, len(SHARES), dtype=torch.float64)
    for i in range(draws):
        known, target = draw(n, generator)
        while int(target.bincount(minlength=5).min()) < 19:
            known, target = draw(n, generator)
        cutoff = make_steps(known, target).cutoff(LEVEL)
        for c in range(len(SHARES)):  # the chance itself, in place of drawing rows
            rates[i, c] = 0.5 * torch.special.erfc((cutoff.double() - 0.35 * c) / math.sqrt(2))
    return rates.mean(0), rates


def above(rates, bound):
    """Whether a mean over draws is above a bound by more than chance explains."""
    return float(rates.mean()) > bound + 4 * float(rates.std()) / math.sqrt(len(rates))


def test_pooled_alarms_hold_over_all_rows_and_fail_rare_classes():
    by_class, rates = false_alarms(lambda known, _: pooled_steps(known), 1000)
    assert not above((rates * SHARES).sum(1), LEVEL)
    assert above(rates[:, 4], 2 * LEVEL) and above(rates.mean(1), 1.2 * LEVEL)
    assert by_class.tolist() == sorted(by_class.tolist())


def test_macro_alarms_hold_on_average_over_classes():
    _, rates = false_alarms(lambda known, target: macro_steps(known, target, num_classes=5), 1000)
    assert not above(rates.mean(1), LEVEL)
    assert float(rates.mean()) > 0.3 * LEVEL  # and it still flags
    assert above(rates[:, 4], LEVEL)  # which is no promise about each class


def test_alarms_by_class_hold_within_each_class():
    by_class, rates = false_alarms(lambda known, target: class_steps(known, target, num_classes=5), 1000)
    for c in range(5):
        assert not above(rates[:, c], LEVEL)
    assert float(by_class[4]) > 0.3 * LEVEL


def test_the_adjusted_p_value_holds_given_the_calibration_rows():
    def share_of_failures(delta):
        generator = torch.Generator().manual_seed(1)
        failed = 0
        for _ in range(1000):
            steps = pooled_steps(torch.randn(200, generator=generator), delta=delta)
            chances = [
                (0.5 * math.erfc(float(steps.cutoff(level)) / math.sqrt(2)), level)
                for level in (0.05, 0.1, 0.2, 0.3)
            ]
            failed += any(chance > level for chance, level in chances)
        return failed / 1000

    assert share_of_failures(0.1) <= 0.1 + 4 * math.sqrt(0.1 * 0.9 / 1000)
    assert share_of_failures(None) > 0.4  # which holds on average over calibration sets only


@pytest.mark.parametrize(("n", "power"), [(50, (0.0, 0.1)), (1000, (0.5, 1.0))])
def test_few_of_those_found_in_a_batch_are_known(n, power):
    """Of 100 rows 10 are strangers; with 50 calibration rows hardly any can be found."""
    generator = torch.Generator().manual_seed(2)
    false, found = [], []
    for _ in range(1500):
        known = torch.randn(n, generator=generator)
        batch = torch.randn(100, generator=generator)
        batch[:10] += 3.5
        flags = benjamini_hochberg(pooled_p_values(batch, known), level=0.1)
        false.append(float(flags[10:].sum()) / max(1, int(flags.sum())))
        found.append(float(flags[:10].double().mean()))
    false, found = torch.tensor(false), torch.tensor(found)
    assert not above(false, 0.1 * 0.9)
    assert power[0] <= float(found.mean()) <= power[1]


def test_every_list_keeps_its_coverage_and_the_naive_rule_loses_it():
    """Scores are uniform: a threshold is the coverage of its lists."""
    random.seed(0)
    runs, below, at_1000, naive_at_1000 = 400, 0, [], []
    for _ in range(runs):
        rule, lowest = ShrinkingThreshold(coverage=0.9, delta=0.1), 1.0
        seen, naive = [], 1.0
        for _ in range(1000):
            score = random.random()
            rule.observe(score if score <= rule.threshold else None)
            lowest = min(lowest, rule.threshold)
            if score <= naive:  # recalibrated every 50 rounds on the last 500 that were confirmed
                seen.append(score)
            if len(seen) >= 50 and len(seen) % 50 == 0:
                recent = sorted(seen[-500:])
                naive = recent[min(len(recent), math.ceil((len(recent) + 1) * 0.9)) - 1]
        below += lowest < 0.9
        at_1000.append(min(1.0, rule.threshold))
        naive_at_1000.append(naive)
    assert below / runs <= 0.1 + 4 * math.sqrt(0.09 / runs)
    assert 0.91 < sum(at_1000) / runs < 0.94
    assert 0.6 < sum(naive_at_1000) / runs < 0.75


def test_the_share_of_misses_is_within_its_bound_against_an_adversary():
    """Who knows the threshold chooses hits for long, then misses for long, or what moves it away most."""
    random.seed(1)
    sequences = {
        "always just above": lambda q, t: min(1.0, max(0.0, q + 1e-9)),
        "always just below": lambda q, t: min(1.0, max(0.0, q - 1e-9)),
        "hard half": lambda q, t: 0.0 if t < 2000 else 1.0,
        "in turns": lambda q, t: float((t // 300) % 2),
        "shift": lambda q, t: random.random() * (0.4 if t < 2000 else 1.0),
    }
    for name, score_of in sequences.items():
        for start, step in ((0.5, 0.02), (1.0, 0.1), (0.0, 0.005)):
            rule = AdaptingThreshold(coverage=0.9, step=step, start=start)
            for t in range(4000):
                # scores are in [0, 1]: a threshold of 1 or more holds all classes, one below 0 none
                rule.observe(hit=score_of(rule.threshold, t) <= rule.threshold)
                assert abs(rule.misses / rule.rounds - 0.1) <= rule.bound + 1e-9, (name, start, step, t)
