"""Which part an image belongs to: by a keyed hash of its observation, or as an earlier benchmark has it."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._json import read_json
from shortlist.curation.labeled import ABOUT, LabeledImage

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
    """The parts of an earlier benchmark.

    Args:
        test: Its test images, which stay the only ones.
        parts: Part of each observation.
        held_out: SHA-256 of its validation and test images, with the observation of each.
    """

    test: list[LabeledImage]
    parts: dict[str, str]
    held_out: dict[str, str]

    def place(
        self, rows: Sequence[LabeledImage], *, held_out: float, seed: int, left_out: Counter[str]
    ) -> list[tuple[LabeledImage, str]]:
        """Return rows with their parts: the frozen test images, what was known, and what is new.

        No image gets into another part than before, by its observation or by its bytes.
        """
        placed = [(row, "test") for row in self.test]
        own = {os.path.abspath(row.path) for row in self.test}
        for row in rows:
            if os.path.abspath(row.path) in own:
                continue
            part = self.parts.get(row.observation)
            if part == "test":
                left_out["photos of frozen test observations"] += 1
                continue
            if part is None:
                part = part_by_hash(row.observation, held_out=held_out, seed=seed, frozen=True)
            known = self.held_out.get(sha256_of(row.path))
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
    test = []
    for name, entry in images.items():
        if entry["split"] != "test":
            continue
        file = path.parent / name
        if not file.is_file() or sha256_of(file) != entry["sha256"]:
            raise ValueError(
                f"{file} is a frozen test image: it must be as it was, but it is missing or changed"
            )
        about = {key: entry[key] for key in ABOUT if key in entry}
        test.append(LabeledImage(str(file), entry["class"], entry["genus"], entry["observation"], about))
    return Frozen(
        test,
        {entry["observation"]: entry["split"] for entry in images.values()},
        {entry["sha256"]: entry["observation"] for entry in images.values() if entry["split"] != "train"},
    )


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
