"""The calibration rows of conformal prediction: one score and one class for each row, or for each vote."""

import torch
from torch import Tensor

__all__ = ["ScoredRows"]

_FIRST = 1024


class ScoredRows:
    """Scores of the true classes of rows that arrive in batches, and these classes.

    They are copied into long tensors that double when they are full: small tensors kept from each batch would
    hold on to the memory of the large ones between them. Where votes take the place of labels, a row has one
    entry for each class with votes, and each entry has its share of the row's votes.
    """

    def __init__(self) -> None:
        self._columns: dict[str, Tensor] = {
            "scores": torch.empty(0),
            "targets": torch.empty(0, dtype=torch.int64),
        }
        self._count = 0
        self.rows = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, scores: Tensor, target: Tensor, shares: Tensor | None = None, rows: int | None = None
    ) -> None:
        """Add the scores (m,) of entries, their classes (m,) and shares (m,) of the votes of some rows."""
        new = {"scores": scores, "targets": target}
        if shares is None and self.voted:
            shares = torch.ones_like(scores, dtype=torch.float64)
        elif shares is not None and not self.voted:
            self._columns["shares"] = shares.new_ones(len(self._columns["scores"]))
        if shares is not None:
            new["shares"] = shares
        before, self._count = self._count, self._count + len(scores)
        self.rows += len(scores) if rows is None else rows
        for name, values in new.items():
            column = self._columns[name]
            dtype = torch.promote_types(column.dtype, values.dtype) if before else values.dtype
            if self._count > len(column) or dtype != column.dtype:
                longer = values.new_empty(max(_FIRST, 2 * self._count), dtype=dtype)
                longer[:before] = column[:before]
                self._columns[name] = column = longer
            column[before : self._count] = values

    def join(self, other: "ScoredRows") -> None:
        """Add the rows of another."""
        if len(other):
            self.add(other.scores, other.target, other.shares, rows=other.rows)

    @property
    def voted(self) -> bool:
        """Whether some rows have votes."""
        return "shares" in self._columns

    @property
    def scores(self) -> Tensor:
        """Scores (m,) of all entries so far, in the order that they came in."""
        return self._columns["scores"][: self._count]

    @property
    def target(self) -> Tensor:
        """Classes (m,) of all entries so far."""
        return self._columns["targets"][: self._count]

    @property
    def shares(self) -> Tensor | None:
        """Share (m,) that each entry has of its row's votes, if some rows have votes."""
        return self._columns["shares"][: self._count] if self.voted else None

    def state(self) -> dict[str, Tensor]:
        """Return all rows as tensors to save."""
        if not len(self):
            return {}
        state = {name: column[: self._count].clone() for name, column in self._columns.items()}
        return state | ({"rows": torch.tensor(self.rows)} if self.voted else {})

    @staticmethod
    def of(state: dict[str, Tensor]) -> "ScoredRows":
        """Return the rows that :meth:`state` returned."""
        found = ScoredRows()
        if state:
            rows = int(state["rows"]) if "rows" in state else None
            found.add(state["scores"], state["targets"], state.get("shares"), rows=rows)
        return found
