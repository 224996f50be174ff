"""Collect what the page needs of the rows of a run, in one pass over the scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.compare import (
    ConfusedPair,
    RowReader,
    confused_pairs,
    easy_to_hard,
    size_histograms,
    top_hits,
)
from shortlist.metrics import RowNumbers
from shortlist.runs import Group, Run

NUM_LISTS, NUM_PAIRS, NUM_CANDIDATES, NUM_EXAMPLES = 9, 8, 8, 3
NUM_FIRST = 5  # classes of a list of a run without predictors


@dataclass(frozen=True)
class ListedClass:
    """A class that is in at least one set of a row, or the true class.

    Args:
        index: Index of the class.
        place: Rank of its score in the row, 1 for the best.
        probability: Probability of the class, for the class frequencies of the training rows; ``None`` if the
            scores are not log-probabilities.
        held_by: Whether each predictor's set contains the class.
    """

    index: int
    place: int
    probability: float | None
    held_by: Sequence[bool]


@dataclass(frozen=True)
class ShortList:
    """A test row with its sets.

    Args:
        row: Index of the test row.
        true: True class of the row.
        sizes: Size of each predictor's set.
        candidates: The classes of the sets, the best first, as many as are shown (without predictors the
            first few); the true one is always among them, in its place.
        more: Number of classes of the sets that are not listed.
    """

    row: int
    true: int
    sizes: Sequence[int]
    candidates: Sequence[ListedClass]
    more: int


@dataclass(frozen=True)
class MethodRows:
    """The numbers of the rows of all runs of a method; lists and example rows are from the first run.

    Args:
        histograms: By predictor and group, the number of sets of each size.
        pairs: The most confused classes, counted over all runs.
        pair_rows: For each pair, rows of the first run mistaken one way and the other.
        lists: Short lists from easy to hard.
        predictors: Names of the predictors, in the order of the sizes and marks of the lists.
        target: Classes of the test rows of the first run (n,), to check that pictures belong to them.
        counted: Indices of its rows that count (m,).
        hits: By name, ``top-1``, ``top-5`` or a predictor, whether each of these rows is right.
    """

    histograms: Mapping[str, Mapping[str, Sequence[int]]]
    pairs: Sequence[ConfusedPair]
    pair_rows: Sequence[tuple[Sequence[int], Sequence[int]]]
    lists: Sequence[ShortList]
    predictors: Sequence[str]
    target: Tensor
    counted: Tensor
    hits: Mapping[str, Tensor]


@torch.inference_mode()
def measure_method(method: Group, read: RowReader | None = None) -> MethodRows:
    """Go once through the test scores of all runs of a method that were not looked at before."""
    read = read or RowReader()
    passes = [read.last_time(each) for each in method.runs]
    run, table, first = method.runs[0], method.runs[0].class_table, passes[0]
    scores, every = run.score_blocks("test")
    rows = (every != -100).nonzero().flatten()  # those that count
    names, chosen = list(first.sizes), rows[easy_to_hard((-first.score_nll).exp(), limit=NUM_LISTS)]
    guess, target = torch.cat([p.guess for p in passes]), torch.cat([p.target for p in passes])
    pairs = confused_pairs(guess, target, num_classes=len(table), limit=NUM_PAIRS)
    sizes = {name: torch.cat([p.sizes[name] for p in passes]) for name in names}
    return MethodRows(
        histograms={name: size_histograms(sizes[name], target, run.class_groups) for name in names},
        pairs=pairs,
        pair_rows=[
            (_rows_taken_for(first, rows, *pair.classes), _rows_taken_for(first, rows, *pair.classes[::-1]))
            for pair in pairs
        ],
        lists=_short_lists(run, chosen.tolist(), scores.rows(chosen.tolist()), every),
        predictors=names,
        target=every,
        counted=rows,
        hits={f"top-{k}": top_hits(first, k) for k in (1, 5) if k < len(table)} | dict(first.hits),
    )


def _short_lists(run: Run, rows: Sequence[int], scores: Tensor, target: Tensor) -> list[ShortList]:
    """Make the lists of some rows from their scores (m, c) and the classes of all rows (n,)."""
    sets, chances = run.sets(scores), run.probabilities(scores)
    return [
        short_list(scores[i], row, int(target[row]), sets[:, i], None if chances is None else chances[i])
        for i, row in enumerate(rows)
    ]


def _rows_taken_for(numbers: RowNumbers, rows: Tensor, true: int, guess: int) -> list[int]:
    return rows[(numbers.target == true) & (numbers.guess == guess)][:NUM_EXAMPLES].tolist()


def short_list(
    scores: Tensor,
    row: int,
    true: int,
    sets: Tensor,
    probabilities: Tensor | None,
    *,
    limit: int = NUM_CANDIDATES,
) -> ShortList:
    """Make the list of a row from its scores (c,), the sets (p, c) of p predictors, probabilities (c,)."""
    order = scores.argsort(descending=True, stable=True)
    place = {index: number for number, index in enumerate(order.tolist(), start=1)}
    held = sets.any(0)
    members = [index for index in order.tolist() if held[index]] if len(sets) else order[:NUM_FIRST].tolist()
    shown = members[:limit]
    if true not in shown:
        shown = [*members[: limit - 1], true]
    shown.sort(key=place.__getitem__)
    candidates = [
        ListedClass(
            index,
            place[index],
            None if probabilities is None else float(probabilities[index]),
            sets[:, index].tolist(),
        )
        for index in shown
    ]
    return ShortList(row, true, sets.sum(1).tolist(), candidates, len(set(members) - set(shown)))
