"""A queue of observations that the votes could not decide, the most informative first."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from heapq import nsmallest
from itertools import groupby, islice
from math import log
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.curation import AGAINST, PROPOSAL, ConsensusLabels, aggregate_votes
from shortlist.feedback.store import answers_by_item, shown_at
from shortlist.feedback.votes import Tally, Vote, each_vote, votes_of

_TOGETHER = 500  # observations whose lists are read at a time


class ToReview(NamedTuple):
    """An observation that somebody who knows should look at.

    Args:
        item: The observation.
        information: What an answer would tell, in nats: the entropy of what is believed so far.
        votes: Number of votes.
        undecided: Number of people who said "none of these" or "I do not know".
        label: Label that leads so far.
        candidates: Labels with their share of belief, the largest first.
    """

    item: str
    information: float
    votes: int
    undecided: int
    label: str
    candidates: tuple[tuple[str, float], ...] = ()


def review_queue(store: str | Path, *, first: int = 20, **rule: Any) -> list[ToReview]:
    """Return the observations without a valid label, those first of which an answer would tell most.

    Belief is the weight of the votes for each label and, with the weight of one newcomer, the probabilities
    of the last list that was shown; "none of these" and "I do not know" add belief in something else. The
    information of an answer is the entropy of that belief.

    Args:
        store: Folder of the store.
        first: Number of observations, from the first one, that come with their candidates.
        **rule: Options of :func:`~shortlist.curation.votes.aggregate_votes`.

    Raises:
        ValueError: If there are no votes.
    """
    labels, decided = _labels(store, rule)
    weight_of = dict(zip(map(str, labels.users.tolist()), labels.user_weights.tolist(), strict=True))
    rest: list[ToReview] = []

    def noted() -> Iterator[ToReview]:
        for entry in _entries(store, decided, weight_of):
            rest.append(entry._replace(candidates=()))
            yield entry

    chosen = nsmallest(first, noted(), key=_order)
    rest.sort(key=_order)
    return chosen + rest[len(chosen) :]


class Proposal(NamedTuple):
    """A proposed name that is no class yet.

    Args:
        name: The name, as it was sent.
        observations: Number of observations that somebody named so.
        valid: Number of those of which it is the valid label.
    """

    name: str
    observations: int
    valid: int


def waiting_proposals(store: str | Path, **rule: Any) -> list[Proposal]:
    """Return the names that people proposed, those first that are the valid label of most observations.

    Args:
        store: Folder of the store.
        **rule: Options of :func:`~shortlist.curation.votes.aggregate_votes`.

    Raises:
        ValueError: If there are no votes.
    """
    labels, _ = _labels(store, rule)
    valid = Counter(labels.labels[labels.valid].tolist())
    named = Counter(
        label
        for _, votes in groupby(each_vote(answers_by_item(store), Tally()), key=attrgetter("item"))
        for label in {vote.label for vote in votes if vote.label.startswith(PROPOSAL)}
    )
    waiting = [Proposal(label.removeprefix(PROPOSAL), n, valid[label]) for label, n in named.items()]
    return sorted(waiting, key=lambda proposal: (-proposal.valid, -proposal.observations, proposal.name))


def _order(entry: ToReview) -> tuple[float, str]:
    return -entry.information, entry.item


def _labels(store: str | Path, rule: Mapping[str, Any]) -> tuple[ConsensusLabels, set[int]]:
    """Find labels by the votes of a store; return them, and the hash of each item with a valid one."""
    import pyarrow

    items, codes = array("q"), {name: array("q") for name in ("user", "label", "author")}
    texts: dict[str, dict[str, int]] = {name: {} for name in codes}
    for vote in each_vote(answers_by_item(store), Tally()):
        items.append(hash(vote.item))
        for name, column in codes.items():
            column.append(texts[name].setdefault(getattr(vote, name), len(texts[name])))
    if not items:
        raise ValueError(f"{store} has no votes to review")
    columns = {
        name: pyarrow.DictionaryArray.from_arrays(np.asarray(codes[name]), pyarrow.array(list(texts[name])))
        for name in codes
    }
    labels = aggregate_votes(np.asarray(items), **columns, **rule)
    return labels, set(labels.items[labels.valid].tolist())


def _entries(store: str | Path, decided: set[int], weight_of: Mapping[str, float]) -> Iterator[ToReview]:
    """Give what waits, in the order of the observations."""
    newcomer = min(weight_of.values(), default=1.0) or 1.0
    groups = _undecided(store, decided)
    while some := list(islice(groups, _TOGETHER)):
        lists = shown_at(store, [number for *_, number in some if number])
        for item, votes, unsure, number in some:
            belief: defaultdict[str, float] = defaultdict(float)
            for vote in votes:
                belief[vote.label] += weight_of.get(vote.user, 0.0)
            if unsure:
                belief["?"] = newcomer * unsure
            for one in lists.get(number, ()):
                belief[one.id] += newcomer * one.probability
            yield _entry(item, belief, len(votes), unsure)


def _undecided(store: str | Path, decided: set[int]) -> Iterator[tuple[str, list[Vote], int, int]]:
    """Give each item without a valid label, its votes, how many know none, and the last answer to a list."""
    for item, group in groupby(answers_by_item(store, again=True), key=attrgetter("item")):
        if hash(item) not in decided:
            said = list(group)
            votes = [vote for vote in votes_of(item, said, Tally()) if vote.label != AGAINST]
            unsure = sum(one.verb in ("none_of_these", "do_not_know") for one in said)
            if votes or unsure:
                yield item, votes, unsure, max((one.number for one in said if one.top is not None), default=0)


def _entry(item: str, belief: Mapping[str, float], votes: int, unsure: int) -> ToReview:
    total = sum(belief.values())
    shares = {label: weight / total for label, weight in belief.items() if weight > 0}
    information = -sum(share * log(share) for share in shares.values())
    candidates = tuple(sorted(shares.items(), key=lambda pair: (-pair[1], pair[0])))
    label = next((name for name, _ in candidates if name != "?"), "")
    return ToReview(item, round(information, 9), votes, unsure, label, candidates)
