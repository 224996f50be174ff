"""What promises cost: coverage of rows, of the average class and of votes, and the sizes of the sets.

With the folder of a run (of ``shortlist demo``, for example) its validation and test rows are shuffled and
halved many times: one half calibrates, the other measures. Without one, the rows are those of 200 Gaussian
classes with Zipf priors and known probabilities, which also vote. ``--figure`` draws the coverage of frequent
and rare classes of the latter.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from shortlist import Run
from shortlist.datasets.gaussians import gaussian_genera
from shortlist.predictors import CalibrationWarning, Conformal
from shortlist.predictors.thresholds import ClassConditional, Interpolated, Macro
from shortlist.priors import class_priors

GROUPS, ROWS = 10, 5000


def rules(priors: Tensor) -> dict[str, Callable[[], Conformal]]:
    """The predictors, all at 90 %."""
    full = ClassConditional(fallback="full")
    return {
        "all rows, LAC": lambda: Conformal(),
        "all rows, SAPS": lambda: Conformal(score="saps"),
        "all rows, RAPS": lambda: Conformal(score="raps"),
        "all rows, APS": lambda: Conformal(score="aps"),
        "all rows, APS randomized": lambda: Conformal(score="aps", randomized=True),
        "all rows, prevalence-adjusted": lambda: Conformal(priors=priors, rule="marginal"),
        "average class": lambda: Conformal(priors=priors),
        "average class, one threshold": lambda: Conformal(priors=priors, rule=Macro(thresholds="single")),
        "average class, LAC": lambda: Conformal(score="lac", rule="macro"),
        "each class": lambda: Conformal(rule=full),
        "interpolated, half": lambda: Conformal(rule=Interpolated(weight=0.5)),
    }


def class_coverage(sets: Tensor, target: Tensor) -> Tensor:
    """Coverage of each class (c,); NaN where it has no row."""
    hits = sets.gather(1, target[:, None]).squeeze(1).double()
    sums = hits.new_zeros(sets.shape[1]).index_add_(0, target, hits)
    return sums / target.bincount(minlength=sets.shape[1])


def measure(
    make: Callable[[], Conformal], scores: Tensor, target: Tensor, rows: int, draws: int
) -> tuple[Tensor, Tensor]:
    """Mean coverage of rows, of classes and size (3,) over draws, and the coverage of each class (c,)."""
    generator = torch.Generator().manual_seed(0)
    numbers, by_class = [], []
    for _ in range(draws):
        order = torch.randperm(len(target), generator=generator)
        some, others = order[:rows], order[rows:]
        sets = make().calibrate(scores[some], target[some])(scores[others])
        classes = class_coverage(sets, target[others])
        micro = sets.gather(1, target[others, None]).double().mean()
        numbers.append(torch.stack([micro, classes.nanmean(), sets.sum(1).double().mean()]))
        by_class.append(classes)
    return torch.stack(numbers).mean(0), torch.stack(by_class).nanmean(0)


def measure_votes(scores: Tensor, rows: int) -> None:
    """Print how often a random vote is in sets calibrated on ten votes of each row, or on one label."""
    probs = scores.double().softmax(1)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(probs[:rows], 10, replacement=True, generator=generator)
    votes = torch.zeros_like(probs[:rows]).scatter_add_(1, drawn, torch.ones_like(drawn, dtype=probs.dtype))
    for name, target in (("votes", votes), ("consensus of the votes", votes.argmax(1))):
        sets = Conformal().calibrate(scores[:rows], target)(scores[rows:])
        held = float((sets * probs[rows:]).sum(1).mean())
        print(f"| {name:30} | {100 * held:.1f} of votes | | {float(sets.sum(1).double().mean()):.2f} |")


def draw(curves: dict[str, Tensor], priors: Tensor, path: Path) -> None:
    """Draw the coverage of groups of classes, from frequent to rare."""
    figure, axes = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
    order = priors.argsort(descending=True)
    for name, coverage in curves.items():
        means = [100 * float(part.nanmean()) for part in coverage[order].chunk(GROUPS)]
        axes.plot(range(1, GROUPS + 1), means, marker="o", markersize=3, label=name)
    axes.axhline(90, color="0.5", linewidth=0.8, linestyle="--")
    axes.set_xlabel("classes, from the most frequent tenth to the rarest")
    axes.set_ylabel("percent of rows whose set\nholds the class")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print a row for each promise, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="folder of a run")
    parser.add_argument("--draws", type=int, default=20, help="number of times that rows are halved")
    parser.add_argument("--figure", type=Path, help="also draw coverage by frequency to this file (SVG)")
    options = parser.parse_args()
    warnings.simplefilter("ignore", CalibrationWarning)
    if options.run is None:
        data = gaussian_genera(num_val_rows=ROWS, num_test_rows=20_000)
        parts = [(data.log_posterior(part.inputs), part.targets) for part in (data.val, data.test)]
        priors, rows = data.priors.float(), ROWS
    else:
        run = Run.open(options.run)
        parts = [(run.score_map(scores), target) for scores, target in map(run.load_scores, ("val", "test"))]
        priors = class_priors(run.class_table.class_counts, zero_counts="floor")
        rows = len(parts[0][1])
    scores, target = (torch.cat(columns) for columns in zip(*parts, strict=True))
    scores = scores.float()
    print(f"{rows} calibration rows, {scores.shape[1]} classes")
    print("| promise of 90 % about | of rows | of the average class | classes |\n| --- | --- | --- | --- |")
    curves = {}
    for name, make in rules(priors).items():
        (micro, macro, size), by_class = measure(make, scores, target, rows, options.draws)
        print(f"| {name:30} | {100 * micro:.1f} | {100 * macro:.1f} | {size:.2f} |", flush=True)
        if name in ("all rows, LAC", "average class", "each class"):
            curves[f"{name}: {size:.1f} classes"] = by_class
    if options.run is None:
        measure_votes(scores, rows)
        if options.figure:
            draw(curves, priors, options.figure)


if __name__ == "__main__":
    main()
