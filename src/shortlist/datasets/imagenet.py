"""ImageNet (ILSVRC 2012) and its long-tailed part, ImageNet-LT."""

from pathlib import Path
from typing import Any

from shortlist._messages import missing
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import assemble, divide, files_of_classes
from shortlist.datasets.lists import image_lists
from shortlist.datasets.splits import Splits
from shortlist.inputs import names_of_class_folders

HELP = (
    "Get ILSVRC 2012 from image-net.org (an account is needed) and unpack it, so that there are "
    "<root>/train/<wnid>/*.JPEG and <root>/val/<wnid>/*.JPEG, one folder per class (n01440764, ...)."
)
HELP_LT = (
    "Get the list files ImageNet_LT_train.txt, ImageNet_LT_val.txt and ImageNet_LT_test.txt from the "
    "repository of Liu and others, 'Large-Scale Long-Tailed Recognition in an Open World', and put them into "
    "<lists>; the images are ImageNet's, below <root>/train and <root>/val."
)


def _synset_names(root: Path) -> dict[str, str]:
    """Read the names by wnid from ``LOC_synset_mapping.txt`` (``wnid name, other name``), if it is there."""
    path = root / "LOC_synset_mapping.txt"
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[-1] for line in lines if line.strip()}


def imagenet(root: str | Path, *, val_fraction: float = 0.05, seed: int = 0, **image_options: Any) -> Splits:
    """Open ImageNet, ILSVRC 2012: 1,000 classes, 1,281,167 training images and 50,000 validation images.

    On disk: ``<root>/train/<wnid>/*.JPEG`` and ``<root>/val/<wnid>/*.JPEG``; names are taken from
    ``<root>/LOC_synset_mapping.txt`` if it is there. Classes are in the order of their wnids.

    The labels of ImageNet's test images are not public. Its validation images are the test split here, and
    the validation split is drawn from the training images, so that nothing is chosen on the images that are
    reported.

    Args:
        root: Folder of the data set.
        val_fraction: Share of each class's training images in the validation split; with 0 the validation and
            the test split are the same images, as in most published experiments.
        seed: Seed of the draw.
        **image_options: ``image_size``, ``train_transform``, ``eval_transform``, ``on_error``, ``verify`` as
            for :func:`~shortlist.datasets.folders.image_folder`.

    Raises:
        FileNotFoundError: A folder is missing; the message says where to get it.
        ValueError: A folder holds no class folders with images.
    """
    root = Path(root)
    folders = {part: root / part for part in ("train", "val")}
    for folder in folders.values():
        if not folder.is_dir():
            raise missing(folder, HELP)
    ids = names_of_class_folders(root, folders)
    names = _synset_names(root)
    table = ClassTable([names.get(wnid, wnid) for wnid in ids], ids)
    files = files_of_classes(root, folders, table, HELP)
    return assemble(divide(files, val_fraction=val_fraction, seed=seed), table, where=root, **image_options)


def imagenet_lt(root: str | Path, *, lists: str | Path | None = None, **image_options: Any) -> Splits:
    """Open ImageNet-LT: 115,846 training images of 1,000 classes, 5 to 1,280 of each; balanced val and test.

    On disk: the images as for :func:`imagenet`, and ``ImageNet_LT_train.txt``, ``ImageNet_LT_val.txt`` and
    ``ImageNet_LT_test.txt`` with lines ``train/n01440764/n01440764_190.JPEG 0``.

    Args:
        root: Folder that contains ``train/`` and ``val/``.
        lists: Folder of the three list files; ``root`` if left out.
        **image_options: ``image_size``, ``train_transform``, ``eval_transform``, ``on_error``, ``verify`` as
            for :func:`~shortlist.datasets.folders.image_folder`.

    Raises:
        FileNotFoundError: A list, or the first image of one, is missing.
        ValueError: A line is not a path and a number.
    """
    folder = Path(root if lists is None else lists)
    files = [folder / f"ImageNet_LT_{part}.txt" for part in ("train", "val", "test")]
    for file in files:
        if not file.is_file():
            raise missing(file, HELP_LT)
    return image_lists(files[0], files[1], files[2], root=root, **image_options)
