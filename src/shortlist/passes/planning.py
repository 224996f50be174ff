"""Plan a pass: cut rows into shards. Rows are images of a folder, a list or tar files, or embeddings."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist._row_facts import FACTS, RowFacts
from shortlist.class_table import ClassTable
from shortlist.datasets import SUFFIXES, embedding_files
from shortlist.inputs import (
    SPLITS,
    Rows,
    absolute,
    check_split_names,
    check_splits,
    chosen_splits,
    class_indices,
    classes_of_labels,
    folder_of,
    images_below,
    is_address,
    is_table,
    names_of_class_folders,
    read_rows,
    read_tar,
    refuse_images_beside,
    split_folders,
    tar_files,
)
from shortlist.passes.shards import EmbeddingShard, FileShard, Shard, TarShard, hash_of_classes

_TABLE = "class_table.json"


def find_shards(
    rows: str | Path, classes: ClassTable, *, shard_rows: int = 4096, split: str | None = None
) -> list[Shard]:
    """Find rows, and cut them into shards, always in the same order.

    Args:
        rows: What :func:`~shortlist.inputs.read.read_rows` takes, or a folder or file of embeddings.
        classes: The model's classes, one of which each label must stand for.
        shard_rows: Number of rows of a shard; a tar file is one shard.
        split: Take this split alone, of a folder with train, val and test, a list with the column split, or
            tar files with splits in their names or folders.

    Raises:
        ValueError: If there are no rows, images would be left out, a label is of no class of the model, or
            there is no such split.
    """
    check_count("shard_rows", shard_rows)
    text = absolute(rows)
    if tars := tar_files(text):
        names = chosen_splits(tars, split, text)
        return [shard for name in names for shard in _tar_shards(text, tars[name], classes)]
    if files := _embeddings_of(text):
        names = chosen_splits(files, split, text)
        return [shard for name in names for shard in _embedding_shards(name, files[name], shard_rows)]
    if not (is_address(text) or os.path.exists(text)):
        raise ValueError(
            f"ROWS must be a folder, a list (.csv, .parquet), a .tar or .safetensors, got {rows}"
        )
    images = read_rows(text, split=split, classes=classes, about=FACTS)
    if not len(images):
        raise ValueError(f"{text} holds no images, no tar files and no embeddings")
    if not os.path.isdir(text) or not images.splits:
        return _file_shards("rows" if os.path.isdir(text) else _stem(text), images, classes, shard_rows, text)
    shards: list[Shard] = []
    for name in dict.fromkeys(images.splits):
        shards += _file_shards(name, images.of_split(name), classes, shard_rows, text)
    return shards


def shards_to_embed(data: str | Path, *, shard_rows: int) -> tuple[dict[str, list[Shard]], ClassTable]:
    """Find the images of each split, and the table of their classes.

    Args:
        data: What :func:`~shortlist.inputs.read.read_rows` takes. The classes are in ``class_table.json`` in
            the folder, or beside the list or the tar file. Without this file, they are the names of the class
            folders, or the labels, numbered as :func:`~shortlist.datasets.image_list` numbers them.
        shard_rows: Number of rows of a shard; a tar file is one shard.

    Returns:
        The shards of each split, of ``train`` where there are no splits, and the classes.

    Raises:
        ValueError: If there are no images, some would be left out, or a split is none of the three.
    """
    text = absolute(data)
    _check_images(text)
    table = _table_beside(text)
    shards: dict[str, list[Any]] = {}
    if tars := tar_files(text):
        labels = (label for files in tars.values() for file in files for label in read_tar(file).labels)
        table = table or classes_of_labels(labels, where=text)
        shards = {name: _tar_shards(text, files, table) for name, files in tars.items()}
    else:
        rows = read_rows(text, classes=table, about=FACTS)
        check_split_names(rows.splits, text)
        if not len(rows):
            raise ValueError(f"{text} lists no images: it holds no images, no tar files and no embeddings")
        table = table or _classes_of(text, rows)
        by_split = {split: rows.of_split(split) for split in SPLITS if split in rows.splits} or {"": rows}
        shards = {name: _file_shards("", part, table, shard_rows, text) for name, part in by_split.items()}
    return {name or "train": _named(name or "train", of_split) for name, of_split in shards.items()}, table


def _named(name: str, shards: Sequence[Any]) -> list[Shard]:
    return [replace(shard, name=f"{name}-{number:05d}") for number, shard in enumerate(shards)]


def _check_images(text: str) -> None:
    is_folder = os.path.isdir(text)
    if text.endswith((*SUFFIXES, ".npy")) or (is_folder and embedding_files(text)):
        raise ValueError(f"DATA must be images, got embeddings: {text}")
    if not (is_folder or is_table(text) or text.endswith(".tar") or os.path.isfile(text)):
        raise ValueError(
            f"DATA must be a folder of images, a list (.csv or .parquet) or tar files, got {text}"
        )


def _table_beside(text: str) -> ClassTable | None:
    path = Path(text if os.path.isdir(text) else folder_of(text)) / _TABLE
    return ClassTable.load(path) if not is_address(text) and path.is_file() else None


def _classes_of(text: str, rows: Rows) -> ClassTable:
    """Return the classes of a list or a folder without a class table: of its labels, or of its folders."""
    if not os.path.isdir(text):
        return classes_of_labels(rows.labels, where=text)
    splits = split_folders(text)
    if not splits:
        check_splits(text)
    return ClassTable(names_of_class_folders(text, splits))


def _tar_shards(text: str, files: Sequence[str], classes: ClassTable) -> list[Shard]:
    digest = hash_of_classes(classes)
    if not os.path.isdir(text):
        return [TarShard(_stem(text), text, digest)]
    refuse_images_beside(images_below(text), text, "tar files")
    names = [os.path.relpath(file, text).removesuffix(".tar").replace(os.sep, "-") for file in files]
    return [TarShard(name, file, digest) for name, file in zip(names, files, strict=True)]


def _file_shards(name: str, rows: Rows, classes: ClassTable, size: int, where: str) -> list[Shard]:
    names = rows.files if os.path.isdir(where) else None
    targets = class_indices(rows.labels, classes, where=where, rows=names)
    facts = RowFacts.of_columns(rows.texts(FACTS))
    shards: list[Shard] = []
    for numbers in torch.arange(len(rows)).split(size):
        piece = slice(int(numbers[0]), int(numbers[-1]) + 1)
        shard = f"{name}-{len(shards):05d}"
        files, facts_of_shard = tuple(map(str, rows.files[piece])), facts and facts.take(numbers)
        shards.append(FileShard(shard, rows.root, files, tuple(targets[piece]), facts_of_shard))
    return shards


def _embeddings_of(text: str) -> dict[str, list[Path]]:
    """Return the files of embeddings of each split; an empty dict if there are images."""
    if text.endswith(".safetensors"):
        return {"": [Path(text)]}
    return embedding_files(text) if os.path.isdir(text) else {}


def _embedding_shards(name: str, files: Sequence[Path], size: int) -> list[Shard]:
    from safetensors import safe_open

    shards: list[Shard] = []
    for file in files:
        if file.suffix != ".safetensors":
            raise ValueError(f"embeddings to be scored must be in .safetensors files, got {file}")
        with safe_open(file, "pt") as opened:
            rows = opened.get_slice("embeddings").get_shape()[0]
        for start in range(0, rows, size):
            shard = f"{name or file.stem}-{len(shards):05d}"
            shards.append(EmbeddingShard(shard, str(file), start, min(start + size, rows)))
    return shards


def _stem(path: str) -> str:
    return os.path.basename(path).rsplit(".", 1)[0]
