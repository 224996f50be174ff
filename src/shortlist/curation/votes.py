"""Find labels by the votes of many users, weighted by how many species each has shown to know."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist._bounds import check_choice, require_count, require_number
from shortlist._tables import read_columns, write_columns
from shortlist.curation._ballot import (
    DIGITS,
    Ballot,
    count_ballot,
    count_species,
    find_winners,
    has_enough_voters,
)
from shortlist.curation.vote_rules import SIMPLE_RULES, Decision, total_weights

MACHINE = "!machine"
"""The user whose votes are those of a model: they are left out unless ``machine_weight`` is given."""
THETAS = {"confirmed": 2.0, "adaptive": 2.0, "majority": 1.0, "agreement": 1.0, "dawid_skene": 0.9}
RULES = tuple(THETAS)
"""The rules by name."""
MIN_AGREEMENT = 0.5  # of all rules but the published one, which has none
MIN_VOTERS = 2  # likewise


@dataclass(frozen=True)
class ConsensusLabels:
    """The label of each item by vote, and the weight of each user.

    Attributes:
        items: The items, sorted (m,).
        labels: The winning label of each item (m,).
        weights: The total weight of the votes for the winning label (m,).
        agreement: This weight as a share of that of all who looked (m,): of all votes for the item, with
            those for "none of these".
        votes: The number of votes for the item (m,).
        valid: Whether the weight exceeds ``theta``, the share exceeds ``min_agreement``, and ``min_voters``
            people or an invited one gave the label (m,), bool.
        users: The users, sorted (v,).
        user_weights: The weight of each user (v,).
        user_counts: The number n_u of each user (v,), see :func:`aggregate_votes`; with a rule that has none,
            the same as ``user_species``.
        user_species: The number of different species that each user has shown to know (v,): those that others
            confirmed (confirmed), proposed or is the author of (adaptive), or proposed (other rules).
        user_votes: The number of votes of each user that counted (v,).
        iterations: Number of times that weights were computed.
        converged: Whether the last iteration changed nothing; ``False`` if they ran in a circle or too long.
        machine_votes: Number of votes of the machine that were left out.
        empty_votes: Number of votes without item, user or label, which were left out.
    """

    items: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    agreement: np.ndarray
    votes: np.ndarray
    valid: np.ndarray
    users: np.ndarray
    user_weights: np.ndarray
    user_counts: np.ndarray
    user_species: np.ndarray
    user_votes: np.ndarray
    iterations: int
    converged: bool
    machine_votes: int = 0
    empty_votes: int = 0


def aggregate_votes(
    item: Any,
    user: Any,
    label: Any,
    author: Any = None,
    invited: Any = None,
    *,
    rule: str = "confirmed",
    theta: float | None = None,
    min_agreement: float | None = None,
    min_voters: int | None = None,
    alpha: float = 0.5,
    beta: float = 0.2,
    b0: float = math.log(2.1),
    machine: str = MACHINE,
    machine_weight: float | None = None,
    max_iterations: int = 100,
) -> ConsensusLabels:
    r"""Find the label of each item by weighted vote; users who have shown to know more species weigh more.

    .. math::
        y_i = \arg\max_k \sum_u w_u [\text{vote}_{ui} = k], \qquad w_u = n_u^\alpha - n_u^\beta + b_0

    An item is valid if the weight of its winning label exceeds ``theta``, and its share of the weight of all
    who looked exceeds ``min_agreement``, and ``min_voters`` people or one invited person gave it: nobody else
    decides alone, whatever the weight. Weights are found without this last condition.
    With the rule ``confirmed``, :math:`n_u` is the number of species
    that u named and others confirmed: on some item that u named so, the votes of the others alone make the
    label valid, with more than half of their weight. Nobody gains weight by his own votes. With the published
    rule ``adaptive``, :math:`n_u` is the number of species of which u is the author of a valid item, plus the
    number of distinct labels u proposed, right or wrong.
    Since :math:`n_u` depends on what is valid, weights and labels are computed in turn, at first with no item
    valid, until they no longer change. They may run in a circle instead; this is noticed, and the last state
    returned with ``converged=False``.

    A vote for :data:`AGAINST` says "none of these": its weight is part of that of all who looked, and it
    never wins. An item with no other votes has this label, the weight 0, and is not valid. Labels that begin
    with ``!`` are no species.
    Of several votes of one user for one item, the last row counts. Labels of equal weight (to 9 digits) go
    to the one that is first in sorted order. Labels and people are compared in Unicode's composed form (NFC):
    two ways to write the same accent are one word. Rows without item, user or label are left out and counted.

    Args:
        item: Item of each vote (n,): numbers, text or an Arrow column.
        user: User who gave each vote (n,).
        label: Label of each vote (n,).
        author: User who made the item (n,), the same in all rows of an item, missing if not known; ``None``
            if no author is known. A user and an author of the same name are the same person.
        invited: Whether an invited person gave the vote (n,): 1, or 0 or missing; ``None`` if nobody did.
        rule: ``confirmed`` and ``adaptive`` as above; ``majority`` (every user has the weight 1);
            ``agreement`` (the weight is the share of a user's votes that agree with the majority);
            ``dawid_skene`` (a matrix of confusions for each user; the weight of a label is its probability).
        theta: Weight that a valid item's label must exceed; by default 2 (confirmed, adaptive), 1 (majority,
            agreement) or 0.9 (dawid_skene).
        min_agreement: Share of the weight that a valid item's label must exceed, in [0, 1); by default 0.5,
            and 0 for the published rule. 0.7 is that of Pl@ntNet's later code.
        min_voters: Number of people who must give a valid item its label, unless one of them is invited; the
            machine does not count. By default 2, and 1 for the published rule.
        alpha: First exponent of the weight.
        beta: Second exponent of the weight, <= ``alpha``: with it, newcomers gain little at first.
        b0: Weight of a newcomer. The default pair, 2 and log 2.1 (0.74), takes three
            newcomers or one user with n_u = 8 to make an item valid; it is that of Pl@ntNet's published code,
            while the paper gives no numbers.
        machine: Name of the user whose votes are those of a model.
        machine_weight: Weight of the machine's votes, whatever it proposed; they are left out if ``None``.
            Only with the rules ``confirmed`` and ``adaptive``.
        max_iterations: Largest number of rounds.

    Returns:
        Items with their labels, users with their weights.

    Example:
        >>> votes = [1, 1, 1, 2], ["a", "b", "c", "a"], ["oak", "oak", "ash", "ash"]
        >>> found = aggregate_votes(*votes, theta=1.4)
        >>> found.labels.tolist(), found.valid.tolist()
        (['oak', 'ash'], [True, False])

    References:
        C. Garcin et al., "Pl@ntNet-300K: a plant image dataset with high label ambiguity and a long-tailed
        distribution", NeurIPS Datasets and Benchmarks 2021, appendix on label validation.
        A. P. Dawid, A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM
        algorithm", Applied Statistics 1979.
    """
    theta, min_agreement = _bounds(rule, theta, min_agreement)
    formula = _Formula(alpha, beta, b0, theta, min_agreement, machine, machine_weight)
    require_count("max_iterations", max_iterations)
    if min_voters is None:
        min_voters = 1 if rule == "adaptive" else MIN_VOTERS
    require_count("min_voters", min_voters)
    if machine_weight is not None and rule in SIMPLE_RULES:
        raise ValueError(f"machine_weight must be left out with rule {rule}: it has weights of its own")
    columns = {"item": item, "user": user, "label": label, "author": author, "invited": invited}
    dropped = 0
    if machine_weight is None:
        columns, dropped = _without(columns, machine)
    ballot, empty = count_ballot(**columns)
    proposed = count_species(ballot, ballot.user_of, ballot.label_of)
    if rule in SIMPLE_RULES:
        decision, counts, species = SIMPLE_RULES[rule](ballot, max_iterations), proposed, proposed
    else:
        decision, counts, species = _adapt(ballot, formula, rule, max_iterations)
    votes = np.bincount(ballot.user_of, minlength=len(ballot.people))
    voters = np.flatnonzero(votes)
    share = _share(decision.weights, decision.totals)
    valid = (decision.weights > theta) & (share > min_agreement)
    return ConsensusLabels(
        items=ballot.items,
        labels=ballot.labels[decision.winner],
        weights=decision.weights,
        agreement=share,
        votes=np.bincount(ballot.item_of, minlength=len(ballot.items)),
        valid=valid & has_enough_voters(ballot, decision.winner, min_voters, machine),
        users=ballot.people[voters],
        user_weights=decision.user_weights[voters],
        user_counts=counts[voters],
        user_species=species[voters],
        user_votes=votes[voters],
        iterations=decision.iterations,
        converged=decision.converged,
        machine_votes=dropped,
        empty_votes=empty,
    )


def _bounds(rule: str, theta: float | None, min_agreement: float | None) -> tuple[float, float]:
    """Check the bounds of valid items, which have defaults for each rule."""
    check_choice("rule", rule, RULES)
    theta = THETAS[rule] if theta is None else require_number("theta", theta, low=0.0)
    if min_agreement is None:
        min_agreement = 0.0 if rule == "adaptive" else MIN_AGREEMENT
    return theta, require_number("min_agreement", min_agreement, low=0.0, below=1.0)


@dataclass(frozen=True)
class _Formula:
    """Weights of users, and which items are valid."""

    alpha: float
    beta: float
    b0: float
    theta: float
    min_agreement: float
    machine: str
    machine_weight: float | None

    def __post_init__(self) -> None:
        require_number("b0", self.b0, low=0.0)
        require_number("alpha", self.alpha, low=0.0)
        if not 0 <= require_number("beta", self.beta) <= self.alpha:
            raise ValueError(f"beta must be from 0 to alpha ({self.alpha:g}), got {self.beta:g}")
        if self.machine_weight is not None:
            require_number("machine_weight", self.machine_weight, low=0.0)

    def user_weights(self, n_u: np.ndarray, people: np.ndarray) -> np.ndarray:
        weights = n_u**self.alpha - n_u**self.beta + self.b0
        if self.machine_weight is not None:
            weights[people == self.machine] = self.machine_weight
        return weights

    def are_valid(self, weights: np.ndarray, totals: np.ndarray, *, low: float = 0.0) -> np.ndarray:
        """Whether weights are enough, as numbers and as shares of totals, which must exceed ``low`` too."""
        shares = _share(weights, totals)
        return (weights.round(DIGITS) > self.theta) & (shares > max(low, self.min_agreement))


def _adapt(
    ballot: Ballot, formula: _Formula, rule: str, max_iterations: int
) -> tuple[Decision, np.ndarray, np.ndarray]:
    """Compute weights and labels in turn; return the last ones, and n_u and the species of each person."""
    proposed, find_shown = (ballot.user_of, ballot.label_of), _confirmed
    start = np.zeros(len(ballot.people), dtype=np.int64)
    if rule == "adaptive":
        start, find_shown = count_species(ballot, *proposed), _authored
    n_u, seen, iteration = start, set(), 0
    while True:
        iteration += 1
        user_weights = formula.user_weights(n_u, ballot.people)
        winner, weights = find_winners(ballot, user_weights)
        totals = total_weights(ballot, user_weights)
        decision = Decision(winner, weights, totals, user_weights, iteration, True)
        shown = find_shown(ballot, decision, formula)
        update = start + count_species(ballot, *shown)
        seen.add(hashlib.blake2b(n_u.tobytes()).digest())
        circle = hashlib.blake2b(update.tobytes()).digest() in seen
        if circle or iteration == max_iterations:  # also at a circle of one state, which is the end
            break
        n_u = update
    if rule == "adaptive":  # n_u counts a species twice that was both proposed and photographed
        shown = np.concatenate([proposed, shown], axis=1)
    decision = decision._replace(converged=bool((update == n_u).all()))
    return decision, n_u, count_species(ballot, *shown)


def _confirmed(ballot: Ballot, decision: Decision, formula: _Formula) -> tuple[np.ndarray, np.ndarray]:
    """Return users and labels of the votes that the others alone make valid, with more than half of them."""
    item_of, voter_weights = ballot.item_of, decision.user_weights[ballot.user_of]
    others, all_others = decision.weights[item_of] - voter_weights, decision.totals[item_of] - voter_weights
    confirmed = formula.are_valid(others, all_others, low=0.5)
    confirmed &= ballot.label_of == decision.winner[item_of]
    return ballot.user_of[confirmed], ballot.label_of[confirmed]


def _authored(ballot: Ballot, decision: Decision, formula: _Formula) -> tuple[np.ndarray, np.ndarray]:
    """Return authors and labels of the valid items."""
    counted = formula.are_valid(decision.weights, decision.totals) & (ballot.makers >= 0)
    return ballot.makers[counted], decision.winner[counted]


def _share(weights: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return weights as a share of all; nothing if all weigh nothing."""
    return np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0).clip(0, 1).round(9)


def _without(columns: dict[str, Any], machine: str) -> tuple[dict[str, Any], int]:
    """Leave out the rows of a user; return how many there were."""
    import pyarrow
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made when it is imported
    users: Any = columns["user"]
    if isinstance(users, np.ndarray) and users.dtype.kind not in "UO":
        return columns, 0
    users = users if hasattr(users, "dictionary_encode") else pyarrow.array(users, from_pandas=True)
    if not (pyarrow.types.is_string(users.type) or pyarrow.types.is_large_string(users.type)):
        return columns, 0
    kept = compute.fill_null(compute.not_equal(users, machine), True)
    if (dropped := len(kept) - (compute.sum(kept).as_py() or 0)) == 0:
        return columns, 0
    if dropped == len(kept):
        raise ValueError(f"user must not be {machine} in every row: the machine's votes are left out")
    arrays = {
        name: column if hasattr(column, "filter") else pyarrow.array(column, from_pandas=True)
        for name, column in columns.items()
        if column is not None
    }
    return {"author": None, "invited": None} | {
        name: column.filter(kept) for name, column in arrays.items()
    }, dropped


def read_votes(path: str | Path) -> dict[str, Any]:
    """Read the votes of a ``.csv`` or ``.parquet`` file.

    The columns are item, user, label and, optionally, author and invited; or task, worker and label, as
    crowd-kit has them. Fields may be empty: such rows are no votes, which :func:`aggregate_votes` counts.
    """
    try:
        return read_columns(path, ["item", "user", "label"], optional=["author", "invited"], gaps=True)
    except ValueError as error:
        if "has no column 'item'" not in str(error) or "task" not in str(error):
            raise
    columns = read_columns(path, ["task", "worker", "label"], gaps=True)
    return {"item": columns["task"], "user": columns["worker"], "label": columns["label"]}


def save_consensus(path: str | Path, votes: ConsensusLabels) -> None:
    """Write items, labels, weights, validity, agreement and number of votes as ``.csv`` or ``.parquet``."""
    columns = {"item": votes.items, "label": votes.labels, "weight": votes.weights, "valid": votes.valid}
    write_columns(path, columns | {"agreement": votes.agreement, "votes": votes.votes})


def save_users(path: str | Path, votes: ConsensusLabels) -> None:
    """Write users with their weights, numbers of species and numbers of votes as ``.csv`` or ``.parquet``."""
    columns = {"user": votes.users, "weight": votes.user_weights, "species": votes.user_species}
    write_columns(path, columns | {"votes": votes.user_votes})
