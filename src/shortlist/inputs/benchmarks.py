"""Benchmarks that ``shortlist data build`` made: images with their splits, listed in ``metadata.json``."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._store.json import read_json
from shortlist.inputs.rows import ABOUT, Row

BENCHMARK_FORMAT = "shortlist benchmark 3"
"""Format of ``metadata.json``."""
_URL = "url"  # entry for ``source`` of a row; the entry "source" is ``original``, the file on this machine


class BenchmarkImage(NamedTuple):
    """An image of a benchmark.

    Args:
        row: The image, with the id of its class.
        original: The file that it was linked from.
        sha256: SHA-256 of its bytes.
    """

    row: Row
    original: str
    sha256: str


class Benchmark(NamedTuple):
    """Images of a benchmark by their names in it, and the options that it was made with."""

    images: dict[str, BenchmarkImage]
    options: dict[str, Any]


def is_benchmark(folder: str | Path) -> bool:
    """Whether a folder is a benchmark, by its ``metadata.json``.

    Raises:
        ValueError: If that file is there and cannot be read, or has another version.
    """
    path = Path(folder) / "metadata.json"
    content = read_json(path) if path.exists() else None
    form = content.get("format") if isinstance(content, dict) else None
    if not str(form).startswith(BENCHMARK_FORMAT.rstrip("0123456789")):
        return False
    _check_format(path, form)
    return True


def _check_format(path: Path, form: object) -> None:
    if form != BENCHMARK_FORMAT:
        raise ValueError(
            f"{path} must be metadata.json of a benchmark ({BENCHMARK_FORMAT}), got {str(form)[:80]!r}: "
            "make it anew by shortlist data build"
        )


def read_benchmark(path: str | Path) -> Benchmark:
    """Read a benchmark from its folder or its ``metadata.json``.

    Raises:
        ValueError: If it is no benchmark.
    """
    path = Path(path)
    path = path / "metadata.json" if path.is_dir() else path
    content = read_json(path)
    _check_format(path, content.get("format") if isinstance(content, dict) else type(content).__name__)
    images = {}
    for name, entry in content["images"].items():
        about = {key: entry[key] for key in ABOUT if key in entry} | {"source": entry.get(_URL, "")}
        row = Row(os.path.join(path.parent, name), entry["class"], entry["split"], **about)
        images[name] = BenchmarkImage(row, entry["source"], entry["sha256"])
    return Benchmark(images, content["options"])


def about_of_images(
    root: str | Path, names: Sequence[str], about: Collection[str]
) -> dict[str, list[str | None]]:
    """Return columns of facts about some images of a benchmark, by their names in it."""
    images = read_benchmark(root).images
    rows = [images[name].row.about if name in images else {} for name in names]
    return {column: [row.get(column) for row in rows] for column in about}


def entry_of(image: BenchmarkImage) -> dict[str, Any]:
    """Return the entry of an image in ``metadata.json``."""
    row, about = image.row, image.row.about
    url = {_URL: about.pop("source")} if "source" in about else {}
    entry = {"class": row.label, "split": row.split, "source": image.original, "sha256": image.sha256}
    return entry | about | url
