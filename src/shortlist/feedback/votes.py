"""Votes from events: of each person and observation the last answer counts, unless it is "I do not know"."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from shortlist.curation.votes import MACHINE
from shortlist.feedback.event import Event

__all__ = ["Photo", "Vote", "Votes", "collect_votes"]


@dataclass(frozen=True)
class Vote:
    """What one person says that an observation is.

    Args:
        item: The observation.
        user: The person.
        label: Id of a class, or ``!none_of_these``, ``!bad_image`` or ``!not_this_kind``.
        author: The person who gave copies of the photos; empty if nobody did.
        time: When it was said.
    """

    item: str
    user: str
    label: str
    author: str
    time: str


@dataclass(frozen=True)
class Photo:
    """A photo of which a copy is kept, the observation that it belongs to, and what is known of it."""

    image: str
    item: str
    organ: str = ""
    author: str = ""
    license: str = ""
    date: str = ""


@dataclass
class Votes:
    """Votes, photos, and how many events are no votes, by reason."""

    votes: list[Vote] = field(default_factory=list)
    photos: list[Photo] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def collect_votes(events: Iterable[Event], *, with_novel: bool = False, with_machine: bool = False) -> Votes:
    """Collect the votes of events.

    Args:
        events: Events in their order.
        with_novel: Whether observations count whose last list said that they are like nothing known. The
            detector promises how often a known one is among them.
        with_machine: Whether the first class of the last list is a vote of the user :data:`MACHINE`.

    Returns:
        Votes in the order of their events, photos with copies, and what was left out.
    """
    last: dict[tuple[str, str], Event] = {}
    lists: dict[str, Event] = {}
    givers: dict[str, str] = {}
    photos: dict[str, Photo] = {}
    found = Votes()
    for event in events:
        item = event.item
        if event.shown:
            lists[item] = event
        if event.consent:
            givers.setdefault(item, event.person)
            about = {name: value for name, value in event.about.items() if name != "note"}
            for image in event.images:
                photos.setdefault(image, Photo(image, item, **about))
        if not event.person:
            found.left_out["of nobody known"] += 1
        elif last.pop((item, event.person), None) is not None:
            found.left_out["answered again later"] += 1
        if event.person:
            last[item, event.person] = event
    novel = set() if with_novel else {item for item, event in lists.items() if event.status == "novel"}
    for (item, person), event in last.items():
        if event.verb == "do_not_know":
            found.left_out[f"no vote: {event.verb}"] += 1
        elif item in novel:
            found.left_out["like nothing known"] += 1
        else:
            label = event.label or f"!{event.verb}"
            found.votes.append(Vote(item, person, label, givers.get(item, ""), event.time))
    if with_machine:
        voted = {vote.item for vote in found.votes}
        for item, event in lists.items():
            if item in voted:
                best = max(event.shown, key=lambda one: one.probability)
                found.votes.append(Vote(item, MACHINE, best.id, givers.get(item, ""), event.time))
    found.photos = [photo for photo in photos.values() if photo.item not in novel]
    return found
