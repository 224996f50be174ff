"""Rules that give each user a weight: everybody the same, by agreement with the others, by confusions."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shortlist.curation._ballot import Ballot, find_winners

MAX_NUMBERS = 200_000_000  # that Dawid and Skene's rule may keep
_SMALLEST = 1e-10
_CLOSE = 1e-7  # change of all probabilities at which it ends
_VOTES_AT_ONCE = 4096


class Decision(NamedTuple):
    """The winner of each item, its weight, the weight of all votes, and the weight of each user."""

    winner: np.ndarray
    weights: np.ndarray
    totals: np.ndarray
    user_weights: np.ndarray
    iterations: int
    converged: bool


def total_weights(ballot: Ballot, user_weights: np.ndarray) -> np.ndarray:
    """Return the weight of all votes for each item."""
    return np.bincount(ballot.item_of, weights=user_weights[ballot.user_of], minlength=len(ballot.items))


def _weighted(ballot: Ballot, user_weights: np.ndarray, iterations: int) -> Decision:
    winner, weights = find_winners(ballot, user_weights)
    return Decision(winner, weights, total_weights(ballot, user_weights), user_weights, iterations, True)


def majority(ballot: Ballot, max_iterations: int) -> Decision:
    """Give every user the weight 1."""
    return _weighted(ballot, np.ones(len(ballot.people)), 1)


def agreement(ballot: Ballot, max_iterations: int) -> Decision:
    """Give each user the share of votes that agree with the majority (worker agreement with aggregate)."""
    winner, _ = find_winners(ballot, np.ones(len(ballot.people)), against_may_win=True)
    agrees = ballot.label_of == winner[ballot.item_of]
    people = len(ballot.people)
    votes = np.bincount(ballot.user_of, minlength=people)
    shares = np.bincount(ballot.user_of, weights=agrees, minlength=people) / np.maximum(votes, 1)
    return _weighted(ballot, shares, 2)


def dawid_skene(ballot: Ballot, max_iterations: int) -> Decision:
    r"""Find the probability of each label by the EM algorithm of Dawid and Skene.

    Each user has a matrix of how often they say one label where another is true. It and the probabilities
    are computed in turn, at first with the shares of the votes. The weight of a winner is its probability;
    that of a user is the probability that a vote of theirs is right, for true labels as often as they are.
    "None of these" is a truth among others here: what is probably none of the list has no probable label.

    Raises:
        ValueError: If the matrices would be too large.
    """
    people, labels = ballot.shape
    size = labels * max(people * labels, len(ballot.items))
    if size > MAX_NUMBERS:
        raise ValueError(
            "rule dawid_skene keeps a number for each user and pair of labels, and for each item and label: "
            f"at most {MAX_NUMBERS:,}, got {size:,} for {people:,} users, {labels:,} labels and "
            f"{len(ballot.items):,} items. Use confirmed"
        )
    voters = _Voters(ballot)
    shares = voters.shares()
    converged, iteration = False, 0
    errors = voters.errors(shares)
    while iteration < max_iterations and not converged:
        iteration += 1
        before, shares = shares, voters.posterior(shares.mean(0), errors)
        errors = voters.errors(shares)
        converged = bool(np.abs(shares - before).max() < _CLOSE)
    likely = shares.round(9)
    likely[:, ballot.against : ballot.against + 1] = -1.0  # nothing if there is no such label
    nothing_named = find_winners(ballot, np.ones(people))[0] == ballot.against
    winner = np.where(nothing_named, ballot.against, likely.argmax(1))
    weights = np.where(nothing_named, 0.0, shares[np.arange(len(winner)), winner])
    right = np.einsum("ull,l->u", errors, shares.mean(0))
    return Decision(winner, weights, np.ones(len(winner)), right, iteration, converged)


class _Voters:
    """The votes, and both steps of the EM algorithm."""

    def __init__(self, ballot: Ballot) -> None:
        self._items, (self._people, self._labels) = len(ballot.items), ballot.shape
        self._item_of, self._user_of, self._label_of = ballot.item_of, ballot.user_of, ballot.label_of

    def shares(self) -> np.ndarray:
        """Return the share of votes for each label of each item."""
        places = self._item_of * self._labels + self._label_of
        counts = np.bincount(places, minlength=self._items * self._labels).reshape(self._items, self._labels)
        return counts / counts.sum(1, keepdims=True)

    def errors(self, shares: np.ndarray) -> np.ndarray:
        """Return how often each user says a label, if another is true (users, said, true)."""
        counts = np.zeros((self._people * self._labels, self._labels))
        for part in self._parts():
            rows = self._user_of[part] * self._labels + self._label_of[part]
            np.add.at(counts, rows, shares[self._item_of[part]])
        counts = counts.reshape(self._people, self._labels, self._labels).clip(_SMALLEST)
        return counts / counts.sum(1, keepdims=True)

    def posterior(self, priors: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """Return the probability of each label of each item."""
        logs = np.tile(np.log(priors.clip(_SMALLEST)), (self._items, 1))
        log_errors = np.log(errors)
        for part in self._parts():
            np.add.at(logs, self._item_of[part], log_errors[self._user_of[part], self._label_of[part]])
        weights = np.exp(logs - logs.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def _parts(self) -> list[slice]:
        return [
            slice(start, start + _VOTES_AT_ONCE) for start in range(0, len(self._item_of), _VOTES_AT_ONCE)
        ]


SIMPLE_RULES: dict[str, Callable[[Ballot, int], Decision]] = {
    "majority": majority,
    "agreement": agreement,
    "dawid_skene": dawid_skene,
}
"""Rules by name, beside the adaptive one."""
