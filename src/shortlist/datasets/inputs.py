"""What people give to have it predicted: images, folders and lists of images, or saved scores."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from shortlist.datasets.embeddings import SUFFIXES, load_tensors
from shortlist.datasets.folders import images_below
from shortlist.datasets.lists import read_columns

__all__ = ["are_saved_scores", "image_files", "saved_scores"]


def are_saved_scores(inputs: Sequence[Path]) -> bool:
    """Return whether the inputs are files of saved scores; all or none of them must be."""
    saved = [path.suffix.lower() in SUFFIXES for path in inputs]
    if any(saved) and not all(saved):
        raise ValueError("inputs must be all saved scores or all images, got both")
    return all(saved)


def image_files(inputs: Sequence[Path], path_column: str = "path") -> list[str]:
    """Return the paths of all images: files, those below folders, and those in a column of list files."""
    files: list[str] = []
    for path in inputs:
        if path.is_dir():
            found = images_below(path)
            if not found:
                raise ValueError(f"{path} holds no images")
            files += found
        elif path.suffix.lower() in (".csv", ".parquet"):
            listed = read_columns(path, [path_column])[path_column].to_pylist()
            files += [str(path.parent / str(name)) for name in listed]
        elif path.is_file():
            files.append(str(path))
        else:
            raise FileNotFoundError(f"{path} does not exist")
    return files


def saved_scores(
    paths: Sequence[Path], *, head: str, batch_size: int
) -> Iterator[tuple[list[str], Tensor, int]]:
    """Yield names of rows, their scores (n, c) as a network's head gave them, and how many there are so far.

    No file is opened before it is its turn.
    """
    total = 0
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
        tensors = load_tensors(path)
        key = next((key for key in ("scores", f"{head}.scores") if key in tensors), None)
        if key is None or tensors[key].ndim != 2:
            raise ValueError(f"{path} must hold a tensor 'scores' (n, c), got {', '.join(tensors)}")
        scores = tensors[key].float()
        total += len(scores)
        name = path.name if len(paths) == 1 else str(path)  # several may have one name
        for start in range(0, len(scores), batch_size):
            part = scores[start : start + batch_size]
            yield [f"{name}:{start + i}" for i in range(len(part))], part, total
