"""Find labels by the votes of many users, weighted by how many species each has shown to know."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist._checks import check_count, check_number
from shortlist._files import replacing
from shortlist.datasets.lists import read_columns, tidy_column

__all__ = ["ConsensusLabels", "aggregate_votes", "read_votes", "save_consensus"]

DIGITS = 9  # weights are compared after rounding to so many digits: sums of the same votes tie in any order


@dataclass(frozen=True)
class ConsensusLabels:
    """The label of each item by vote, and the weight of each user.

    Attributes:
        items: The items, sorted (m,).
        labels: The winning label of each item (m,).
        weights: The total weight of the votes for the winning label (m,).
        valid: Whether this weight exceeds ``theta`` (m,), bool.
        users: The users, sorted (v,).
        user_weights: The weight of each user (v,).
        user_species: The number n_u of each user (v,), see :func:`aggregate_votes`.
        iterations: Number of times that weights were computed.
        converged: Whether the last iteration changed nothing; ``False`` if they ran in a circle or too long.
    """

    items: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    valid: np.ndarray
    users: np.ndarray
    user_weights: np.ndarray
    user_species: np.ndarray
    iterations: int
    converged: bool


def _codes(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted distinct values, and for each entry the index of its value; -1 for a missing one."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fO":  # nothing can be missing
        return np.unique(values, return_inverse=True)
    import pyarrow  # which knows of missing values, and hashes text much faster

    given = hasattr(values, "dictionary_encode")
    column = tidy_column(values if given else pyarrow.array(values, from_pandas=True))
    if column.null_count == len(column):
        return np.empty(0, dtype=str), np.full(len(column), -1)
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    distinct = np.asarray(encoded.dictionary.to_pylist())
    order = np.argsort(distinct, kind="stable")
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(order)), -1
    return distinct[order], place[codes]


def _distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values by sorting, which is faster than numpy's hashing for many values."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def _last_of_each(keys: np.ndarray) -> np.ndarray:
    """Return the indices of the last entry of each distinct key, in the order of the keys."""
    order = np.argsort(keys, kind="stable")
    last = np.append(keys[order[1:]] != keys[order[:-1]], True)
    return order[last]


def _authors(item: np.ndarray, author: np.ndarray, num_items: int) -> np.ndarray:
    """Return the author of each item, -1 if unknown; two different ones are an error."""
    low = np.full(num_items, np.iinfo(np.int64).max)
    high = np.full(num_items, -1, dtype=np.int64)
    known = author >= 0
    np.minimum.at(low, item[known], author[known])
    np.maximum.at(high, item[known], author[known])
    if (both := (high >= 0) & (low != high)).any():
        raise ValueError(
            f"author must be the same in all rows of an item, got different ones for {int(both.sum())} items"
        )
    return high


def _distinct_pairs(first: np.ndarray, second: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Count, for each value of the first column, the different values of the second."""
    pairs = _distinct(first * sizes[1] + second)
    return np.bincount(pairs // sizes[1], minlength=sizes[0])


def aggregate_votes(
    item: Any,
    user: Any,
    label: Any,
    author: Any = None,
    *,
    theta: float = 2.0,
    b0: float = math.log(2.1),
    max_iterations: int = 100,
) -> ConsensusLabels:
    r"""Find the label of each item by weighted vote; users who have shown to know more species weigh more.

    .. math::
        y_i = \arg\max_k \sum_u w_u [\text{vote}_{ui} = k], \qquad w_u = n_u^{0.5} - n_u^{0.2} + b_0

    where :math:`n_u` is the number of species of which user u is the author of a valid item, plus the number
    of distinct labels u proposed. An item is valid if the weight of its winning label exceeds ``theta``.
    Since :math:`n_u` depends on what is valid, weights and labels are computed in turn, at first with no item
    valid, until they no longer change. They may run in a circle instead; this is noticed, and the last state
    returned with ``converged=False``.

    Of several votes of one user for one item, the last row counts. Labels of equal weight (to 9 digits) go
    to the one that is first in sorted order.

    Args:
        item: Item of each vote (n,): numbers, text or an Arrow column.
        user: User who gave each vote (n,).
        label: Label of each vote (n,).
        author: User who made the item (n,), the same in all rows of an item, missing if not known; ``None``
            if no author is known. A user and an author of the same name are the same person.
        theta: Weight that a valid item's label must exceed.
        b0: Weight of a newcomer. The default pair, 2 and log 2.1 (0.74), takes three
            newcomers or one user with n_u = 8 to make an item valid; it is that of Pl@ntNet's published code,
            while the paper gives no numbers.
        max_iterations: Largest number of rounds.

    Returns:
        Items with their labels, users with their weights.

    Example:
        >>> votes = [1, 1, 1, 2], ["a", "b", "c", "a"], ["oak", "oak", "ash", "ash"]
        >>> found = aggregate_votes(*votes, theta=1.5)
        >>> found.labels.tolist(), found.valid.tolist()
        (['oak', 'ash'], [True, False])

    References:
        C. Garcin et al., "Pl@ntNet-300K: a plant image dataset with high label ambiguity and a long-tailed
        distribution", NeurIPS Datasets and Benchmarks 2021, appendix on label validation.
    """
    check_number("theta", theta, low=0.0)
    check_number("b0", b0, low=0.0)
    check_count("max_iterations", max_iterations)
    ballot = _count(item, user, label, author)
    n_u, seen, iteration = ballot.proposed, set(), 0
    while True:
        iteration += 1
        user_weights = n_u**0.5 - n_u**0.2 + b0
        winner, weights = _winners(ballot, user_weights)
        valid = weights > theta
        update = ballot.proposed + _species_made(ballot, winner, valid)
        converged = bool((update == n_u).all())
        seen.add(hashlib.blake2b(n_u.tobytes()).digest())
        circle = hashlib.blake2b(update.tobytes()).digest() in seen
        if converged or circle or iteration == max_iterations:
            break
        n_u = update
    voters = np.flatnonzero(np.bincount(ballot.user_of, minlength=len(ballot.people)))
    return ConsensusLabels(
        items=ballot.items,
        labels=ballot.labels[winner],
        weights=weights,
        valid=valid,
        users=ballot.people[voters],
        user_weights=user_weights[voters],
        user_species=n_u[voters],
        iterations=iteration,
        converged=converged,
    )


def _species_made(ballot: "_Ballot", winner: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Count the species of the valid items that each user is the author of."""
    counted = valid & (ballot.makers >= 0)
    return _distinct_pairs(ballot.makers[counted], winner[counted], ballot.shape)


@dataclass(frozen=True)
class _Ballot:
    """The votes as numbers; those with the same item and label form a candidate."""

    items: np.ndarray
    labels: np.ndarray
    people: np.ndarray
    makers: np.ndarray  # author of each item, -1 if not known
    proposed: np.ndarray  # distinct labels that each of the people proposed
    user_of: np.ndarray  # of each vote
    candidate_of: np.ndarray  # of each vote
    candidate_item: np.ndarray  # ascending
    candidate_label: np.ndarray  # ascending within an item

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.people), len(self.labels)


def _count(item: Any, user: Any, label: Any, author: Any) -> _Ballot:
    columns = {"item": item, "user": user, "label": label} | ({} if author is None else {"author": author})
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1 or not lengths["item"]:
        raise ValueError(f"all columns must have the same length > 0, got {lengths}")
    items, item_of = _codes(item)
    labels, label_of = _codes(label)
    people, user_of, maker_of = _people(user, author)
    for name, codes in {"item": item_of, "user": user_of, "label": label_of}.items():
        if codes.min() < 0:
            raise ValueError(f"{name} must be given in every row, got {int((codes < 0).sum())} empty ones")
    makers = np.full(len(items), -1) if maker_of is None else _authors(item_of, maker_of, len(items))
    kept = _last_of_each(item_of * len(people) + user_of)
    item_of, user_of, label_of = item_of[kept], user_of[kept], label_of[kept]
    keys = item_of * len(labels) + label_of
    candidates = _distinct(keys)
    return _Ballot(
        items=items,
        labels=labels,
        people=people,
        makers=makers,
        proposed=_distinct_pairs(user_of, label_of, (len(people), len(labels))),
        user_of=user_of,
        candidate_of=np.searchsorted(candidates, keys),
        candidate_item=candidates // len(labels),
        candidate_label=candidates % len(labels),
    )


def _people(user: Any, author: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Number users and authors together."""
    users, user_of = _codes(user)
    if author is None:
        return users, user_of, None
    authors, author_of = _codes(author)
    if len(authors) and users.dtype.kind != authors.dtype.kind:
        users, authors = users.astype(str), authors.astype(str)
    people = _distinct(np.concatenate([users, authors])) if len(authors) else users
    user_of = np.append(np.searchsorted(people, users), -1)[user_of]
    author_of = np.append(np.searchsorted(people, authors), -1)[author_of]
    return people, user_of, author_of


def _winners(ballot: _Ballot, user_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the winning label of each item and its weight; of equal weights, the first label."""
    totals = np.bincount(ballot.candidate_of, weights=user_weights[ballot.user_of]).round(DIGITS)
    first = np.flatnonzero(np.diff(ballot.candidate_item, prepend=-1))
    weights = np.maximum.reduceat(totals, first)
    best = np.flatnonzero(totals == weights[ballot.candidate_item])
    first_best = best[np.searchsorted(ballot.candidate_item[best], np.arange(len(first)))]
    return ballot.candidate_label[first_best], weights


def read_votes(path: str | Path) -> dict[str, Any]:
    """Read the columns item, user, label and, optionally, author of a ``.csv`` or ``.parquet`` file."""
    return read_columns(path, ["item", "user", "label"], optional=["author"])


def save_consensus(path: str | Path, found: ConsensusLabels) -> None:
    """Write items, labels, weights and validity as ``.csv`` or ``.parquet``."""
    import pyarrow
    from pyarrow import csv, parquet

    table = pyarrow.table(
        {"item": found.items, "label": found.labels, "weight": found.weights, "valid": found.valid}
    )
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"path must end in .csv or .parquet, got {path}")
    with replacing(path) as temporary:
        (parquet.write_table if suffix == ".parquet" else csv.write_csv)(table, temporary)
