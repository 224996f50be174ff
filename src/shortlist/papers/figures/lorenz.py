"""How unevenly images are spread over classes (Garcin, thesis, figure 3.2)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.curation import gini, lorenz_curve, open_dataset, plot_lorenz
from shortlist.datasets import DATASETS
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress

RAREST = 0.8  # the share of classes for which the paper says how many images they have


def measure(
    *, data: str | Sequence[str] = ("glyphs", "gaussian_genera"), progress: Progress | None = None
) -> Numbers:
    """Compute Lorenz curves of data sets, from their training counts.

    Args:
        data: Names of built-in data sets, or paths of class tables (.json), folders or lists of images.
        progress: Called after each data set.
    """
    names = [data] if isinstance(data, str) else data
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"data must be at least one name or path of a data set, got {data!r}")
    each = with_progress(list(dict.fromkeys(names)), "data sets", progress)
    sets = [{"name": name, **_curve(_table(name).class_counts)} for name in each]
    return {"rarest": RAREST, "sets": sets}


def _table(name: str) -> ClassTable:
    if name.endswith(".json") and Path(name).is_file():
        return ClassTable.load(name)
    if name in DATASETS and DATASETS[name].on_disk:
        raise ValueError(
            f"data must be built in or a path; {name} is read from disk: name its folder or a class table"
        )
    try:
        return open_dataset(name).class_table
    except FileNotFoundError as error:
        raise ValueError(f"data must be names or paths that are there: {error}") from error


def _curve(class_counts: Tensor) -> Numbers:
    classes, images = lorenz_curve(class_counts)
    place = RAREST * len(class_counts)  # the curve is straight between two classes
    below = min(int(place), len(class_counts) - 1)
    rarest = torch.lerp(images[below], images[below + 1], place - below)
    return {
        "num_classes": len(class_counts),
        "num_images": int(class_counts.sum()),
        "gini": gini(class_counts),
        "images_of_rarest": float(rarest),
        "classes": classes.tolist(),
        "images": images.tolist(),
    }


def draw(numbers: Numbers) -> Figure:
    """Draw a curve for each data set, below the diagonal on which all classes are alike."""
    figure = new_figure(5.2, 5.0)
    labels = [
        f"{each['name']}, {each['num_classes']:,} classes: Gini {each['gini']:.2f}"
        for each in numbers["sets"]
    ]
    curves = [(each["classes"], each["images"]) for each in numbers["sets"]]
    plot_lorenz(figure.subplots(), dict(zip(labels, curves, strict=True)))
    return figure
