"""Scores that are written to a file some rows at a time, so that they never stand in memory as a whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

_PIECE = 1 << 24  # bytes moved in one go

Norms = Mapping[str, tuple[Tensor, Tensor] | None]


class ScoreWriter:
    """A ``.safetensors`` file of the classes (n,) and of each head's scores (n, c), in float32.

    The layout has room for ``rows`` rows from the start: first the classes, whose 8 bytes must be aligned,
    then each head. If fewer rows come, because some cannot be read, what is behind is moved up at the end.

    Args:
        path: File to write; it is complete after :meth:`finish`.
        rows: Largest number of rows.
        norms: By head, the norms of the class weights (c,) and the offsets (c,) that the scores were made
            with, which go to the file too.
    """

    def __init__(self, path: str | Path, rows: int, norms: Norms | None = None) -> None:
        self._file: BinaryIO = Path(path).open("w+b")
        self._room, self._done = rows, 0
        self._norms = norms or {}
        self._classes: dict[str, int] = {}  # by name of a matrix, its number of columns
        self._vectors: dict[str, Tensor] = {}
        self._start = 0

    def add(self, scores: Mapping[str, Tensor], target: Tensor) -> None:
        """Write the scores (m, c) of each head and the classes (m,) of the next rows."""
        if not self._start:
            self._lay_out(scores)
        places = self._places(self._room)
        self._write(places["target"][0] + 8 * self._done, target.long())
        for head, of_head in scores.items():
            name = f"{head}.scores"
            self._write(places[name][0] + 4 * self._classes[name] * self._done, of_head.float())
        self._done += len(target)

    def finish(self) -> None:
        """Write what is still missing of the file."""
        if not self._done:
            raise ValueError("scores must have at least one row that can be read, got 0")
        room, places = self._places(self._room), self._places(self._done)
        for name in ("target", *self._classes):
            self._move(room[name][0], places[name][0], places[name][1] - places[name][0])
        for name, vector in self._vectors.items():
            self._write(places[name][0], vector)
        self._file.truncate(self._start + max(end for _, end in places.values()))
        self._file.seek(0)
        self._file.write(self._header(self._done))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _lay_out(self, scores: Mapping[str, Tensor]) -> None:
        """Fix the places of all tensors, from the first rows."""
        for head, of_head in scores.items():
            self._classes[f"{head}.scores"] = of_head.shape[1]
            for name, vector in zip(("norms", "offsets"), self._norms.get(head) or (), strict=False):
                self._vectors[f"{head}.{name}"] = vector.float()
        self._start = len(self._header(self._room))

    def _shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor, in the order of the file."""
        matrices = {name: (rows, columns) for name, columns in self._classes.items()}
        vectors = {name: tuple(vector.shape) for name, vector in self._vectors.items()}
        return {"target": (rows,), **matrices, **vectors}

    def _places(self, rows: int) -> dict[str, tuple[int, int]]:
        """Return where each tensor begins and ends, counted from the end of the header."""
        places, end = {}, 0
        for name, shape in self._shapes(rows).items():
            start, end = end, end + (8 if name == "target" else 4) * torch.Size(shape).numel()
            places[name] = (start, end)
        return places

    def _header(self, rows: int) -> bytes:
        """Return the header of a file with so many rows, filled up with blanks to its length with all."""
        places = self._places(rows)
        content = {
            name: {
                "dtype": "I64" if name == "target" else "F32",
                "shape": shape,
                "data_offsets": places[name],
            }
            for name, shape in self._shapes(rows).items()
        }
        text = json.dumps(content, separators=(",", ":")).encode()
        length = max(len(text) + -len(text) % 8, self._start - 8)
        return length.to_bytes(8, "little") + text.ljust(length)

    def _write(self, place: int, tensor: Tensor) -> None:
        self._file.seek(self._start + place)
        self._file.write(tensor.detach().cpu().contiguous().numpy().data)

    def _move(self, source: int, goal: int, size: int) -> None:
        """Move bytes towards the start of the file."""
        for done in range(0, size if goal < source else 0, _PIECE):
            self._file.seek(self._start + source + done)
            piece = self._file.read(min(_PIECE, size - done))
            self._file.seek(self._start + goal + done)
            self._file.write(piece)
