"""Saved scores or embeddings that people give to have them predicted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from shortlist.datasets.tensor_files import SUFFIXES, load_tensors

ARRAYS = (*SUFFIXES, ".npy")


def are_arrays(inputs: Sequence[Path]) -> bool:
    """Return whether the inputs are files of saved scores or embeddings; all or none of them must be."""
    saved = [path.suffix.lower() in ARRAYS for path in inputs]
    if any(saved) and not all(saved):
        raise ValueError("inputs must be all saved scores or embeddings, or all images, got both")
    return all(saved)


def saved_rows(
    paths: Sequence[Path], *, head: str, input_shape: Sequence[int] | None, batch_size: int
) -> Iterator[tuple[list[str], Tensor, bool, int]]:
    """Yield names of rows, the rows, whether they are scores (or inputs), and how many there are so far.

    Scores (n, c) are those that a network's head gave; inputs (n, ...) are for the network. No file is opened
    before it is its turn.
    """
    total = 0
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
        rows, are_scores = _rows_of(path, load_tensors(path), head, input_shape)
        total += len(rows)
        name = path.name if len(paths) == 1 else str(path)  # several may have one name
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            yield [f"{name}:{start + i}" for i in range(len(part))], part, are_scores, total


def _rows_of(
    path: Path, tensors: dict[str, Tensor], head: str, input_shape: Sequence[int] | None
) -> tuple[Tensor, bool]:
    """Return the scores of a file, or else its embeddings, and whether they are scores."""
    for key in ("scores", f"{head}.scores"):
        if key in tensors and tensors[key].ndim == 2:
            return tensors[key].float(), True
    if "embeddings" not in tensors:
        got = ", ".join(tensors) or "nothing"
        raise ValueError(f"{path} must hold an array 'scores' (n, c) or 'embeddings' (n, ...), got {got}")
    rows = tensors["embeddings"]
    shape = tuple(rows.shape[1:])
    if rows.ndim < 2 or (input_shape is not None and shape != tuple(input_shape)):
        wanted = "(n, d)" if input_shape is None else f"(n, {', '.join(map(str, input_shape))})"
        raise ValueError(
            f"{path} must hold embeddings of shape {wanted}, as the model takes them, got {tuple(rows.shape)}"
        )
    pixels = rows.dtype == torch.uint8 and rows.ndim == 4  # which the network scales itself
    return (rows if pixels else rows.float()), False
