"""Data sets of images in folders, one folder per class."""

from collections.abc import Callable
from pathlib import Path

from shortlist._messages import missing
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import assemble, divide, files_of_classes
from shortlist.datasets.images import OnError
from shortlist.datasets.splits import Splits
from shortlist.inputs import check_splits, names_of_class_folders, split_folders

LAYOUT = (
    "Expected one folder of images per class, <root>/<class>/*.jpg, or the same in <root>/train, <root>/val "
    "and <root>/test."
)


def image_folder(
    root: str | Path,
    *,
    val_fraction: float = 0.1,
    seed: int = 0,
    image_size: int = 224,
    train_transform: Callable | None = None,
    eval_transform: Callable | None = None,
    on_error: OnError = "skip",
    verify: bool = False,
) -> Splits:
    """Open a folder with one folder of images per class, with or without a division into parts.

    On disk: ``<root>/<class>/**/*.jpg`` (or another image format), or the same below ``<root>/train``,
    ``<root>/val`` and ``<root>/test`` (also ``Train``, ``training``, ``validation`` and the like). Classes
    are the folders of all splits, sorted as text; if there is a ``<root>/class_table.json`` (as
    :func:`shortlist.curation.build.build_benchmark` writes), its names, order and parents are used. Without
    ``test`` (or without ``val``) the other held-out split is the test split and the validation split is drawn
    from the training split, by class; without both, both are drawn.

    Args:
        root: Folder of the data set.
        val_fraction: Share of each class in each split that has to be drawn, rounded up; with 0 and one
            held-out folder, that folder is both the validation and the test split.
        seed: Seed of the draw.
        image_size: Side of the images for the model, used by the default transforms.
        train_transform: Function from a Pillow image of the training split to a tensor; a
            :class:`~shortlist.datasets.transforms.TrainTransform` if left out.
        eval_transform: Function from a Pillow image of the other splits to a tensor; an
            :class:`~shortlist.datasets.transforms.EvalTransform` if left out.
        on_error: What to do with unreadable files; see :mod:`shortlist.datasets.images`.
        verify: Whether to read every file now, and leave unreadable ones out (or raise, by ``on_error``).

    Raises:
        FileNotFoundError: The folder is missing, or has held-out splits only.
        ValueError: It, or a split of it, holds no class folders, or they hold no images.
    """
    root = Path(root)
    if not root.is_dir():
        raise missing(root, LAYOUT)
    splits = split_folders(root)
    if splits and "train" not in splits:
        raise missing(root / "train", f"There is {' and '.join(splits)} without it. {LAYOUT}")
    if not splits:
        check_splits(root)
    path = root / "class_table.json"
    table = ClassTable.load(path) if path.is_file() else ClassTable(names_of_class_folders(root, splits))
    return assemble(
        divide(files_of_classes(root, splits, table, LAYOUT), val_fraction=val_fraction, seed=seed),
        table,
        where=root,
        train_transform=train_transform,
        eval_transform=eval_transform,
        image_size=image_size,
        on_error=on_error,
        verify=verify,
    )
