"""Load batches of (inputs, targets, row numbers), in an order that depends only on seed and epoch."""

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from shortlist.datasets.sampling import ClassBalancedSampler
from shortlist.datasets.splits import Split, fetch_rows

Batch = tuple[Tensor, Tensor, Tensor]


class NumberedRows(Dataset):
    """A split whose batches also have row numbers; number ``n + i`` is row i, marked to be left out."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, numbers: Sequence[int]) -> Batch:
        """Return a whole batch."""
        marked = torch.as_tensor(numbers)
        rows = marked % len(self.split)
        inputs, targets = fetch_rows(self.split, rows)
        counted = (marked < len(self.split)).view(-1, *[1] * (targets.ndim - 1))  # of label sets (m, 1)
        return inputs, torch.where(counted, targets, -100), rows

    def __getitem__(self, number: int) -> Batch:
        return self.__getitems__([number])


def _as_it_is(batch: Any) -> Any:
    return batch


def _place() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


class EpochShuffle(Sampler[int]):
    """A sampler of each row once, in a new order each epoch; each process takes every ``world_size``-th.

    So the processes' batches of one step are together the batch of one process. Of rows that do not fill a
    batch, those that come last in the epoch's order are left out.
    """

    def __init__(self, rows: int, *, seed: int, batch_size: int) -> None:
        self.rows, self.seed, self.epoch = rows, seed, 0
        self.used = rows - rows % batch_size if rows >= batch_size else rows

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        rank, world_size = _place()
        return len(range(rank, self.used, world_size))

    def __iter__(self) -> Iterator[int]:
        rank, world_size = _place()
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.rows, generator=generator)[: self.used]
        return iter(order[rank::world_size].tolist())


class EvenShards(Sampler[int]):
    """A sampler of each row once, in order; shards are padded with rows that are marked to be left out."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return -(-self.rows // _place()[1])

    def __iter__(self) -> Iterator[int]:
        rank, world_size = _place()
        shard = list(range(rank, self.rows, world_size))
        return iter(shard + [self.rows] * (len(self) - len(shard)))


class SeededLoader(DataLoader):
    """A loader that seeds all generators at the start of each epoch, before rows are fetched.

    The draws of an epoch, in the data and in the training steps, then depend on the seed, the epoch and the
    process alone, and a resumed run repeats an uninterrupted one. A callback would come too late, or for the
    first epoch after a resumption not at all.
    """

    def __init__(self, *arguments: Any, seed: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seed = seed

    def __iter__(self) -> Any:
        epoch = getattr(self.sampler, "epoch", 0)
        number = (self.seed * 1_000_003 + epoch) * 4096 + _place()[0]
        torch.manual_seed(number)
        random.seed(number)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(number % 2**32)
        return super().__iter__()


def training_loader(
    split: Split,
    *,
    batch_size: int,
    seed: int,
    class_balanced: bool = False,
    first_epoch: int = 0,
    workers: int = 0,
) -> DataLoader:
    """Make a loader of shuffled or class-balanced batches; ``batch_size`` is over all processes."""
    sampler: Any
    if class_balanced:
        draws = max(batch_size, len(split) - len(split) % batch_size)
        sampler = ClassBalancedSampler(split.targets, num_samples=draws, seed=seed)
    else:
        sampler = EpochShuffle(len(split), seed=seed, batch_size=batch_size)
    sampler.set_epoch(first_epoch)
    return SeededLoader(seed=seed, **_options(split, sampler, batch_size, workers))


def evaluation_loader(split: Split, *, batch_size: int, workers: int = 0, shared: bool = True) -> DataLoader:
    """Make a loader of all rows in order, shared among the processes or all for this one."""
    if not shared:
        return DataLoader(
            NumberedRows(split), batch_size=batch_size, collate_fn=_as_it_is, num_workers=workers
        )
    return DataLoader(**_options(split, EvenShards(len(split)), batch_size, workers))


def _options(split: Split, sampler: Any, batch_size: int, workers: int) -> dict[str, Any]:
    world_size = _place()[1]
    if batch_size % world_size:
        raise ValueError(f"batch_size must be a multiple of the {world_size} processes, got {batch_size}")
    return {
        "dataset": NumberedRows(split),
        "batch_size": batch_size // world_size,
        "sampler": sampler,
        "collate_fn": _as_it_is,
        "num_workers": workers,
        "pin_memory": torch.cuda.is_available(),
    }
