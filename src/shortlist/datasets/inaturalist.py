"""iNaturalist 2018: 8,142 species, long-tailed."""

from pathlib import Path
from typing import Any

import torch

from shortlist._messages import examples, missing
from shortlist._store.json import read_json
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import Files, assemble, divide
from shortlist.datasets.splits import Splits

HELP = (
    "Get the images (train_val2018), train2018.json, val2018.json and, for the species' names, "
    "categories.json from the page of the iNaturalist 2018 competition (visipedia, inat_comp) and put them "
    "into <root>."
)
LEVELS = ("supercategory", "kingdom", "phylum", "class", "order", "family", "genus")


def _read(path: Path) -> Any:
    if not path.is_file():
        raise missing(path, HELP)
    return read_json(path)


def _files(path: Path, content: Any, index: dict[int, int]) -> Files:
    try:
        names = {image["id"]: image["file_name"] for image in content["images"]}
        rows = [(names[row["image_id"]], row["category_id"]) for row in content["annotations"]]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not an iNaturalist 2018 annotation file (images with id and file_name, annotations "
            f"with image_id and category_id): {error!r}"
        ) from error
    if unknown := sorted({category for _, category in rows} - set(index)):
        raise ValueError(
            f"{path} is of another version than the categories: these lack {examples(unknown)}, which it has"
        )
    targets = torch.tensor([index[category] for _, category in rows], dtype=torch.int64)
    paths = [str(path.parent / name) for name, _ in rows]
    if paths and not Path(paths[0]).exists():
        raise missing(paths[0], f"It is the first image of {path}. {HELP}")
    return Files(paths, targets)


def inaturalist2018(
    root: str | Path, *, val_fraction: float = 0.05, seed: int = 0, **image_options: Any
) -> Splits:
    """Open iNaturalist 2018: 8,142 species, 437,513 training images, three validation images of each.

    On disk: ``<root>/train2018.json``, ``<root>/val2018.json`` and the images that they name
    (``<root>/train_val2018/Plantae/7477/<...>.jpg``). If ``<root>/categories.json`` is there (published
    later, with the species' names), names and the levels kingdom to genus come from it; else from the list of
    categories in ``train2018.json``. Classes are in the order of their ids.

    The labels of the test images are not public. The published validation images are the test split here, and
    the validation split is drawn from the training images.

    Args:
        root: Folder of the data set.
        val_fraction: Share of each class's training images in the validation split, rounded up; with 0 the
            validation and the test split are the same images, as in most published experiments.
        seed: Seed of the draw.
        **image_options: ``image_size``, ``train_transform``, ``eval_transform``, ``on_error``, ``verify`` as
            for :func:`~shortlist.datasets.folders.image_folder`.

    Raises:
        FileNotFoundError: A file is missing; the message says where to get it.
        ValueError: A file has another form, or is of another version than the categories.
    """
    root = Path(root)
    train, val = _read(root / "train2018.json"), _read(root / "val2018.json")
    source = root / "categories.json"
    if not source.is_file():
        source = root / "train2018.json"
    if not isinstance(train, dict):
        raise ValueError(f"{root / 'train2018.json'} must hold an object, got a {type(train).__name__}")
    categories = _read(source) if source.name == "categories.json" else train.get("categories", [])
    try:
        categories = sorted(categories, key=lambda category: int(category["id"]))
        names = [str(category.get("name", category["id"])) for category in categories]
        ids = [int(category["id"]) for category in categories]
        levels = [level for level in LEVELS if all(level in category for category in categories)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{source} has no list of categories with id and name: {error!r}") from error
    if not ids:
        raise ValueError(f"{source} has no categories")
    parents = {level: [str(category[level]) for category in categories] for level in levels}
    table = ClassTable(names, ids=[str(i) for i in ids], parents=parents)
    index = {category: position for position, category in enumerate(ids)}
    files = {
        "train": _files(root / "train2018.json", train, index),
        "test": _files(root / "val2018.json", val, index),
    }
    return assemble(divide(files, val_fraction=val_fraction, seed=seed), table, where=root, **image_options)
