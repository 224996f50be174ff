"""The pass that makes features of images, and keeps them as a data set of embeddings."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from shortlist._checks import check_count
from shortlist.class_table import ClassTable
from shortlist.datasets import (
    EMBEDDINGS_FORMAT,
    MANIFEST,
    PathList,
    embedding_files,
    read_manifest,
    split_of_file,
)
from shortlist.inputs import absolute, folder_of, full_path, is_address, is_table, tar_files
from shortlist.passes.blocks import IMAGES, map_rows, read_blocks
from shortlist.passes.embedder import Embedder, EmbedderSource
from shortlist.passes.local import Engine, run_local
from shortlist.passes.parts import Mapped, Part, ids_of_part, write_part_manifest
from shortlist.passes.planning import shards_to_embed
from shortlist.passes.scaffold import Map, Pass, Progress, pass_over, usual_workers
from shortlist.passes.shards import Shard


@dataclass(frozen=True)
class EmbedCounts:
    """The counts of a pass that embedded images.

    Args:
        rows: Number of embeddings of each split.
        dimensions: Number of features of a row.
        classes: Number of classes.
        without_class: Number of embeddings whose class is not known; their class index is -100.
        unreadable: Number of images without an embedding: they cannot be read, or their features are too
            large for half precision.
        kept: Number of shards that an earlier call had finished.
    """

    rows: dict[str, int]
    dimensions: int
    classes: int
    without_class: int
    unreadable: int
    kept: int


def _open(source: EmbedderSource, classes: ClassTable) -> tuple[dict[str, Any], Map]:
    """Load a network, and return what parts depend on and the map of this pass."""
    embedder = source.open()
    made = {"model": embedder.digest, "preprocessing": embedder.preprocessing.to_dict()}
    return made, partial(embed_shard, embedder, classes)


def embed_shard(embedder: Embedder, classes: ClassTable, shard: Shard, pool: ThreadPoolExecutor) -> Mapped:
    """Embed the images of a shard, in half precision: the map of this pass."""
    rows = shard.open(classes)
    return map_rows(
        rows,
        read_blocks(rows, embedder.preprocessing, pool, IMAGES),
        embedder.features,
        _halves,
        size=IMAGES,
        problem="its features are not numbers, or too large for half precision",
    )


def _halves(features: Tensor, _: Sequence[int]) -> tuple[dict[str, Tensor], Tensor]:
    if features.ndim != 2:
        raise ValueError(f"features must be of shape (n, d), got {tuple(features.shape)}: pool them first")
    halves = features.half()
    finite = halves.isfinite().all(1)
    return {"embeddings": halves[finite]}, finite


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

    Each shard of rows becomes one file, which appears when it is complete. ``embeddings.json``, written last,
    lists the files. If the call is stopped, the next call makes only the missing files. Images that cannot be
    read are left out, counted and named.

    Args:
        source: Where the network comes from.
        data: The images, as :func:`~shortlist.passes.planning.shards_to_embed` takes them: a folder, a
            list or tar files, with or without train, val and test.
        folder: Folder of the result.
        workers: Number of processes, each of which has the network; by default one per core, or a single one
            if the network is on an accelerator.
        shard_rows: Number of rows of a file; a tar file becomes one.
        engine: What runs the work.
        progress: Function that is called with the number of shards done and in all.
    """
    check_count("shard_rows", shard_rows)
    folder, source = Path(absolute(folder)), source.absolute()
    _check_outside(folder, Path(absolute(data)))
    shards, table = shards_to_embed(data, shard_rows=shard_rows)
    open_network, workers = partial(_open, source, table), workers or usual_workers(source.device)
    made = open_network()[0]  # here too, to know the network's hash, and to fail early
    work = Pass(open_network, source.model, str(folder), ".safetensors", made, workers)
    with pass_over([*chain(*shards.values())], work, MANIFEST, engine, progress) as (parts, kept):
        made = {"network": source.model, "images": absolute(data), **made}
        return _finish(folder, parts, table, made, kept)


def embedded_images(folder: str | Path) -> tuple[str, PathList]:
    """Find the image files that embeddings were made of.

    Args:
        folder: Folder that :func:`embed_images` wrote.

    Returns:
        The argument ``data`` of that call, and the path of each image, in the order of the embeddings.

    Raises:
        ValueError: If the folder does not say where its images are, or the images are gone.
    """
    data = read_manifest(folder).get("images") if (Path(folder) / MANIFEST).is_file() else None
    if data is None or tar_files(data):
        raise ValueError(f"{folder} does not say in which files its images are")
    root = folder_of(data) if is_table(data) or os.path.isfile(data) else data
    if not is_address(root) and not os.path.isdir(root):
        raise ValueError(f"the images of {folder} are no longer in {root}")
    files = chain.from_iterable(embedding_files(folder).values())
    return data, PathList(full_path(root, name) for file in files for name in ids_of_part(file))


def _check_outside(folder: Path, data: Path) -> None:
    """Refuse a result inside a folder of images: the next call would take it for a class."""
    if data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise ValueError(f"--out must not be inside the images ({data}), got {folder}")


def _finish(
    folder: Path, parts: Sequence[Part], table: ClassTable, made: dict[str, Any], kept: int
) -> EmbedCounts:
    """Write the class table, and the manifest last."""
    from safetensors import safe_open

    filled = [part for part in parts if part.rows > part.errors]
    if not filled:
        examples = [f"such as {name}: {why}" for part in parts for name, why in part.examples]
        raise ValueError(f"none of the images could be read, {[*examples, 'there are none'][0]}")
    with safe_open(folder / filled[0].file, "pt") as file:
        dimensions = file.get_slice("embeddings").get_shape()[1]
    if len(table):
        table.save(folder / "class_table.json")
    content = {"format": EMBEDDINGS_FORMAT, **made, "dimensions": dimensions}
    total = write_part_manifest(folder / MANIFEST, content, parts)
    rows: dict[str, int] = {}
    for part in parts:
        split = split_of_file(part.file)
        rows[split] = rows.get(split, 0) + part.rows - part.errors
    return EmbedCounts(rows, dimensions, len(table), total["without_class"], total["errors"], kept)
