"""The form of every data set: three splits and a class table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from shortlist._row_facts import RowFacts
from shortlist.class_table import ClassTable


@runtime_checkable
class Split(Protocol):
    """One part of a data set: ``split[i]`` is (input, class index), ``targets`` all class indices (n,).

    It may also have ``facts``: see :func:`facts_of`.
    """

    targets: Tensor

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor, int]: ...


@dataclass(frozen=True, repr=False)
class Splits:
    """The training, validation and test splits of a data set, and its class table.

    ``calibration`` has validation rows that were kept apart to calibrate predictors, if there are any.
    ``further`` has, by name of a held-out split, further photos of the objects in it. They are no rows of the
    split, which stays one of single photos, and serve to promise and measure lists from several photos.
    """

    train: Split
    val: Split
    test: Split
    class_table: ClassTable
    calibration: Split | None = field(default=None, kw_only=True)
    further: Mapping[str, Split] = field(default_factory=dict, kw_only=True)

    def __repr__(self) -> str:
        """Show the numbers of rows and classes.

        Example:
            >>> part = TensorSplit(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
            >>> part, Splits(part, part, part, ClassTable(["oak", "ash"]))
            (TensorSplit(4 rows of shape (2,)), Splits(4 training, 4 validation, 4 test rows; 2 classes))
        """
        parts = [f"{len(self.train):,} training", f"{len(self.val):,} validation"]
        parts += [] if self.calibration is None else [f"{len(self.calibration):,} calibration"]
        rows = ", ".join([*parts, f"{len(self.test):,} test rows"])
        return f"{type(self).__name__}({rows}; {len(self.class_table):,} classes)"


class TensorSplit(Dataset):
    """A part that is held in memory, with its rows in the first axis of one tensor.

    A ``DataLoader`` with ``collate_fn=TensorSplit.collate`` fetches each batch in one piece.

    Args:
        inputs: All rows (n, ...).
        targets: Class index of each row (n,), int64.
        transform: Function applied to a batch of rows when they are fetched.
        facts: What is known about the rows beside their class.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        transform: Callable[[Tensor], Tensor] | None = None,
        facts: RowFacts | None = None,
    ) -> None:
        if targets.dtype != torch.int64 or targets.shape != inputs.shape[:1]:
            raise ValueError(
                f"targets must be int64 of shape ({len(inputs)},), got {targets.dtype} {tuple(targets.shape)}"
            )
        self.inputs, self.targets, self.transform, self.facts = inputs, targets, transform, facts

    def __repr__(self) -> str:
        return f"TensorSplit({len(self):,} rows of shape {tuple(self.inputs.shape[1:])})"

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row, target = self.batch(torch.tensor([index]))
        return row[0], int(target)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows with these indices, transformed, and their classes."""
        rows = self.inputs[indices]
        return rows if self.transform is None else self.transform(rows), self.targets[indices]

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return a whole batch, for ``DataLoader``."""
        return self.batch(torch.as_tensor(indices))

    @staticmethod
    def collate(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the batch as it is, since it was fetched as a whole."""
        return batch


class ChangedSplit(Dataset):
    """Some rows of a part with other labels; rows that the part could not read keep -100.

    Args:
        split: The part of a data set.
        rows: Indices of the rows, in this order (m,).
        targets: Class indices of these rows (m,).
    """

    def __init__(self, split: Split, rows: Tensor, targets: Tensor) -> None:
        self.split, self.rows, self.targets = split, rows, targets
        facts = facts_of(split)
        self.facts = None if facts is None else facts.take(rows)

    def __repr__(self) -> str:
        return f"ChangedSplit({len(self):,} rows of {self.split!r})"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row, target = self.split[int(self.rows[index])]
        return row, target if target == -100 else int(self.targets[index])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows with these indices and their classes."""
        inputs, targets = fetch_rows(self.split, self.rows[indices])
        return inputs, torch.where(targets == -100, targets, self.targets[indices])


def unchanged(split: Split) -> tuple[Split, Tensor]:
    """Return the part that the rows of a changed one come from, and the number of each row in it (n,)."""
    rows = torch.arange(len(split))
    while isinstance(split, ChangedSplit):
        rows, split = split.rows[rows], split.split
    return split, rows


def facts_of(split: Split) -> RowFacts | None:
    """Return what a part knows about its rows beside their class; ``None`` if it knows nothing."""
    return getattr(split, "facts", None)


def fetch_rows(split: Split, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs and classes of some rows of a part, in one piece if it can."""
    fetch = getattr(split, "batch", None)
    return default_collate([split[row] for row in rows.tolist()]) if fetch is None else fetch(rows)


def have_same_rows(first: Split, second: Split) -> bool:
    """Return whether two parts have the same rows, so that what is fitted on one has seen the other."""
    if first is second:
        return True
    if not len(first) or len(first) != len(second) or not torch.equal(first.targets, second.targets):
        return False
    for key in ("inputs", "paths"):
        here, there = getattr(first, key, None), getattr(second, key, None)
        if isinstance(here, Tensor) and isinstance(there, Tensor):
            return here.data_ptr() == there.data_ptr()
        if here is not None and there is not None:
            return list(here) == list(there)
    return False
