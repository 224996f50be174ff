"""Which split an image belongs to: by a keyed hash of its observation, or as an earlier benchmark has it."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist.class_table import ClassTable, class_finder
from shortlist.inputs import Row, read_benchmark


def hash_place(name: str, *, seed: int, what: str = "part") -> float:
    """Return a number in [0, 1) that depends on the name and the seed alone."""
    key = f"{what}:{seed}".encode()
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=key, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def part_by_hash(observation: str, *, held_out: float, seed: int, frozen: bool = False) -> str:
    """Return the part of an observation; with a frozen test part, nothing new gets there."""
    place = hash_place(observation, seed=seed)
    if place < held_out:
        return "val" if frozen else "test"
    return "val" if place < 2 * held_out and not frozen else "train"


@dataclass(frozen=True)
class Frozen:
    """An earlier benchmark: nothing of it is forgotten, and nothing moves.

    Args:
        rows: Its images with their splits; the test images stay the only ones.
        classes: Its classes.
        genera: Genus of each of its classes, by name.
        originals: File that each image was linked from, by its path.
        held_out: SHA-256 of its validation and test images, with the observation of each.
        deleted: Images whose copy was deleted from a store of feedback since: they are in no later benchmark.
    """

    rows: list[Row]
    classes: ClassTable
    genera: dict[str, str]
    originals: dict[str, str]
    held_out: dict[str, str]
    deleted: frozenset[str]

    def take_in(self, rows: Sequence[Row], left_out: Counter[str]) -> tuple[list[Row], list[Row], int]:
        """Return its images, the rows that are new, and the number of corrected labels.

        A row of an image that it has already, by its path or by that of its source, corrects the label,
        unless it is a test image. A label that is one of its classes becomes the name of this class.

        Raises:
            ValueError: If training or validation images of it are missing.
        """
        old = {row.path: row for row in self.rows}
        if lost := [path for path in old if path not in self.deleted and not os.path.exists(path)]:
            raise ValueError(
                f"{len(lost)} of {len(old)} images of the earlier benchmark are missing, such as {lost[0]}: "
                "put them back, or take their entries out of its metadata.json"
            )
        if self.deleted:
            left_out["photos that were deleted from the store of feedback"] += len(self.deleted)
            old = {path: row for path, row in old.items() if path not in self.deleted}
        paths = {original: path for path, original in self.originals.items()}
        find, new, corrected = class_finder(self.classes), [], 0
        for row in rows:
            if (index := find(row.label)) is not None:
                row = replace(row, label=self.classes.names[index])
            path = os.path.abspath(row.path)
            before = old.get(path) or old.get(paths.get(path, ""))
            if before is None:
                new.append(row)
            elif before.split == "test":
                left_out["photos of frozen test observations"] += 1
            elif before.label != row.label:
                old[before.path] = replace(before, label=row.label)
                corrected += 1
        return list(old.values()), new, corrected

    def place(self, rows: Sequence[Row], *, held_out: float, seed: int, left_out: Counter[str]) -> list[Row]:
        """Return new rows with their splits: none of them is test, and observations stay together.

        No image gets into another split than before, by its observation or by its bytes.
        """
        # test images last: nothing new joins an observation that is frozen
        splits = {
            row.observation: row.split for row in sorted(self.rows, key=lambda row: row.split == "test")
        }
        placed = []
        for row in rows:
            split = splits.get(row.observation)
            if split == "test":
                left_out["photos of frozen test observations"] += 1
                continue
            if split is None:
                split = part_by_hash(row.observation, held_out=held_out, seed=seed, frozen=True)
            # copies of feedback have no metadata, and are named by the SHA-256 of what was sent
            seen = self.held_out.get(sha256_of(row.path), self.held_out.get(Path(row.path).name))
            if seen is not None and (seen != row.observation or split == "train"):
                left_out["copies of held-out images"] += 1
                continue
            placed.append(replace(row, split=split))
        return placed


def read_frozen(path: str | Path) -> Frozen:
    """Read the splits of an earlier benchmark from its ``metadata.json`` (or its folder).

    Raises:
        ValueError: If it is none, or a test image of it is missing or was changed.
    """
    images = read_benchmark(path)
    deleted = {image.row.path for image in images.values() if _was_deleted(Path(image.original))}
    rows = []
    for image in images.values():
        file = image.row.path
        if image.row.split == "test":
            if file in deleted and not os.path.isfile(file):
                continue
            if not os.path.isfile(file) or sha256_of(file) != image.sha256:
                raise ValueError(
                    f"{file} is a frozen test image: it must be as it was, but it is missing or changed"
                )
        rows.append(image.row)
    ids = {image.row.class_label: Path(name).parts[1] for name, image in images.items()}
    names = sorted(ids)  # in the order of the class table
    return Frozen(
        sorted(rows, key=lambda row: row.split != "test"),
        ClassTable(names, [ids[name] for name in names]),
        {image.row.class_label: image.genus for image in images.values()},
        {image.row.path: image.original for image in images.values()},
        {image.sha256: image.row.observation for image in images.values() if image.sha256},
        frozenset(deleted),
    )


def _was_deleted(source: Path) -> bool:
    """Whether a path is that of a copy in a store of feedback that has the copy no more."""
    return not source.exists() and any((folder / "feedback.json").exists() for folder in source.parents[2:3])


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
