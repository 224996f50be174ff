"""Find the rows that are to be scored: a folder of images, a list, tar files, or embeddings."""

import os
from collections.abc import Sequence
from pathlib import Path

from shortlist._checks import check_count
from shortlist.datasets.embeddings import embedding_files
from shortlist.datasets.folders import class_folders, images_below, named_parts
from shortlist.datasets.lists import read_columns
from shortlist.engine.files import absolute, is_address
from shortlist.engine.shards import (
    UNKNOWN,
    EmbeddingShard,
    FileShard,
    Shard,
    TarShard,
    class_indices,
    in_pieces,
)

__all__ = ["find_shards"]


def find_shards(
    rows: str | Path, class_ids: Sequence[str], *, shard_rows: int = 4096, part: str | None = None
) -> list[Shard]:
    """Find rows, and cut them into shards, always in the same order.

    Args:
        rows: A folder of images, with folders of classes or without, and perhaps folders train, val and test
            around them; a list of images (``.csv`` or ``.parquet`` with the column path, perhaps label); a
            tar file or a folder of such; or a folder or file of embeddings. Paths in a list may be addresses
            of any file system that Arrow or fsspec know.
        class_ids: Ids of the model's classes, to which labels are compared.
        shard_rows: Number of rows of a shard; a tar file is one shard.
        part: Take this part alone, of a folder with train, val and test.

    Raises:
        ValueError: If nothing is found, or a label is of no class of the model.
    """
    check_count("shard_rows", shard_rows)
    text = absolute(rows)
    path = Path(text)
    if text.endswith(".tar"):
        return [TarShard(_stem(text), text, tuple(class_ids))]
    if path.suffix.lower() in (".csv", ".parquet"):
        return list(_of_list(path, class_ids, shard_rows))
    if path.suffix == ".safetensors":
        return list(_of_embeddings("", [path], shard_rows))
    if not path.is_dir():
        raise ValueError(
            f"ROWS must be a folder, a list (.csv, .parquet), a .tar or .safetensors, got {rows}"
        )
    found: list[Shard] = []
    if tars := sorted(path.glob("*.tar")):
        return [TarShard(one.stem, str(one), tuple(class_ids)) for one in tars]
    parts = embedding_files(path)
    for name in _chosen(parts, part, path):
        found += _of_embeddings(name, parts[name], shard_rows)
    if not parts:
        folders = named_parts(path) or {"": path}
        for name in _chosen(folders, part, path):
            found += _of_folder(name, folders[name], path, class_ids, shard_rows)
    if not found:
        raise ValueError(f"{path} holds no images, no tar files and no embeddings")
    return found


def _chosen(parts: dict, part: str | None, path: Path) -> list[str]:
    if part is None or not parts:
        return list(parts)
    if part not in parts:
        raise ValueError(
            f"--split must be one of {', '.join(filter(None, parts)) or 'none'} of {path}, got {part!r}"
        )
    return [part]


def _of_folder(name: str, folder: Path, root: Path, class_ids: Sequence[str], size: int) -> list[Shard]:
    """The images of class folders, or of a folder without such, whose classes are then not known."""
    index = {one: number for number, one in enumerate(class_ids)}
    images: list[tuple[str, int]] = []
    folders = [one for one in class_folders(folder) if images_below(folder / one)]
    known = any(one in index for one in folders)
    for one in folders if known else []:
        if one not in index:
            raise ValueError(f"{folder / one} is a folder of none of the {len(index)} classes of the model")
        images += [(path, index[one]) for path in images_below(folder / one)]
    if not known:
        images = [(path, UNKNOWN) for path in images_below(folder)]
    return _file_shards(name, str(root), [(os.path.relpath(p, root), t) for p, t in images], size)


def _of_list(path: Path, class_ids: Sequence[str], size: int) -> list[Shard]:
    columns = read_columns(path, ["path"], optional=["label"])
    files = [str(file) for file in columns["path"].to_pylist()]
    labels = columns["label"].to_pylist() if "label" in columns else [None] * len(files)
    try:
        targets = class_indices(labels, class_ids)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _file_shards(_stem(path.name), str(path.parent), list(zip(files, targets, strict=True)), size)


def _file_shards(name: str, root: str, rows: list[tuple[str, int]], size: int) -> list[Shard]:
    found: list[Shard] = []
    for number, piece in enumerate(in_pieces(rows, size)):
        files, targets = zip(*piece, strict=True)
        found.append(FileShard(f"{name or 'rows'}-{number:05d}", root, files, targets))
    return found


def _of_embeddings(name: str, files: Sequence[Path], size: int) -> list[Shard]:
    from safetensors import safe_open

    found: list[Shard] = []
    for file in files:
        if file.suffix != ".safetensors":
            raise ValueError(f"embeddings to be scored must be in .safetensors files, got {file}")
        with safe_open(file, "pt") as opened:
            rows = opened.get_slice("embeddings").get_shape()[0]
        for start in range(0, rows, size):
            shard = f"{name or file.stem}-{len(found):05d}"
            found.append(EmbeddingShard(shard, str(file), start, min(start + size, rows)))
    return found


def _stem(path: str) -> str:
    return (path.rsplit("/", 1)[-1] if is_address(path) else Path(path).name).rsplit(".", 1)[0]
