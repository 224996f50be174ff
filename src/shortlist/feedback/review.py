"""A queue of observations that the votes could not decide, the most informative first."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from heapq import nsmallest
from itertools import groupby, islice
from math import log
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.curation import AGAINST, PROPOSAL, ConsensusLabels, aggregate_votes, in_one_spelling
from shortlist.feedback._tables import Row
from shortlist.feedback.event import OBSERVE
from shortlist.feedback.store import answers_by_item, lists_at
from shortlist.feedback.votes import Vote, about_its_photos, each_vote, votes_of

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
        photos: SHA-256 of the photos.
    """

    item: str
    information: float
    votes: int
    undecided: int
    label: str
    candidates: tuple[tuple[str, float], ...] = ()
    photos: tuple[str, ...] = ()


class Waiting(NamedTuple):
    """An observation that other people may review: its id, and the people who said something about it."""

    item: str
    people: set[str]


def review_queue(store: str | Path, *, first: int = 20, **rule: Any) -> list[ToReview]:
    """Return the observations without a valid label, those first of which an answer would tell most.

    Belief is the weight of the votes for each label and, with the weight of one newcomer, the probabilities
    of the last list that was shown; "none of these" and "I do not know" add belief in something else. The
    information of an answer is the entropy of that belief.

    Args:
        store: Folder of the store.
        first: Number of observations, from the first one, that come with their candidates and photos.
        **rule: Options of :func:`~shortlist.curation.votes.aggregate_votes`.
    """
    rest: list[ToReview] = []

    def noted() -> Iterator[ToReview]:
        for entry, _ in _entries(store, _labels(store, rule)):
            rest.append(entry._replace(candidates=(), photos=()))
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
    """
    labels = _labels(store, rule)
    valid = Counter([] if labels is None else labels.labels[labels.valid].tolist())
    items, votes = defaultdict[str, set[str]](set), Counter[str]()
    for vote in each_vote(answers_by_item(store), Counter()):
        if vote.label.startswith(PROPOSAL):
            items[vote.label].add(vote.item)
            votes[vote.label] += 1
    spellings = in_one_spelling(list(items), dict(enumerate(votes[label] for label in items)))
    named = defaultdict[str, set[str]](set)
    for label, spelling in zip(items, spellings, strict=True):
        named[str(spelling)] |= items[label]
    waiting = [Proposal(label.removeprefix(PROPOSAL), len(n), valid[label]) for label, n in named.items()]
    return sorted(waiting, key=lambda proposal: (-proposal.valid, -proposal.observations, proposal.name))


def waiting_observations(store: str | Path, *, most: int, **rule: Any) -> tuple[list[Waiting], int]:
    """Return observations whose owner lets others see the photos, in the order of :func:`review_queue`.

    Args:
        store: Folder of the store.
        most: Number of observations that are returned at most.
        **rule: As for :func:`review_queue`.

    Returns:
        The first observations that wait, and the number of all.
    """
    number = 0

    def shared() -> Iterator[tuple[tuple[float, str], Waiting]]:
        nonlocal number
        for entry, said in _entries(store, _labels(store, rule)):
            if any(row.consent for row in said):
                number += 1
                yield _order(entry), Waiting(entry.item, {row.person for row in said})

    return [waiting for _, waiting in nsmallest(most, shared(), key=itemgetter(0))], number


def _order(entry: ToReview) -> tuple[float, str]:
    return -entry.information, entry.item


def _labels(store: str | Path, rule: Mapping[str, Any]) -> ConsensusLabels | None:
    """Find labels by the votes of a store, if there are votes; items are hashes."""
    import pyarrow

    items, invited = array("q"), array("b")
    codes = {name: array("q") for name in ("user", "label", "author")}
    texts: dict[str, dict[str, int]] = {name: {} for name in codes}
    for vote in each_vote(answers_by_item(store), Counter()):
        items.append(hash(vote.item))
        invited.append(vote.invited)
        for name, column in codes.items():
            column.append(texts[name].setdefault(getattr(vote, name), len(texts[name])))
    if not items:
        return None
    columns = {
        name: pyarrow.DictionaryArray.from_arrays(np.asarray(codes[name]), pyarrow.array(words))
        for name, words in {
            **{name: list(texts[name]) for name in ("user", "author")},
            "label": in_one_spelling(list(texts["label"]), Counter(codes["label"])),
        }.items()
    }
    return aggregate_votes(np.asarray(items), **columns, invited=np.asarray(invited), **rule)


def _entries(store: str | Path, labels: ConsensusLabels | None) -> Iterator[tuple[ToReview, list[Row]]]:
    """Give what waits, in the order of the observations, with all that was said about it."""
    decided: set[int] = set() if labels is None else set(labels.items[labels.valid].tolist())
    weight_of: dict[str, float] = {}
    if labels is not None:
        pairs = zip(map(str, labels.users.tolist()), labels.user_weights.tolist(), strict=True)
        weight_of = dict(pairs)
    newcomer = min(weight_of.values(), default=1.0) or 1.0
    groups = _undecided(store, decided)
    while batch := list(islice(groups, _TOGETHER)):
        lists = lists_at(store, [number for *_, number in batch if number])
        for said, votes, unsure, number in batch:
            belief: defaultdict[str, float] = defaultdict(float)
            for vote in votes:
                belief[vote.label] += weight_of.get(vote.user, 0.0)
            if unsure:
                belief["?"] = newcomer * unsure
            shown, photos = lists.get(number, ((), ()))
            for entry in shown:
                belief[entry.id] += newcomer * entry.probability
            yield _entry(said[0].item, belief, len(votes), unsure)._replace(photos=photos), said


def _undecided(store: str | Path, decided: set[int]) -> Iterator[tuple[list[Row], list[Vote], int, int]]:
    """Give what was said about each item without a valid label.

    With it come the votes, the number of people who know no name, and the last answer to a list.
    """
    for item, group in groupby(answers_by_item(store, again=True), key=attrgetter("item")):
        if hash(item) not in decided:
            said = about_its_photos(list(group))
            votes = votes_of(item, said, Counter(), with_flagged=True)
            votes = [vote for vote in votes if vote.label != AGAINST]
            unsure = sum(row.verb in ("none_of_these", "do_not_know") for row in said)
            is_open = any(row.verb == OBSERVE for row in said)
            if votes or unsure or is_open:
                yield said, votes, unsure, max((row.number for row in said if row.top is not None), default=0)


def _entry(item: str, belief: Mapping[str, float], votes: int, unsure: int) -> ToReview:
    total = sum(belief.values())
    shares = {label: weight / total for label, weight in belief.items() if weight > 0}
    information = -sum(share * log(share) for share in shares.values())
    candidates = tuple(sorted(shares.items(), key=lambda pair: (-pair[1], pair[0])))
    label = next((name for name, _ in candidates if name != "?"), "")
    return ToReview(item, round(information, 9), votes, unsure, label, candidates)
