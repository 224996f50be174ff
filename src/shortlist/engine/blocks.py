"""The rows of a shard in blocks of one size, read by threads while the network works on the one before."""

import io
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.engine.shards import ShardRows
from shortlist.preprocessing import Preprocessing, as_rgb, reason_of

__all__ = ["Block", "padded", "read_blocks"]

_AHEAD = 2  # blocks that are read before they are needed


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

    def load(row: int) -> Tensor | str:
        try:
            return _input(rows.content(row), preprocessing)
        except ValueError as error:
            return str(error)

    waiting: deque[tuple[range, list[Future]]] = deque()
    numbers = range(len(rows.ids))
    for start in [*numbers[::size], *[None] * _AHEAD]:  # as many more turns as blocks are waiting at the end
        if start is not None:
            part = numbers[start : start + size]
            waiting.append((part, [pool.submit(load, row) for row in part]))
        if waiting and (start is None or len(waiting) > _AHEAD):
            yield _block(*waiting.popleft())


def _of_inputs(start: int, inputs: Tensor) -> Block:
    good = inputs.isfinite().flatten(1).all(1).tolist()
    errors = {start + i: "it holds NaN or infinity" for i, is_good in enumerate(good) if not is_good}
    rows = [start + i for i, is_good in enumerate(good) if is_good]
    return Block(rows, inputs[[row - start for row in rows]] if errors else inputs, errors)


def _block(part: range, futures: list[Future]) -> Block:
    found = {row: future.result() for row, future in zip(part, futures, strict=True)}
    good = {row: one for row, one in found.items() if isinstance(one, Tensor)}
    errors = {row: one for row, one in found.items() if isinstance(one, str)}
    return Block(list(good), torch.stack(list(good.values())) if good else None, errors)


def _input(content: bytes | Tensor, preprocessing: Preprocessing | None) -> Tensor:
    if isinstance(content, Tensor):
        return content
    if preprocessing is None:
        raise ValueError("the model has no preprocessing, which would say how a picture becomes an input")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as opened:
            return preprocessing(as_rgb(opened))
    except Exception as error:  # decoders fail in many ways on broken files
        raise ValueError(f"it cannot be read as an image: {reason_of(error)}") from error


def padded(function: Callable[[Tensor], Tensor], inputs: Tensor, size: int) -> Tensor:
    """Call a function of rows (n, ...) on always the same number of them: its last bits depend on it."""
    if len(inputs) == size:
        return function(inputs)
    filled = inputs.new_zeros(size, *inputs.shape[1:])
    filled[: len(inputs)] = inputs
    return function(filled)[: len(inputs)]
