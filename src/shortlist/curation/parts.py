"""Which part an image belongs to: by a keyed hash of its observation, or as an earlier benchmark has it."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shortlist._json import read_json
from shortlist.class_table import ClassTable
from shortlist.curation.labeled import ABOUT, LabeledImage
from shortlist.inputs.labels import class_finder

__all__ = ["FORMAT", "Frozen", "hash_place", "is_benchmark", "part_by_hash", "read_frozen", "sha256_of"]

FORMAT = "shortlist benchmark 2"


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
        test: Its test images, which stay the only ones.
        others: Its training and validation images, with their parts.
        ids: Id of each of its classes, by name.
        genera: Genus of each of its classes, by name.
        held_out: SHA-256 of its validation and test images, with the observation of each.
        deleted: Images whose copy was deleted from a store of feedback since: they are in no later benchmark.
    """

    test: list[LabeledImage]
    others: list[tuple[LabeledImage, str]]
    ids: dict[str, str]
    genera: dict[str, str]
    held_out: dict[str, str]
    deleted: frozenset[str]

    def take_in(
        self, rows: Sequence[LabeledImage], left_out: Counter[str]
    ) -> tuple[list[tuple[LabeledImage, str]], list[LabeledImage], int]:
        """Return its images with their parts, the rows that are new, and the number of corrected labels.

        A row of an image that it has already, by its path or by that of its source, corrects the label,
        unless it is a test image. Labels of rows may be ids of its classes.

        Raises:
            ValueError: If training or validation images of it are missing.
        """
        old = {row.path: (row, part) for row, part in [*((row, "test") for row in self.test), *self.others]}
        if lost := [path for path in old if path not in self.deleted and not os.path.exists(path)]:
            raise ValueError(
                f"{len(lost)} of {len(old)} images of the earlier benchmark are missing, such as {lost[0]}: "
                "put them back, or take their entries out of its metadata.json"
            )
        if self.deleted:
            left_out["photos that were deleted from the store of feedback"] += len(self.deleted)
            old = {path: entry for path, entry in old.items() if path not in self.deleted}
        path_of = {row.about["source"]: path for path, (row, _) in old.items()} | {path: path for path in old}
        names, new, corrected = sorted(self.ids), [], 0  # in the order of the class table
        find = class_finder(ClassTable(names, [self.ids[name] for name in names]))
        for row in rows:
            if (index := find(row.label)) is not None:
                label = names[index]
                row = replace(row, label=label, genus=self.genera[label])
            if (path := path_of.get(os.path.abspath(row.path))) is None:
                new.append(row)
                continue
            known, part = old[path]
            if part == "test":
                left_out["photos of frozen test observations"] += 1
            elif known.label != row.label:
                old[path] = replace(known, label=row.label, genus=row.genus), part
                corrected += 1
        return list(old.values()), new, corrected

    def place(
        self, rows: Sequence[LabeledImage], *, held_out: float, seed: int, left_out: Counter[str]
    ) -> list[tuple[LabeledImage, str]]:
        """Return new rows with their parts: none of them is test, and observations stay together.

        No image gets into another part than before, by its observation or by its bytes.
        """
        parts = {row.observation: part for row, part in self.others}
        parts |= {row.observation: "test" for row in self.test}
        placed = []
        for row in rows:
            part = parts.get(row.observation)
            if part == "test":
                left_out["photos of frozen test observations"] += 1
                continue
            if part is None:
                part = part_by_hash(row.observation, held_out=held_out, seed=seed, frozen=True)
            # copies of feedback have no metadata, and are named by the SHA-256 of what was sent
            known = self.held_out.get(sha256_of(row.path), self.held_out.get(Path(row.path).name))
            if known is not None and (known != row.observation or part == "train"):
                left_out["copies of held-out images"] += 1
                continue
            placed.append((row, part))
        return placed


def is_benchmark(folder: str | Path) -> bool:
    """Whether a folder is a benchmark, by its ``metadata.json``.

    Raises:
        ValueError: If that file is there and cannot be read.
    """
    path = Path(folder) / "metadata.json"
    content = read_json(path) if path.exists() else None
    return isinstance(content, dict) and content.get("format") == FORMAT


def read_frozen(path: str | Path) -> Frozen:
    """Read the parts of an earlier benchmark from its ``metadata.json`` (or its folder).

    Raises:
        ValueError: If it is none, or a test image of it is missing or was changed.
    """
    path = Path(path)
    path = path / "metadata.json" if path.is_dir() else path
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{path} must be metadata.json of a benchmark ({FORMAT}), got {found!r}")
    images: dict[str, dict[str, Any]] = content["images"]
    test, others, deleted = [], [], set()
    for name, entry in images.items():
        file = path.parent / name
        about = {key: entry[key] for key in ("source", *ABOUT) if key in entry}
        row = LabeledImage(str(file), entry["class"], entry["genus"], entry["observation"], about)
        if _was_deleted(Path(entry["source"])):
            deleted.add(row.path)
        if entry["split"] != "test":
            others.append((row, entry["split"]))
            continue
        if row.path in deleted and not file.is_file():
            continue
        if not file.is_file() or sha256_of(file) != entry["sha256"]:
            raise ValueError(
                f"{file} is a frozen test image: it must be as it was, but it is missing or changed"
            )
        test.append(row)
    return Frozen(
        test,
        others,
        {entry["class"]: Path(name).parts[1] for name, entry in images.items()},
        {entry["class"]: entry["genus"] for entry in images.values()},
        {entry["sha256"]: entry["observation"] for entry in images.values() if entry["split"] != "train"},
        frozenset(deleted),
    )


def _was_deleted(source: Path) -> bool:
    """Whether a path is that of a copy in a store of feedback that has the copy no more."""
    return not source.exists() and any((folder / "feedback.json").exists() for folder in source.parents[2:3])


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
