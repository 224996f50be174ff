"""Figures of the losses and of the splitter network: numbers against loops, enumeration and integrals."""

import inspect
import itertools
import json
import math

import pytest
import torch
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.stats import norm

from shortlist.demo.run import BASE
from shortlist.losses import LOSSES
from shortlist.ops.networks import comparator_layers
from shortlist.papers.figures import (
    calibration_map,
    epoch_time,
    level_sets,
    load_figure,
    noise_landscape,
    nonzero_gradients,
    splitter_network,
    step_times,
)
from shortlist.papers.figures._simplex import rescale, simplex_grid
from shortlist.recipes.recipe import make_recipe

NAMES = (
    "level_sets",
    "noise_landscape",
    "epoch_time",
    "nonzero_gradients",
    "calibration_map",
    "splitter_network",
)
COUNTS = (10, 100, 1000)


def redrawn(name: str, numbers: dict) -> Figure:
    """The drawing of numbers that were written to a file."""
    drawing = load_figure(name).draw(json.loads(json.dumps(numbers, allow_nan=False)))
    drawing.draw_without_rendering()
    return drawing


def kth(values, k: int) -> float:
    return sorted(values, reverse=True)[k - 1]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# ---- level sets: each formula as in METHODS, one row at a time, the first class being the true one


def pairwise(scores, margins, factor=1.0) -> float:
    total = sum(math.exp(margins[j] + scores[j] - scores[0]) for j in (1, 2))
    return factor * math.log1p(total)


def priors() -> list[float]:
    return [count / sum(COUNTS) for count in COUNTS]


def smooth_loss(s, k: int, temperature: float = 1.0) -> float:
    def part(sets, margin):
        return sum(math.exp((margin(a) + sum(s[j] for j in a) / k) / temperature) for a in sets)

    sets = list(itertools.combinations(range(3), k))
    whole = part(sets, lambda a: float(0 not in a))
    return temperature * (math.log(whole) - math.log(part([a for a in sets if 0 in a], lambda a: 0.0)))


def average_loss(s, k: int) -> float:
    ce = math.log(sum(map(math.exp, s))) - s[0]
    others = sorted((1, 2), key=lambda j: -s[j])
    loss = ce - math.log(sigmoid(s[0]))
    for place, j in enumerate(others):
        chosen = place < k - 1
        loss -= math.log(sigmoid(s[j])) / (k - 1) if chosen else math.log(1 - sigmoid(s[j])) / (3 - k)
    return loss


def role_row(s, k: int) -> float:
    def nl(x):
        return -math.log(x + 1e-5)

    p, q = [sigmoid(x) for x in s], [0.995, 0.5, 0.5]
    value = 0.0
    for own, other in ((p, q), (q, p)):
        fit = nl(own[0]) + sum(b * nl(a) + (1 - b) * nl(1 - a) for a, b in zip(own, other, strict=True))
        value += 0.5 * fit / 3 + 0.5 * ((sum(own) - k) / 3) ** 2
    return value


def sparse_row(s, k: int) -> float:
    """By trying many thresholds: a concave problem in one number."""
    labels = [1, 0, int(k > 1)]
    low, high = -3.0, 3.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(max(x - middle, 0), 1) for x in s) > k else (low, middle)
    q = [min(max(x - low, 0), 1) for x in s]
    best = sum(a * b - a * a / 2 for a, b in zip(q, s, strict=True))
    return best - sum(a * b for a, b in zip(labels, s, strict=True)) + k / 2


PI = priors()
ORACLES = {
    "topk_error": lambda s, k: float(kth(s, k) > s[0]),
    "cross_entropy": lambda s, k: pairwise(s, (0, 0, 0)),
    "topk_hinge": lambda s, k: max(0, 1 + kth(s[1:], k) - s[0]),
    "convex_topk_hinge": lambda s, k: max(
        0, sum(kth((s[0], s[1] + 1, s[2] + 1), i) for i in range(1, k + 1)) / k - s[0]
    ),
    "calibrated_topk_hinge": lambda s, k: max(0, 1 + kth(s, k + 1) - s[0]),
    "smooth_topk": smooth_loss,
    "sparse_top": sparse_row,
    "balanced_ce": lambda s, k: pairwise(s, (0, 0, 0), 1 / PI[0]),
    "equalized": lambda s, k: pairwise(s, [math.log(p) for p in PI]),
    "focal": lambda s, k: (1 - math.exp(-pairwise(s, (0, 0, 0)))) ** 2 * pairwise(s, (0, 0, 0)),
    "ldam": lambda s, k: pairwise([30 * x / 2 for x in s], (0, 30 * 0.5, 30 * 0.5)),
    "logit_adjusted": lambda s, k: pairwise(s, [math.log(p / PI[0]) for p in PI]),
    "logit_adjusted_adaptive": lambda s, k: pairwise(s, [math.log(p / PI[0]) + PI[0] ** -0.25 for p in PI]),
    "pairwise_margin": lambda s, k: pairwise(s, (0, 1, 0)),
    "two_parameter_margin": lambda s, k: pairwise(s, [0.5 * math.log(p) - math.log(PI[0]) for p in PI]),
    "assume_negative": lambda s, k: (
        -math.log(sigmoid(s[0])) - 0.5 * sum(math.log(1 - sigmoid(x)) for x in s[1:])
    ),
    "average_k": average_loss,
    "expected_positive": lambda s, k: -math.log(sigmoid(s[0])) + 0.01 * (sum(map(sigmoid, s)) - k) ** 2,
    "role": role_row,
}


@pytest.fixture(scope="module")
def levels() -> dict:
    return level_sets.measure(resolution=6, class_counts=COUNTS)


def test_the_grid_has_every_point_once():
    grid = simplex_grid(7, total=2.0)
    assert len(grid) == 8 * 9 // 2 == len({tuple(row) for row in grid.tolist()})
    assert torch.allclose(grid.sum(1), torch.full((36,), 2.0, dtype=torch.float64))
    assert float(grid.min()) == 0.0
    assert rescale([2.0, 2.0]) == [0.0, 0.0]


def test_every_loss_has_its_level_sets(levels):
    drawn = {(panel["loss"], panel["k"]) for panel in levels["panels"]}
    assert {loss for loss, _ in drawn} == {*LOSSES, "cross_entropy", "topk_error"}
    for loss in LOSSES:
        with_k = "k" in inspect.signature(LOSSES[loss]).parameters or loss in ("ranked_topk", "sparse_top")
        assert {k for name, k in drawn if name == loss} == ({1, 2} if with_k else {None})
    for panel in levels["panels"]:
        assert min(panel["values"]) == 0.0
        assert max(panel["values"]) == 1.0
        assert len(panel["values"]) == len(levels["points"]) == 28


@pytest.mark.parametrize("loss", ORACLES)
def test_level_sets_against_the_formulas(levels, loss):
    found = [panel for panel in levels["panels"] if panel["loss"] == loss]
    assert found
    for panel in found:
        own = [panel["options"]["temperature"]] if loss == "smooth_topk" else []
        values = [ORACLES[loss](s, panel["k"] or 1, *own) for s in levels["points"]]
        assert panel["low"] == pytest.approx(min(values), abs=1e-5)
        assert panel["high"] == pytest.approx(max(values), abs=1e-5)
        assert panel["values"] == pytest.approx(rescale(values), abs=1e-5)


def expected_kth(scores, k: int, std: float) -> float:
    """E of the k-th largest of three noisy scores, by integrating the chance that k exceed a level."""

    def tail(t: float) -> float:
        chance = [norm.sf((t - s) / std) for s in scores]
        return sum(
            math.prod(c if up else 1 - c for c, up in zip(chance, which, strict=True))
            for which in itertools.product((0, 1), repeat=3)
            if sum(which) >= k
        )

    low, high = min(scores) - 8 * std, max(scores) + 8 * std
    return low + quad(tail, low, high, epsabs=1e-9, limit=200)[0]


def test_level_sets_of_the_noised_losses_against_integrals(levels):
    points = levels["points"]
    for loss, amounts, margin, factor, total in (
        ("noised_topk", (0.3, 1.0), 1.0, 1.0, 2.0),
        ("imbalanced_noised_topk", (0.1,), 0.2, 50.0, 1.0),
    ):
        found = [p for p in levels["panels"] if p["loss"] == loss]
        assert [p["options"]["noise_std"] for p in found] == [*amounts, *amounts]
        for panel in found:
            std = panel["options"]["noise_std"]
            assert panel["scores_sum"] == total
            span = panel["high"] - panel["low"]
            for index in (0, 5, 9, 14, 23):
                s = [x * total / 2 for x in points[index]]
                value = factor * max(0.0, margin + expected_kth(s, panel["k"] + 1, std) - s[0])
                assert panel["values"][index] * span + panel["low"] == pytest.approx(value, abs=2e-4 * factor)


def test_ranked_level_sets_against_the_network_of_three_wires(levels):
    """Two comparators: the scores of wires 2 and 0, then 2 and 1, so that wire 2 holds the largest."""

    def larger(a, b, of_a, of_b):
        f = math.atan(10 * (b - a)) / math.pi + 0.5
        return (1 - f) * a + f * b, [(1 - f) * x + f * y for x, y in zip(of_a, of_b, strict=True)]

    panel = next(p for p in levels["panels"] if p["loss"] == "ranked_topk" and p["k"] == 1)
    assert comparator_layers("splitter", 3, 1)[0].tolist() == [[0], [2]]
    eye = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    values = []
    for s in levels["points"]:
        top, weights = larger(s[2], s[0], eye[2], eye[0])
        weights = larger(top, s[1], weights, eye[1])[1]
        values.append(-math.log(weights[0] * (1 - 2e-7) + 1e-7))
    assert panel["values"] == pytest.approx(rescale(values), abs=1e-5)


def test_temperatures_and_noise_have_a_panel_each():
    numbers = level_sets.measure(
        k=2, losses=["smooth_topk", "noised_topk"], temperature=[0.1, 1, 3], noise_std=0.5, resolution=3
    )
    found = [
        (p["loss"], p["options"].get("temperature", p["options"].get("noise_std"))) for p in numbers["panels"]
    ]
    assert found == [("smooth_topk", 0.1), ("smooth_topk", 1), ("smooth_topk", 3), ("noised_topk", 0.5)]
    titles = [axes.get_title() for axes in redrawn("level_sets", numbers).axes]
    assert titles[:2] == ["smooth_topk\ntemperature 0.1", "smooth_topk\ntemperature 1"]


def test_level_sets_are_all_drawn(levels):
    titles = [axes.get_title().split("\n")[0] for axes in redrawn("level_sets", levels).axes]
    assert sorted(filter(None, titles)) == sorted(panel["loss"] for panel in levels["panels"])
    few = level_sets.measure(k=2, losses=["focal", "topk_hinge"], resolution=3, scale=1)
    assert [(p["loss"], p["k"]) for p in few["panels"]] == [("focal", None), ("topk_hinge", 2)]
    axes = redrawn("level_sets", few).axes
    words = [text.get_text() for place in axes for text in place.texts]
    assert "k = 2" in words
    assert "k = 1" not in words
    assert any("a (100)" in word for word in words)


def test_calls_of_progress():
    calls = []
    level_sets.measure(k=1, losses="focal", resolution=2, progress=lambda *step: calls.append(step))
    nonzero_gradients.measure(
        noise_std=[1, 2], num_draws=1, num_rows=2, progress=lambda *step: calls.append(step)
    )
    assert calls == [("losses", 1, 1), ("amounts of noise", 1, 2), ("amounts of noise", 2, 2)]


# ---- the landscape of the noised loss


def test_noise_landscape_against_loops_and_integrals():
    options = {"k": [1, 2], "noise_std": [0, 0.5], "num_draws": [1, 7], "resolution": 4, "seed": 3}
    numbers = noise_landscape.measure(**options)
    points = simplex_grid(4, total=2.0).tolist()
    noise = torch.randn(7, 15, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).tolist()
    found = {(p["k"], p["noise_std"], p["num_draws"]): p for p in numbers["panels"]}
    assert len(found) == 2 * (1 + 3)
    for k in (1, 2):
        hard = [max(0, 1 + kth(s, k + 1) - s[0]) for s in points]
        assert found[k, 0, None]["values"] == pytest.approx(hard, abs=1e-6)
        exact = [max(0, 1 + expected_kth(s, k + 1, 0.5) - s[0]) for s in points]
        assert found[k, 0.5, None]["values"] == pytest.approx(exact, abs=1e-5)
        change = math.sqrt(sum((a - b) ** 2 for a, b in zip(exact, hard, strict=True)) / 15)
        assert found[k, 0.5, None]["smoothing"] == pytest.approx(change, abs=1e-5)
        for count in (1, 7):
            drawn = []
            for i, s in enumerate(points):
                tops = [
                    kth([x + 0.5 * z for x, z in zip(s, noise[b][i], strict=True)], k + 1)
                    for b in range(count)
                ]
                drawn.append(max(0, 1 + sum(tops) / count - s[0]))
            assert found[k, 0.5, count]["values"] == pytest.approx(drawn, abs=1e-6)
            error = math.sqrt(sum((a - b) ** 2 for a, b in zip(drawn, exact, strict=True)) / 15)
            assert found[k, 0.5, count]["draw_error"] == pytest.approx(error, abs=1e-5)
    assert numbers == noise_landscape.measure(**options)
    assert numbers["panels"][-1] != noise_landscape.measure(**options | {"seed": 4})["panels"][-1]


def test_noise_landscape_is_drawn():
    numbers = noise_landscape.measure(noise_std=[0, 0.5], num_draws=[1, 2], k=1, resolution=3)
    axes = redrawn("noise_landscape", numbers).axes
    titles = [place.get_title() for place in axes if place.get_title()]
    assert titles == ["k = 1, no noise", "k = 1, noise 0.5"]
    assert [place.texts[0].get_text() for place in axes if place.texts] == [
        "1 draw",
        "2 draws",
        "expectation",
    ]
    assert sum(bool(place.collections) for place in axes[:-1]) == len(numbers["panels"]) == 4


# ---- gradients


def test_nonzero_gradients_against_a_loop():
    numbers = nonzero_gradients.measure(
        noise_std=[0.05, 1.0], num_draws=[2, 5], k=2, num_classes=6, num_rows=20, seed=1, score_std=0.7
    )
    generator = torch.Generator().manual_seed(1)
    scores = (0.7 * torch.randn(20, 6, generator=generator)).tolist()
    target = torch.randint(6, (20,), generator=generator).tolist()
    noise = torch.randn(5, 20, 6, generator=generator).tolist()
    for line in numbers["lines"][:2]:
        m = line["num_draws"]
        for place, std in enumerate((0.05, 1.0)):
            total = 0
            for i, (s, y) in enumerate(zip(scores, target, strict=True)):
                gradient, mean = [0.0] * 6, 0.0
                for b in range(m):
                    noisy = [x + std * z for x, z in zip(s, noise[b][i], strict=True)]
                    third = noisy.index(kth(noisy, 3))
                    gradient[third] += 1
                    mean += noisy[third] / m
                gradient[y] -= m
                total += sum(map(bool, gradient)) if 1 + mean - s[y] > 0 else 0
            assert line["nonzero"][place] == pytest.approx(total / 20)


def test_nonzero_gradients_where_they_are_known():
    options = {"k": 5, "num_classes": 40, "num_rows": 300, "num_draws": [1, 3, 10]}
    numbers = nonzero_gradients.measure(noise_std=[1e-6, 1e4], **options)
    for line in numbers["lines"][:-1]:
        m, (little, much) = line["num_draws"], line["nonzero"]
        assert little == pytest.approx(numbers["references"]["calibrated hinge"]["nonzero"])
        # any class is as likely: those drawn at least once, and the true one
        assert much == pytest.approx(1 + 39 * (1 - (1 - 1 / 40) ** m), abs=0.15)
    assert numbers["lines"][-1]["nonzero"] == pytest.approx([little, 40])  # all within reach of the noise
    found = {name: entry["nonzero"] for name, entry in numbers["references"].items()}
    assert found["cross-entropy"] == found["smooth top-k"] == 40
    assert 1.9 < found["top-k hinge"] <= 2
    assert 5.9 < found["convex top-k hinge"] <= 6


def test_nonzero_gradients_are_drawn():
    numbers = nonzero_gradients.measure(noise_std=[0.1, 1, 10], num_draws=[1, 3], num_rows=20, num_classes=20)
    (axes,) = redrawn("nonzero_gradients", numbers).axes
    assert [line.get_label() for line in axes.lines] == ["1 draw", "3 draws", "expectation"]
    for line, drawn in zip(numbers["lines"], axes.lines, strict=True):
        assert drawn.get_xdata().tolist() == numbers["noise_std"]
        assert drawn.get_ydata().tolist() == line["nonzero"]
    words = " ".join(text.get_text() for text in axes.texts)
    assert all(name in words for name in numbers["references"])


@pytest.mark.slow
def test_nonzero_gradients_of_a_real_first_epoch(monkeypatch):
    """Every batch again: the scores that the network gave, the draws of the loss, and the rule in a loop."""
    seen = []
    original = nonzero_gradients.first_epoch_counts

    def watched(recipe, count):
        small = recipe.model_copy(
            update={"data": make_recipe({"data": {"name": "gaussian_genera", "num_rows": 200}}).data}
        )
        small = small.model_copy(update={"model": make_recipe({"model": {"name": "linear"}}).model})

        def keep(gradient):
            seen.append(gradient)
            return count(gradient)

        return original(small, keep)

    monkeypatch.setattr(nonzero_gradients, "first_epoch_counts", watched)
    told = []
    numbers = nonzero_gradients.measure(
        noise_std=[1e-6, 1.0], num_draws=[1, 3], num_rows=5, num_classes=20, first_epoch=True,
        progress=lambda *words: told.append(words),
    )  # fmt: skip
    rows = torch.cat(seen).tolist()
    per_training = len(rows) // 4
    for number, line in enumerate(numbers["first_epoch"]):
        draws = line["num_draws"]
        for place in range(2):
            own = rows[(2 * number + place) * per_training :][:per_training]
            counts = [sum(abs(x) > 1e-6 for x in row) for row in own]
            assert line["nonzero"][place] == pytest.approx(sum(counts) / per_training)
            assert max(counts) <= 1 + draws  # the true class, and one class for each draw
            assert all(abs(sum(row)) < 1e-5 for row in own)
            # entries are whole multiples of a draw's share
            assert all(abs(draws * x - round(draws * x)) < 1e-4 for row in own for x in row)
    assert told[-1] == ("trainings", 4, 4)
    labels = [line.get_label() for line in redrawn("nonzero_gradients", numbers).axes[0].lines]
    assert labels[:2] == ["1 draw", "1 draw, first epoch"]


# ---- the network


def brute_force(layers, n: int) -> tuple[list[list[int]], list[list[set[int]]]]:
    """Least rank on each wire after each layer, and the ranks that each comparator ever moves up."""
    least = [[n] * n for _ in range(len(layers) + 1)]
    moved = [[set() for _ in layer] for layer in layers]
    for ranks in itertools.permutations(range(n)):  # rank 0 is the largest value
        wires = list(ranks)
        for depth in range(len(layers) + 1):
            least[depth] = [min(a, b) for a, b in zip(least[depth], wires, strict=True)]
            if depth == len(layers):
                break
            for number, (larger, smaller) in enumerate(layers[depth]):
                if wires[smaller] < wires[larger]:
                    moved[depth][number].add(wires[smaller])
                    wires[smaller], wires[larger] = wires[larger], wires[smaller]
    return least, moved


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (4, 2), (5, 3), (6, 2), (6, 5), (7, 5)])
def test_minimum_ranks_against_all_permutations(n, k):
    numbers = splitter_network.measure(n=n, k=k)
    layers = [[comparator["wires"] for comparator in layer] for layer in numbers["layers"]]
    least, moved = brute_force(layers, n)
    assert numbers["minimum_ranks"] == [[min(rank, k) for rank in row] for row in least]
    for layer, sets in zip(numbers["layers"], moved, strict=True):
        assert [c["work"] for c in layer] == [any(rank < k for rank in ranks) for ranks in sets]
    assert numbers["minimum_ranks"][-1] == [min(wire, k) for wire in range(n)]


@pytest.mark.parametrize(("n", "k"), [(5, 3), (11, 4), (16, 5), (16, 7)])
def test_the_network_is_the_one_of_the_operator(n, k):
    numbers = splitter_network.measure(n=n, k=k)
    layers = comparator_layers("splitter", n, k)
    assert len(layers) == numbers["depth"]
    for layer, drawn in zip(layers, numbers["layers"], strict=True):
        pairs = [[n - 1 - int(b), n - 1 - int(a)] for a, b in layer.T]
        assert [comparator["wires"] for comparator in drawn] == pairs
        for comparator in drawn:
            assert {*comparator["wires"]} <= {*numbers["cascades"][comparator["cascade"]]["wires"]}
    for least, promised in zip(numbers["minimum_ranks"], numbers["promised_ranks"], strict=True):
        assert all(a >= b for a, b in zip(least, promised, strict=True))
    if k <= 4:
        assert numbers["minimum_ranks"] == numbers["promised_ranks"]


def test_the_network_of_the_paper(golden):
    numbers = splitter_network.measure()
    published = next(case for case in golden("splitter_selection").cases if case["kind"] == "splitter_depths")
    row = next(row for row in published["table"] if (row["n"], row["k"]) == (16, 5))
    assert (numbers["depth"], numbers["num_comparators"]) == (row["depth"], row["n_comparators"]) == (10, 50)
    # after the first cascade place i has 2^popcount(i) - 1 larger ones
    assert numbers["minimum_ranks"][4] == [min(2 ** bin(i).count("1") - 1, 5) for i in range(16)]
    # the construction counts on less than is so: three wires it still sorts hold none of the five largest
    assert numbers["promised_ranks"][7][5:11] == [4, 4, 5, 4, 5, 4]
    assert numbers["minimum_ranks"][7][5:11] == [5, 5, 5, 4, 5, 5]
    assert numbers["num_at_work"] == 44
    assert not any(comparator["work"] for comparator in numbers["layers"][8])
    assert numbers["found_after"] == [4, 6, 7, 8, 10]
    assert numbers["dropped_after"] == [None] * 5 + [10, 6, 4, 8, 6, 5, 4, 5, 4, 3, 3]


def test_the_network_is_drawn():
    numbers = splitter_network.measure(n=6, k=2)
    (axes,) = redrawn("splitter_network", numbers).axes
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    ends = sorted((int(arrow.xy[1]), int(arrow.xyann[1])) for arrow in arrows)
    assert ends == sorted(tuple(c["wires"]) for layer in numbers["layers"] for c in layer)
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [line.get_ydata()[0] for line in crosses] == [2, 3, 4, 5]
    assert [text.get_text() for text in axes.texts].count("0") == 6
    assert len(axes.get_xticks()) == numbers["depth"]


# ---- time


def test_epoch_time_is_that_of_the_benchmark(monkeypatch):
    made = []

    def step_seconds(recipe):
        made.append(recipe)
        k = getattr(recipe.loss, "k", None) or 0
        return [0.5, 1.0, 1.5], [1.0 + k, 2.0 + k, 3.0 + k, 4.0 + k]

    monkeypatch.setattr(step_times, "step_seconds", step_seconds)
    told = []
    losses = ["cross_entropy", "smooth_topk", "ldam", "noised_topk, exact", "ranked_topk"]
    progress = lambda *words: told.append(words)  # noqa: E731
    numbers = epoch_time.measure(k=[1, 3], losses=losses, epochs=4, progress=progress)
    cases = {(case["loss"], case["k"]): case for case in numbers["cases"]}
    names = ("smooth_topk", "noised_topk, exact", "ranked_topk")
    assert set(cases) == {*((name, k) for name in names for k in (1, 3)), ("ldam", None)}
    for recipe, (name, k) in zip(made, cases, strict=True):
        assert (recipe.loss.name, recipe.epochs) == (name.partition(",")[0], 4)
        assert getattr(recipe.loss, "k", k) == k
    exact, ranked = made[4].loss, made[-1].loss
    assert exact.num_samples is None and ranked.distribution == [0.5, 0.0, 0.5]
    case = cases["smooth_topk", 3]
    assert (case["epoch_seconds"], case["cross_entropy_seconds"]) == (47 * 5.5, 47)
    assert case["over_cross_entropy"] == 4.5
    assert told == [("trainings", i, 7) for i in range(1, 8)]
    (axes,) = redrawn("epoch_time", numbers).axes
    assert {line.get_label() for line in axes.lines} == {*names, "cross-entropy"}
    (line,) = [line for line in axes.lines if line.get_label() == "smooth_topk"]
    assert line.get_xydata().tolist() == [[1, 250], [3, 450]]


def test_an_epoch_of_the_demonstration_has_so_many_steps():
    assert epoch_time.EPOCH_STEPS == -(-BASE["data"]["train_images"] // BASE["batch_size"])


def test_epoch_time_by_draws_and_networks(monkeypatch):
    made = []
    monkeypatch.setattr(
        step_times, "step_seconds", lambda recipe: made.append(recipe) or ([1.0, 1.0], [2.0] * 4)
    )
    losses = ["noised_topk", "noised_topk, exact", "ldam"]
    numbers = epoch_time.measure(
        k=[1, 5], losses=losses, num_draws=[3, 50], networks=["small_cnn", "deep_cnn"]
    )
    cases = [(c["network"], c["loss"], c["num_draws"], c["k"]) for c in numbers["cases"]]
    of_one = [("noised_topk", draws, k) for draws in (3, 50) for k in (1, 5)]
    of_one += [("noised_topk, exact", None, 1), ("noised_topk, exact", None, 5), ("ldam", None, None)]
    assert cases == [(network, *case) for network in ("small_cnn", "deep_cnn") for case in of_one]
    for recipe, (network, name, draws, _) in zip(made, cases, strict=True):
        assert recipe.model.name == network
        if name.startswith("noised"):
            assert recipe.loss.num_samples == draws
    (axes,) = redrawn("epoch_time", numbers).axes
    labels = {line.get_label() for line in axes.lines}
    assert {"noised_topk, 3 draws, small_cnn", "noised_topk, 50 draws, deep_cnn"} < labels
    assert len(labels) == 1 + 2 * 3


@pytest.mark.slow
def test_epoch_time_trains():
    numbers = epoch_time.measure(k=2, losses="topk_hinge", epochs=2)
    (case,) = numbers["cases"]
    low, high = case["epoch_quartiles"]
    assert 0 < low <= case["epoch_seconds"] <= high
    assert case["over_cross_entropy"] == pytest.approx(
        case["epoch_seconds"] / case["cross_entropy_seconds"] - 1
    )


# ---- bad options


@pytest.mark.errors
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("level_sets", {"k": 3}, r"k must be < 3, got 3"),
        ("level_sets", {"k": [1, 1]}, r"k must all differ, got \[1, 1\]"),
        ("level_sets", {"k": []}, r"k must have at least one entry, got \[\]"),
        ("level_sets", {"losses": "focl"}, r"losses must be among .*, got 'focl'"),
        ("level_sets", {"resolution": 0}, r"resolution must be an integer >= 1, got 0"),
        ("level_sets", {"scale": -1}, r"scale must be > 0, got -1"),
        ("level_sets", {"temperature": 0}, r"temperature must be > 0, got 0"),
        ("level_sets", {"noise_std": [1, 1]}, r"noise_std must all differ, got \[1.0, 1.0\]"),
        ("level_sets", {"class_counts": [1, 2]}, r"class_counts must have three entries, got \[1, 2\]"),
        ("level_sets", {"class_counts": [1, 2, 0]}, r"class_counts must be > 0, got 0"),
        ("noise_landscape", {"noise_std": [-1]}, r"noise_std must be >= 0, got -1"),
        ("noise_landscape", {"num_draws": "many"}, r"num_draws must be an integer >= 1, got 'many'"),
        ("noise_landscape", {"seed": 0.5}, r"seed must be an integer >= 0, got 0.5"),
        ("nonzero_gradients", {"noise_std": 0}, r"noise_std must be > 0, got 0"),
        ("nonzero_gradients", {"k": 100}, r"k must be < the number of classes \(100\), got 100"),
        ("nonzero_gradients", {"num_rows": 0}, r"num_rows must be an integer >= 1, got 0"),
        ("splitter_network", {"n": 4, "k": 5}, r"k must be an integer with 1 <= k <= n \(4\), got 5"),
        (
            "splitter_network",
            {"n": 100, "k": 50},
            r"n and k must leave at most 40,000,000 values to try, got",
        ),
        ("epoch_time", {"k": 150}, r"k must be < 150, got 150"),
        ("epoch_time", {"epochs": 1}, r"epochs must be an integer >= 2, got 1"),
        ("epoch_time", {"losses": "sparse_top"}, r"losses must be among cross_entropy, .*, got 'sparse_top'"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        load_figure(name).measure(**options)


@pytest.mark.parametrize("name", NAMES)
def test_options_can_be_shown_and_numbers_are_never_runs(name):
    figure = load_figure(name)
    assert not figure.takes_runs
    json.dumps(figure.options())


# ---- the calibration map


def test_the_calibrated_hinge_keeps_the_first_k_and_much_noise_does_not():
    numbers = calibration_map.measure(
        noise_std=[0.0, 10.0], cases=[(3, 1), (4, 2)], parts=5, starts=2, steps=150
    )
    kept = {(c["num_classes"], c["noise_std"]): c["kept"] for c in numbers["cells"]}
    assert kept[3, 0.0] == kept[4, 0.0] == 1.0
    assert kept[3, 10.0] < 1
    assert kept[4, 10.0] < 1  # the loss is 0 for any small scores
    # the least expected loss of the calibrated hinge is the chance not to be among the first k
    for cell in numbers["cells"][::2]:
        c, k = cell["num_classes"], cell["k"]
        shares = [
            p for p in itertools.product(range(6), repeat=c) if sum(p) == 5 and sorted(p)[::-1] == list(p)
        ]
        missed = [1 - sum(p[:k]) / 5 for p in shares if p[k - 1] > p[k]]
        assert cell["distributions"] == len(missed)
        assert cell["mean_loss"] == pytest.approx(sum(missed) / len(missed), abs=1e-3)
    assert len(redrawn("calibration_map", numbers).axes) == 1
