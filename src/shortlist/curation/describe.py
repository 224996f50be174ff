"""Describe a data set in numbers: classes, groups, imbalance, and how unevenly images are spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shortlist._checks import check_class_vector
from shortlist._store.files import replacing
from shortlist.class_table import GROUPS, ClassTable
from shortlist.palette import PRINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shortlist.datasets import Splits


def lorenz_curve(class_counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shares of classes, rarest first, and the shares of images that they have, (c + 1,) each.

    Example:
        >>> classes, images = lorenz_curve(torch.tensor([3, 1]))
        >>> images
        tensor([0.0000, 0.2500, 1.0000], dtype=torch.float64)
    """
    check_class_vector("class_counts", class_counts)
    counts = class_counts.double().sort().values
    if not len(counts) or float(counts.sum()) == 0:
        raise ValueError("class_counts must hold at least one image, got none")
    images = torch.cat([counts.new_zeros(1), counts.cumsum(0) / counts.sum()])
    return torch.linspace(0, 1, len(counts) + 1, dtype=torch.float64), images


def gini(class_counts: Tensor) -> float:
    """Compute the Gini index, twice the area between Lorenz curve and diagonal; 0 for equal classes.

    Example:
        >>> gini(torch.tensor([3, 1]))
        0.25
    """
    classes, images = lorenz_curve(class_counts)
    return 1 - 2 * float(torch.trapezoid(images, classes))


@dataclass(frozen=True)
class Description:
    """Numbers of a data set, from its training counts.

    Attributes:
        num_classes: Number of classes in the table.
        sizes: Number of rows of each split, where it is known.
        groups: Numbers of classes with few, a medium number of and many training images.
        largest: Number of training images of the most frequent class.
        smallest: Number of training images of the rarest class that has any.
        empty_classes: Number of classes without a training image.
        imbalance: ``largest / smallest``.
        gini: See :func:`gini`.
        half_of_images: Smallest number of classes that together have half of the images.
        parents: Number of parents on each level.
    """

    num_classes: int
    sizes: dict[str, int]
    groups: dict[str, int]
    largest: int
    smallest: int
    empty_classes: int
    imbalance: float
    gini: float
    half_of_images: int
    parents: dict[str, int]


def describe(class_table: ClassTable, splits: "Splits | None" = None) -> Description:
    """Return the numbers of a data set; with ``splits``, also the sizes of its parts.

    Example:
        >>> describe(ClassTable(["oak", "ash"], counts=[150, 50])).imbalance
        3.0
    """
    counts = class_table.class_counts
    present = counts[counts > 0]
    if not len(present):
        raise ValueError("the class table has no training images: all counts are 0")
    falling = counts.sort(descending=True).values.cumsum(0)
    sizes = {"train": int(counts.sum())}
    if splits is not None:
        sizes = {name: len(getattr(splits, name)) for name in ("train", "val", "test")}
    return Description(
        num_classes=len(class_table),
        sizes=sizes,
        groups=dict(zip(GROUPS, class_table.groups().bincount(minlength=3).tolist(), strict=True)),
        largest=int(present.max()),
        smallest=int(present.min()),
        empty_classes=int((counts == 0).sum()),
        imbalance=int(present.max()) / int(present.min()),
        gini=gini(counts),
        half_of_images=int((2 * falling < falling[-1]).sum()) + 1,
        parents={level: len(set(column) - {""}) for level, column in class_table.parents.items()},
    )


def draw_lorenz(class_counts: Tensor, path: str | Path) -> None:
    """Draw the Lorenz curve to a file, in the format of its suffix (.svg, .pdf, .png)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    classes, images = (curve.tolist() for curve in lorenz_curve(class_counts))
    plot_lorenz(figure.subplots(), {f"Gini {gini(class_counts):.2f}": (classes, images)})
    with replacing(path) as temporary:
        figure.savefig(temporary)


def plot_lorenz(axes: "Axes", curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draw Lorenz curves (shares of classes and of images, by label) below the diagonal of equal classes."""
    axes.plot([0, 100], [0, 100], color="0.6", linewidth=1, linestyle=":", label="all classes alike")
    for number, (label, shares) in enumerate(curves.items()):
        classes, images = ([100 * share for share in part] for part in shares)
        color, dash = PRINT[number % len(PRINT)], ("-", "--", "-.")[number % 3]
        axes.plot(classes, images, color=color, linestyle=dash, linewidth=2, label=label)
    axes.set(xlabel="classes, from the rarest on (%)", ylabel="training images they have (%)", aspect="equal")
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", frameon=False)


def open_dataset(name_or_path: str, *, root: str | Path | None = None, **options: Any) -> "Splits":
    """Open a data set by name (``shortlist.datasets.DATASETS``) or by path.

    A path may be a folder of saved embeddings, of Pl@ntNet-300K, or of class folders; or a list of images.

    Args:
        name_or_path: Name or path of the data set.
        root: Folder of a named set, if it is not built in; for a list, the folder of its relative paths.
        **options: Options of the function that opens the set.

    Raises:
        FileNotFoundError: There is neither such a name nor such a path.
    """
    from shortlist.datasets import DATASETS, data_at

    if name_or_path in DATASETS:
        info = DATASETS[name_or_path]
        if info.needs is not None and info.needs not in options:
            raise ValueError(
                f"{name_or_path} needs {info.needs}: call it in Python, or give the path of the data "
                "instead of a name"
            )
        if info.on_disk != (root is not None):
            where = "is read from disk: root must be its folder"
            where = where if info.on_disk else "is built in and takes no root"
            raise ValueError(f"{name_or_path} {where}, got {root}")
        return info.build(root, **options) if info.on_disk else info.build(**options)
    if not Path(name_or_path).exists():
        names = ", ".join(sorted(DATASETS))
        raise FileNotFoundError(f"{name_or_path} is neither a path nor the name of a data set ({names})")
    found: dict[str, Any] = data_at(name_or_path)
    build = DATASETS[found.pop("name")].build
    if root is not None and "root" in found:
        raise ValueError(
            f"root is for the names of data sets and for lists, {name_or_path} is a folder: got {root}"
        )
    return build(**{"root": root, **found, **options})
