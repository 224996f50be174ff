"""Shards of images: a worker embeds one, and leaves its rows in a file for the builder of the index."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shortlist._files import replacing
from shortlist.index.contents import open_contents
from shortlist.index.embedding import embed_source
from shortlist.index.manifest import check_model
from shortlist.index.segment import NewRows
from shortlist.index.sources import Source
from shortlist.model import Model

__all__ = ["PARTS", "IndexWork", "ShardImages", "ShardInfo", "part_path", "read_part", "shard_name"]

PARTS = "parts"
"""Folder inside an index, in which the rows of shards wait until they are taken over."""


@dataclass(frozen=True)
class ShardImages:
    """Images that a worker embeds, as a value that can be sent to another process.

    Args:
        chunk: Number of the chunk, a whole number of classes, that it is a piece of.
        name: Name of the part that is made of it.
        images: The images.
    """

    chunk: int
    name: str
    images: Source


@dataclass(frozen=True)
class ShardInfo:
    """What is known of a shard that is done: its chunk, its number of images, and why the first failed."""

    chunk: int
    images: int
    problem: str | None


def shard_name(model: str, keys: np.ndarray, images: Source) -> str:
    """Return a name that stands for one content: the model, the state of the files, what is known of them."""
    about = [dict(images.about(row)) for row in range(len(keys))]
    told = json.dumps([model, keys.tolist(), about], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class IndexWork:
    """The work of each worker: load the model once, then make the part of one shard after the other.

    Args:
        load: Function that gives the model.
        folder: Folder of the index.
        decoders: Number of threads that read images.
    """

    load: Callable[[], Model]
    folder: str
    decoders: int

    def __call__(self) -> Callable[[ShardImages], ShardInfo]:
        """Load the model, and return the function of a shard."""
        model, known = self.load(), open_contents(Path(self.folder))
        check_model(known.manifest, model, Path(self.folder))

        def one(shard: ShardImages) -> ShardInfo:
            path = part_path(self.folder, shard.name)
            found = read_part(path)  # of a call that was stopped, or of a worker that died after this
            if found is None:
                with ThreadPoolExecutor(self.decoders) as pool:
                    found = embed_source(model, shard.images, pool, known=known)
                _write_part(path, *found)
            failed = found[1]
            problem = failed[min(failed)] if failed else None
            return ShardInfo(shard.chunk, len(shard.images.classes), problem)

        return one


def part_path(folder: str | Path, name: str) -> Path:
    """Return the path of a part."""
    return Path(folder) / PARTS / f"{name}.npz"


def _write_part(path: Path, rows: NewRows, failed: dict[int, str]) -> None:
    packed = {}
    for name, texts in (("about", rows.about), ("thumbnails", rows.thumbnails)):
        packed[name] = np.frombuffer(b"".join(texts), np.uint8)
        packed[f"{name}_ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    failures = np.frombuffer(json.dumps(list(failed.items())).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            classes=rows.classes,
            digests=rows.digests,
            vectors=rows.vectors,
            failed=failures,
            **packed,
        )


def read_part(path: Path) -> tuple[NewRows, dict[int, str]] | None:
    """Return the rows of a part and what failed; ``None`` if there is no such part, or it is damaged."""
    try:
        # numpy would leave a damaged file open; it compares the checksums
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            about, thumbnails = (
                _unpacked(found[name], found[f"{name}_ends"]) for name in ("about", "thumbnails")
            )
            rows = NewRows(found["classes"], found["digests"], found["vectors"], about, thumbnails)
            return rows, dict(json.loads(found["failed"].tobytes()))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _unpacked(packed: np.ndarray, ends: np.ndarray) -> Sequence[bytes]:
    starts = np.append(0, ends[:-1])
    return [packed[start:end].tobytes() for start, end in zip(starts, ends, strict=True)] if len(ends) else []
