"""From sets to what people read."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_scores
from shortlist.class_table import ClassTable

__all__ = ["Candidate", "sizes", "to_lists"]


@dataclass(frozen=True)
class Candidate:
    """One class of a short list."""

    index: int
    id: str
    name: str
    score: float


def sizes(sets: Bool[Tensor, "n c"]) -> Int[Tensor, " n"]:
    """Number of classes in each set (n,).

    Example:
        >>> sizes(torch.tensor([[True, False, True], [False, False, False]]))
        tensor([2, 0])
    """
    _check_sets(sets)
    return sets.sum(1)


def to_lists(
    sets: Bool[Tensor, "n c"], scores: Float[Tensor, "n c"], class_table: ClassTable
) -> list[list[Candidate]]:
    """The classes of each set by name, the best score first.

    Args:
        sets: Sets (n, c).
        scores: Scores or probabilities (n, c) to sort by and to show.
        class_table: Names and ids of the c classes.

    Example:
        >>> table = ClassTable(names=("oak", "beech", "birch"))
        >>> sets, scores = torch.tensor([[True, False, True]]), torch.tensor([[0.25, 0.125, 0.5]])
        >>> [candidate.name for candidate in to_lists(sets, scores, table)[0]]
        ['birch', 'oak']
    """
    check_scores(scores, name="scores")
    _check_sets(sets)
    if sets.shape != scores.shape:
        raise ValueError(f"sets must have the scores' shape {tuple(scores.shape)}, got {tuple(sets.shape)}")
    if len(class_table) != scores.shape[1]:
        raise ValueError(f"class_table must have {scores.shape[1]} classes, got {len(class_table)}")
    lists: list[list[Candidate]] = [[] for _ in range(len(scores))]
    rows, columns = sets.nonzero(as_tuple=True)
    values = scores[rows, columns]
    order = values.argsort(descending=True, stable=True)
    members = zip(rows[order].tolist(), columns[order].tolist(), values[order].tolist(), strict=True)
    for row, column, score in members:
        index = int(column)
        lists[row].append(Candidate(index, class_table.ids[index], class_table.names[index], score))
    return lists


def _check_sets(sets: Tensor) -> None:
    if not isinstance(sets, Tensor) or sets.ndim != 2 or sets.dtype != torch.bool:
        got = f"{sets.dtype} {tuple(sets.shape)}" if isinstance(sets, Tensor) else type(sets).__name__
        raise ValueError(f"sets must be a bool tensor of shape (n, c), got {got}")
