"""What a compaction merges, and the rows that come of it."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from shortlist.index.contents import Contents, Piece
from shortlist.index.segment import NewRows
from shortlist.index.spread import farthest_points


def stale_segments(contents: Contents, *, max_per_class: int, segment_rows: int) -> list[int]:
    """Return the numbers of the segments to merge.

    They are those with deleted images, with classes that have too many, and those that are less than half
    full; a single one that is only small stays as it is.
    """
    too_many = contents.counts > max_per_class
    dirty = {number for number, _ in contents.dead}
    dirty |= {number for number, part in enumerate(contents.segments) if too_many[part.classes].any()}
    small = {number for number, part in enumerate(contents.segments) if 2 * part.record.rows < segment_rows}
    return sorted(dirty | small) if dirty or len(small) > 1 else []


def merged_rows(
    contents: Contents, stale: Sequence[int], *, max_per_class: int, segment_rows: int
) -> Iterator[NewRows]:
    """Give the images of some segments that are not deleted, of whole classes, at most so many at a time.

    A class with more than ``segment_rows`` images is given alone.
    """
    old = [contents.segments[number] for number in stale]
    waiting: list[NewRows] = []
    for class_index in np.unique(np.concatenate([segment.classes for segment in old])).tolist():
        pieces = [piece for piece in contents.pieces(class_index) if piece.segment in old]
        rows = [_live_rows(piece, class_index) for piece in pieces]
        joined = NewRows.joined(rows)
        if contents.counts[class_index] > max_per_class:  # then all its segments are among these
            joined = joined.take(farthest_points(torch.from_numpy(joined.vectors), max_per_class))
        if waiting and sum(map(len, waiting)) + len(joined) > segment_rows:
            yield NewRows.joined(waiting)
            waiting = []
        if len(joined):
            waiting.append(joined)
    if waiting:
        yield NewRows.joined(waiting)


def _live_rows(piece: Piece, class_index: int) -> NewRows:
    segment, slot, dead = piece
    digests = segment.digests(slot)
    live = np.setdiff1d(np.arange(len(digests)), dead)
    about = [segment.about_bytes(slot, place) for place in live.tolist()]
    thumbnails = [segment.thumbnail(slot, place) for place in live.tolist()]
    vectors = segment.vectors(slot).numpy()[live]
    return NewRows(np.full(len(live), class_index), digests[live], vectors, about, thumbnails)
