"""The registry of data sets by name, with what each of them can do."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shortlist._named_code import allowed_code
from shortlist.datasets.cifar import cifar10, cifar10_lt, cifar100, cifar100_lt
from shortlist.datasets.embeddings import embedding_files, embeddings
from shortlist.datasets.folders import image_folder
from shortlist.datasets.gaussians import gaussian_genera, two_gaussians
from shortlist.datasets.glyphs import glyphs, glyphs_full
from shortlist.datasets.idx import fashion_mnist
from shortlist.datasets.imagenet import imagenet, imagenet_lt
from shortlist.datasets.inaturalist import inaturalist2018
from shortlist.datasets.label_set_lists import label_set_list
from shortlist.datasets.label_sets import several_glyphs
from shortlist.datasets.lists import image_list, image_lists
from shortlist.datasets.plantnet import NAMES_FILE, plantnet300k
from shortlist.datasets.splits import Splits


@dataclass(frozen=True)
class DatasetInfo:
    """The function that builds a data set, and what the data set can do.

    Args:
        build: Function that makes the splits from options.
        on_disk: Whether the first argument of ``build`` is the folder ``root``.
        reads_files: Whether the data set is read from image files, and so takes transforms of images.
        has_posterior: Whether the data set knows its exact probabilities (``log_posterior``).
        tells_progress: Whether ``build`` takes ``progress``, since it may be slow.
        rows_by_options: Whether the test rows depend on the options; those of a published set depend only on
            its name.
        several_labels: Whether a photo can have several labels; its parts are ``LabelPairs``.
        needs: Option, other than ``root``, that must be given; ``None`` if there is none.
    """

    build: Callable[..., Splits]
    on_disk: bool = False
    reads_files: bool = False
    has_posterior: bool = False
    tells_progress: bool = False
    rows_by_options: bool = False
    several_labels: bool = False
    needs: str | None = None


_made = partial(DatasetInfo, rows_by_options=True)
_published = partial(DatasetInfo, on_disk=True)

DATASETS: dict[str, DatasetInfo] = {
    "glyphs": _made(glyphs, tells_progress=True),
    "glyphs_full": _made(glyphs_full, tells_progress=True, needs="folders"),
    "gaussian_genera": _made(gaussian_genera, has_posterior=True),
    "two_gaussians": _made(two_gaussians, has_posterior=True),
    "cifar10": _published(cifar10),
    "cifar100": _published(cifar100),
    "cifar10_lt": _published(cifar10_lt),
    "cifar100_lt": _published(cifar100_lt),
    "fashion_mnist": _published(fashion_mnist),
    "plantnet300k": _published(plantnet300k, reads_files=True),
    "imagenet": _published(imagenet, reads_files=True),
    "imagenet_lt": _published(imagenet_lt, reads_files=True),
    "inaturalist2018": _published(inaturalist2018, reads_files=True),
    "embeddings": _made(embeddings, on_disk=True),
    "image_folder": _made(image_folder, on_disk=True, reads_files=True),
    "image_list": _made(image_list, reads_files=True, needs="path"),
    "image_lists": _made(image_lists, reads_files=True, needs="train"),
    "several_glyphs": _made(several_glyphs, tells_progress=True, several_labels=True),
    "label_set_list": _made(label_set_list, reads_files=True, needs="path", several_labels=True),
}
"""What each data set can do, by the name that recipes use."""


def dataset_info(name: str) -> DatasetInfo:
    """Return what a data set can do: one of ``DATASETS``, or a function ``package.module:function``.

    The arguments of such a function say it: ``root``, ``progress``, or the transforms of image files.

    Raises:
        ValueError: If it is somebody's own code that this process may not run, or there is none.
    """
    if ":" not in name:
        return DATASETS[name]
    build = allowed_code("data.name", name)
    taken = inspect.signature(build).parameters
    return DatasetInfo(
        build,
        on_disk="root" in taken,
        reads_files={"train_transform", "eval_transform"} <= taken.keys(),
        tells_progress="progress" in taken,
        rows_by_options=True,
    )


def data_at(path: str | Path) -> dict[str, str]:
    """Return the name of the data set that a folder or a list holds, and its option that says where it is.

    Raises:
        FileNotFoundError: If there is nothing at the path.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_file():
        return {"name": "image_list", "path": str(path)}
    is_plantnet, is_embedded = (path / NAMES_FILE).is_file(), "train" in embedding_files(path)
    name = "embeddings" if is_embedded else "plantnet300k" if is_plantnet else "image_folder"
    return {"name": name, "root": str(path)}
