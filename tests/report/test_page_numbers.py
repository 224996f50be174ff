"""The numbers behind the page, against loops."""

import math
from collections import Counter

import pytest
import torch

from shortlist.class_table import GROUPS, ClassTable
from shortlist.compare.numbers import (
    bin_histogram,
    bin_labels,
    confused_pairs,
    coverage_by_frequency,
    easy_to_hard,
    frequency_edges,
    pool_reliability,
    size_bins,
    size_histograms,
)
from shortlist.metrics import evaluate
from shortlist.predictors import AverageK, TopK
from shortlist.report.drawings import HEIGHT, WIDTH, Series, bar_plot, line_plot, nice_ticks
from shortlist.report.parts import Cell, Drawing, Table
from shortlist.report.render import render
from shortlist.report.rows import short_list

COUNTS = (300, 150, 100, 40, 20, 19, 5, 1)
TABLE = ClassTable(names=[f"class {i}" for i in range(8)], counts=COUNTS)


def test_confused_pairs_against_a_loop():
    guess, target = torch.randint(8, (500,)), torch.randint(8, (500,)) // torch.randint(1, 4, (500,))
    directed = Counter(zip(target.tolist(), guess.tolist(), strict=True))
    totals = {(a, b): directed[a, b] + directed[b, a] for a in range(8) for b in range(a + 1, 8)}
    expected = sorted((pair for pair in totals if totals[pair]), key=lambda pair: (-totals[pair], pair))
    for limit in (1, 5, 100):
        found = confused_pairs(guess, target, num_classes=8, limit=limit)
        assert [tuple(sorted(pair.classes)) for pair in found] == expected[:limit]
        for pair in found:
            a, b = pair.classes
            assert (pair.forth, pair.back) == (directed[a, b], directed[b, a])
            assert pair.forth >= pair.back
            assert pair.mistakes == totals[min(a, b), max(a, b)]
            assert pair.rows == tuple(int((target == c).sum()) for c in (a, b))


def test_no_mistakes_no_pairs():
    assert confused_pairs(torch.arange(4), torch.arange(4), num_classes=4) == []


@pytest.mark.errors
def test_limits_are_checked():
    with pytest.raises(ValueError, match="limit must be an integer >= 1, got 0"):
        confused_pairs(torch.arange(4), torch.arange(4), num_classes=4, limit=0)
    with pytest.raises(ValueError, match="limit must be an integer >= 1, got -1"):
        easy_to_hard(torch.rand(3), limit=-1)


def test_size_histograms_against_a_loop():
    sizes, target = torch.randint(9, (300,)), torch.randint(7, (300,))  # no row of the last class
    groups = {name: TABLE.groups() == number for number, name in enumerate(GROUPS)}
    found = size_histograms(sizes, target, groups)
    expected = {name: [0] * 9 for name in GROUPS}
    for size, true in zip(sizes.tolist(), target.tolist(), strict=True):
        group = "few" if COUNTS[true] < 20 else "many" if COUNTS[true] > 100 else "medium"
        expected[group][size] += 1
    assert found == expected
    assert size_histograms(sizes, target, {}) == {
        "all": [sum(n) for n in zip(*expected.values(), strict=True)]
    }
    only_many = target < 2
    assert list(size_histograms(sizes[only_many], target[only_many], groups)) == ["many"]


@pytest.mark.parametrize("largest", [0, 1, 7, 8, 10, 20, 99, 100, 500, 501, 1000, 1001, 20000])
def test_size_bins_hold_each_size_once(largest):
    bins = size_bins(largest)
    assert [size for first, last in bins for size in range(first, last + 1)] == list(range(largest + 1))
    assert len(bins) <= 22
    histogram = torch.randint(5, (largest + 1,)).tolist()
    assert bin_histogram(histogram, bins) == [sum(histogram[a : b + 1]) for a, b in bins]


def test_coverage_by_frequency_against_a_loop():
    generator = torch.Generator().manual_seed(1)
    counts = torch.randint(0, 1200, (60,), generator=generator).tolist()
    rows = torch.randint(0, 6, (60,), generator=generator).tolist()  # some classes have none
    hits = [int(torch.randint(0, n + 1, (1,), generator=generator)) for n in rows]
    edges = frequency_edges(counts)
    assert all(sum(low <= count <= high for low, high in edges) == 1 for count in counts)
    for found, (low, high) in zip(coverage_by_frequency(hits, rows, counts, edges), edges, strict=True):
        shares, number = [], 0
        for c in range(60):
            if low <= counts[c] <= high and rows[c] > 0:
                shares.append(hits[c] / rows[c])
                number += rows[c]
        assert (found.low, found.high, found.classes, found.rows) == (low, high, len(shares), number)
        assert found.coverage == (pytest.approx(math.fsum(shares) / len(shares)) if shares else None)


def test_frequency_edges_end_where_groups_do():
    """No bin mixes few (below 20), medium and many (above 100)."""
    for low, high in frequency_edges([0, 3000]):
        assert not low < 20 <= high
        assert not low <= 100 < high
    assert frequency_edges([5, 5]) == [(5, 9)]
    assert bin_labels(frequency_edges([0])) == ["0"]


def test_easy_to_hard_against_sorting():
    probability = torch.rand(101)
    probability[[3, 50]] = math.nan
    probability[[10, 20, 30]] = 2.0
    ranked = sorted((i for i in range(101) if i not in (3, 50)), key=lambda i: (-float(probability[i]), i))
    assert easy_to_hard(probability, limit=200) == ranked
    found = easy_to_hard(probability, limit=9)
    assert (found[0], found[-1], len(found)) == (10, ranked[-1], 9)
    places = [ranked.index(i) for i in found]
    assert places == [round(i * 98 / 8) for i in range(9)]
    assert easy_to_hard(probability, limit=1) == [10]
    assert easy_to_hard(torch.tensor([math.nan])) == []


def test_pooled_reliability_is_that_of_all_rows():
    scores, target = torch.randn(2, 200, 8) * 2, torch.randint(8, (2, 200))
    each = [evaluate(s, t, {}, TABLE, num_resamples=0).scores for s, t in zip(scores, target, strict=True)]
    whole = evaluate(scores.flatten(0, 1), target.flatten(), {}, TABLE, num_resamples=0).scores.reliability
    pooled = pool_reliability([one.reliability for one in each])
    assert pooled.rows == whole.rows
    for name in ("accuracy", "confidence"):
        for found, expected in zip(getattr(pooled, name), getattr(whole, name), strict=True):
            assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize("true", range(8))
def test_short_list_against_a_loop(true):
    torch.manual_seed(true)
    calibration, scores = torch.randn(200, 8), torch.randn(8)
    predictors = {"two": TopK(k=2), "average": AverageK(k=3).calibrate(calibration)}
    sets = [predictor(scores[None])[0].tolist() for predictor in predictors.values()]
    found = short_list(scores, 17, true, torch.tensor(sets), scores.softmax(0), limit=3)
    ranked = sorted(range(8), key=lambda c: -float(scores[c]))
    members = [c for c in ranked if any(one[c] for one in sets)]
    shown = members[:3] if true in members[:3] else sorted([*members[:2], true], key=ranked.index)
    assert (found.row, found.true) == (17, true)
    assert list(found.sizes) == [sum(one) for one in sets]
    assert [candidate.index for candidate in found.candidates] == shown
    assert found.more == len([c for c in members if c not in shown])
    total = sum(math.exp(float(s)) for s in scores)
    for candidate in found.candidates:
        assert candidate.place == ranked.index(candidate.index) + 1
        assert candidate.probability == pytest.approx(
            math.exp(float(scores[candidate.index])) / total, abs=1e-6
        )
        assert list(candidate.held_by) == [one[candidate.index] for one in sets]


def test_lines_are_where_the_numbers_say():
    line = Series("a < b", [0, 1, 2, 3], [0.0, 0.5, None, 1.0])
    plot = line_plot(
        [line], title="T", x_label="x", y_label="y", description='says "so"', y_range=(0.0, 1.0), percent=True
    )
    drawn = render("_plot.html", plot=plot)
    left, right, top, bottom = 46, WIDTH - 16, 24, HEIGHT - 40
    middle = f"{left + (right - left) / 3:.1f} {(top + bottom) / 2:g}"
    assert f'd="M{left} {bottom}L{middle}M{right} {top}"' in drawn  # a gap at None
    assert "<title>a &lt; b</title>" in drawn
    assert 'role="img"' in drawn
    assert 'aria-label="says &#34;so&#34;"' in drawn
    assert all(f">{tick}</text>" in drawn for tick in (0, 20, 40, 60, 80, 100))


def test_bars_are_as_high_as_the_numbers_say():
    bars = [Series("few", [], [0.25, 0.0, 0.5]), Series("many", [], [1.0, 0.0, 0.0], style=2)]
    plot = bar_plot(["1", "2", "3–4"], bars, title="T", x_label="x", y_label="y", description="d")
    drawn = render("_plot.html", plot=plot)
    heights = [float(part.split('"')[0]) for part in drawn.split(' height="')[1:]]
    assert heights == [(HEIGHT - 64) * share for share in (0.25, 0.5, 1.0)]  # none for 0
    assert "few, 3–4: 50.0 %" in drawn


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.3, 0.35), (-2.0, 7.0), (0, 1e-6), (3, 3), (0, 12345)])
def test_ticks_are_few_and_inside(low, high):
    ticks = nice_ticks(low, high)
    assert 1 <= len(ticks) <= 7
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in ticks)


def test_text_of_tables_and_plots_is_escaped():
    table = Table("a & b", ["<th>", "n"], [["<script>", Cell("<i>", "<u>", "best")], [None, 3]])
    plot = line_plot(
        [Series("<s>", [0, 1], [0, 1])], title="<b>", x_label="<em>", y_label="y", description="d"
    )
    made = render("sizes.html", section=Drawing("name", "<h1>", "<h2>", [plot], tables=[table]))
    assert not any(f"<{name}>" in made for name in ("script", "i", "u", "s", "b", "em", "h1", "h2"))
    assert "a &amp; b" in made
    assert '<span class="best">&lt;i&gt;</span><span class="interval">&lt;u&gt;</span>' in made
    assert '<th scope="row"></th><td class="n">3</td>' in made
