"""Which images become which segment of an index, and the shards in which workers embed them."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from shortlist.index.sources import Source

_CANDIDATES = 4  # times as many images as are kept are looked at, of a class with very many


@dataclass(frozen=True)
class ShardImages:
    """Images that a worker embeds, as a value that can be sent to another process.

    Args:
        name: Name of the part that is made of it. It stands for one content.
        images: The images.
    """

    name: str
    images: Source

    def digest(self) -> str:
        """Return the name."""
        return self.name


class Plan:
    """The new images of a source in chunks of whole classes, and the shards of each chunk.

    Args:
        source: All images.
        keys: Key of each (n,), uint64.
        new: Which of them are new (n,), bool.
        segment_rows: A chunk has about so many images, and becomes a segment.
        max_per_class: Number of images that are kept of a class; of more than four times as many, so many
            are drawn.
        shard_rows: Number of images of a shard.
    """

    def __init__(
        self,
        source: Source,
        keys: np.ndarray,
        new: np.ndarray,
        *,
        segment_rows: int,
        max_per_class: int,
        shard_rows: int,
    ) -> None:
        self.source, self.keys, self.shard_rows = source, keys, shard_rows
        classes = source.classes.numpy()
        self.rows = list(_chunks(classes, new, segment_rows))
        self.chosen = [_candidates(classes[rows], rows, _CANDIDATES * max_per_class) for rows in self.rows]
        self.pieces = [-(-len(chosen) // shard_rows) for chosen in self.chosen]
        self.names: list[list[str]] = [[] for _ in self.rows]
        self.chunk_of: dict[str, int] = {}

    def shards(self, model: str) -> Iterator[ShardImages]:
        """Give the shards of all chunks, each when it is asked for.

        ``names`` then has their names by chunk, and ``chunk_of`` the chunk of each name.
        """
        for chunk, chosen in enumerate(self.chosen):
            for start in range(0, len(chosen), self.shard_rows):
                rows = chosen[start : start + self.shard_rows]
                images = self.source.take(rows.tolist())
                name = _name(model, self.keys[rows], images)
                self.names[chunk].append(name)
                self.chunk_of[name] = chunk
                yield ShardImages(name, images)


def _name(model: str, keys: np.ndarray, images: Source) -> str:
    """A name that stands for one content: the model, the state of the files, what is known of them."""
    about = [dict(images.about(row)) for row in range(len(keys))]
    content = json.dumps([model, keys.tolist(), about], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _chunks(classes: np.ndarray, new: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Give the new rows in the order of their classes, whole classes at a time, about so many rows each."""
    rows = np.flatnonzero(new)
    if not len(rows):
        return
    rows = rows[np.argsort(classes[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(classes[rows], prepend=-1))
    begin = 0
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        if start > begin and stop - begin > size:
            yield rows[begin:start]
            begin = start
    yield rows[begin:]


def _candidates(classes: np.ndarray, rows: np.ndarray, most: int) -> np.ndarray:
    """Draw at most so many rows of each class, always the same ones."""
    kept = []
    for class_index in np.unique(classes):
        class_rows = rows[classes == class_index]
        if len(class_rows) > most:
            drawn = torch.randperm(len(class_rows), generator=torch.Generator().manual_seed(0))[:most]
            class_rows = class_rows[drawn.sort().values.numpy()]
        kept.append(class_rows)
    return np.concatenate(kept)
