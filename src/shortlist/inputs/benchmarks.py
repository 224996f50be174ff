"""Benchmarks that ``shortlist data build`` made: images with their splits, listed in ``metadata.json``."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._store.json import read_json
from shortlist.inputs.rows import ABOUT, Row

BENCHMARK_FORMAT = "shortlist benchmark 2"
"""Format of ``metadata.json``."""
_URL = "url"  # where the image is published; "source" is the file that it was linked from


class BenchmarkImage(NamedTuple):
    """An image of a benchmark.

    Args:
        row: The image, with the name of its class.
        genus: Group of classes that its class belongs to; empty if it is not known.
        original: The file that it was linked from.
        sha256: SHA-256 of its bytes, if it is held out; else empty.
    """

    row: Row
    genus: str
    original: str
    sha256: str


def is_benchmark(folder: str | Path) -> bool:
    """Whether a folder is a benchmark, by its ``metadata.json``.

    Raises:
        ValueError: If that file is there and cannot be read.
    """
    path = Path(folder) / "metadata.json"
    content = read_json(path) if path.exists() else None
    return isinstance(content, dict) and content.get("format") == BENCHMARK_FORMAT


def read_benchmark(path: str | Path) -> dict[str, BenchmarkImage]:
    """Read the images of a benchmark, by their names in it, from its folder or its ``metadata.json``.

    Raises:
        ValueError: If it is no benchmark.
    """
    path = Path(path)
    path = path / "metadata.json" if path.is_dir() else path
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != BENCHMARK_FORMAT:
        kind = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{path} must be metadata.json of a benchmark ({BENCHMARK_FORMAT}), got {kind!r}")
    images = {}
    for name, entry in content["images"].items():
        about = {key: entry[key] for key in ABOUT if key in entry} | {"source": entry.get(_URL, "")}
        row = Row(os.path.join(path.parent, name), entry["class"], entry["split"], **about)
        images[name] = BenchmarkImage(row, entry["genus"], entry["source"], entry.get("sha256", ""))
    return images


def about_of_images(
    root: str | Path, names: Sequence[str], about: Collection[str]
) -> dict[str, list[str | None]]:
    """Return columns of what a benchmark says about some of its images, by their names in it."""
    images = read_benchmark(root)
    rows = [images[name].row.about if name in images else {} for name in names]
    return {column: [row.get(column) for row in rows] for column in about}


def entry_of(image: BenchmarkImage) -> dict[str, Any]:
    """Return what ``metadata.json`` says about an image."""
    row, about = image.row, image.row.about
    url = {_URL: about.pop("source")} if "source" in about else {}
    entry = {"class": row.label, "genus": image.genus, "split": row.split, "source": image.original}
    return entry | about | url | ({"sha256": image.sha256} if image.sha256 else {})
