"""Several photos of one object: what 1, 2, 3 and 5 frames of a traffic sign are worth.

``python examples/signs.py IMAGES --figure FILE.svg`` lists the images, trains ``recipes/real/signs.yaml``
once, and prints a table. IMAGES is the folder ``Final_Training/Images`` of GTSRB (the German Traffic Sign
Recognition Benchmark), which you need to have yourself: folders ``00000`` to ``00042`` with images
``SIGN_FRAME.ppm`` and a table ``GT-00000.csv`` of their sizes. The repository
hergerr/traffic-sign-recognition on GitHub has them, 32 pixels wide: ``git archive HEAD GTSRB/Final_Training |
tar x -C DIR``. Nothing is downloaded here.

A sign was filmed 30 times on the way to it. Neighbors are nearly the same picture, so that six frames are
taken, spread over the 30. Signs are divided, never frames: three tenths of each kind train, the others
calibrate or measure, in halves that are drawn anew many times.
"""

import argparse
import csv
import random
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import Tensor

import shortlist
from shortlist import Recipe, Run
from shortlist.palette import PRINT
from shortlist.predictors import CalibrationRows, Population, RowFacts
from shortlist.priors import class_priors

FRAMES = range(2, 30, 5)
TRAINING = 0.3  # of the signs of a kind
FAR = 45  # pixels: a sign whose picture was narrower was far away
PHOTOS, VIEWS = (1, 2, 3, 5), ("far", "near")
SINGLE, OWN, EVEN = "single frames", "such signs", "such signs, each kind alike"
RECIPE = Path(__file__).parents[1] / "recipes/real/signs.yaml"
KINDS = """20 km/h, 30 km/h, 50 km/h, 60 km/h, 70 km/h, 80 km/h, end of 80 km/h, 100 km/h, 120 km/h, no
passing, no passing for trucks, right of way at the next crossing, priority road, yield, stop, no
vehicles, no trucks, no entry, danger, left bend, right bend, double bend, bumpy road, slippery road,
road narrows, road works, traffic lights, pedestrians, children, bicycles, ice or snow, wild animals, end
of all limits, right only, left only, straight on only, straight on or right, straight on or left, keep
right, keep left, roundabout, end of no passing, end of no passing for trucks"""
COLUMNS = ("frames of a sign", "threshold by", "first place right", "signs", "average kind", "names in a set")


class Frames(NamedTuple):
    """Frames that the network did not learn from: scores (n, c), classes, signs and views of each (n,)."""

    scores: Tensor
    target: Tensor
    sign: Tensor
    view: Tensor

    def some(self, keep: Tensor) -> "Frames":
        """Return some of them, by number or by a mask."""
        return Frames(*(column[keep] for column in self))


def lay_out(images: Path) -> Path:
    """Write ``signs.csv`` into the folder: frames, their kind, part, sign and view, as recipes read it."""
    kinds = [name.strip() for name in KINDS.replace("\n", " ").split(",")]
    draw, rows = random.Random(0), [("path", "label", "split", "observation", "view")]
    for folder in sorted(path for path in images.iterdir() if path.is_dir()):
        with open(folder / f"GT-{folder.name}.csv", newline="") as file:
            widths = {row["Filename"]: int(row["Width"]) for row in csv.DictReader(file, delimiter=";")}
        signs = sorted({name.partition("_")[0] for name in widths})
        draw.shuffle(signs)
        parts = ["train"] * max(1, round(TRAINING * len(signs))) + ["val", "test"] * len(signs)
        for sign, part in zip(signs, parts, strict=False):
            for name in (f"{sign}_{frame:05}.ppm" for frame in FRAMES):
                if name in widths:
                    view = "far" if widths[name] < FAR else "near"
                    kind = kinds[int(folder.name)]
                    rows.append((f"{folder.name}/{name}", kind, part, f"{folder.name}/{sign}", view))
    path = images / "signs.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def held_out(run: Run) -> Frames:
    """Return the frames of the signs that the network did not learn from."""
    parts = ("val", "test")
    scores, target = (torch.cat(columns) for columns in zip(*map(run.scored, parts), strict=True))
    facts = [run.facts(part) for part in parts]
    signs = torch.cat([part.observation for part in facts if part and part.observation is not None])
    views = torch.cat([part.groups["view"][0] for part in facts if part])
    return Frames(scores, target, signs.unique(return_inverse=True)[1], views)


def halves(frames: Frames, draw: torch.Generator) -> tuple[Frames, Frames]:
    """Divide the signs at random: one half calibrates, the other measures; a sign's frames are shuffled."""
    order = torch.randperm(len(frames.sign), generator=draw)
    shuffled = frames.some(order[frames.sign[order].argsort(stable=True)])
    signs = int(frames.sign.max()) + 1
    first = torch.randperm(signs, generator=draw)[shuffled.sign] < signs // 2
    return shuffled.some(first), shuffled.some(~first)


def first_frames(frames: Frames, photos: int) -> Tensor:
    """Return the numbers (k, photos) of the first frames of each sign that has so many."""
    counts = frames.sign.unique_consecutive(return_counts=True)[1]
    starts = counts.cumsum(0) - counts
    return starts[counts >= photos, None] + torch.arange(photos)


def measured(population: Population, by: Population, frames: Frames, photos: int, coverage: float) -> Tensor:
    """Return first places, coverage of signs and of the average kind in percent, and the mean size (4,).

    The probabilities are those of a population, and the thresholds may be by another.
    """
    numbers = first_frames(frames, photos)
    target = frames.target[numbers[:, 0]]
    values = population.values(frames.scores[numbers.flatten()])
    sets = torch.from_numpy(by.sets_of_coverage(values, coverage))
    hits = sets.gather(1, target[:, None]).squeeze(1).double()
    kinds = hits.new_zeros(sets.shape[1]).index_add_(0, target, hits)
    kinds /= target.bincount(minlength=sets.shape[1])
    right = (torch.from_numpy(values.fit).argmax(1) == target).double().mean()
    return torch.stack([100 * right, 100 * hits.mean(), 100 * kinds.nanmean(), sets.sum(1).double().mean()])


def one_draw(frames: Frames, priors: Tensor, coverage: float, seed: int) -> dict[tuple[str, str], Tensor]:
    """Return what was measured for each number of frames and each threshold."""
    calibration, new = halves(frames, torch.Generator().manual_seed(seed))
    rows = CalibrationRows.of_rows(
        calibration.scores,
        calibration.target,
        priors=priors,
        facts=RowFacts(calibration.sign, {"view": (calibration.view, tuple(VIEWS))}),
    )
    single = Population(rows, rows.objects())
    even = torch.full_like(priors, 1 / len(priors))
    results = {}
    for photos in PHOTOS:
        own = Population(rows, rows.objects(photos))
        kinds = Population(rows, rows.objects(photos), importance=even)
        for name, population, by in ((SINGLE, own, single), (OWN, own, own), (EVEN, kinds, kinds)):
            results[str(photos), name] = measured(population, by, new, photos, coverage)
    for code, view in enumerate(VIEWS):
        own = Population(rows, rows.objects(1, rows.members("view", view)))
        part = new.some(new.view == code)
        for name, by in ((SINGLE, single), (OWN, own)):
            results[f"1, {view}", name] = measured(by, by, part, 1, coverage)
    return results


def draw_figure(results: dict[tuple[str, str], Tensor], coverage: float, path: Path) -> None:
    """Draw coverage and size by the number of frames, for the threshold of single frames and their own."""
    figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
    for name, color in zip((SINGLE, OWN), PRINT, strict=False):
        draws = torch.stack([results[str(photos), name] for photos in PHOTOS], 1)
        for axis, column in zip(axes, (1, 3), strict=True):
            low, high = draws[:, :, column].quantile(torch.tensor([0.025, 0.975]).double(), 0)
            axis.fill_between(PHOTOS, low, high, color=color, alpha=0.15, linewidth=0)
            axis.plot(PHOTOS, draws[:, :, column].mean(0), marker="o", color=color, label=f"by {name}")
    axes[0].axhline(100 * coverage, color="0.5", linewidth=0.8, linestyle="--")
    axes[0].set_ylabel("percent of signs whose set\nholds the kind")
    axes[1].set_ylabel("names in a set")
    axes[1].set_ylim(bottom=1)
    axes[1].legend(frameon=False, fontsize=8, title="threshold")
    for axis in axes:
        axis.set_xlabel("frames of a sign")
        axis.set_xticks(PHOTOS)
    figure.savefig(path, metadata={"Date": None})


def quiet(*_: object) -> None:
    """Say nothing while the network learns."""


def shown(draws: Tensor, digits: int) -> str:
    """Write the mean over draws, and where 95 of 100 of them are."""
    low, high = draws.quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    return f"{draws.mean():.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> None:
    """Print a row for each number of frames and each threshold, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path, help="folder Final_Training/Images of GTSRB")
    parser.add_argument("--run", type=Path, default=Path("runs/signs"), help="folder of the trained network")
    parser.add_argument("--coverage", type=float, default=0.9, help="what is promised")
    parser.add_argument("--draws", type=int, default=100, help="number of times that signs are divided")
    parser.add_argument("--figure", type=Path, help="also draw coverage and size to this file (SVG)")
    options = parser.parse_args()
    path = lay_out(options.images)
    if not options.run.exists():
        shortlist.train(Recipe.read(RECIPE, [f"data.path={path}"]), options.run, progress=quiet)
    run = Run.open(options.run)
    frames = held_out(run)
    priors = class_priors(run.class_table.class_counts).double()
    draws = [one_draw(frames, priors, options.coverage, seed) for seed in range(options.draws)]
    results = {name: torch.stack([numbers[name] for numbers in draws]) for name in draws[0]}
    print(f"{int(frames.sign.max()) + 1} signs, {len(frames.sign)} frames, {options.draws} draws")
    print(f"| {' | '.join(COLUMNS)} |\n| --- | --- |{' ---: |' * 4}")
    for (photos, by), numbers in results.items():
        right, signs, kinds, size = numbers.unbind(1)
        cells = (f"{right.mean():.1f}", shown(signs, 1), f"{kinds.mean():.1f}", shown(size, 2))
        print("|", " | ".join((photos, by, *cells)), "|")
    if options.figure:
        draw_figure(results, options.coverage, options.figure)


if __name__ == "__main__":
    main()
