"""The pass that makes features of images, and keeps them as a data set of embeddings."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist._files import lock_folder, replacing
from shortlist._manifest import write_sealed
from shortlist.class_table import ClassTable
from shortlist.datasets.embeddings import EMBEDDINGS_FORMAT, MANIFEST
from shortlist.engine.blocks import IMAGES, padded, read_blocks
from shortlist.engine.embed_inputs import shards_to_embed
from shortlist.engine.embedder import Embedder, EmbedderSource
from shortlist.engine.files import absolute
from shortlist.engine.local import Engine, run_local
from shortlist.engine.shards import OTHER_ROWS, UNKNOWN, Shard

__all__ = ["EmbedCounts", "embed_images"]

_FORMAT = "shortlist embeddings part 2"
_ERRORS = 100  # rows that could not be read, of those that the manifest names

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EmbedCounts:
    """What a pass of embedding gave.

    Args:
        rows: Number of embeddings, by part of the data.
        dimensions: Number of features of a row.
        classes: Number of classes.
        without_class: Number of embeddings whose class is not known; their class index is -100.
        unreadable: Number of images that have none, since they cannot be read or their features are too
            large for half precision.
        kept: Number of shards that an earlier call had finished.
    """

    rows: dict[str, int]
    dimensions: int
    classes: int
    without_class: int
    unreadable: int
    kept: int


@dataclass(frozen=True)
class _Part:
    """What is known of the part of a shard; errors are ids and reasons, since ids may be there twice."""

    name: str
    rows: int
    dimensions: int
    without_class: int
    errors: Sequence[Sequence[str]]


@dataclass(frozen=True)
class EmbedWork:
    """The work of each worker: load the network once, then make the part of one shard after the other.

    Args:
        source: Where the network comes from.
        digest: Hash that the network of each worker must have.
        class_ids: Id of each class.
        folder: Folder of the parts.
        decoders: Number of threads that read images.
    """

    source: EmbedderSource
    digest: str
    class_ids: Sequence[str]
    folder: str
    decoders: int

    def __call__(self) -> Callable[[Shard], _Part]:
        """Load the network, and return the function of a shard."""
        embedder = self.source.open()
        if embedder.digest != self.digest:
            raise ValueError(
                f"a worker has another network than the command: {self.source.model} must give the same "
                "weights and preprocessing each time, and on all machines"
            )

        def one(shard: Shard) -> _Part:
            with ThreadPoolExecutor(self.decoders) as pool:
                return embed_shard(embedder, shard, self.class_ids, self.folder, pool)

        return one


def embed_shard(
    embedder: Embedder, shard: Shard, class_ids: Sequence[str], folder: str, pool: ThreadPoolExecutor
) -> _Part:
    """Make the part of a shard: embeddings in half precision, classes, and the ids of its rows."""
    about = {"model": embedder.digest, "data": shard.digest()}  # before they are read
    rows, found = shard.open(class_ids), []
    kept: list[int] = []
    errors: dict[int, str] = {}
    for block in read_blocks(rows, embedder.preprocessing, pool, IMAGES):
        errors |= block.errors
        if block.inputs is None:
            continue
        features = _half(padded(embedder.features, block.inputs, IMAGES))
        good = features.isfinite().all(1)
        for row, is_good in zip(block.rows, good.tolist(), strict=True):
            if is_good:
                kept.append(row)
            else:
                errors[row] = "its features are not numbers, or too large for half precision"
        found.append(features[good])
    embeddings = torch.cat(found) if found else torch.zeros(0, 0, dtype=torch.float16)
    targets = torch.tensor([rows.targets[row] for row in kept], dtype=torch.int64)
    path, ids = Path(folder) / f"{shard.name}.safetensors", [rows.ids[row] for row in kept]
    without, named = int((targets == UNKNOWN).sum()), [[rows.ids[row], errors[row]] for row in sorted(errors)]
    _write(path, embeddings, targets, ids, {**about, "without_class": without, "errors": named})
    return _Part(shard.name, len(kept), embeddings.shape[1], without, named)


def _half(features: Tensor) -> Tensor:
    if features.ndim != 2:
        raise ValueError(f"features must be of shape (n, d), got {tuple(features.shape)}: pool them first")
    return features.cpu().half()


def _write(path: Path, embeddings: Tensor, targets: Tensor, ids: Sequence[str], about: Mapping) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # under a single key, since safetensors writes several in any order
    told = {"about": json.dumps({"format": _FORMAT, **about, "ids": list(ids)})}
    with replacing(path) as temporary:
        try:
            save_file({"embeddings": embeddings, "targets": targets}, temporary, metadata=told)
        except SafetensorError as error:  # such as a full disk
            raise OSError(f"{path} cannot be written: {error}") from error


def _finished(folder: Path, shard: Shard, digest: str) -> _Part | None:
    """Return the part of a shard that an earlier call made, if there is one.

    Raises:
        ValueError: If it was made by another network, or of other rows.
    """
    from safetensors import safe_open

    path = folder / f"{shard.name}.safetensors"
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            shape = file.get_slice("embeddings").get_shape()
    except Exception as error:  # each format has errors of its own
        raise ValueError(f"{path} is damaged: remove it, and run the command again ({error})") from error
    for key, wanted, words in (
        ("format", _FORMAT, "by another version of shortlist"),
        ("model", digest, "by another network"),
        ("data", shard.digest(), OTHER_ROWS),
    ):
        if about[key] != wanted:
            raise ValueError(f"{path} was made {words}: choose another folder, or remove {folder}")
    return _Part(shard.name, shape[0], shape[1], about["without_class"], about["errors"])


def embed_images(
    source: EmbedderSource,
    data: str | Path,
    folder: str | Path,
    *,
    workers: int | None = None,
    shard_rows: int = 1024,
    engine: Engine = run_local,
    progress: Progress | None = None,
) -> EmbedCounts:
    """Embed images, and write a data set of embeddings (``data: embeddings``).

    Each shard of rows becomes one file, which appears when it is complete; ``embeddings.json``, written last,
    lists them. If the call is stopped, the next one goes on where it was. Images that cannot be read are
    left out, counted and named.

    Args:
        source: Where the network comes from.
        data: The images, as :func:`~shortlist.engine.embed_inputs.shards_to_embed` takes them: a folder, a
            list or tar files, with or without train, val and test.
        folder: Folder of the result.
        workers: Number of processes, each of which has the network; by default one per core, or a single one
            if the network is on an accelerator.
        shard_rows: Number of rows of a file; a tar file becomes one.
        engine: What runs the work.
        progress: Function that is called with the number of shards done and in all.
    """
    check_count("shard_rows", shard_rows)
    on_cpu, cores = source.device == "cpu", os.cpu_count() or 1
    workers = workers or (cores if on_cpu else 1)
    _check_outside(Path(absolute(folder)), Path(absolute(data)))
    shards, table = shards_to_embed(data, shard_rows=shard_rows)
    every = [one for part in shards.values() for one in part]
    source = source.absolute()
    embedder, folder = source.open(), Path(absolute(folder))  # here too, to know the hash, and to fail early
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, ValueError(f"another process is writing to {folder}")):
        known = {one.name: _finished(folder, one, embedder.digest) for one in every}
        parts = {name: part for name, part in known.items() if part is not None}
        kept, left = len(parts), [one for one in every if one.name not in parts]
        about = _about(source, embedder)
        work = EmbedWork(source, embedder.digest, table.ids, str(folder), max(1, cores // workers))
        del embedder  # the workers have their own
        for part in engine(work, left, workers=min(workers, max(1, len(left)))):
            parts[part.name] = part
            if progress is not None:
                progress(len(parts), len(every))
        return _finish(
            folder, {name: [parts[o.name] for o in p] for name, p in shards.items()}, table, about, kept
        )


def _check_outside(folder: Path, data: Path) -> None:
    """Refuse a result inside a folder of images: the next call would take it for a class."""
    if data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise ValueError(f"--out must not be inside the images ({data}), got {folder}")


def _about(source: EmbedderSource, embedder: Embedder) -> dict[str, Any]:
    return {
        "network": source.model,
        "model": embedder.digest,
        "preprocessing": embedder.preprocessing.to_dict(),
    }


def _finish(
    folder: Path, parts: Mapping[str, Iterable[_Part]], table: ClassTable, about: dict[str, Any], kept: int
) -> EmbedCounts:
    """Write the class table, and the manifest last."""
    every = [one for part in parts.values() for one in part]
    dimensions = {one.dimensions for one in every if one.rows}
    errors = [error for one in every for error in one.errors]
    if not dimensions:
        why = f"such as {': '.join(errors[0])}" if errors else "there are none"
        raise ValueError(f"none of the images could be read, {why}")
    if len(table):
        table.save(folder / "class_table.json")
    files = {
        part: [
            {"file": f"{o.name}.safetensors", "rows": o.rows, "size": _size(folder, o.name)}
            for o in some
            if o.rows
        ]
        for part, some in parts.items()
    }
    without = sum(one.without_class for one in every)
    told = {
        "without_class": without,
        "unreadable": len(errors),
        "examples": {error[0]: error[1] for error in errors[:_ERRORS]},
    }
    content = {"format": EMBEDDINGS_FORMAT, **about, "dimensions": max(dimensions), "parts": files, **told}
    write_sealed(folder / MANIFEST, content)
    rows = {part: sum(one["rows"] for one in some) for part, some in files.items()}
    return EmbedCounts(rows, max(dimensions), len(table), without, len(errors), kept)


def _size(folder: Path, name: str) -> int:
    return (folder / f"{name}.safetensors").stat().st_size
