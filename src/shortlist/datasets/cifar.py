"""CIFAR-10 and CIFAR-100, balanced or long-tailed, optionally with label noise within superclasses."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._messages import missing
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import warn_of_missing_classes
from shortlist.datasets.longtail import Profile, long_tailed_counts, subset_by_counts
from shortlist.datasets.noise import NoisyTensorSplit, redraw_within_groups
from shortlist.datasets.partition import balanced_split
from shortlist.datasets.splits import Splits, TensorSplit
from shortlist.datasets.transforms import BatchTransform

MEAN = {"cifar-10": (0.4914, 0.4822, 0.4465), "cifar-100": (0.5071, 0.4865, 0.4409)}
STD = {"cifar-10": (0.2470, 0.2435, 0.2616), "cifar-100": (0.2673, 0.2564, 0.2762)}

# what numpy itself names in a pickle of an array or a number, wherever this version keeps it
NUMPY_MAKERS = {"_reconstruct": np.empty(0).__reduce__()[0], "scalar": np.uint8(0).__reduce__()[0]}

HELP = (
    "Get the Python version of {name} from Alex Krizhevsky's CIFAR page (University of Toronto, computer "
    "science) and unpack it, so that there is <root>/{folder}/{file}."
)


def _latin_bytes(text: str, encoding: str = "latin1") -> bytes:
    """Make bytes as Python 3 writes them in old pickle protocols."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"an encoding other than latin1: {encoding!r}")
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that builds plain containers, text, numbers, bytes and arrays, and refuses all else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin_bytes
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in NUMPY_MAKERS:
            return NUMPY_MAKERS[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs")


def load_pickle(path: str | Path) -> dict[str, Any]:
    """Read a CIFAR pickle as a dictionary with text keys; only containers and numpy arrays are ever built.

    Raises:
        ValueError: The file is no such pickle, is cut short, or asks for other code to be run.
    """
    data = Path(path).read_bytes()
    try:
        content = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dictionary")
    except Exception as error:  # a damaged pickle fails in many ways
        raise ValueError(f"{path} is not a file of CIFAR's Python version: {error}") from error
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}


def _names(path: Path, key: str) -> list[str]:
    """Return the class names under a key of the file that describes the set."""
    content = load_pickle(path)
    if key not in content:
        raise ValueError(f"{path} has no entry {key!r}; it has {', '.join(map(str, content))}")
    return [name.decode() if isinstance(name, bytes) else str(name) for name in content[key]]


def _rows(path: Path, keys: dict[str, int]) -> tuple[Tensor, ...]:
    """Read the images (n, 3, 32, 32) of one file, and its labels under each key with their upper bound."""
    content = load_pickle(path)
    if lacking := [key for key in ("data", *keys) if key not in content]:
        raise ValueError(f"{path} has no entry {lacking[0]!r}; it has {', '.join(map(str, content))}")
    images = np.asarray(content["data"])
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        raise ValueError(f"{path}: data must be bytes of shape (n, 3072), got {images.dtype} {images.shape}")
    labels = [torch.tensor(list(content[key]), dtype=torch.int64) for key in keys]
    for (key, bound), column in zip(keys.items(), labels, strict=True):
        if len(column) != len(images) or not len(column):
            raise ValueError(f"{path} has {len(images)} images but {len(column)} {key}")
        if not (int(column.min()) >= 0 and int(column.max()) < bound):
            raise ValueError(f"{path}: {key} must be in [0, {bound}), got up to {int(column.max())}")
    return torch.from_numpy(images.copy()).view(-1, 3, 32, 32), *labels


def _folder(root: str | Path, name: str, folder: str, files: Sequence[str]) -> Path:
    """Find the folder that holds these files, which may be the root itself."""
    places = (Path(root) / folder, Path(root))
    place = next((place for place in places if (place / files[0]).is_file()), places[0])
    for file in files:
        if not (place / file).is_file():
            raise missing(place / file, HELP.format(name=name, folder=folder, file=file))
    return place


def _splits(
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    table: ClassTable,
    groups: Tensor,
    stem: str,
    val_size: int,
    noise: float,
    long_tail: Profile | None,
    rho: float,
    seed: int,
    augment: bool,
    padding: int,
) -> Splits:
    # each draw has a generator of its own: the same rows with and without noise
    split_draw, tail_draw, noise_draw = (torch.Generator().manual_seed(3 * seed + i) for i in range(3))
    images, labels = train
    kept, held = balanced_split(labels, val_size=val_size, generator=split_draw)
    if long_tail is not None:
        n_max = int(labels[kept].bincount(minlength=len(table)).min())
        wanted = long_tailed_counts(len(table), n_max=n_max, rho=rho, profile=long_tail)
        kept = kept[subset_by_counts(labels[kept], wanted, generator=tail_draw)]
    clean = labels[kept]
    noisy = redraw_within_groups(clean, groups, probability=noise, generator=noise_draw)
    warn_of_missing_classes(table, {"train": noisy}, where=stem)
    plain = BatchTransform(mean=MEAN[stem], std=STD[stem])
    augmented = BatchTransform(mean=MEAN[stem], std=STD[stem], augment=augment, padding=padding)
    return Splits(
        NoisyTensorSplit(images[kept], noisy, clean_targets=clean, transform=augmented),
        TensorSplit(images[held], labels[held], transform=plain),
        TensorSplit(*test, transform=plain),
        table.with_counts(noisy.bincount(minlength=len(table))),
    )


def cifar100(
    root: str | Path,
    *,
    val_size: int = 5000,
    noise: float = 0.0,
    long_tail: Profile | None = None,
    rho: float = 100.0,
    seed: int = 0,
    augment: bool = True,
    padding: int = 4,
) -> Splits:
    """Open CIFAR-100: 100 classes in 20 superclasses, 50,000 images to train on and 10,000 to test.

    On disk: ``<root>/cifar-100-python/`` with ``train``, ``test`` and ``meta`` (the Python version,
    unpacked), or these in ``<root>`` itself. The files are pickles, read without running any code of theirs.

    Args:
        root: Folder that contains the unpacked data set.
        val_size: Number of validation images, equally many of each class, taken from the training images.
        noise: Probability that a training label is redrawn within its superclass; validation and test labels
            stay clean, and the clean training labels are in ``splits.train.clean_targets``.
        long_tail: Kind of long-tailed part of the training images to keep, ``"exp"`` or ``"step"``; see
            :func:`~shortlist.datasets.longtail.long_tailed_counts`. The most frequent class keeps all images
            that the validation split left.
        rho: Imbalance of the long tail: the largest class count over the smallest.
        seed: Seed of split, tail and noise; the rows of the parts do not depend on ``noise``.
        augment: Whether to crop and flip training images at random. All images are normalized,
            float32.
        padding: Pixels added on each side before a crop.

    Raises:
        FileNotFoundError: A file is missing; the message says where to get it.
        ValueError: A file is not of this format.
    """
    folder = _folder(root, "CIFAR-100", "cifar-100-python", ("train", "test", "meta"))
    fine = _names(folder / "meta", "fine_label_names")
    coarse = _names(folder / "meta", "coarse_label_names")
    bounds = {"fine_labels": len(fine), "coarse_labels": len(coarse)}
    images, labels, parents = _rows(folder / "train", bounds)
    groups = torch.full((len(fine),), -1, dtype=torch.int64)
    groups[labels] = parents
    if not torch.equal(groups[labels], parents) or int(groups.min()) < 0:
        raise ValueError(f"{folder / 'train'} has a class in no superclass or in two of them")
    table = ClassTable(fine, parents={"superclass": [coarse[int(group)] for group in groups]})
    test = _rows(folder / "test", {"fine_labels": len(fine)})
    options = (val_size, noise, long_tail, rho, seed, augment, padding)
    return _splits((images, labels), (test[0], test[1]), table, groups, "cifar-100", *options)


def cifar10(
    root: str | Path,
    *,
    val_size: int = 5000,
    noise: float = 0.0,
    long_tail: Profile | None = None,
    rho: float = 100.0,
    seed: int = 0,
    augment: bool = True,
    padding: int = 4,
) -> Splits:
    """Open CIFAR-10: 10 classes, 50,000 images to train on and 10,000 to test.

    On disk: ``<root>/cifar-10-batches-py/`` with ``data_batch_1`` to ``data_batch_5``, ``test_batch`` and
    ``batches.meta``, or these in ``<root>`` itself. There are no superclasses: ``noise`` redraws among all
    classes. Otherwise as :func:`cifar100`.
    """
    files = [f"data_batch_{i}" for i in range(1, 6)]
    folder = _folder(root, "CIFAR-10", "cifar-10-batches-py", ["batches.meta", *files, "test_batch"])
    names = _names(folder / "batches.meta", "label_names")
    batches = [_rows(folder / file, {"labels": len(names)}) for file in files]
    images, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    test = _rows(folder / "test_batch", {"labels": len(names)})
    table, groups = ClassTable(names), torch.zeros(len(names), dtype=torch.int64)
    options = (val_size, noise, long_tail, rho, seed, augment, padding)
    return _splits((images, labels), (test[0], test[1]), table, groups, "cifar-10", *options)


def cifar100_lt(
    root: str | Path,
    *,
    profile: Profile = "exp",
    rho: float = 100.0,
    val_size: int = 0,
    seed: int = 0,
    padding: int = 4,
) -> Splits:
    """Open long-tailed CIFAR-100 as published: at most 500 training images per class, no validation split.

    ``val_size`` images are taken away first if it is not 0; without them the validation split is empty.
    ``padding`` pixels are added on each side before a crop.
    """
    return cifar100(root, val_size=val_size, long_tail=profile, rho=rho, seed=seed, padding=padding)


def cifar10_lt(
    root: str | Path,
    *,
    profile: Profile = "exp",
    rho: float = 100.0,
    val_size: int = 0,
    seed: int = 0,
    padding: int = 4,
) -> Splits:
    """Open long-tailed CIFAR-10 as published: at most 5,000 training images per class, no validation split.

    ``val_size`` images are taken away first if it is not 0; without them the validation split is empty.
    ``padding`` pixels are added on each side before a crop.
    """
    return cifar10(root, val_size=val_size, long_tail=profile, rho=rho, seed=seed, padding=padding)
