"""Write short lists of images or saved scores by a finished model, batch by batch."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist._files import replacing
from shortlist.datasets.embeddings import load_tensors
from shortlist.datasets.folders import images_below
from shortlist.datasets.lists import read_columns
from shortlist.model import Model
from shortlist.runs.list_writers import ListWriter, check_suffix, open_writer

__all__ = ["Counts", "predict_files"]

_SCORES = {".safetensors", ".npz", ".pt"}


@dataclass(frozen=True)
class Counts:
    """The counts of what was written."""

    items: int
    unreadable: int
    average_size: float


def predict_files(
    model: Model,
    inputs: Sequence[Path],
    out: Path,
    *,
    predictor: str | None = None,
    top: int = 5,
    batch_size: int = 256,
    path_column: str = "path",
    progress: Callable[[int, int], None] | None = None,
) -> Counts:
    """Write the candidate classes of each item, those in its set and at least ``top`` of the best.

    Args:
        model: Model with calibrated predictors.
        inputs: Images, folders, lists, or files of saved scores (not both kinds).
        out: File to write (``.csv``, ``.jsonl`` or ``.parquet``), which appears only when it is complete.
        predictor: Name of one of the model's predictors; the first one if ``None``.
        top: Smallest number of classes to list for each item.
        batch_size: Number of items that are scored at a time.
        path_column: Column of a list file that has the paths.
        progress: Function that is called with the number of items done and in all.
    """
    check_count("top", top)
    check_count("batch_size", batch_size)
    check_suffix(out)
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"--out must not be one of the inputs, got {out}")
    _check_predictor(model, predictor)
    saved = [path for path in inputs if path.suffix.lower() in _SCORES]
    if saved and len(saved) < len(inputs):
        raise ValueError("inputs must be all saved scores or all images, got both")
    if saved:
        batches = _saved_scores(model, saved, batch_size)
    else:
        batches = _scored_images(model, inputs, batch_size, path_column)
    items = unreadable = members = 0
    with replacing(out) as temporary, open_writer(temporary, model.classes) as writer:
        for names, scores, total in batches:
            readable = scores.isfinite().any(1)
            unreadable += int((~readable).sum())
            kept = [name for name, ok in zip(names, readable.tolist(), strict=True) if ok]
            if kept:
                members += _write(model, writer, kept, scores[readable], predictor, top)
            items += len(names)
            if progress is not None:
                progress(items, total)
        if items and unreadable == items:
            what = "scores that are numbers" if saved else "images that can be read"
            raise ValueError(f"inputs must hold {what}, got none among {items}")
    counted = items - unreadable
    return Counts(items, unreadable, members / counted if counted else 0.0)


def _check_predictor(model: Model, name: str | None) -> None:
    if not model.predictors:
        raise ValueError("the model has no calibrated predictors: see shortlist calibrate")
    if name is not None and name not in model.predictors:
        raise ValueError(f"--predictor must be one of {', '.join(model.predictors)}, got {name!r}")


def _write(
    model: Model, writer: ListWriter, names: list[str], scores: Tensor, predictor: str | None, top: int
) -> int:
    probabilities = None if model.score_map.now is None else model.probabilities(scores)
    sets = model.sets(scores, predictor)
    writer.write(names, scores, probabilities, sets, top)
    return int(sets.sum())


def _saved_scores(
    model: Model, paths: Sequence[Path], batch_size: int
) -> Iterator[tuple[list[str], Tensor, int]]:
    """Return the scores that the model's network gave, through the score map."""
    total = 0  # of the files seen so far: the next is not opened before it is its turn
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
        tensors = load_tensors(path)
        key = next((key for key in ("scores", f"{model.head}.scores") if key in tensors), None)
        if key is None or tensors[key].ndim != 2:
            raise ValueError(f"{path} must hold a tensor 'scores' (n, c), got {', '.join(tensors)}")
        scores = tensors[key].float()
        total += len(scores)
        name = path.name if len(paths) == 1 else str(path)  # several may have one name
        for start in range(0, len(scores), batch_size):
            part = model.score_map(scores[start : start + batch_size])
            yield [f"{name}:{start + i}" for i in range(len(part))], part, total


def _scored_images(
    model: Model, inputs: Sequence[Path], batch_size: int, path_column: str
) -> Iterator[tuple[list[str], Tensor, int]]:
    files = _image_files(inputs, path_column)
    if model.preprocessing is None:
        raise ValueError("the model was not trained on images: give saved scores")
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    for start in range(0, len(files), batch_size):
        names = files[start : start + batch_size]
        images = [_prepared(model, name) for name in names]
        readable = [image for image in images if image is not None]
        scores = torch.full((len(names), len(model.classes)), -torch.inf)  # no class: could not be read
        if readable:
            found = torch.tensor([image is not None for image in images])
            scores[found] = model.scores(torch.cat(readable)).cpu()
        yield names, scores, len(files)


def _prepared(model: Model, path: str) -> Tensor | None:
    try:
        return model.prepare([path])
    except ValueError as error:
        warnings.warn(str(error), stacklevel=2)
        return None


def _image_files(inputs: Sequence[Path], path_column: str) -> list[str]:
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
