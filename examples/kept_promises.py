"""Each promise beside the rule that lacks its correction, for few and for many rows; draws a figure.

Four promises of 90 %: the average class, a node of a taxonomy, a random vote, and every list that was ever
shown. Beside each is what one would do without the correction. The data are 20 long-tailed classes in five
genera with known probabilities. About two minutes on one core.
"""

import argparse
import math
import warnings
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from shortlist import ClassTable, Taxonomy
from shortlist.predictors import Conformal, ShrinkingThreshold, TaxonomyNodes

CLASSES, COVERAGE, VOTES, NEW = 20, 0.9, 10, 2000
ROWS, ROUNDS = (15, 30, 60, 120, 500), (50, 100, 200, 500, 1000)
PRIORS = (1 / torch.arange(1, CLASSES + 1)) / (1 / torch.arange(1, CLASSES + 1)).sum()
TREE = Taxonomy.from_class_table(
    ClassTable(
        [f"class {i}" for i in range(CLASSES)], parents={"genus": [f"genus {i % 5}" for i in range(CLASSES)]}
    )
)


def draw(n: int) -> tuple[Tensor, Tensor]:
    """Draw the scores of rows, which are their true log-probabilities, and their classes."""
    scores = 1.5 * torch.randn(n, CLASSES) + PRIORS.log()
    return scores, torch.multinomial(scores.softmax(1), 1).squeeze(1)


def held(sets: Tensor, target: Tensor) -> Tensor:
    """Return which sets hold the class of their row, as 0 and 1."""
    return sets.gather(1, target[:, None]).squeeze(1).double()


def average_class(n: int) -> tuple[float, float]:
    """Return the mean coverage of the classes with rows: by the rule, and by weights without addition."""
    (scores, target), (new, true) = draw(n), draw(10 * NEW)
    counts = target.bincount(minlength=CLASSES)
    rule = Conformal(coverage=COVERAGE, rule="macro", score="lac").calibrate(scores, target)
    fits = 1 - scores.softmax(1).gather(1, target[:, None]).squeeze(1)
    weights = 1 / (counts[target] * (counts > 0).sum())
    in_order = fits.argsort()
    place = int((weights[in_order].double().cumsum(0) < COVERAGE - 1e-9).sum())
    plain = 1 - new.softmax(1) <= fits[in_order][place]
    seen = (counts > 0) & (true.bincount(minlength=CLASSES) > 0)

    def macro(sets: Tensor) -> float:
        hits = torch.zeros(CLASSES, dtype=torch.float64).index_add_(0, true, held(sets, true))
        return float((hits / true.bincount(minlength=CLASSES).clamp_min(1))[seen].mean())

    return macro(rule(new)), macro(plain)


def one_node(n: int) -> tuple[float, float]:
    """Return the coverage of one node: by the conformal rank, and by the plain quantile of the rows."""
    (scores, target), (new, true) = draw(n), draw(NEW)
    predictor = TaxonomyNodes(TREE, coverage=COVERAGE)
    predictor.update(scores, target)
    plain = predictor.rows.state()["scores"].sort().values[math.ceil(n * COVERAGE) - 1]
    kept = float(held(predictor.finish()(new), true).mean())
    predictor.threshold = plain
    return kept, float(held(predictor(new), true).mean())


def a_vote(n: int) -> tuple[float, float]:
    """Return the share of votes in the sets: calibrated with votes, and with the label with most votes."""
    (scores, _), (new, _) = draw(n), draw(NEW)
    votes, asked = (
        torch.zeros_like(s).scatter_add_(1, drawn, torch.ones(drawn.shape))
        for s in (scores, new)
        for drawn in [torch.multinomial(s.softmax(1), VOTES, replacement=True)]
    )
    pair = (Conformal(coverage=COVERAGE).calibrate(scores, known) for known in (votes, votes.argmax(1)))
    kept, consensus = (float((one(new) * asked).sum() / asked.sum()) for one in pair)
    return kept, consensus


def every_list(_: int) -> list[tuple[float, float]]:
    """Return the coverage of lists after some replies: shrinking only, and calibrated on confirmed rows."""
    rule, confirmed, naive = ShrinkingThreshold(coverage=COVERAGE, delta=0.1), [], 1.0
    found = []
    for number, score in enumerate(torch.rand(max(ROUNDS)).tolist(), start=1):
        rule.observe(score if score <= rule.threshold else None)
        if score <= naive:
            confirmed.append(score)
        if number % 25 == 0:
            last = sorted(confirmed[-500:])
            naive = last[min(len(last), math.ceil((len(last) + 1) * COVERAGE)) - 1]
        if number in ROUNDS:
            found.append((min(1.0, rule.threshold), naive))
    return found


def curves(draws: int) -> dict[str, Tensor]:
    """Return by promise the coverages (sizes, 2): with and without the correction."""
    found = {}
    for name, measure in {"the average class": average_class, "one node": one_node, "a vote": a_vote}.items():
        found[name] = torch.stack(
            [torch.tensor([measure(n) for _ in range(draws)], dtype=torch.float64).mean(0) for n in ROWS]
        )
    found["every list ever shown"] = torch.tensor([every_list(i) for i in range(draws)]).double().mean(0)
    return found


def draw_figure(path: Path, found: dict[str, Tensor]) -> None:
    """Draw the curves, a panel for each promise."""
    figure, axes = plt.subplots(1, len(found), figsize=(10, 2.7), sharey=True, layout="constrained")
    for place, (name, shares) in zip(axes, found.items(), strict=True):
        shown = name == "every list ever shown"
        for column, label in enumerate(("the rule", "without its correction")):
            place.plot(ROUNDS if shown else ROWS, 100 * shares[:, column], marker="o", label=label)
        place.axhline(100 * COVERAGE, color="0.6", linewidth=1)
        place.set_xscale("log")
        place.set_title(name, fontsize=9)
        place.set_xlabel("replies" if shown else "calibration rows")
    axes[0].set_ylabel("coverage in percent")
    axes[0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the coverages, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--figure", type=Path, help="also draw the curves to this file (SVG)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    matplotlib.rcParams["svg.hashsalt"] = "kept promises"
    found = curves(options.draws)
    for name, shares in found.items():
        sizes = ROUNDS if name == "every list ever shown" else ROWS
        for size, (kept, plain) in zip(sizes, (100 * shares).tolist(), strict=True):
            print(f"{name:22} {size:5} rows or replies: {kept:5.1f}, without the correction {plain:5.1f}")
    if options.figure:
        draw_figure(options.figure, found)


if __name__ == "__main__":
    main()
