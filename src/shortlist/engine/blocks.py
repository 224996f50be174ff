"""The rows of a shard in blocks of one size, read by threads while the network works on the one before."""

import io
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from shortlist.engine.shards import ShardRows
from shortlist.preprocessing import Preprocessing, as_rgb, reason_of

__all__ = ["IMAGES", "Block", "loaded_blocks", "padded", "read_blocks"]

IMAGES = 32
"""Images that go through a network at a time."""

_AHEAD = 2  # blocks that are read before they are needed

T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a shard.

    Args:
        rows: Numbers in the shard of the rows that could be read.
        inputs: Their inputs (m, ...); ``None`` if there is none.
        errors: Of the other rows, why each could not be read.
    """

    rows: list[int]
    inputs: Tensor | None
    errors: dict[int, str]


def read_blocks(
    rows: ShardRows, preprocessing: Preprocessing | None, pool: ThreadPoolExecutor, size: int
) -> Iterator[Block]:
    """Give the rows of a shard, so many at a time by their position; rows that cannot be read are told."""
    if rows.inputs is not None:
        for start in range(0, len(rows.ids), size):
            yield _of_inputs(start, rows.inputs[start : start + size])
        return
    if preprocessing is None:
        raise ValueError("the model has no preprocessing, which would say how a picture becomes an input")

    def load(row: int) -> Tensor | str:
        try:
            return _pixels(rows.content(row), preprocessing)
        except ValueError as error:
            return str(error)

    for found in loaded_blocks(load, len(rows.ids), pool, size):
        good = {row: one for row, one in found.items() if isinstance(one, Tensor)}
        errors = {row: one for row, one in found.items() if isinstance(one, str)}
        # all at once: one after the other would take several times as long
        inputs = preprocessing.normalized(torch.stack(list(good.values()))) if good else None
        yield Block(list(good), inputs, errors)


def loaded_blocks(
    load: Callable[[int], T], number: int, pool: ThreadPoolExecutor, size: int
) -> Iterator[dict[int, T]]:
    """Give what a function makes of row 0, row 1, ..., by row and so many at a time.

    The next blocks are made by the threads of the pool while the caller works on one.
    """
    waiting: deque[dict[int, Future[T]]] = deque()
    numbers = range(number)
    for start in [*numbers[::size], *[None] * _AHEAD]:  # as many more turns as blocks are waiting at the end
        if start is not None:
            waiting.append({row: pool.submit(load, row) for row in numbers[start : start + size]})
        if waiting and (start is None or len(waiting) > _AHEAD):
            yield {row: future.result() for row, future in waiting.popleft().items()}


def _of_inputs(start: int, inputs: Tensor) -> Block:
    good = inputs.isfinite().flatten(1).all(1).tolist()
    errors = {start + i: "it holds NaN or infinity" for i, is_good in enumerate(good) if not is_good}
    rows = [start + i for i, is_good in enumerate(good) if is_good]
    return Block(rows, inputs[[row - start for row in rows]] if errors else inputs, errors)


def _pixels(content: bytes, preprocessing: Preprocessing) -> Tensor:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as opened:
            return preprocessing.bytes_of(as_rgb(opened))
    except Exception as error:  # decoders fail in many ways on broken files
        raise ValueError(f"it cannot be read as an image: {reason_of(error)}") from error


def padded(function: Callable[[Tensor], Tensor], inputs: Tensor, size: int) -> Tensor:
    """Call a function of rows (n, ...) on always the same number of them: its last bits depend on it."""
    if len(inputs) == size:
        return function(inputs)
    filled = inputs.new_zeros(size, *inputs.shape[1:])
    filled[: len(inputs)] = inputs
    return function(filled)[: len(inputs)]
