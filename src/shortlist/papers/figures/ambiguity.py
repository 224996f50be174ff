"""The closest images of two classes and the farthest of one: ``shortlist papers figure ambiguity``.

The first are what no classifier can tell apart, the second why a class is hard to learn from few images
(Garcin, thesis, figures 1.4, 3.3 and 3.4, where people chose the images).
"""

import base64
import io
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, normalize

from shortlist._bounds import check_choice
from shortlist._checks import check_count
from shortlist.class_table import ClassTable
from shortlist.curation import open_dataset
from shortlist.datasets import Split, Splits, data_uri, row_image
from shortlist.papers.figures._distances import Pair, closest_pairs, farthest_pairs, nearest_rows
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure
from shortlist.recipes import build_data
from shortlist.runs import Run, feature_batches, load_network

_SIDE = 32  # pixels a side of the images that are compared


def measure(
    *,
    data: str = "glyphs",
    run: str | None = None,
    part: str = "test",
    pairs: int = 4,
    max_rows: int = 5000,
    progress: Progress | None = None,
) -> Numbers:
    """Find the closest images of two classes and the farthest images of one class.

    Args:
        data: Name of a built-in data set, or path of a folder or list of images. Distances are between the
            pixels, of images of at most 32 x 32.
        run: In place of ``data``, a run folder: its data, and distances between the features of its network.
        part: ``"test"``, ``"val"`` or ``"train"``.
        pairs: Number of pairs of each kind.
        max_rows: Largest number of rows that are looked at: the first ones.
        progress: Called after each step.

    Returns:
        ``closest`` pairs of two classes, no class twice, and ``farthest`` pairs of one class, each with
        names, row numbers, distance and pictures; ``nearest_is_other``, the share of rows whose nearest other
        row is of another class, and ``nearest_within``, by level of the class table, the share of these in
        which both classes have the same parent.
    """
    check_choice("part", part, ("train", "val", "test"))
    check_count("pairs", pairs)
    check_count("max_rows", max_rows, low=2)
    steps = ["opening the data", "distances", "pairs"]

    def tell(done: int) -> None:
        if progress is not None:
            progress(steps[done - 1], done, len(steps))

    splits, rows, target, features, kind = _open(data, run, part, max_rows)
    tell(1)
    table = splits.class_table
    nearest = nearest_rows(features)
    tell(2)
    options: dict[str, int] = {"num_classes": len(table), "number": pairs}
    pairs_of = {
        "closest": closest_pairs(features, target, **options),
        "farthest": farthest_pairs(features, target, **options),
    }
    split = getattr(splits, part)
    described = {
        name: [_describe(p, rows, target, table, split) for p in some] for name, some in pairs_of.items()
    }
    tell(3)
    about = {"data": run or data, "part": part, "rows": len(rows), "classes": len(target.unique())}
    return about | {"distance": kind, **_of_nearest(target, target[nearest], table), **described}


def _open(data: str, run: str | None, part: str, max_rows: int) -> tuple[Splits, Tensor, Tensor, Tensor, str]:
    """Return the data, and numbers (n,), classes (n,) and features (n, d) of rows; what the features are."""
    if run is not None:
        opened = Run.open(run)
        splits = build_data(opened.recipe)
        rows, target, features = _network_features(opened, getattr(splits, part), max_rows)
        return splits, rows, target, normalize(features.double()), "features of the network, of length 1"
    try:
        splits = open_dataset(data)
    except FileNotFoundError as error:
        raise ValueError(f"data must be the name or path of a data set: {error}") from error
    rows, target, features = _pixels(getattr(splits, part), max_rows)
    return splits, rows, target, features / features.shape[1] ** 0.5, "root mean square over pixels"


def _network_features(run: Run, split: Split, max_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    parts, seen = [], 0
    for features, target, numbers in feature_batches(load_network(run), run.recipe, split):
        parts.append((numbers, target, features))
        seen += len(numbers)
        if seen >= max_rows:
            break
    numbers, target, features = (torch.cat(part)[:max_rows] for part in zip(*parts, strict=True))
    return numbers, target, features


def _pixels(split: Split, max_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers and classes of the rows that can be read, and their inputs as vectors (n, d)."""
    flat, kept = [], []
    for row in range(min(max_rows, len(split))):
        inputs, target = split[row]
        if target == -100:
            continue
        inputs = inputs.double() / (255 if inputs.dtype == torch.uint8 else 1)
        if inputs.ndim == 3 and max(inputs.shape[1:]) > _SIDE:
            inputs = adaptive_avg_pool2d(inputs, _SIDE)
        flat.append(inputs.flatten())
        kept.append((row, int(target)))
    rows, target = torch.tensor(kept).T
    return rows, target, torch.stack(flat)


def _of_nearest(target: Tensor, other: Tensor, table: ClassTable) -> Numbers:
    wrong = target != other
    within: dict[str, float | None] = {}
    for level in table.parents:
        parent = table.parent_index(level)[0]
        same = parent[target[wrong]] == parent[other[wrong]]
        within[level] = float(same.double().mean()) if len(same) else None
    return {"nearest_is_other": float(wrong.double().mean()), "nearest_within": within}


def _describe(pair: Pair, rows: Tensor, target: Tensor, table: ClassTable, split: Split) -> Numbers:
    first, second, distance = pair
    numbers = [int(rows[place]) for place in (first, second)]
    classes = [int(target[place]) for place in (first, second)]
    parents = {level: [column[index] for index in classes] for level, column in table.parents.items()}
    return {
        "rows": numbers,
        "names": [table.names[index] for index in classes],
        "parents": parents,
        "distance": distance,
        "pictures": [_picture(split, number) for number in numbers],
    }


def _picture(split: Split, row: int) -> str | None:
    try:
        return data_uri(row_image(split, row), 96)[0]
    except (ValueError, OSError):  # rows that are no pictures, or files that are gone
        return None


def draw(numbers: Numbers) -> Figure:
    """Draw the pairs in two columns: closest of two classes on the left, farthest of one on the right."""
    kinds = {"closest": "closest images of two classes", "farthest": "farthest images of one class"}
    height = max(len(numbers[kind]) for kind in kinds)
    figure = new_figure(8.0, 0.7 + 1.6 * max(1, height))
    parts: Any = figure.subfigures(1, 2)
    for part, (kind, title) in zip(parts, kinds.items(), strict=True):
        part.suptitle(title, fontsize="medium")
        if not numbers[kind]:
            continue
        grid = part.subplots(height, 2, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for places, pair in zip(grid, numbers[kind], strict=False):
            _draw_pair(places, pair, with_names=kind == "closest")
    return figure


def _draw_pair(places: Sequence[Any], pair: Numbers, *, with_names: bool) -> None:
    from PIL import Image

    titles = pair["names"] if with_names else [pair["names"][0], ""]
    for axes, picture, title in zip(places, pair["pictures"], titles, strict=True):
        if picture is not None:
            content = base64.b64decode(picture.partition(",")[2])
            axes.imshow(Image.open(io.BytesIO(content)).convert("RGB"))
        lines = textwrap.wrap(title, 28, max_lines=2, placeholder=" …")
        axes.set_title("\n".join(lines), fontsize="x-small", parse_math=False)
    places[0].text(1.1, 0.5, f"{pair['distance']:.2g}", transform=places[0].transAxes, ha="center",
                   va="center", fontsize="small", color="0.4")  # fmt: skip
