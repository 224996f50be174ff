"""Find images that are unreadable, empty, duplicated or in two splits. Nothing is deleted."""

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist._checks import check_number
from shortlist._components import lowest_of_component
from shortlist._messages import missing
from shortlist._store.files import check_regular
from shortlist.curation.quality import IsStrange, bounds_of, quality_of
from shortlist.datasets import why_unreadable
from shortlist.inputs import Rows, read_folder, read_list
from shortlist.preprocessing import reason_of, upright, with_8_bits

MAX_DISTANCE = 7  # with one band of bits per distance and one more, bands of 8 bits


@dataclass(frozen=True)
class CheckReport:
    """The findings of a check; every path is as it was given or found.

    Attributes:
        num_images: Number of files that were checked.
        unreadable: Path and reason of each file that is not a complete image (without empty files).
        empty: Files of no bytes.
        duplicates: Groups of files with the same bytes.
        near_duplicates: Groups of different files that look the same.
        across_parts: Those of the groups above whose files are in more than one part.
        across_classes: Groups of files with the same bytes that are in more than one class.
        blurred: Files that are less sharp than nearly all good photos, if asked for.
        small: Files that are smaller than nearly all good photos, if asked for.
        strange: Files that are like nothing that a model knows, if one was given.
    """

    num_images: int
    unreadable: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    duplicates: list[list[str]] = field(default_factory=list)
    near_duplicates: list[list[str]] = field(default_factory=list)
    across_parts: list[list[str]] = field(default_factory=list)
    across_classes: list[list[str]] = field(default_factory=list)
    blurred: list[str] = field(default_factory=list)
    small: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    def clean(self) -> bool:
        """Return whether nothing was found."""
        return not any(list(asdict(self).values())[1:])


class _Finding(NamedTuple):
    problem: str | None
    content: bytes
    looks: int | None


def difference_hash(path: str | Path) -> int | None:
    """Compute 64 bits of an image shrunk to 9 x 8: for each pair of neighbors, whether the right is brighter.

    Copies that were scaled, recompressed or slightly brightened differ in few bits. ``None`` for images of
    (nearly) one shade, which all look the same to it.
    """
    from PIL import Image

    check_regular(path)
    with Image.open(path) as image:
        image.draft("L", (72, 64))
        small = np.asarray(
            with_8_bits(upright(image)).convert("L").resize((9, 8), Image.Resampling.BOX), dtype=np.int16
        )
    if int(small.max()) - int(small.min()) < 8:
        return None
    bits = small[:, 1:] > small[:, :-1]
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _inspect(path: str, near: bool) -> _Finding:
    looks, problem = None, None
    if near:
        try:
            looks = difference_hash(path)  # decodes the file, and so finds what is wrong with it
        except Exception as error:  # decoders fail in many ways on broken files
            problem = why_unreadable(path) or reason_of(error)
    else:
        problem = why_unreadable(path)
    if problem is not None:
        return _Finding(problem, b"", None)
    return _Finding(None, hashlib.blake2b(Path(path).read_bytes(), digest_size=16).digest(), looks)


def near_pairs(hashes: np.ndarray, *, max_distance: int = 3) -> np.ndarray:
    """Find pairs (m, 2) of indices of 64-bit hashes that differ in at most ``max_distance`` bits.

    The bits are cut into ``max_distance + 1`` bands; two hashes that differ in no more bits than that agree
    in at least one band, so only those that do are compared: not all pairs.

    Args:
        hashes: Distinct hashes (n,), uint64.
        max_distance: Largest number of different bits, 0 to 7.
    """
    check_number("max_distance", max_distance, low=0, below=MAX_DISTANCE + 1)
    edges = np.linspace(0, 64, max_distance + 2).astype(int)
    near = [np.empty((0, 2), dtype=np.int64)]
    for low, high in pairwise(edges):
        band = (hashes >> np.uint64(low)) & np.uint64((1 << int(high - low)) - 1)
        order = np.argsort(band, kind="stable")
        first, step = np.arange(len(order)), 0
        while len(first):  # all pairs that are so many steps apart in the order and agree in the band
            step += 1
            first = first[first + step < len(order)]
            first = first[band[order[first]] == band[order[first + step]]]
            pairs = np.stack([order[first], order[first + step]], axis=1)
            different = hashes[pairs[:, 0]] ^ hashes[pairs[:, 1]]
            bits = np.unpackbits(different[:, None].view(np.uint8), axis=1).sum(1)
            near.append(np.sort(pairs[bits <= max_distance], axis=1))
    return np.unique(np.concatenate(near), axis=0)


def _groups(keys: Sequence) -> list[list[int]]:
    """Group indices with equal keys, where there are two or more; ``None`` and empty keys never match."""
    by_key: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        if key is not None and key != b"":
            by_key.setdefault(key, []).append(index)
    return [group for group in by_key.values() if len(group) > 1]


def _near_groups(findings: Sequence[_Finding], max_distance: int) -> list[list[int]]:
    """Return the images connected by a chain of near pairs, of which not all have the same bytes."""
    looks: dict[int, list[int]] = {}
    for index, finding in enumerate(findings):
        if finding.looks is not None:
            looks.setdefault(finding.looks, []).append(index)
    distinct = list(looks)
    pairs = near_pairs(np.array(distinct, dtype=np.uint64), max_distance=max_distance)
    lowest = lowest_of_component(len(distinct), pairs.tolist())
    together: dict[int, list[int]] = {}
    for code, component in zip(distinct, lowest, strict=True):
        together.setdefault(component, []).extend(looks[code])
    groups = [sorted(group) for group in together.values()]
    return [group for group in groups if len({findings[i].content for i in group}) > 1]


def _rows_of(path: Path) -> Rows:
    """Return the images to check."""
    if path.is_dir():
        return read_folder(path)
    if not path.is_file():
        raise missing(path, "Expected a folder of images, or a list of them (.csv, .parquet or text).")
    return read_list(path)


def _inspect_all(
    paths: Sequence[str], near: bool, workers: int, progress: Callable[[int, int], None] | None
) -> list[_Finding]:
    findings = []

    def note(finding: _Finding) -> None:
        findings.append(finding)
        if progress is not None:
            progress(len(findings), len(paths))

    if workers == 0:
        for path in paths:
            note(_inspect(path, near))
        return findings
    start = "fork" if sys.platform == "linux" else "spawn"
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(start)) as pool:
            for finding in pool.map(_inspect, paths, [near] * len(paths), chunksize=32):
                note(finding)
    except BrokenProcessPool as error:
        raise ValueError(
            f"a worker died at {paths[len(findings)]} or in one of the {32 * workers} files after it: "
            "look at them one by one with workers=0"
        ) from error
    return findings


def check_images(
    path: str | Path,
    *,
    near: bool = True,
    max_distance: int = 3,
    keep_good: float | None = None,
    is_strange: IsStrange | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Check every image of a folder or list; nothing is changed or deleted.

    Args:
        path: A folder of images (parts are its folders train, val and test, classes the folders in them), or
            a list as for :func:`~shortlist.datasets.lists.image_list`.
        near: Whether to look also for different files that look the same, by :func:`difference_hash`.
        max_distance: Largest number of 64 bits in which such files may differ, 0 to 7.
        keep_good: Promised share of good photos that are not flagged as blurred or small. The photos of the
            parts val and test are the good ones; all photos, if there are none. Nothing is flagged if left
            out.
        is_strange: Says which photos are like nothing known.
        workers: Number of processes that read; one per core if left out, 0 for only this process.
        progress: Called with the number of files done and of all.

    Raises:
        FileNotFoundError: There is nothing at ``path``.
        ValueError: It holds no images.
    """
    check_number("max_distance", max_distance, low=0, below=MAX_DISTANCE + 1)
    workers = os.cpu_count() or 1 if workers is None else workers
    check_number("workers", workers, low=0)
    rows = _rows_of(Path(path))
    paths, parts, classes = rows.addresses(), rows.splits or [""] * len(rows), rows.labels
    if not paths:
        raise ValueError(f"{path} holds no images")
    findings = _inspect_all(paths, near, workers, progress)

    def named(groups: list[list[int]]) -> list[list[str]]:
        return [[paths[i] for i in group] for group in groups]

    same = _groups([finding.content for finding in findings])
    alike = _near_groups(findings, max_distance) if near else []
    problems = {p: finding.problem for p, finding in zip(paths, findings, strict=True) if finding.problem}
    readable = {p: part for p, part in zip(paths, parts, strict=True) if p not in problems}
    flags = {} if keep_good is None else _flags(readable, keep_good)
    if is_strange is not None:
        strange = zip(readable, is_strange(list(readable)), strict=True)
        flags["strange"] = [path for path, is_flagged in strange if is_flagged]
    return CheckReport(
        num_images=len(paths),
        unreadable={p: reason for p, reason in problems.items() if reason != "it is empty"},
        empty=[p for p, reason in problems.items() if reason == "it is empty"],
        duplicates=named(same),
        near_duplicates=named(alike),
        across_parts=named([group for group in same + alike if len({parts[i] for i in group}) > 1]),
        across_classes=named([group for group in same if len({classes[i] for i in group}) > 1]),
        **flags,
    )


def _flags(paths: Mapping[str, str | None], keep_good: float) -> dict[str, list[str]]:
    """Return the photos that are blurred, and those that are small, of photos with their parts."""
    good = [path for path, part in paths.items() if part in ("val", "test")]
    bounds = bounds_of(good or paths, keep=keep_good)
    flags: dict[str, list[str]] = {"blurred": [], "small": []}
    for path in paths:
        for flag in bounds.flags(quality_of(path)):
            flags[flag].append(path)
    return flags
