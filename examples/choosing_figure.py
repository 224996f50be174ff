"""Draw what losses gained over cross-entropy, by question and data, from the tables of docs/results.

Run: python examples/choosing_figure.py --figure docs/choosing.svg

No number is written here: each is read from a table of differences with its 95 % interval.
"""

import argparse
import re
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[1] / "docs/results"
DATA = {  # name in the legend: color and marker
    "glyphs, from scratch": ("#0f766e", "o"),
    "birds, frozen features": ("#b45309", "s"),
    "cars, frozen features": ("#7c3aed", "D"),
    "CIFAR-100, frozen features": ("#1d4ed8", "^"),
    "CIFAR-100, from scratch": ("#be123c", "v"),
}
GLYPHS, BIRDS, CARS, FROZEN, SCRATCH = DATA
# question: the column of the tables, rows with their names for people, and where the tables are
QUESTIONS = {
    "Clean labels: lists of five": (
        "top5.micro (%)",
        {"smooth_top5": "smooth top-5", "ranked_even": "ranking", "noised_top5": "noised top-5"},
        [
            (GLYPHS, "label_noise", "data.label_noise 0"),
            (GLYPHS, "ranked", "The tables"),
            (BIRDS, "photos_ranked", "The tables"),
            (FROZEN, "photos_noise", "labels clean"),
            (SCRATCH, "photos_noise", "Clean labels, from scratch"),
        ],
    ),
    "40 % wrong labels: lists of five": (
        "top5.micro (%)",
        {"smooth_top5": "smooth top-5", "ce_smoothed": "label smoothing", "noised_top5": "noised top-5"},
        [
            (GLYPHS, "label_noise", "data.label_noise 0.4"),
            (FROZEN, "photos_noise", "labels superclass_0.4"),
            (SCRATCH, "photos_noise", "40 % within superclasses, from scratch"),
        ],
    ),
    "Rare classes count as much: lists of five": (
        "top5.macro (%)",
        {
            "ce_priors": "cross-entropy, priors divided out",
            "logit_adjusted": "logit-adjusted",
            "ldam": "LDAM",
            "class_balanced": "class weights",
        },
        [
            (GLYPHS, "long_tail", "The tables"),
            (BIRDS, "photos_long_tail", "Birds"),
            (FROZEN, "photos_long_tail", "CIFAR-100"),
            (SCRATCH, "photos_long_tail", "CIFAR-100, features learned from scratch"),
        ],
    ),
    "Sets of five on average (glyphs: 10 images a class)": (
        "sets.average5.coverage.micro (%)",
        {
            "ce_temperature": "cross-entropy, fitted temperature",
            "role": "ROLE",
            "average_5": "average-5 loss",
        },
        [
            (GLYPHS, "average_k", "The tables"),
            (BIRDS, "photos_average_k", "Birds"),
            (CARS, "photos_average_k", "Cars"),
            (SCRATCH, "photos_average_k", "CIFAR-100, from scratch"),
        ],
    ),
}


class Gain(NamedTuple):
    """A difference to cross-entropy in percentage points, with half the width of its 95 % interval."""

    points: float
    margin: float


def gains(page: str, heading: str, column: str) -> dict[str, Gain]:
    """Read the table of differences below a heading: each row's gain in a column."""
    section = re.split(rf"^#+ {re.escape(heading)}$", (RESULTS / f"{page}.md").read_text(), flags=re.M)[1]
    table = re.search(r"^\| method - ce \|.*?(?=^[^|]|\Z)", section, flags=re.M | re.S)
    if table is None:
        raise ValueError(f"heading must have a table of differences below it, got {page}.md, {heading}")
    head, _, *rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines() if line
    ]
    place = head.index(column)
    cells = {row[0]: re.findall(r"[-+]?\d+\.\d+", row[place]) for row in rows}
    return {name: Gain(*map(float, numbers)) for name, numbers in cells.items() if len(numbers) == 2}


def draw(path: Path) -> None:
    """Write the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    heights = [len(rows) for _, rows, _ in QUESTIONS.values()]
    figure, panels = plt.subplots(
        len(QUESTIONS), 1, figsize=(8, 9), height_ratios=heights, sharex=True, layout="constrained"
    )
    for axes, (question, (column, rows, tables)) in zip(panels, QUESTIONS.items(), strict=True):
        for number, (data, page, heading) in enumerate(tables):
            measured, (color, marker) = gains(page, heading, column), DATA[data]
            for line, name in enumerate(rows):
                if name in measured:
                    gain, place = measured[name], line + 0.13 * (number - (len(tables) - 1) / 2)
                    axes.errorbar(
                        gain.points, place, xerr=gain.margin, fmt=marker, color=color, ms=5, capsize=2
                    )
        axes.axvline(0, color="#777777", lw=1)
        axes.set_yticks(range(len(rows)), rows.values())
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_title(question, loc="left", fontsize=10)
        axes.grid(axis="x", color="#dddddd")
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("percentage points more than cross-entropy, with 95 % intervals")
    marks = [Line2D([], [], color=color, marker=marker, ls="") for color, marker in DATA.values()]
    figure.legend(marks, list(DATA), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw what losses gained over cross-entropy.")
    parser.add_argument("--figure", type=Path, default=Path("choosing.svg"))
    draw(parser.parse_args().figure)
