"""Lists for a place, made in three ways for a promise of 90 %: how often they hold the class, and sizes.

100 Gaussian classes with Zipf frequencies, whose model is too sure of itself. Each draw has its own classes,
2,000 calibration rows, and 2,000 rows met at each place. ``--figure`` draws the table. ``--kept`` measures
lists of a model that keeps the posteriors of fewer classes of each calibration row.
"""

import argparse
import math
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from shortlist.predictors import CalibrationRows, CalibrationWarning, Conformal, Population

CLASSES, DIMENSIONS, ROWS = 100, 6, 2000
SPREAD, SURENESS = 1.5, 1.5  # of the class means; factor of the log-posteriors
COVERAGE = 0.9
WAYS = ("cut", "cut and renormalized", "at(place)")
KEPT = (CLASSES, 40, 20, 10, 4)  # classes whose posterior is kept of a calibration row
ENTRY_BYTES = 4  # of a posterior and its class


def places() -> dict[str, Tensor]:
    """The places, as frequencies of the classes (c,); class 0 is the most frequent calibration class."""
    weights = {
        "20 frequent classes, even": [float(c < 20) for c in range(CLASSES)],
        "every fifth class, even": [float(c % 5 == 0) for c in range(CLASSES)],
        "every fifth, rare ones more frequent": [float(c % 5 == 0) * (c // 5 + 1) for c in range(CLASSES)],
        "20 rarest classes, even": [float(c >= CLASSES - 20) for c in range(CLASSES)],
    }
    return {name: torch.tensor(v, dtype=torch.float64) / sum(v) for name, v in weights.items()}


def lists_of(scores: Tensor, plain: Conformal, placed: Conformal, inside: Tensor) -> list[Tensor]:
    """The sets of the three ways (n, c)."""
    kept = scores.softmax(1) * inside
    renormalized = kept / kept.sum(1, keepdim=True)
    return [plain(scores) & inside, (1 - renormalized <= plain.threshold) & inside, placed(scores)]


def kept_lists(scores: Tensor, target: Tensor, new: Tensor, priors: Tensor, weights: Tensor) -> list[Tensor]:
    """The sets at a place (n, c), for each number of classes that is kept of a row."""
    sets = []
    for width in KEPT:
        size = ENTRY_BYTES * width * ROWS
        rows = CalibrationRows.of_rows(scores, target, priors=priors, max_bytes=size)
        assert rows.width == width
        population = Population(rows, rows.objects(), importance=weights, frequency=weights)
        sets.append(torch.from_numpy(population.sets_of_coverage(population.values(new), COVERAGE)))
    return sets


def measure(draws: int, *, kept: bool = False) -> Tensor:
    """Coverage and mean size (draws, places, ways, 2); the ways are those of :data:`KEPT` if ``kept``."""
    priors = 1 / torch.arange(1, CLASSES + 1, dtype=torch.float64)
    priors /= priors.sum()
    numbers = []
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        means = SPREAD * torch.randn(CLASSES, DIMENSIONS, generator=generator, dtype=torch.float64)

        def draw(frequencies: Tensor, means: Tensor = means, generator: torch.Generator = generator):
            y = torch.multinomial(frequencies, ROWS, replacement=True, generator=generator)
            x = means[y] + torch.randn(ROWS, DIMENSIONS, generator=generator, dtype=torch.float64)
            return SURENESS * (priors.log() - torch.cdist(x, means).square() / 2), y

        scores, target = draw(priors)
        plain = Conformal(COVERAGE).calibrate(scores, target)
        for weights in places().values():
            new, classes = draw(weights)
            if kept:
                lists = kept_lists(scores, target, new, priors, weights)
            else:
                placed = Conformal(COVERAGE).at(weights, priors=priors).calibrate(scores, target)
                lists = lists_of(new, plain, placed, weights > 0)
            for sets in lists:
                hits = sets.gather(1, classes[:, None]).double().mean()
                numbers.append([float(hits), float(sets.sum(1).double().mean())])
    return torch.tensor(numbers).view(draws, len(places()), -1, 2)


def draw_figure(means: Tensor, path: Path) -> None:
    """Draw coverage and size of each way at each place."""
    names = list(places())
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for way, label in enumerate(WAYS):
        for number, scale in enumerate((100, 1)):
            axes[number].plot(scale * means[:, way, number], range(len(names)), "o", label=label)
    axes[0].axvline(100 * COVERAGE, color="0.5", linewidth=0.8, linestyle="--")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    axes[0].set_xlabel("percent of lists that hold the class")
    axes[1].set_xlabel("classes in a list")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside upper center")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print a row for each place, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100, help="number of draws of classes and rows")
    parser.add_argument("--figure", type=Path, help="also draw the table to this file (SVG)")
    parser.add_argument("--kept", action="store_true", help="measure shorter calibration rows instead")
    options = parser.parse_args()
    if options.kept and options.figure:
        parser.error("--figure is for the table without --kept")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", CalibrationWarning)
    numbers = measure(options.draws, kept=options.kept)
    means = numbers.mean(0)
    error = float(numbers[..., 0].std(0).max()) / math.sqrt(options.draws)
    ways = [f"{width} classes" for width in KEPT] if options.kept else WAYS
    print(f"| place | {' | '.join(ways)} |\n|{' --- |' * (len(ways) + 1)}")
    for name, row in zip(places(), means, strict=True):
        print(f"| {name} | " + " | ".join(f"{100 * c:.1f}, {size:.2f}" for c, size in row.tolist()) + " |")
    print(f"promised: {100 * COVERAGE:g}; standard error at most {100 * error:.1f} points")
    if options.figure:
        draw_figure(means, options.figure)


if __name__ == "__main__":
    main()
