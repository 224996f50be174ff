"""Map the rows of a shard in blocks. Threads read the next block while the network works on a block."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from shortlist.model import Block, loaded_blocks
from shortlist.passes.parts import Mapped
from shortlist.passes.shards import ShardRows
from shortlist.preprocessing import Preprocessing

IMAGES = 32
"""Number of images in a block."""


def read_blocks(
    rows: ShardRows, preprocessing: Preprocessing | None, pool: ThreadPoolExecutor, size: int
) -> Iterator[Block]:
    """Give the rows of a shard in blocks of ``size`` rows, and the reasons why rows cannot be read."""
    if rows.inputs is not None:
        return (
            _of_inputs(start, rows.inputs[start : start + size]) for start in range(0, len(rows.ids), size)
        )
    if preprocessing is None:
        raise ValueError("the model has no preprocessing, which would say how a picture becomes an input")

    def load(row: int) -> Tensor:
        return preprocessing.bytes_of_file(rows.content(row))

    # a block is normalized at once: image by image would take several times as long
    return loaded_blocks(load, len(rows.ids), pool, size, preprocessing.normalized)


def _of_inputs(start: int, inputs: Tensor) -> Block:
    finite = inputs.isfinite().flatten(1).all(1)
    rows, bad = ((start + mask.nonzero()[:, 0]).tolist() for mask in (finite, ~finite))
    return Block(rows, inputs[finite], dict.fromkeys(bad, "it holds NaN or infinity"))


def padded(function: Callable[[Tensor], Tensor], inputs: Tensor, size: int) -> Tensor:
    """Call a function on rows (n, ...), filled up with zeros to ``size`` rows.

    The last bits of a product depend on its number of rows, so this number is always the same.
    """
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
    """Map the rows of a shard, block by block. The result does not depend on how rows are grouped.

    Args:
        rows: The rows.
        blocks: Their blocks.
        network: Function from inputs (size, ...) to outputs (size, width).
        columns: Function from the outputs of some rows, on the CPU, and the numbers of these rows. It returns
            columns of the good rows by name, and which rows are good (n,), bool.
        size: Number of rows of a block.
        problem: Error message for rows that are not good.
        width: Number of outputs of a row, to make empty columns if no row can be read.
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
