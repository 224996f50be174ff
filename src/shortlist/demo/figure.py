"""Draw the picture of the demo: short lists of a few images, and the sizes of the sets."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._store.files import replacing
from shortlist._text import format_percent
from shortlist.class_table import ClassTable
from shortlist.palette import PRINT
from shortlist.recipes import build_data
from shortlist.runs import Run


def example_rows(run: Run, predictor: str, count: int = 6) -> list[int]:
    """Choose test rows from the smallest set to the largest, evenly spread, without empty sets."""
    scores, _ = run.scored("test")
    sizes = run.predictors[predictor](scores).sum(1)
    order = sizes.argsort(stable=True)
    order = order[sizes[order] > 0]
    places = torch.linspace(0, len(order) - 1, count).round().long()
    return order[places].tolist()


def draw_demo(run: Run, path: Path, predictor: str = "average5") -> None:
    """Write a picture (SVG or PNG) of example lists and of set sizes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    data = build_data(run.recipe)
    images: Any = data.test
    scores, target = run.scored("test")
    sets = run.predictors[predictor](scores)
    chance, table = run.probabilities(scores), run.class_table
    assert chance is not None  # the demonstration's scores are calibrated
    figure = plt.figure(figsize=(10, 6.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.25, 1])
    top, bottom = parts
    rows = example_rows(run, predictor)
    for number, row in enumerate(rows):
        axes = top.add_subplot(2, len(rows), number + 1)
        axes.imshow(
            images.inputs[row, 0], cmap="gray_r" if images.inputs[row].float().mean() < 127 else "gray"
        )
        axes.set_axis_off()
        text = top.add_subplot(2, len(rows), len(rows) + number + 1)
        text.set_axis_off()
        listed = _listed(sets[row], chance[row], int(target[row]), table)
        text.text(0.0, 1.0, listed, va="top", fontsize=6, family="DejaVu Sans")
    _draw_sizes(bottom.add_subplot(), sets.sum(1), table.groups()[target])
    with replacing(path) as temporary:
        figure.savefig(temporary, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _listed(members: Tensor, chance: Tensor, true: int, table: ClassTable) -> str:
    """Write the first classes of a set (c,) with their probabilities (c,), and mark the true one."""
    listed = chance.where(members, -1).argsort(descending=True)[: int(members.sum())].tolist()
    lines = [
        f"{'✓' if j == true else ' '} {_short(str(table.names[j]))} {format_percent(float(chance[j]), 0)} %"
        for j in listed[:5]
    ]
    return "\n".join([*lines, *([f"... and {len(listed) - 5} more"] if len(listed) > 5 else [])])


def _draw_sizes(axes: Any, sizes: Tensor, groups: Tensor) -> None:
    """Draw how large the sets are, for rows of classes with few, medium and many training images."""
    for group, name in enumerate(("few", "medium", "many")):
        sizes_of_group = sizes[groups == group]
        if len(sizes_of_group):
            shares = sizes_of_group.clamp_max(15).bincount(minlength=16).double() / len(sizes_of_group)
            label = f"{name} training images ({len(sizes_of_group)} rows)"
            axes.step(range(16), 100 * shares, where="mid", color=PRINT[group], label=label)
    axes.set_xlabel("classes in the set (15: or more)")
    axes.set_ylabel("percent of rows")
    axes.set_title(f"Sizes of sets of {5} on average", fontsize=10)
    axes.legend(frameon=False)


def _short(name: str) -> str:
    words = name.replace("LETTER ", "").replace("CAPITAL", "cap.").replace("SMALL", "sm.")
    return words.title() if len(words) < 28 else words.title()[:27] + "…"
