"""A cache of built glyph sets on disk: a file of images and a class table, by what they were made from."""

import hashlib
import json
import os
import unicodedata
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np

from shortlist._store.files import replacing
from shortlist._store.json import parse_json
from shortlist.class_table import ClassTable
from shortlist.datasets.glyphs.build import Built, Drawn, Recipe

VERSION = 2  # to be raised when the same options give other images


def cache_folder(cache: str | Path | None) -> Path:
    """Return the given folder, or ``$SHORTLIST_CACHE``, or ``~/.cache/shortlist``."""
    return Path(cache or os.environ.get("SHORTLIST_CACHE") or Path.home() / ".cache" / "shortlist")


def cache_key(recipe: Recipe, sources: list) -> str:
    """Return a name that depends on the options, the fonts, Unicode and the drawing libraries' versions."""
    import PIL
    from PIL import features

    drawing = [VERSION, PIL.__version__, features.version("freetype2"), np.__version__]
    drawing.append(unicodedata.unidata_version)  # says what is a letter, and its name
    text = json.dumps([drawing, asdict(recipe), sources], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def save_built(built: Built, folder: Path, name: str) -> None:
    """Write ``name.json`` (class table) and then ``name.safetensors``, each completely or not at all."""
    from safetensors.numpy import save_file

    built.class_table.save(folder / f"{name}.json")
    tensors = {}
    for part, drawn in built.parts.items():
        tensors[f"{part}.images"] = np.ascontiguousarray(drawn.images)
        tensors[f"{part}.targets"] = drawn.targets.astype(np.int64)
        tensors[f"{part}.faces"] = drawn.faces.astype(np.int16)
        tensors[f"{part}.objects"] = drawn.objects
    table = hashlib.sha256((folder / f"{name}.json").read_bytes()).hexdigest()
    about = {"report": built.report, "checksum": _checksum(tensors), "table": table}
    metadata = {"shortlist": json.dumps(about)}  # one entry: several would come in any order
    with replacing(folder / f"{name}.safetensors") as temporary:
        save_file(tensors, temporary, metadata=metadata)


def load_built(folder: Path, name: str) -> Built | None:
    """Read what was saved, or None if there is nothing.

    Raises:
        ValueError: If what is there is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path, table_path = folder / f"{name}.safetensors", folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="np") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            about = parse_json(file.metadata()["shortlist"])
        if about["checksum"] != _checksum(tensors):
            raise ValueError("its checksum is wrong")
        if about["table"] != hashlib.sha256(table_path.read_bytes()).hexdigest():
            raise ValueError(f"{table_path.name} does not belong to it")
        columns = ("images", "targets", "faces", "objects")
        parts = {
            part: Drawn(*(tensors[f"{part}.{column}"] for column in columns))
            for part in about["report"]["images"]
        }
        return Built(parts, ClassTable.load(table_path), about["report"])
    except (SafetensorError, KeyError, ValueError, OSError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _checksum(tensors: dict[str, np.ndarray]) -> str:
    """Return a checksum of names, shapes and contents."""
    value = 0
    for key in sorted(tensors):
        value = zlib.crc32(f"{key}{tensors[key].shape}".encode(), value)
        value = zlib.crc32(tensors[key].data, value)
    return f"{value:08x}"
