"""The rows of a shard in blocks of one size, read by threads while the network works on the one before."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.passes.parts import Mapped
from shortlist.passes.shards import ShardRows
from shortlist.preprocessing import Preprocessing

IMAGES = 32
"""Images that go through a network at a time."""

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
    """Give the rows of a shard in blocks of ``size`` rows, with reasons for rows that cannot be read."""
    if rows.inputs is not None:
        return (
            _of_inputs(start, rows.inputs[start : start + size]) for start in range(0, len(rows.ids), size)
        )
    if preprocessing is None:
        raise ValueError("the model has no preprocessing, which would say how a picture becomes an input")

    def load(row: int) -> Tensor:
        return preprocessing.bytes_of_file(rows.content(row))

    # normalized all at once: one after the other would take several times as long
    return loaded_blocks(load, len(rows.ids), pool, size, preprocessing.normalized)


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


def _of_inputs(start: int, inputs: Tensor) -> Block:
    finite = inputs.isfinite().flatten(1).all(1)
    rows, bad = ((start + which.nonzero()[:, 0]).tolist() for which in (finite, ~finite))
    return Block(rows, inputs[finite], dict.fromkeys(bad, "it holds NaN or infinity"))


def padded(function: Callable[[Tensor], Tensor], inputs: Tensor, size: int) -> Tensor:
    """Call a function on rows (n, ...) filled up to ``size``: its last bits depend on the number of rows."""
    if len(inputs) == size:
        return function(inputs)
    filled = inputs.new_zeros(size, *inputs.shape[1:])
    filled[: len(inputs)] = inputs
    return function(filled)[: len(inputs)]


def map_rows(
    rows: ShardRows,
    blocks: Iterable[Block],
    network: Callable[[Tensor], Tensor],
    columns: Callable[[Tensor, list[int]], tuple[dict[str, Tensor], Tensor]],
    *,
    size: int,
    problem: str,
    width: int = 0,
) -> Mapped:
    """Map the rows of a shard, block by block.

    Rows go through the network in blocks of one size, by their place in the shard, and a block that is not
    full is filled up: the last bits of a product depend on the number of its rows.

    Args:
        rows: The rows.
        blocks: Their blocks.
        network: Function from inputs (size, ...) to outputs (size, width).
        columns: Function from the outputs of some rows, on the CPU, and the numbers of these rows. It returns
            which rows are good (n,), bool, and by name what is kept of the good ones.
        size: Number of rows of a block.
        problem: Why a row that is not good cannot be used.
        width: Number of outputs of a row, for columns without any row.
    """
    parts: list[dict[str, Tensor]] = []
    kept: list[int] = []
    errors: dict[int, str] = {}
    for block in blocks:
        errors |= block.errors
        if block.inputs is None:
            continue
        part, good = columns(padded(network, block.inputs, size).cpu(), block.rows)
        parts.append(part)
        for row, is_good in zip(block.rows, good.tolist(), strict=True):
            if is_good:
                kept.append(row)
            else:
                errors[row] = problem
    parts = parts or [columns(torch.zeros(0, width), [])[0]]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return Mapped(rows.ids, rows.targets, kept, joined, errors, rows.facts)
