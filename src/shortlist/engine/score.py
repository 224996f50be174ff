"""The pass that scores rows: of each row the best classes and the numbers that need all scores are kept."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist._files import lock_folder
from shortlist.engine.blocks import IMAGES, padded, read_blocks
from shortlist.engine.files import absolute
from shortlist.engine.local import Engine, run_local
from shortlist.engine.measuring import Columns, keep_rows
from shortlist.engine.parts import (
    PartInfo,
    finished_part,
    model_key,
    part_path,
    predictor_key,
    remove_scores,
    write_part,
    write_scores,
)
from shortlist.engine.shards import Shard, ShardRows
from shortlist.model import Model

__all__ = ["ModelSource", "ScoreCounts", "ScoreWork", "score_shard", "score_shards"]

KEEP = 64
_ROWS = 256  # prepared inputs that go through the network at a time

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, as plain values: each worker opens its own.

    Args:
        path: Folder of a saved model or a run.
        network: For a model whose network is the user's own code, the function that makes it.
        device: Device of the model.
    """

    path: str
    network: str | None = None
    device: str = "cpu"

    def open(self) -> Model:
        """Load the model."""
        return Model.load(self.path, network=self.network, device=self.device)


@dataclass(frozen=True)
class ScoreWork:
    """The work of each worker: load the model once, then make the part of one shard after the other.

    Args:
        source: Where the model comes from.
        about: What the parts have in common, by :func:`about_model`: the model of each worker must give it.
        folder: Folder of the parts.
        decoders: Number of threads that read images.
    """

    source: ModelSource
    about: Mapping[str, Any]
    folder: str
    decoders: int = 1

    def __call__(self) -> Callable[[Shard], PartInfo]:
        """Load the model, and return the function of a shard."""
        model, keep = self.source.open(), self.about["keep"]
        if about_model(model, keep) != self.about:
            raise ValueError(
                f"a worker has another model than the command: {self.source.path} must hold the same model, "
                "with the same predictors, on all machines and during the whole command"
            )

        def one(shard: Shard) -> PartInfo:
            made = {**self.about, "data": shard.digest()}
            # another worker may have been given it before, and have died after it was written
            known = finished_part(self.folder, shard.name, made)
            if known is not None:
                return known
            with ThreadPoolExecutor(self.decoders) as pool:
                rows, read, columns, errors = score_shard(model, shard, keep, pool)
            return write_part(self.folder, shard.name, rows.ids, rows.targets, read, columns, errors, made)

        return one


def about_model(model: Model, keep: int) -> dict[str, Any]:
    """Return what the parts of a model have in common."""
    keys = {name: predictor_key(predictor) for name, predictor in model.predictors.items()}
    return {"model": model_key(model), "predictors": keys, "keep": keep, "classes": len(model.classes)}


def score_shard(
    model: Model, shard: Shard, keep: int, pool: ThreadPoolExecutor
) -> tuple[ShardRows, list[int], Columns, dict[int, str]]:
    """Score the rows of a shard: the map of this pass, which reads no other rows and writes nothing.

    Rows go through the network in blocks of one size, by their place in the shard, and a block that is not
    full is filled up: the last bits of a product depend on the number of its rows.

    Returns:
        The rows, the numbers of those that could be read, their columns, and of the others why not.
    """
    rows = shard.open(model.classes.ids)
    _check_targets(rows.targets, len(model.classes), shard.name)
    target = torch.tensor(rows.targets, dtype=torch.int64)
    size = IMAGES if rows.inputs is None else _ROWS
    read: list[int] = []
    errors: dict[int, str] = {}
    parts: list[Columns] = []
    for block in read_blocks(rows, model.preprocessing, pool, size):
        errors |= block.errors
        if block.inputs is None:
            continue
        scores = padded(model.scores, block.inputs, size).cpu()
        columns, finite = keep_rows(model, scores, target[block.rows], keep)
        parts.append(columns)
        for row, is_finite in zip(block.rows, finite.tolist(), strict=True):
            if is_finite:
                read.append(row)
            else:
                errors[row] = "its scores are not numbers"
    if not parts:
        none = torch.zeros(0, len(model.classes)), torch.zeros(0, dtype=torch.int64)
        parts = [keep_rows(model, *none, keep)[0]]
    return rows, read, {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, errors


def _check_targets(targets: Sequence[int], num_classes: int, name: str) -> None:
    worst = max(targets, default=0)
    if worst >= num_classes:
        raise ValueError(f"{name} has the class {worst}, but the model has {num_classes} classes only")


@dataclass(frozen=True)
class ScoreCounts:
    """What a pass of scoring gave.

    Args:
        rows: Number of rows, those that could not be read among them.
        errors: Number of rows that could not be read.
        parts: Number of parts.
        kept: Number of parts that an earlier call had finished.
    """

    rows: int
    errors: int
    parts: int
    kept: int


def score_shards(
    source: ModelSource,
    shards: Sequence[Shard],
    folder: str | Path,
    *,
    keep: int = KEEP,
    workers: int | None = None,
    engine: Engine = run_local,
    progress: Progress | None = None,
) -> ScoreCounts:
    """Score the rows of shards, and write one part for each.

    A part appears when it is complete, and ``scores.json``, written last, lists them; one of an earlier call
    is removed before the first part is written. If the call is stopped, the next one goes on where it was; a
    part of another model, of other rows or with another ``keep`` is refused. Rows that cannot be read are in
    the parts, with the reason.

    Args:
        source: Where the model comes from.
        shards: The shards, from :func:`~shortlist.engine.inputs.find_shards`.
        folder: Folder of the parts.
        keep: Number of best classes of each row that are kept.
        workers: Number of workers; by default one per core, or a single one for a model on an accelerator.
        engine: What runs the work.
        progress: Function that is called with the number of shards done and in all.
    """
    check_count("keep", keep)
    names = [shard.name for shard in shards]
    if twice := {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else None:
        raise ValueError(f"two shards have the name {min(twice)!r}")
    cores = os.cpu_count() or 1
    workers = workers or (cores if source.device == "cpu" else 1)
    source = replace(source, path=absolute(source.path))
    folder, model = Path(absolute(folder)), source.open()  # here too, to know its hash, and to fail early
    about = about_model(model, min(keep, len(model.classes)))
    folder.mkdir(parents=True, exist_ok=True)
    del model
    with lock_folder(folder, ValueError(f"another process is writing to {folder}")):
        # the state of all files is asked for where there is a part only: for the others, workers do it
        old = [one for one in shards if part_path(folder, one.name).exists()]
        found = {one.name: finished_part(folder, one.name, {**about, "data": one.digest()}) for one in old}
        parts = {name: part for name, part in found.items() if part is not None}
        left, kept = [one for one in shards if one.name not in parts], len(parts)
        if left:
            remove_scores(folder)
        work = ScoreWork(source, about, str(folder), max(1, cores // workers))
        for part in engine(work, left, workers=min(workers, max(1, len(left)))):
            parts[part.name] = part
            if progress is not None:
                progress(len(parts), len(shards))
        total = write_scores(folder, [parts[name] for name in sorted(names)], about)
    return ScoreCounts(total["rows"], total["errors"], len(names), kept)
