"""Votes as numbers: who said what about which item, for the rules that find labels by vote."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist._tables import tidy_column
from shortlist._text import composed

AGAINST = "!none_of_these"
"""The vote "none of these classes": it counts as a vote, and never wins."""
PROPOSAL = "!new:"
"""Start of the label of a vote for a class that is not in the table yet; the proposed name follows."""
DIGITS = 9  # weights are compared after rounding to so many digits: sums of the same votes tie in any order


def in_one_spelling(labels: Sequence[str | None], votes: Mapping[int, int]) -> list[str | None]:
    """Return labels in which proposals that differ in upper and lower case alone are one.

    It has the spelling that most votes have.

    Args:
        labels: The labels; ``None`` stays.
        votes: Number of votes for each, by its place.
    """
    spellings: dict[str, Counter[str]] = {}
    for place, label in enumerate(labels):
        if label is not None and label.startswith(PROPOSAL):
            spellings.setdefault(label.casefold(), Counter())[label] += votes.get(place, 0)
    best = {key: min(names, key=lambda name: (-names[name], name)) for key, names in spellings.items()}
    return [None if label is None else best.get(label.casefold(), label) for label in labels]


@dataclass(frozen=True)
class Ballot:
    """The votes as numbers; those with the same item and label form a candidate."""

    items: np.ndarray
    labels: np.ndarray
    people: np.ndarray
    makers: np.ndarray  # author of each item, -1 if not known
    is_species: np.ndarray  # of each label: whether it names a class or proposes one; !bad_image does not
    against: int  # number of the label of votes against all others, -1 if there are none
    user_of: np.ndarray  # of each vote
    is_invited: np.ndarray  # of each vote: whether an invited person gave it
    candidate_of: np.ndarray  # of each vote
    candidate_item: np.ndarray  # ascending
    candidate_label: np.ndarray  # ascending within an item

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of people and of labels."""
        return len(self.people), len(self.labels)

    @property
    def item_of(self) -> np.ndarray:
        """Item of each vote."""
        return self.candidate_item[self.candidate_of]

    @property
    def label_of(self) -> np.ndarray:
        """Label of each vote."""
        return self.candidate_label[self.candidate_of]


def count_ballot(
    item: Any, user: Any, label: Any, author: Any = None, invited: Any = None
) -> tuple[Ballot, int]:
    """Number items, people and labels; of several votes of a user for an item the last one counts.

    Returns:
        The votes, and the number of rows that were left out because item, user or label is empty.
    """
    columns = {"item": item, "user": user, "label": label, "author": author, "invited": invited}
    lengths = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(lengths.values())) != 1 or not lengths["item"]:
        raise ValueError(f"all columns must have the same length > 0, got {lengths}")
    items, item_of = _codes(item)
    labels, label_of = _words(label)
    people, user_of, maker_of = _people(user, author)
    whole = np.flatnonzero((item_of >= 0) & (user_of >= 0) & (label_of >= 0))
    if not len(whole):
        raise ValueError(f"item, user and label must be given, got {len(item_of)} rows that lack one of them")
    empty = len(item_of) - len(whole)
    item_of, user_of, label_of = item_of[whole], user_of[whole], label_of[whole]
    maker_of = None if maker_of is None else maker_of[whole]
    if empty:  # items and labels of rows that are left out are no items and labels
        items, item_of = _used(items, item_of)
        labels, label_of = _used(labels, label_of)
    makers = np.full(len(items), -1) if maker_of is None else _authors(item_of, maker_of, len(items))
    kept = _last_of_each(item_of * len(people) + user_of)
    item_of, user_of, label_of = item_of[kept], user_of[kept], label_of[kept]
    keys = item_of * len(labels) + label_of
    candidates = _distinct(keys)
    is_text = labels.dtype.kind == "U"
    starts = np.char.startswith
    is_species = (
        starts(labels, PROPOSAL) | ~starts(labels, "!") if is_text else np.ones(len(labels), dtype=bool)
    )
    ballot = Ballot(
        items=items,
        labels=labels,
        people=people,
        makers=makers,
        is_species=is_species,
        against=int(np.append(np.flatnonzero(labels == AGAINST), -1)[0]) if is_text else -1,
        user_of=user_of,
        is_invited=_flags(invited, lengths["item"])[whole][kept],
        candidate_of=np.searchsorted(candidates, keys),
        candidate_item=candidates // len(labels),
        candidate_label=candidates % len(labels),
    )
    return ballot, empty


def _flags(values: Any, length: int) -> np.ndarray:
    """Read a column of 0 and 1, in which a missing one is 0."""
    if values is None:
        return np.zeros(length, dtype=bool)
    distinct, codes = _codes(values)
    words = [str(word).strip().lower() for word in distinct.tolist()]
    flags = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
    if wrong := [word for word in words if word not in flags]:
        raise ValueError(f"invited must be 0 or 1, got {wrong[0][:80]!r}")
    return np.asarray([*map(flags.__getitem__, words), False])[codes]


def has_enough_voters(ballot: Ballot, winner: np.ndarray, least: int, machine: str) -> np.ndarray:
    """Whether so many people, or an invited one, gave each item its winner; a machine is nobody."""
    for_winner = (ballot.label_of == winner[ballot.item_of]) & (ballot.people[ballot.user_of] != machine)
    items = len(ballot.items)
    voters = np.bincount(ballot.item_of[for_winner], minlength=items)
    invited = np.bincount(ballot.item_of[for_winner & ballot.is_invited], minlength=items)
    return (voters >= least) | (invited > 0)


def _used(values: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values that codes still point to, and the codes among them."""
    used, codes = np.unique(codes, return_inverse=True)
    return values[used], codes


def _people(user: Any, author: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Number users and authors together."""
    users, user_of = _words(user)
    if author is None:
        return users, user_of, None
    authors, author_of = _words(author)
    if len(authors) and users.dtype.kind != authors.dtype.kind:
        users, authors = users.astype(str), authors.astype(str)
    people = _distinct(np.concatenate([users, authors])) if len(authors) else users
    user_of = np.append(np.searchsorted(people, users), -1)[user_of]
    author_of = np.append(np.searchsorted(people, authors), -1)[author_of]
    return people, user_of, author_of


def find_winners(
    ballot: Ballot, user_weights: np.ndarray, *, against_may_win: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the winning label of each item and its weight; of equal weights, the first label.

    "None of these" wins only where nothing else was proposed, and has no weight there.
    """
    totals = np.bincount(ballot.candidate_of, weights=user_weights[ballot.user_of]).round(DIGITS)
    if not against_may_win:
        totals[ballot.candidate_label == ballot.against] = -1.0
    first = np.flatnonzero(np.diff(ballot.candidate_item, prepend=-1))
    weights = np.maximum.reduceat(totals, first)
    best = np.flatnonzero(totals == weights[ballot.candidate_item])
    first_best = best[np.searchsorted(ballot.candidate_item[best], np.arange(len(first)))]
    return ballot.candidate_label[first_best], weights.clip(0)


def _codes(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted distinct values, and for each entry the index of its value; -1 for a missing one."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fO":  # nothing can be missing
        return np.unique(values, return_inverse=True)
    import pyarrow  # which knows of missing values, and hashes text much faster

    given = hasattr(values, "dictionary_encode")
    column: Any = values if given else pyarrow.array(values, from_pandas=True)
    column = tidy_column(column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column)
    if column.null_count == len(column):
        return np.empty(0, dtype=str), np.full(len(column), -1)
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    distinct = np.asarray(encoded.dictionary.to_pylist())
    order = np.argsort(distinct, kind="stable")
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(order)), -1
    return distinct[order], place[codes]


def _words(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`_codes`, for words that people wrote: both ways to write an accent count as one."""
    distinct, codes = _codes(values)
    words = distinct.tolist() if distinct.dtype.kind == "U" else []
    if all(composed(word) == word for word in words):  # nearly always: then nothing needs to be sorted again
        return distinct, codes
    words, place = np.unique([composed(word) for word in words], return_inverse=True)
    return words, np.append(place, -1)[codes]


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
    has_author = author >= 0
    np.minimum.at(low, item[has_author], author[has_author])
    np.maximum.at(high, item[has_author], author[has_author])
    if (both := (high >= 0) & (low != high)).any():
        raise ValueError(
            f"author must be the same in all rows of an item, got different ones for {int(both.sum())} items"
        )
    return high


def count_species(ballot: Ballot, people: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Count, for each of all people, the different species that are beside them in these columns."""
    species = ballot.is_species[labels]
    pairs = _distinct(people[species] * len(ballot.labels) + labels[species])
    return np.bincount(pairs // len(ballot.labels), minlength=len(ballot.people))
