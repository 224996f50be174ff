"""A promise for a place: birds of made-up regions, by what others do with a list of species, and by ours.

``python examples/birds_places.py data/birds --figure FILE.svg`` trains ``recipes/real/birds.yaml`` once on
the features in that folder, with a long tail: from 23 photos of a species down to 2. It prints a table. The
recipe says what the features are and how to lay them out; nothing is downloaded. With ``--even`` the layer
learns from equally many photos of each species.

A region has 30 to 60 of the 200 species, and its own frequencies. There are three ways to make sets of 90 %
for it: *cut* takes the sets that were made for everywhere, and leaves out what does not occur; *renormalized*
divides the probabilities of what is left by their sum first; *place* has its own posterior and thresholds.
Photos that the layer did not learn from calibrate, as unevenly as it learned, or measure. They are drawn
anew many times.
"""

import argparse
from collections.abc import Callable, Container
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from signs import quiet, shown
from torch import Tensor

import shortlist
from shortlist import ClassTable, Place, Recipe, Run
from shortlist.palette import PRINT
from shortlist.predictors import CalibrationRows, Population
from shortlist.priors import class_priors

COVERAGE = 0.9
RECIPE = Path(__file__).parents[1] / "recipes/real/birds.yaml"
WAYS = ("cut", "renormalized", "place")  # sets of 90 %
LISTS = ("three best, cut", "three best, place")
LENGTH = 3
COAST = set("Albatross Auklet Cormorant Frigatebird Fulmar Gull Jaeger Kittiwake Pelican".split())
COAST |= {"Puffin", "Guillemot", "Tern"}
WOOD = {"Warbler", "Vireo", "Woodpecker", "Wren", "Flycatcher"}
Rows = tuple[Tensor, Tensor]


def of_groups(table: ClassTable, groups: Container[str]) -> list[str]:
    """Return the ids of the species of some groups."""
    return [name for name, group in zip(table.ids, table.parents["group"], strict=True) if group in groups]


def some_of(ids: list[str], draw: torch.Generator, number: int | None = None) -> list[str]:
    """Return so many of some ids, all by default, in a random order."""
    return [ids[place] for place in torch.randperm(len(ids), generator=draw)[:number].tolist()]


def frequencies(ids: list[str]) -> Place:
    """Return a place where the first species is the most frequent, and the second half as frequent, ..."""
    return Place({name: 1 / rank for rank, name in enumerate(ids, start=1)})


def regions(table: ClassTable) -> dict[str, Callable[[torch.Generator], Place]]:
    """Return what makes a region, some of them another one for each draw."""
    ids = list(table.ids)
    by_count = [ids[place] for place in table.class_counts.argsort(descending=True, stable=True).tolist()]
    return {
        "all 200 species, equally frequent": lambda _: Place.even(),
        "40 species with most training photos, even": lambda _: Place.of(by_count[:40]),
        "40 species with fewest training photos, even": lambda _: Place.of(by_count[-40:]),
        "coast, 34 species, even": lambda _: Place.of(of_groups(table, COAST)),
        "wood, 52 species, some frequent": lambda draw: frequencies(some_of(of_groups(table, WOOD), draw)),
        "any 30 species, even": lambda draw: Place.of(some_of(ids, draw, 30)),
        "any 60 species, some frequent": lambda draw: frequencies(some_of(ids, draw, 60)),
    }


def drawn(scores: Tensor, target: Tensor, counts: Tensor, draw: torch.Generator) -> tuple[Rows, Rows]:
    """Draw so many calibration rows of each class (c,); the others measure."""
    order = torch.randperm(len(target), generator=draw)
    order = order[target[order].argsort(stable=True)]
    starts = target.bincount().cumsum(0) - target.bincount()
    first = torch.arange(len(target)) - starts[target[order]] < counts[target[order]]
    return (scores[order[first]], target[order[first]]), (scores[order[~first]], target[order[~first]])


def sets_by(rows: CalibrationRows, scores: Tensor, vector: Tensor) -> dict[str, Tensor]:
    """Return the sets (n, c) of each way at a place (c,)."""
    everywhere = Population(rows, rows.objects())
    here = Population(rows, rows.objects(), importance=vector)
    values, inside = everywhere.values(scores), (vector > 0).numpy()
    left = values.fit * inside
    renormalized = values._replace(fit=left / left.sum(1, keepdims=True))
    sets = {
        "cut": everywhere.sets_of_coverage(values, COVERAGE) & inside,
        "renormalized": everywhere.sets_of_coverage(renormalized, COVERAGE) & inside,
        "place": here.sets_of_coverage(here.values(scores), COVERAGE),
    }
    return {way: torch.from_numpy(found) for way, found in sets.items()}


def measured(sets: Tensor, target: Tensor, vector: Tensor) -> Tensor:
    """Return coverage (percent) and mean size (2,) of photos that are as frequent as the place says."""
    weight = (vector / target.bincount(minlength=len(vector)))[target]
    hits = sets.gather(1, target[:, None]).squeeze(1).double()
    return torch.stack([100 * (weight * hits).sum(), (weight * sets.sum(1)).sum()]) / weight.sum()


def lists_by(rows: CalibrationRows, scores: Tensor, vector: Tensor) -> dict[str, Tensor]:
    """Return lists (n, c) of the best three of a place, by both posteriors."""
    inside = (vector > 0).numpy()
    everywhere = Population(rows, rows.objects()).values(scores).fit * inside
    here = Population(rows, rows.objects(), importance=vector).values(scores).fit
    best = {"three best, cut": everywhere, "three best, place": here}
    return {name: _best(torch.from_numpy(fit)) for name, fit in best.items()}


def _best(fit: Tensor) -> Tensor:
    return torch.zeros_like(fit, dtype=torch.bool).scatter_(1, fit.topk(LENGTH).indices, True)


def measure(run: Run, draws: int) -> dict[str, Tensor]:
    """Return coverage and size (draws, ways, 2) at each region."""
    scores, target = (torch.cat(columns) for columns in zip(*map(run.scored, ("val", "test")), strict=True))
    table = run.class_table
    counts = table.class_counts
    priors = class_priors(counts)
    half = target.bincount(minlength=len(table)).min() // 2
    counts = (counts * half / counts.max()).round().long().clamp(min=1)
    results: dict[str, list[Tensor]] = {}
    for seed in range(draws):
        draw = torch.Generator().manual_seed(seed)
        calibration, (new, labels) = drawn(scores, target, counts, draw)
        rows = CalibrationRows.of_rows(*calibration, priors=priors)
        for name, make in regions(table).items():
            vector = make(draw).vector(table)
            sets = sets_by(rows, new, vector) | lists_by(rows, new, vector)
            numbers = torch.stack([measured(sets[way], labels, vector) for way in (*WAYS, *LISTS)])
            results.setdefault(name, []).append(numbers)
    return {name: torch.stack(numbers) for name, numbers in results.items()}


def draw_figure(results: dict[str, Tensor], path: Path) -> None:
    """Draw coverage and size at each region, a mark for each way and a line for 95 of 100 draws."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
    places = torch.arange(len(results), 0, -1).double()
    for number, (way, color) in enumerate(zip(WAYS, (*PRINT[1:3], PRINT[0]), strict=True)):
        for column, axis in enumerate(axes):
            draws = torch.stack([numbers[:, number, column] for numbers in results.values()])
            low, high = draws.quantile(torch.tensor([0.025, 0.975]).double(), 1)
            height = places + 0.22 * (1 - number)
            axis.hlines(height, low, high, color=color, linewidth=1)
            axis.plot(draws.mean(1), height, "o", color=color, markersize=4, label=way)
    axes[0].axvline(100 * COVERAGE, color="0.5", linewidth=0.8, linestyle="--")
    axes[0].set_yticks(places, list(results))
    axes[0].set_xlabel("percent of photos whose set\nholds the species (90 promised)")
    axes[1].set_xlabel("species in a set")
    axes[1].legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print a row for each region, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("features", type=Path, help="folder of features, as recipes/real/birds.yaml says")
    parser.add_argument("--run", type=Path, help="folder of the trained layer (default: runs/birds_places)")
    parser.add_argument("--even", action="store_true", help="learn from equally many photos of each species")
    parser.add_argument("--draws", type=int, default=100, help="number of times that photos are drawn")
    parser.add_argument("--figure", type=Path, help="also draw coverage and size to this file (SVG)")
    options = parser.parse_args()
    folder = options.run or Path(f"runs/birds_places{'_even' if options.even else ''}")
    if not folder.exists():
        tail = [] if options.even else ["data.long_tail=exp", "data.rho=10"]
        recipe = Recipe.read(RECIPE, [f"data.root={options.features}", "loggers=[]", "predictors={}", *tail])
        shortlist.train(recipe, folder, progress=quiet)
    results = measure(Run.open(folder), options.draws)
    print(f"{options.draws} draws: percent of photos whose set holds the species, and species in a set")
    print("| region |", " | ".join((*WAYS, *LISTS)), "|")
    print("| --- |" + " --- |" * len(WAYS) + " ---: |" * len(LISTS))
    for name, numbers in results.items():
        coverage, size = numbers.unbind(2)
        cells = [shown(coverage[:, way], 1) for way in range(len(WAYS))]
        cells = [f"{cell}, {float(size[:, way].mean()):.2f}" for way, cell in enumerate(cells)]
        cells += [f"{float(mean):.1f}" for mean in coverage[:, len(WAYS) :].mean(0)]
        print("|", " | ".join((name, *cells)), "|")
    if options.figure:
        draw_figure(results, options.figure)


if __name__ == "__main__":
    main()
