"""Short lists of images or saved scores, written as they come."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_k
from shortlist._files import replacing
from shortlist.datasets import TensorSplit
from shortlist.datasets.embeddings import load_tensors
from shortlist.datasets.folders import images_below
from shortlist.datasets.images import read_image
from shortlist.datasets.lists import read_columns
from shortlist.predictors import SetPredictor, load
from shortlist.training.build import build_data, build_eval_transform
from shortlist.training.fit import load_model
from shortlist.training.list_writers import ListWriter, check_suffix, open_writer
from shortlist.training.module import in_channels_last, predicted_scores
from shortlist.training.runs import Run, RunError
from shortlist.training.scoring import adjust_scores, load_adjustment

__all__ = ["Counts", "predict_files"]

_SCORES = {".safetensors", ".npz", ".pt"}


@dataclass(frozen=True)
class Counts:
    """What was written."""

    items: int
    unreadable: int
    average_size: float


def predict_files(
    run: Run,
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
        run: With a model and calibrated predictors.
        inputs: Images, folders, lists, or files of saved scores (not both kinds).
        out: ``.csv``, ``.jsonl`` or ``.parquet``; appears when it is complete.
        predictor: Name of the run's predictor; the first of its recipe if ``None``.
        top: Classes to list at least.
        batch_size: Items at a time.
        path_column: Column of a list file that holds the paths.
        progress: Called with the items done and their number.
    """
    check_k(top, name="top")
    check_k(batch_size, name="batch_size")
    check_suffix(out)
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"--out must not be one of the inputs, got {out}")
    run.check_calibrated()
    chosen = _load_predictor(run, predictor)
    saved = [path for path in inputs if path.suffix.lower() in _SCORES]
    if saved and len(saved) < len(inputs):
        raise ValueError("inputs must be all saved scores or all images, got both")
    batches = (
        _saved_scores(saved, batch_size) if saved else _scored_images(run, inputs, batch_size, path_column)
    )
    adjustment, table = load_adjustment(run), run.class_table
    items = unreadable = members = 0
    with replacing(out) as temporary, open_writer(temporary, table) as writer:
        for names, scores, total in batches:
            readable = scores.isfinite().any(1)
            unreadable += int((~readable).sum())
            kept = [name for name, ok in zip(names, readable.tolist(), strict=True) if ok]
            if kept:
                adjusted = adjust_scores(scores[readable], adjustment, table.class_counts)
                members += _write(writer, kept, adjusted, chosen, top)
            items += len(names)
            if progress is not None:
                progress(items, total)
        if items and unreadable == items:
            raise ValueError(f"inputs must hold images that can be read, got none among {items}")
    counted = items - unreadable
    return Counts(items, unreadable, members / counted if counted else 0.0)


def _load_predictor(run: Run, name: str | None) -> SetPredictor:
    paths = run.predictor_paths()
    if not paths:
        raise RunError(f"{run.path} has no calibrated predictors: see shortlist calibrate")
    if name is None:
        name = next((key for key in run.recipe.predictors if key in paths), next(iter(paths)))
    if name not in paths:
        raise ValueError(f"--predictor must be one of {', '.join(paths)}, got {name!r}")
    return load(paths[name])


def _write(writer: ListWriter, names: list[str], scores: Tensor, predictor: SetPredictor, top: int) -> int:
    sets = predictor(scores)
    chance = scores.softmax(1)
    shown = sets.scatter(1, chance.topk(min(top, chance.shape[1])).indices, True)
    writer.write(names, chance, sets, shown)
    return int(sets.sum())


def _saved_scores(paths: Sequence[Path], batch_size: int) -> Iterator[tuple[list[str], Tensor, int]]:
    total = 0  # of the files seen so far: the next is not opened before it is its turn
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
        tensors = load_tensors(path)
        if "scores" not in tensors or tensors["scores"].ndim != 2:
            raise ValueError(f"{path} must hold a tensor 'scores' (n, c), got {', '.join(tensors)}")
        scores = tensors["scores"].float()
        total += len(scores)
        name = path.name if len(paths) == 1 else str(path)  # several may have one name
        for start in range(0, len(scores), batch_size):
            part = scores[start : start + batch_size]
            yield [f"{name}:{start + i}" for i in range(len(part))], part, total


def _scored_images(
    run: Run, inputs: Sequence[Path], batch_size: int, path_column: str
) -> Iterator[tuple[list[str], Tensor, int]]:
    files = _image_files(inputs, path_column)
    prepare = _preparation(run)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(run).to(device)
    num_classes = len(run.class_table)
    for start in range(0, len(files), batch_size):
        names = files[start : start + batch_size]
        images: list[Tensor | None] = [_prepared(prepare, name) for name in names]
        readable = [image for image in images if image is not None]
        scores = torch.full((len(names), num_classes), -torch.inf)  # no class at all: could not be read
        if readable:
            with torch.inference_mode():
                output = predicted_scores(model(in_channels_last(torch.stack(readable).to(device)))).float()
            scores[torch.tensor([image is not None for image in images])] = output.cpu()
        yield names, scores, len(files)


def _prepared(prepare: Callable[[Any], Tensor], path: str) -> Tensor | None:
    try:
        return prepare(read_image(path))
    except ValueError as error:
        warnings.warn(str(error), stacklevel=2)
        return None


def _preparation(run: Run) -> Callable[[Any], Tensor]:
    """From an RGB picture to what the network takes, as the run's test rows were made.

    Files need none of the run's own; what is held in memory is opened, to see how.
    """
    of_files = build_eval_transform(run.recipe)
    if of_files is not None:
        return of_files
    test = build_data(run.recipe).test
    if not isinstance(test, TensorSplit) or test.inputs.ndim != 4:
        raise RunError(f"{run.path} was not trained on images: give saved scores")
    channels, height, width = test.inputs.shape[1:]
    transform, dtype = test.transform, test.inputs.dtype

    def prepare(picture: Any) -> Tensor:
        import numpy as np

        picture = picture.convert("L" if channels == 1 else "RGB").resize((width, height))
        pixels = torch.from_numpy(np.array(picture)).reshape(height, width, channels).permute(2, 0, 1)
        batch = (pixels if dtype == torch.uint8 else pixels / 255)[None]
        return (batch if transform is None else transform(batch))[0]

    return prepare


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
