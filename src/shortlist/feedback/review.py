"""A queue of observations that the votes could not decide, the most informative first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from shortlist.curation.votes import AGAINST, ConsensusLabels
from shortlist.feedback.event import Event
from shortlist.feedback.votes import Vote

__all__ = ["ToReview", "review_queue"]


@dataclass(frozen=True)
class ToReview:
    """An observation that somebody who knows should look at.

    Args:
        item: The observation.
        information: What an answer would tell, in nats: the entropy of what is believed so far.
        candidates: Labels with their share of belief, the largest first.
        votes: Number of votes for a label.
        undecided: Number of people who said "none of these" or "I do not know".
        label: Label that leads so far.
    """

    item: str
    information: float
    candidates: tuple[tuple[str, float], ...]
    votes: int
    undecided: int
    label: str


def review_queue(
    found: ConsensusLabels, votes: Sequence[Vote], events: Iterable[Event] = ()
) -> list[ToReview]:
    """Return the items without a valid label, those first of which an answer would tell most.

    Belief is the weight of the votes for each label and, with the weight of one newcomer, the probabilities
    of the last list that was shown; "none of these" and "I do not know" add belief in something else. The
    information of an answer is the entropy of that belief.

    Args:
        found: What :func:`~shortlist.curation.votes.aggregate_votes` found.
        votes: The votes it was found from.
        events: Events, for the lists that were shown and for people who did not know.
    """
    weight_of = dict(zip(map(str, found.users.tolist()), found.user_weights.tolist(), strict=True))
    newcomer = min(weight_of.values(), default=1.0) or 1.0
    valid = {str(item) for item in found.items[found.valid].tolist()}
    belief: dict[str, defaultdict[str, float]] = {}
    number = Counter(vote.item for vote in votes if vote.label != AGAINST)
    unsure: Counter[str] = Counter()
    for vote in votes:
        if vote.item not in valid and vote.label != AGAINST:  # which the events below have
            belief.setdefault(vote.item, defaultdict(float))[vote.label] += weight_of.get(vote.user, 0.0)
    lists: dict[str, Event] = {}
    for event in events:
        if event.item in valid:
            continue
        if event.shown:
            lists[event.item] = event
        if event.verb in ("none_of_these", "do_not_know"):
            unsure[event.item] += 1
            belief.setdefault(event.item, defaultdict(float))["?"] += newcomer
    for item, event in lists.items():
        if item in belief:
            for one in event.shown:
                belief[item][one.id] += newcomer * one.probability
    queue = [_entry(item, parts, number[item], unsure[item]) for item, parts in belief.items()]
    return sorted(queue, key=lambda one: (-one.information, one.item))


def _entry(item: str, parts: Mapping[str, float], votes: int, undecided: int) -> ToReview:
    total = sum(parts.values())
    shares = {label: weight / total for label, weight in parts.items() if weight > 0}
    information = -sum(share * log(share) for share in shares.values())
    candidates = tuple(sorted(shares.items(), key=lambda one: (-one[1], one[0])))
    named = [label for label, _ in candidates if label != "?"]
    return ToReview(item, round(information, 9), candidates, votes, undecided, named[0] if named else "")
