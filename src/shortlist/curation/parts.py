"""Which split an image belongs to: by a keyed hash of its observation, or as an earlier benchmark has it."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shortlist.class_table import ClassTable
from shortlist.curation.deletions import DELETED, StoreCopies, was_deleted
from shortlist.inputs import BenchmarkImage, Row, read_benchmark


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
        rows: Its images with their splits, labeled by ids; the test images stay the only ones.
        classes: Its classes.
        options: Options that it was made with.
        earlier: Its images by their paths.
        deleted: Images whose copy was deleted from a store of feedback since: they are in no later benchmark.
    """

    rows: list[Row]
    classes: ClassTable
    options: dict[str, Any]
    earlier: dict[str, BenchmarkImage]
    deleted: frozenset[str]

    def take_in(self, rows: Sequence[Row], left_out: Counter[str]) -> tuple[list[Row], list[Row]]:
        """Return its images with corrected labels, and the rows that are new.

        A row of an image that it has already corrects the label, unless it is a test image. An image that
        people rejected (a label with ``!`` at its start) is left out. The image is told by its path, by that
        of its source, or by the name of a copy of feedback, which is the SHA-256 of what was sent.

        Raises:
            ValueError: If images of it are missing.
        """
        old = {row.path: row for row in self.rows}
        if lost := [path for path in old if path not in self.deleted and not os.path.exists(path)]:
            raise ValueError(
                f"{len(lost)} of {len(old)} images of the earlier benchmark are missing, such as {lost[0]}: "
                "put them back, or take their entries out of its metadata.json"
            )
        if self.deleted:
            left_out[DELETED] += len(self.deleted)
            old = {path: row for path, row in old.items() if path not in self.deleted}
        paths = {key: path for path in old for key in _keys(self.earlier[path].original)}
        new = []
        for row in rows:
            path = os.path.abspath(row.path)
            before = old.get(path) or next(
                (old[paths[key]] for key in _keys(path) if paths.get(key) in old), None
            )
            if before is not None and before.split == "test":
                left_out["photos of frozen test observations"] += 1
            elif row.class_label.startswith("!"):
                left_out["photos that people rejected"] += 1
                old.pop("" if before is None else before.path, None)
            elif before is None:
                new.append(row)
            else:
                old[before.path] = replace(before, label=row.label)
        return list(old.values()), new

    def given_by(self, photos: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]) -> "Frozen":
        """Return the same with other facts of copies of feedback that now belong to another observation.

        Somebody else gave the same photo, and who gave it first was deleted or took consent back: nothing
        that this person said of the photo stays.

        Args:
            photos: The photos of each observation now, with what is known of them.
        """
        facts = {
            os.path.basename(file): {"observation": item, **about}
            for item, several in photos.items()
            for file, about in several
            if _is_sha256(os.path.basename(file))
        }

        def changed(row: Row) -> Row:
            now = facts.get(os.path.basename(self.earlier[row.path].original))
            if now is None or now["observation"] == row.observation:
                return row
            texts: Any = {key: str(value) for key, value in now.items()}
            return Row(row.address, row.label, row.split, **texts)

        earlier = {path: image._replace(row=changed(image.row)) for path, image in self.earlier.items()}
        return replace(self, rows=[changed(row) for row in self.rows], earlier=earlier)

    def place(self, rows: Sequence[Row], *, held_out: float, seed: int, left_out: Counter[str]) -> list[Row]:
        """Return new rows with their splits: none of them is test, and observations stay together.

        No image is there twice, by its bytes: it could get into another split than before.
        """
        # test images last: nothing new joins an observation that is frozen
        splits = {
            row.observation: row.split for row in sorted(self.rows, key=lambda row: row.split == "test")
        }
        kept = (image for path, image in self.earlier.items() if path not in self.deleted)
        taken = {image.sha256: (image.row.split, image.row.class_label) for image in kept}
        placed = []
        for row in rows:
            split = splits.get(row.observation)
            if split == "test":
                left_out["photos of frozen test observations"] += 1
                continue
            if split is None:
                split = part_by_hash(row.observation, held_out=held_out, seed=seed, frozen=True)
            # copies of feedback have no metadata, and are named by the SHA-256 of what was sent
            digests = (sha256_of(row.path), Path(row.path).name)
            copied, label = next((taken[digest] for digest in digests if digest in taken), ("", ""))
            if copied:
                other = "" if label == row.class_label else ", with another label, which does not count"
                left_out[f"copies of {'training' if copied == 'train' else 'held-out'} images{other}"] += 1
                continue
            known = (split, row.class_label)
            taken |= dict.fromkeys(digests[: 2 if _is_sha256(digests[1]) else 1], known)
            placed.append(replace(row, split=split))
        return placed


def name_of_photo(path: str) -> str:
    """Return what tells a photo wherever its file is: its SHA-256, by which copies of feedback are named."""
    if _is_sha256(name := os.path.basename(path)) or not os.path.isfile(path):
        return name if _is_sha256(name) else path
    return sha256_of(path)


def _keys(path: str) -> list[str]:
    """Return what tells a source: its path, and its name if that is a SHA-256."""
    return [path, name] if _is_sha256(name := os.path.basename(path)) else [path]


def _is_sha256(text: str) -> bool:
    """Whether a text is a SHA-256 in hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def read_frozen(path: str | Path, *, copies: StoreCopies | None = None) -> Frozen:
    """Read an earlier benchmark from its folder (or its ``metadata.json``).

    Args:
        path: The folder.
        copies: The copies of photos that stores in databases have now; if left out, files tell.

    Raises:
        ValueError: If it is none, a test image of it is missing or was changed, or it has photos of a store
            that ``copies`` does not have.
    """
    path = Path(os.path.abspath(path))
    images, options = read_benchmark(path)
    classes = ClassTable.load((path if path.is_dir() else path.parent) / "class_table.json")
    deleted = {image.row.path for image in images.values() if was_deleted(image.original, copies)}
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
    if unknown := {row.class_label for row in rows} - set(classes.ids):
        raise ValueError(
            f"class_table.json of {path} must have the class of each image, got no {min(unknown)!r}"
        )
    rows.sort(key=lambda row: row.split != "test")
    return Frozen(
        rows, classes, options, {image.row.path: image for image in images.values()}, frozenset(deleted)
    )


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
