"""Rows in blocks of one size, loaded by threads while the network works on the one before."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

_AHEAD = 2  # blocks that are loaded before they are needed


@dataclass(frozen=True)
class Block:
    """Consecutive rows.

    Args:
        rows: Numbers of the rows that could be read.
        inputs: Their inputs (m, ...); ``None`` if there is none.
        errors: Of the other rows, why each could not be read.
    """

    rows: list[int]
    inputs: Tensor | None
    errors: dict[int, str]


def loaded_blocks(
    load: Callable[[int], Tensor | None],
    number: int,
    pool: ThreadPoolExecutor,
    size: int,
    prepare: Callable[[Tensor], Tensor] = lambda inputs: inputs,
) -> Iterator[Block]:
    """Give what a function loads for row 0, row 1, ... in blocks of ``size`` rows.

    The next blocks are loaded by the threads of the pool while the caller works on one.

    Args:
        load: Function from the number of a row to its input; ``None`` to leave the row out. A ``ValueError``
            says why a row cannot be read.
        number: Number of rows.
        pool: The threads.
        size: Number of rows of a block.
        prepare: Function from the stacked inputs of a block to those that the network takes.
    """
    waiting: deque[dict[int, Future[Tensor | None]]] = deque()
    numbers = range(number)
    for start in [*numbers[::size], *[None] * _AHEAD]:  # as many more turns as blocks are waiting at the end
        if start is not None:
            waiting.append({row: pool.submit(load, row) for row in numbers[start : start + size]})
        if waiting and (start is None or len(waiting) > _AHEAD):
            yield _block(waiting.popleft(), prepare)


def _block(futures: Mapping[int, Future[Tensor | None]], prepare: Callable[[Tensor], Tensor]) -> Block:
    inputs: dict[int, Tensor] = {}
    errors: dict[int, str] = {}
    for row, future in futures.items():
        try:
            loaded = future.result()
        except ValueError as error:
            errors[row] = str(error)
        else:
            inputs |= {} if loaded is None else {row: loaded}
    return Block(list(inputs), prepare(torch.stack(list(inputs.values()))) if inputs else None, errors)
