"""Saved embeddings of ImageNet-21K-P, or of any set whose images went through a frozen network."""

import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_number
from shortlist._messages import missing
from shortlist._row_facts import RowFacts
from shortlist._store.files import replacing
from shortlist._store.manifest import read_sealed
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import warn_of_missing_classes, warn_of_torn_observations
from shortlist.datasets.longtail import Profile, long_tailed_counts, subset_by_counts
from shortlist.datasets.partition import proportional_split
from shortlist.datasets.splits import Splits, TensorSplit
from shortlist.datasets.tensor_files import HELP, SUFFIXES, load_tensors
from shortlist.inputs import UNKNOWN

EMBEDDINGS_FORMAT = "shortlist embeddings 2"
"""Format of the manifest of a folder of embeddings."""
MANIFEST = "embeddings.json"
"""File with the manifest of a folder of embeddings."""
_LABELS = "labels"  # what others call the targets
_Rows = tuple[Tensor, Tensor, Tensor]  # inputs, targets, and numbers among all rows of the files
_BLOCK = 2**24  # numbers looked at in one go


class EmbeddingSplit(TensorSplit):
    """Embeddings in memory, whose batches are float32.

    Args:
        inputs: All rows (n, d).
        targets: Class index of each row (n,), int64.
        rows: Number of each row (n,) among all rows of the files of the data set.
        facts: What is known about the rows beside their class.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, rows: Tensor, facts: RowFacts | None = None) -> None:
        super().__init__(inputs, targets, transform=torch.Tensor.float, facts=facts)
        self.rows = rows


def save_embeddings(path: str | Path, embeddings: Tensor, targets: Tensor) -> None:
    """Write embeddings (n, d) and class indices (n,) as a ``.safetensors`` file."""
    from safetensors.torch import save_file

    if Path(path).suffix != ".safetensors":
        raise ValueError(f"path must end in .safetensors, got {path}")
    if targets.dtype != torch.int64 or targets.shape != embeddings.shape[:1]:
        raise ValueError(
            f"targets must be int64 of shape ({len(embeddings)},), got {targets.dtype} {tuple(targets.shape)}"
        )
    with replacing(path) as temporary:
        save_file({"embeddings": embeddings.contiguous(), "targets": targets.contiguous()}, temporary)


def _part(path: Path, input_key: str, target_key: str) -> tuple[Tensor, Tensor]:
    tensors = load_tensors(path)
    for key in (input_key, target_key):
        if key not in tensors:
            raise ValueError(f"{path} has no array {key!r}; it has {', '.join(sorted(tensors))}")
    return _checked(path, tensors, input_key, target_key)


def _checked(
    path: Path, tensors: dict[str, Tensor], input_key: str, target_key: str
) -> tuple[Tensor, Tensor]:
    """Return embeddings (n, d) and class indices (n,) of a part, which must be such."""
    inputs, targets = tensors[input_key], tensors[target_key]
    whole = not (targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool)
    if inputs.ndim < 2 or not whole or targets.shape != inputs.shape[:1]:
        raise ValueError(
            f"{path}: {input_key!r} must be (n, d) and {target_key!r} whole numbers (n,), got "
            f"{tuple(inputs.shape)} and {targets.dtype} {tuple(targets.shape)}"
        )
    step = max(1, _BLOCK // max(1, inputs[:1].numel()))
    for start in range(0, len(inputs), step):
        finite = inputs[start : start + step].isfinite().flatten(1).all(1)
        if not bool(finite.all()):
            row = start + int((~finite).nonzero()[0])
            raise ValueError(
                f"{path}: {input_key!r} must be finite numbers, got NaN or infinity in row {row}"
            )
    if bool((wrong := (targets < 0) & (targets != UNKNOWN)).any()):
        raise ValueError(
            f"{path}: {target_key!r} must be >= 0, or {UNKNOWN} for a row without a class, got "
            f"{int(targets[wrong][0])}"
        )
    return inputs, targets.long()


def _parts_of_one_file(path: Path, input_key: str, target_key: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the parts that stand in one file, by the names of its arrays.

    An array of embeddings is ``PART_embeddings``, that of its classes ``PART_targets`` or ``PART_labels``,
    each with any prefix, such as ``imagenet21k_train_labels``.
    """
    tensors = load_tensors(path)
    names = f"(?P<about>.*_)?(?P<part>train|val|test)_{re.escape(input_key)}"
    parts: dict[str, tuple[Tensor, Tensor]] = {}
    for match in filter(None, (re.fullmatch(names, key) for key in sorted(tensors))):
        stem, part = f"{match['about'] or ''}{match['part']}_", match["part"]
        target_keys = [stem + name for name in (target_key, _LABELS) if stem + name in tensors]
        if not target_keys or part in parts:
            fault = f"no {stem}{target_key}" if not target_keys else f"several arrays of {part} embeddings"
            raise ValueError(f"{path} has {fault}; it has {', '.join(sorted(tensors))}")
        parts[part] = _checked(path, tensors, match[0], target_keys[0])
    if "train" not in parts:
        raise ValueError(f"{path} has no array 'train_{input_key}'; it has {', '.join(sorted(tensors))}")
    return parts


def read_manifest(root: str | Path) -> dict[str, Any]:
    """Read ``embeddings.json``, which ``shortlist embed`` wrote last.

    Raises:
        ValueError: If it is of another format, was changed, or a file that it lists is missing or of another
            size; the message names it.
    """
    path = Path(root) / MANIFEST
    content = read_sealed(path, EMBEDDINGS_FORMAT)
    for part in content["parts"]:
        file = Path(root) / part["file"]
        if not file.is_file() or file.stat().st_size != part["size"]:
            raise ValueError(f"{file} is missing or damaged: remove it, and run shortlist embed again")
    return content


def split_of_file(file: str) -> str:
    """Return the split that a file of ``shortlist embed`` is of: ``train-00000.safetensors`` of ``train``."""
    return file.rpartition("-")[0]


def embedding_files(root: str | Path) -> dict[str, list[Path]]:
    """Return the files of embeddings in a folder by split, one or several each; empty if there are none.

    Raises:
        ValueError: If ``shortlist embed`` began to write them and did not finish, or one is damaged.
    """
    root = Path(root)
    by_split: dict[str, list[Path]] = {}
    if (root / MANIFEST).is_file():
        for part in read_manifest(root)["parts"]:
            if part["rows"] > part["errors"]:
                by_split.setdefault(split_of_file(part["file"]), []).append(root / part["file"])
        return by_split
    for part in ("train", "val", "test"):
        files = [root / f"{part}{suffix}" for suffix in SUFFIXES]
        files = [file for file in files if file.is_file()]
        if files:
            by_split[part] = files[:1]
        elif any(root.glob(f"{part}-[0-9]*.safetensors")):
            raise ValueError(f"{root} is not finished, it has no {MANIFEST}: run shortlist embed again")
    return by_split


def _joined(
    paths: list[Path], input_key: str, target_key: str, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of all files of a part; each file is read when it is its turn."""
    if len(paths) == 1:
        return _part(paths[0], input_key, target_key)
    rows, all_inputs, targets, end = sum(_rows_of(path, target_key) for path in paths), None, [], 0
    for path in paths:
        inputs, of_file = _part(path, input_key, target_key)
        if all_inputs is None:
            all_inputs = inputs.new_empty(rows, *inputs.shape[1:], dtype=dtype)
        if inputs.shape[1:] != all_inputs.shape[1:]:
            raise ValueError(f"{path}: {input_key!r} must have rows of shape {tuple(all_inputs.shape[1:])}")
        all_inputs[end : end + len(of_file)] = inputs
        end += len(of_file)
        targets.append(of_file)
    assert all_inputs is not None
    return all_inputs, torch.cat(targets)


def _numbered(parts: dict[str, tuple[Tensor, Tensor]]) -> dict[str, _Rows]:
    """Give each row its number among the rows of all parts."""
    numbers = torch.arange(sum(len(targets) for _, targets in parts.values()))
    pieces = numbers.split([len(targets) for _, targets in parts.values()])
    return {part: (*parts[part], rows) for part, rows in zip(parts, pieces, strict=True)}


def _with_class(rows: _Rows, part: str, root: Path) -> _Rows:
    """Leave rows out whose class is not known: nothing can be learned or measured by them."""
    has_class = rows[1] != UNKNOWN
    if bool(has_class.all()):
        return rows
    number = len(has_class) - int(has_class.sum())
    warnings.warn(f"{root}: {number} rows of the {part} split have no class, and are left out", stacklevel=3)
    return _taken(rows, has_class)


def _taken(rows: _Rows, index: Tensor) -> _Rows:
    inputs, targets, numbers = rows
    return inputs[index], targets[index], numbers[index]


def _rows_of(path: Path, target_key: str) -> int:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.get_slice(target_key).get_shape()[0]


def embeddings(
    root: str | Path,
    *,
    input_key: str = "embeddings",
    target_key: str = "targets",
    val_fraction: float = 0.05,
    long_tail: Profile | None = None,
    rho: float = 100.0,
    seed: int = 0,
    as_stored: bool = False,
    images: str | None = None,
    encoder: str | None = None,
) -> Splits:
    """Open a data set of embeddings that a frozen network made of it, held in memory.

    On disk: ``<root>/train.safetensors`` (or ``.npz``, ``.pt``), the same for ``val`` and ``test``, each with
    an array of embeddings (n, d) and one of class indices (n,), -100 where the class is not known (such
    rows are left out, with a warning); ``<root>/class_table.json`` if the classes
    have names. What ``shortlist embed`` wrote: several files of each split, which ``embeddings.json`` lists.
    Or one file with all splits: arrays ``train_embeddings``, ``train_targets`` (or ``train_labels``),
    ``test_embeddings`` and so on, with any prefix, as in the files that Petersen et al. publish
    (``imagenet21k_val_labels``); they end in ``.p``, and ``class_table.json`` may stand beside them.
    Without ``test`` or ``val`` the other one is the test split and the validation split is drawn
    from the training split; without both, both are drawn. A ``.safetensors`` file may have an array
    ``observation`` (n,), the same whole number for photos of one object, and groups of rows such as
    ``group.organ`` (n,), numbers from 0; ``shortlist embed`` writes what the data say.

    Args:
        root: Folder of the files, or the one file.
        input_key: Name of the array of embeddings.
        target_key: Name of the array of class indices.
        val_fraction: Share of each class in each split that has to be drawn; with 0 and one held-out file,
            that is both the validation and the test split.
        long_tail: Kind of long-tailed sample of the training rows to keep, ``"exp"`` or ``"step"``; see
            :func:`~shortlist.datasets.longtail.long_tailed_counts`. The first class keeps as many rows as the
            smallest class has; validation and test splits stay as they are.
        rho: Imbalance of the long tail: the largest class count over the smallest.
        seed: Seed of the draws.
        as_stored: Whether ``inputs`` keep the type of their files, which takes half of the memory if that is
            half precision: batches are float32 all the same. By default all rows become float32.
        images: Name of the images, such as ``"imagenet"``: the files do not say it, and published numbers are
            found by it. It changes nothing else.
        encoder: Name of the network that made the embeddings, for the same use.

    Raises:
        FileNotFoundError: There is no training file.
        ValueError: A file is broken, lacks an array, or has a class that the class table lacks.
    """
    del images, encoder  # for those who read the recipe
    root = Path(root)
    if root.is_file():
        parts = _parts_of_one_file(root, input_key, target_key)
        paths, root, facts = {part: [root] for part in parts}, root.parent, None
    else:
        paths = embedding_files(root)
        if "train" not in paths:
            raise missing(root / "train.safetensors", HELP)
        dtype = None if as_stored else torch.float32
        parts = {part: _joined(files, input_key, target_key, dtype) for part, files in paths.items()}
        facts = _facts(paths, {part: len(targets) for part, (_, targets) in parts.items()})
    parts = {part: _with_class(rows, part, root) for part, rows in _numbered(parts).items()}
    _check_alike(parts, paths, input_key)
    classes = 1 + max(int(targets.max()) for _, targets, _ in parts.values())
    table = ClassTable([str(c) for c in range(classes)])
    if (root / "class_table.json").is_file():
        table = ClassTable.load(root / "class_table.json")
        if len(table) < classes:
            raise ValueError(
                f"{root / 'class_table.json'} has {len(table)} classes, but targets go up to {classes - 1}"
            )
    parts = _divide(parts, facts, val_fraction=val_fraction, seed=seed)
    if long_tail is not None:
        parts["train"] = _tail(parts["train"], len(table), profile=long_tail, rho=rho, seed=seed)
    warn_of_missing_classes(table, {name: targets for name, (_, targets, _) in parts.items()}, where=root)
    facts_of_parts = {
        name: None if facts is None else facts.take(rows) for name, (_, _, rows) in parts.items()
    }
    warn_of_torn_observations(facts_of_parts, where=root)
    made = {
        name: EmbeddingSplit(inputs if as_stored else inputs.float(), targets, rows, facts_of_parts[name])
        for name, (inputs, targets, rows) in parts.items()
    }
    counts = parts["train"][1].bincount(minlength=len(table))
    return Splits(made["train"], made["val"], made["test"], table.with_counts(counts))


def _check_alike(parts: dict[str, _Rows], paths: dict[str, list[Path]], input_key: str) -> None:
    """Require rows in each part, of the shape of training rows."""
    wanted = tuple(parts["train"][0].shape[1:])
    for part, (inputs, targets, _) in parts.items():
        if not len(targets):
            raise ValueError(f"{paths[part][0]} has no rows with a class")
        if tuple(inputs.shape[1:]) != wanted:
            raise ValueError(
                f"{paths[part][0]}: {input_key!r} must have rows of shape {wanted}, as in training, "
                f"got {tuple(inputs.shape[1:])}"
            )


def _tail(rows: _Rows, classes: int, *, profile: Profile, rho: float, seed: int) -> _Rows:
    """Keep a long-tailed part of the rows, in which the rarest class has at least one."""
    targets = rows[1]
    smallest = int(targets.bincount(minlength=classes).min())
    if smallest < rho:
        raise ValueError(
            f"rho must be <= the training rows of the smallest class ({smallest}), so that no class is left "
            f"empty, got {rho}"
        )
    wanted = long_tailed_counts(classes, n_max=smallest, rho=rho, profile=profile)
    # a generator of its own: the parts have the same rows with and without a tail
    index = subset_by_counts(targets, wanted, generator=torch.Generator().manual_seed(seed + 1))
    return _taken(rows, index)


def _facts(paths: dict[str, list[Path]], rows: dict[str, int]) -> RowFacts | None:
    """Return what ``.safetensors`` files say about all rows beside their class."""
    parts = []
    for part, files in paths.items():
        for file in files:
            facts = RowFacts.load(file) if file.suffix == ".safetensors" else None
            parts.append((facts, rows[part] if len(files) == 1 else _rows_of(file, "targets")))
    return RowFacts.joined(parts)


def _divide(
    parts: dict[str, _Rows], facts: RowFacts | None, *, val_fraction: float, seed: int
) -> dict[str, _Rows]:
    """Make the three splits; those that are missing are drawn from the training split, by object."""
    check_number("val_fraction", val_fraction, low=0.0, below=0.5)
    others = [name for name in ("val", "test") if name in parts]
    if len(others) == 2:
        return parts
    if others and val_fraction == 0:
        return {"train": parts["train"], "val": parts[others[0]], "test": parts[others[0]]}
    generator = torch.Generator().manual_seed(seed)
    drawn = 1 if others else 2
    _, targets, rows = parts["train"]
    how: Any = {"fraction": val_fraction, "parts": drawn, "generator": generator}
    pieces = proportional_split(targets, objects=None if facts is None else facts.take(rows).objects, **how)
    made = [_taken(parts["train"], index) for index in pieces]
    made += [parts[others[0]]] if others else []
    return dict(zip(("train", "val", "test"), made, strict=True))
