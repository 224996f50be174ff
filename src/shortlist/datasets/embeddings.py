"""Saved embeddings of ImageNet-21K-P, or of any set whose images went through a frozen network."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_number
from shortlist._files import replacing
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import missing, warn_of_missing_classes
from shortlist.datasets.partition import proportional_split
from shortlist.datasets.splits import Splits, TensorSplit

__all__ = ["embeddings", "load_tensors", "save_embeddings"]

SUFFIXES = (".safetensors", ".npz", ".pt")
HELP = (
    "Expected train, val and test files in one folder, each .safetensors, .npz or .pt with an array "
    "'embeddings' (n, d) and an array 'targets' (n,). Make them with "
    "shortlist.datasets.embeddings.save_embeddings from any frozen network's features; the images of "
    "ImageNet-21K-P are at image-net.org, its list of classes in the repository of Ridnik and others, "
    "'ImageNet-21K Pretraining for the Masses'."
)


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors``, ``.npz`` or ``.pt`` file; no file can run code.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not of the format its suffix says, or holds something else than tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise missing(path, HELP)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        if path.suffix == ".npz":
            import numpy as np

            with np.load(path, allow_pickle=False) as arrays:
                return {name: _tensor_of(name, arrays[name]) for name in arrays.files}
        if path.suffix == ".pt":
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
            if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
                raise TypeError("it holds no dictionary of tensors")
            return content
    except Exception as error:  # each format has errors of its own
        raise ValueError(f"{path} cannot be read as {path.suffix}: {' '.join(str(error).split())}") from error
    raise ValueError(f"{path} must end in {', '.join(SUFFIXES)}, got {path.suffix!r}")


def _tensor_of(name: str, array: Any) -> Tensor:
    if array.dtype.kind in "US":
        raise TypeError(
            f"the array {name!r} holds text: number the classes from 0, and put their names into a "
            "class_table.json beside it"
        )
    return torch.from_numpy(array)


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
    inputs, targets = tensors[input_key], tensors[target_key]
    whole = not (targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool)
    if inputs.ndim < 2 or not whole or targets.shape != inputs.shape[:1]:
        raise ValueError(
            f"{path}: {input_key!r} must be (n, d) and {target_key!r} whole numbers (n,), got "
            f"{tuple(inputs.shape)} and {targets.dtype} {tuple(targets.shape)}"
        )
    if not bool(inputs.isfinite().all()):
        row = int((~inputs.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"{path}: {input_key!r} must be finite numbers, got NaN or infinity in row {row}")
    if len(targets) and int(targets.min()) < 0:
        raise ValueError(f"{path}: {target_key!r} must be >= 0, got {int(targets.min())}")
    return inputs, targets.long()


def _find(root: Path, part: str) -> Path | None:
    return next(
        (root / f"{part}{suffix}" for suffix in SUFFIXES if (root / f"{part}{suffix}").is_file()), None
    )


def embeddings(
    root: str | Path,
    *,
    input_key: str = "embeddings",
    target_key: str = "targets",
    val_fraction: float = 0.05,
    seed: int = 0,
) -> Splits:
    """Open a data set of embeddings that a frozen network made of it, held in memory.

    On disk: ``<root>/train.safetensors`` (or ``.npz``, ``.pt``), the same for ``val`` and ``test``, each with
    an array of embeddings (n, d) and one of class indices (n,); ``<root>/class_table.json`` if the classes
    have names. Without ``test`` or ``val`` the other one is the test split and the validation split is drawn
    from the training split; without both, both are drawn.

    Args:
        root: Folder of the files.
        input_key: Name of the array of embeddings.
        target_key: Name of the array of class indices.
        val_fraction: Share of each class in each part that has to be drawn; with 0 and one held-out file,
            that is both validation and test part.
        seed: Seed of the draw.

    Raises:
        FileNotFoundError: There is no training file.
        ValueError: A file is broken, lacks an array, or has a class that the class table lacks.
    """
    root = Path(root)
    paths = {part: _find(root, part) for part in ("train", "val", "test")}
    if paths["train"] is None:
        raise missing(root / "train.safetensors", HELP)
    parts = {part: _part(path, input_key, target_key) for part, path in paths.items() if path is not None}
    for part, (inputs, targets) in parts.items():
        if not len(targets):
            raise ValueError(f"{paths[part]} has no rows")
        if inputs.shape[1:] != parts["train"][0].shape[1:]:
            raise ValueError(
                f"{paths[part]}: {input_key!r} must have rows of shape {tuple(parts['train'][0].shape[1:])}, "
                f"as the training split has, got {tuple(inputs.shape[1:])}"
            )
    classes = 1 + max(int(targets.max()) for _, targets in parts.values())
    table = ClassTable([str(c) for c in range(classes)])
    if (root / "class_table.json").is_file():
        table = ClassTable.load(root / "class_table.json")
        if len(table) < classes:
            raise ValueError(
                f"{root / 'class_table.json'} has {len(table)} classes, but targets go up to {classes - 1}"
            )
    parts = _divide(parts, val_fraction=val_fraction, seed=seed)
    warn_of_missing_classes(table, {name: targets for name, (_, targets) in parts.items()}, where=root)
    # kept in the type they come in, half precision too; networks get float32
    made = {
        name: TensorSplit(inputs, targets, transform=torch.Tensor.float)
        for name, (inputs, targets) in parts.items()
    }
    counts = parts["train"][1].bincount(minlength=len(table))
    return Splits(made["train"], made["val"], made["test"], table.with_counts(counts))


def _divide(
    parts: dict[str, tuple[Tensor, Tensor]], *, val_fraction: float, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Make the three splits; those that are missing are drawn from the training split."""
    check_number("val_fraction", val_fraction, low=0.0, below=0.5)
    others = [name for name in ("val", "test") if name in parts]
    if len(others) == 2:
        return parts
    inputs, targets = parts["train"]
    if others and val_fraction == 0:
        return {"train": parts["train"], "val": parts[others[0]], "test": parts[others[0]]}
    generator = torch.Generator().manual_seed(seed)
    drawn = 1 if others else 2
    rows = proportional_split(targets, fraction=val_fraction, parts=drawn, generator=generator)
    made = [(inputs[index], targets[index]) for index in rows]
    made += [parts[others[0]]] if others else []
    return dict(zip(("train", "val", "test"), made, strict=True))
