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
from shortlist.datasets.folders import files_by_class, folders_by_class, named_parts
from shortlist.engine.blocks import IMAGES, padded, read_blocks
from shortlist.engine.embedder import Embedder, EmbedderSource
from shortlist.engine.files import absolute
from shortlist.engine.local import Engine, run_local
from shortlist.engine.shards import OTHER_ROWS, FileShard, in_pieces

__all__ = ["EmbedCounts", "embed_images", "image_shards"]

_ERRORS = 100  # rows that could not be read, of those that the manifest names

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EmbedCounts:
    """What a pass of embedding gave.

    Args:
        rows: Number of embeddings, by part of the data.
        dimensions: Number of features of a row.
        classes: Number of classes.
        unreadable: Number of images that have none, since they cannot be read or their features are too
            large for half precision.
        kept: Number of shards that an earlier call had finished.
    """

    rows: dict[str, int]
    dimensions: int
    classes: int
    unreadable: int
    kept: int


def image_shards(root: str | Path, *, size: int) -> tuple[dict[str, list[FileShard]], ClassTable]:
    """Find the images of a folder of class folders, or of such folders for train, val and test.

    Args:
        root: Folder of the images, as :func:`shortlist.datasets.image_folder` takes it.
        size: Number of rows of a shard.

    Returns:
        The shards of each part, and the table of the classes.
    """
    root = Path(absolute(root))
    if not root.is_dir():
        raise ValueError(f"DATA must be a folder of images, got {root}, which is none")
    parts = named_parts(root) or {"train": root}
    ids = sorted({name for folder in parts.values() for name in folders_by_class(folder)})
    table = ClassTable(ids)
    if (root / "class_table.json").is_file():
        table = ClassTable.load(root / "class_table.json")
        if unknown := sorted(set(ids) - set(table.ids)):
            raise ValueError(f"{root / 'class_table.json'} does not know the class folder {unknown[0]!r}")
    shards = {}
    for part, folder in parts.items():
        found = files_by_class(folder, table.ids)
        rows = zip((os.path.relpath(path, root) for path in found.paths), found.targets.tolist(), strict=True)
        pieces = (zip(*piece, strict=True) for piece in in_pieces(rows, size))
        shards[part] = [
            FileShard(f"{part}-{number:05d}", str(root), *map(tuple, piece))
            for number, piece in enumerate(pieces)
        ]
    if not any(shards.values()):
        raise ValueError(f"{root} holds no images in class folders")
    return shards, table


@dataclass(frozen=True)
class _Part:
    """What is known of the part of a shard."""

    name: str
    rows: int
    dimensions: int
    errors: dict[str, str]


@dataclass(frozen=True)
class EmbedWork:
    """The work of each worker: load the network once, then make the part of one shard after the other.

    Args:
        source: Where the network comes from.
        digest: Hash that the network of each worker must have.
        folder: Folder of the parts.
        decoders: Number of threads that read images.
    """

    source: EmbedderSource
    digest: str
    folder: str
    decoders: int

    def __call__(self) -> Callable[[FileShard], _Part]:
        """Load the network, and return the function of a shard."""
        embedder = self.source.open()

        def one(shard: FileShard) -> _Part:
            if embedder.digest != self.digest:  # an error while it loads would not be told
                raise ValueError(
                    f"a worker has another network than the command: {self.source.model} must give the same "
                    "weights and preprocessing each time, and on all machines"
                )
            with ThreadPoolExecutor(self.decoders) as pool:
                return embed_shard(embedder, shard, self.folder, pool)

        return one


def embed_shard(embedder: Embedder, shard: FileShard, folder: str, pool: ThreadPoolExecutor) -> _Part:
    """Make the part of a shard: embeddings in half precision, classes, and the ids of its rows."""
    about = {
        "model": embedder.digest,
        "data": shard.digest(),
    }  # before they are read
    rows, found = shard.open(), []
    kept: list[int] = []
    errors: dict[str, str] = {}
    for block in read_blocks(rows, embedder.preprocessing, pool, IMAGES):
        errors |= {rows.ids[row]: reason for row, reason in block.errors.items()}
        if block.inputs is None:
            continue
        features = _half(padded(embedder.features, block.inputs, IMAGES))
        good = features.isfinite().all(1)
        for row, is_good in zip(block.rows, good.tolist(), strict=True):
            if is_good:
                kept.append(row)
            else:
                errors[rows.ids[row]] = "its features are not numbers, or too large for half precision"
        found.append(features[good])
    embeddings = torch.cat(found) if found else torch.zeros(0, 0, dtype=torch.float16)
    targets = torch.tensor([rows.targets[row] for row in kept], dtype=torch.int64)
    path, ids = Path(folder) / f"{shard.name}.safetensors", [rows.ids[row] for row in kept]
    _write(path, embeddings, targets, ids, {**about, "errors": errors})
    return _Part(shard.name, len(kept), embeddings.shape[1], errors)


def _half(features: Tensor) -> Tensor:
    if features.ndim != 2:
        raise ValueError(f"features must be of shape (n, d), got {tuple(features.shape)}: pool them first")
    return features.cpu().half()


def _write(path: Path, embeddings: Tensor, targets: Tensor, ids: Sequence[str], about: Mapping) -> None:
    from safetensors.torch import save_file

    # under a single key, since safetensors writes several in any order
    told = {"about": json.dumps({"format": EMBEDDINGS_FORMAT, **about, "ids": list(ids)})}
    with replacing(path) as temporary:
        save_file({"embeddings": embeddings, "targets": targets}, temporary, metadata=told)


def _finished(folder: Path, shard: FileShard, digest: str) -> _Part | None:
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
        ("model", digest, "by another network"),
        ("data", shard.digest(), OTHER_ROWS),
    ):
        if about[key] != wanted:
            raise ValueError(f"{path} was made {words}: choose another folder, or remove {folder}")
    return _Part(shard.name, shape[0], shape[1], about["errors"])


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
    """Embed the images of a folder, and write a data set of embeddings (``data: embeddings``).

    Each shard of rows becomes one file, which appears when it is complete; ``embeddings.json``, written last,
    lists them. If the call is stopped, the next one goes on where it was. Images that cannot be read are
    left out, counted and named.

    Args:
        source: Where the network comes from.
        data: Folder of the images, one folder per class, with or without folders for train, val and test.
        folder: Folder of the result.
        workers: Number of processes, each of which has the network; by default one per core, or a single one
            if the network is on an accelerator.
        shard_rows: Number of rows of a file.
        engine: What runs the work.
        progress: Function that is called with the number of rows done and in all.
    """
    check_count("shard_rows", shard_rows)
    on_cpu, cores = source.device == "cpu", os.cpu_count() or 1
    workers = workers or (cores if on_cpu else 1)
    shards, table = image_shards(data, size=shard_rows)
    source = source.absolute()
    embedder, folder = source.open(), Path(absolute(folder))  # here too, to know the hash, and to fail early
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, ValueError(f"another process is writing to {folder}")):
        known = {
            one.name: _finished(folder, one, embedder.digest) for part in shards.values() for one in part
        }
        parts = {name: part for name, part in known.items() if part is not None}
        kept, left = len(parts), [one for part in shards.values() for one in part if one.name not in parts]
        about = _about(source, embedder)
        work = EmbedWork(source, embedder.digest, str(folder), max(1, cores // workers))
        del embedder  # the workers have their own
        total = sum(len(one.files) for part in shards.values() for one in part)
        done = total - sum(len(one.files) for one in left)
        sizes = {one.name: len(one.files) for one in left}
        for part in engine(work, left, workers=min(workers, max(1, len(left)))):
            parts[part.name] = part
            done += sizes[part.name]
            if progress is not None:
                progress(done, total)
        return _finish(
            folder, {name: [parts[o.name] for o in p] for name, p in shards.items()}, table, about, kept
        )


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
    if not dimensions:
        raise ValueError(f"none of the images could be read: {next(iter(every[0].errors.items()))}")
    errors = {id_: reason for one in every for id_, reason in one.errors.items()}
    table.save(folder / "class_table.json")
    files = {
        part: [
            {"file": f"{o.name}.safetensors", "rows": o.rows, "size": _size(folder, o.name)}
            for o in some
            if o.rows
        ]
        for part, some in parts.items()
    }
    told = {"unreadable": len(errors), "examples": dict(list(errors.items())[:_ERRORS])}
    content = {"format": EMBEDDINGS_FORMAT, **about, "dimensions": max(dimensions), "parts": files, **told}
    write_sealed(folder / MANIFEST, content)
    rows = {part: sum(one["rows"] for one in some) for part, some in files.items()}
    return EmbedCounts(rows, max(dimensions), len(table), len(errors), kept)


def _size(folder: Path, name: str) -> int:
    return (folder / f"{name}.safetensors").stat().st_size
