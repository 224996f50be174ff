"""Find the rows that are to be scored: a folder of images, a list, tar files, or embeddings."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist._checks import check_count
from shortlist._text import composed
from shortlist.datasets.assembly import examples
from shortlist.datasets.embeddings import embedding_files
from shortlist.datasets.folders import class_folders, folders_by_class, images_below, named_parts
from shortlist.datasets.images import IMAGE_SUFFIXES
from shortlist.engine.files import absolute, is_address
from shortlist.engine.lists import is_list, read_list
from shortlist.engine.shards import (
    UNKNOWN,
    EmbeddingShard,
    FileShard,
    Shard,
    TarShard,
    class_indices,
    hash_of_ids,
    in_pieces,
)
from shortlist.engine.tars import tar_files

__all__ = ["check_nothing_beside_classes", "check_nothing_left_out", "find_shards", "parts_of"]


def find_shards(
    rows: str | Path, class_ids: Sequence[str], *, shard_rows: int = 4096, part: str | None = None
) -> list[Shard]:
    """Find rows, and cut them into shards, always in the same order.

    Args:
        rows: A folder of images, with folders of classes or without, and perhaps folders train, val and test
            around them; a list of images (``.csv`` or ``.parquet`` with the column path, perhaps label and
            split); a tar file or a folder of such; or a folder or file of embeddings. Lists, their images
            and tar files may be at addresses of any file system that Arrow or fsspec know.
        class_ids: Ids of the model's classes, to which labels are compared.
        shard_rows: Number of rows of a shard; a tar file is one shard.
        part: Take this part alone, of a folder with train, val and test, a list with the column split, or
            tar files whose names or folders tell it.

    Raises:
        ValueError: If nothing is found, images would be left out, a label is of no class of the model, or
            there is no such part.
    """
    check_count("shard_rows", shard_rows)
    text = absolute(rows)
    path = Path(text)
    if is_list(text):
        return _of_list(text, class_ids, shard_rows, part)
    if text.endswith(".tar") and not path.is_dir():
        _check_no_part(part, text)
        return [TarShard(_stem(text), text, hash_of_ids(class_ids))]
    if path.suffix == ".safetensors":
        _check_no_part(part, text)
        return list(_of_embeddings("", [path], shard_rows))
    if not path.is_dir():
        raise ValueError(
            f"ROWS must be a folder, a list (.csv, .parquet), a .tar or .safetensors, got {rows}"
        )
    found = _of_directory(path, class_ids, shard_rows, part)
    if not found:
        raise ValueError(f"{path} holds no images, no tar files and no embeddings")
    return found


def parts_of(rows: str | Path) -> list[str]:
    """Return the names of the parts of the data that rows are divided into; none if they are not."""
    text = absolute(rows)
    if is_list(text):
        return sorted(set(read_list(text).splits or ()))
    if not os.path.isdir(text):
        return []
    found = tar_files(text) or embedding_files(text) or named_parts(text)
    return [part for part in found if part]


def check_nothing_left_out(path: str | Path) -> None:
    """Refuse a folder with parts that holds images beside them, which would be left out."""
    path = Path(path)
    folders = named_parts(path)
    if folders and not tar_files(path):
        others = set(class_folders(path)) - {folder.name for folder in folders.values()}
        beside = [image for one in sorted(others) for image in images_below(path / one)]
        _check_nothing_beside(_images_in(path) + beside, path, f"folders {', '.join(folders)}")


def check_nothing_beside_classes(folder: Path) -> None:
    """Refuse images beside the class folders of a folder, which would be left out."""
    _check_nothing_beside(_images_in(folder), folder, "class folders")


def _of_directory(path: Path, class_ids: Sequence[str], size: int, part: str | None) -> list[Shard]:
    """The rows of a folder: tar files, embeddings, or images with or without parts."""
    if tars := tar_files(path):
        if "" in tars:
            _check_no_part(part, path)
        _check_nothing_beside(images_below(path), path, "tar files")
        files = [file for name in _chosen(tars, part, path) for file in tars[name]]
        names = [os.path.relpath(file, path).removesuffix(".tar").replace(os.sep, "-") for file in files]
        classes = hash_of_ids(class_ids)
        return [TarShard(*shard, classes) for shard in zip(names, files, strict=True)]
    found: list[Shard] = []
    if parts := embedding_files(path):
        for name in _chosen(parts, part, path):
            found += _of_embeddings(name, parts[name], size)
        return found
    if part is None:
        check_nothing_left_out(path)
    folders = named_parts(path) or {"": path}
    for name in _chosen(folders, part, path):
        found += _of_folder(name, folders[name], path, class_ids, size)
    return found


def _check_no_part(part: str | None, path: str | Path) -> None:
    if part is not None:
        raise ValueError(
            "--split needs a folder with train, val and test, a list with the column split, or tar files "
            f"with such names: {path} has no splits, got {part!r}"
        )


def _check_nothing_beside(images: Sequence[str], path: Path, what: str) -> None:
    if images:
        raise ValueError(
            f"{path} holds {len(images)} images beside its {what}, such as {images[0]}, which would be left "
            "out: move them elsewhere"
        )


def _images_in(folder: Path) -> list[str]:
    """The images in a folder itself, not below it."""
    with os.scandir(folder) as entries:
        names = [one.name for one in entries if not one.is_dir() and not one.name.startswith(".")]
    return [str(folder / one) for one in sorted(names) if os.path.splitext(one)[1].lower() in IMAGE_SUFFIXES]


def _chosen(parts: Mapping[str, Any], part: str | None, path: str | Path) -> list[str]:
    if part is None:
        return list(parts)
    if part not in parts:
        raise ValueError(
            f"--split must be one of {', '.join(filter(None, parts)) or 'none'} of {path}, got {part!r}"
        )
    return [part]


def _of_folder(name: str, folder: Path, root: Path, class_ids: Sequence[str], size: int) -> list[Shard]:
    """The images of class folders, or of a folder without such, whose classes are then not known."""
    index = {composed(one): number for number, one in enumerate(class_ids)}
    by_class = {one: _images_of(folder, names) for one, names in folders_by_class(folder).items()}
    by_class = {one: images for one, images in by_class.items() if images}
    if by_class and not any(one in index for one in by_class):
        raise ValueError(
            f"{folder} holds folders of images ({examples(list(by_class))}), none of which is called as the "
            f"id of a class of the model ({examples(class_ids)}): their rows would have no class. Give "
            "images without a class in a folder without folders, or in a list without labels"
        )
    if unknown := [one for one in by_class if one not in index]:
        raise ValueError(
            f"{folder / unknown[0]} is a folder of none of the {len(index)} classes of the model"
        )
    if by_class:
        check_nothing_beside_classes(folder)
    images = [(path, index[one]) for one, paths in by_class.items() for path in paths]
    images = images or [(path, UNKNOWN) for path in images_below(folder)]
    return _file_shards(name, str(root), [(os.path.relpath(p, root), t) for p, t in images], size)


def _images_of(folder: Path, names: Sequence[str]) -> list[str]:
    return [image for name in names for image in images_below(folder / name)]


def _of_list(path: str, class_ids: Sequence[str], size: int, part: str | None) -> list[Shard]:
    found = read_list(path)
    rows = list(zip(found.files, found.labels, strict=True))
    if part is not None:
        if found.splits is None:
            _check_no_part(part, path)
        splits = found.splits or []
        _chosen(dict.fromkeys(splits), part, path)
        rows = [row for row, split in zip(rows, splits, strict=True) if split == part]
    if not rows:
        raise ValueError(f"{path} lists no images")
    files, labels = zip(*rows, strict=True)
    try:
        targets = class_indices(labels, class_ids)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _file_shards(_stem(path), found.root, list(zip(files, targets, strict=True)), size)


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
