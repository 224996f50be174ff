"""Votes from events: of each person and observation the last answer counts, unless it is "I do not know"."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

from shortlist.curation import MACHINE, PROPOSAL
from shortlist.feedback._invited import INVITED
from shortlist.feedback._tables import Said
from shortlist.feedback.event import NEW_NAME, NOVEL, OBSERVE, Event, facts_of

Answer = TypeVar("Answer", bound=Said)


class Vote(NamedTuple):
    """What one person says that an observation is.

    Args:
        item: The observation.
        user: The person.
        label: Id of a class; ``!new:NAME``, a proposed name; ``!none_of_these``, ``!bad_image`` or
            ``!not_this_kind``.
        author: The person who gave copies of the photos; empty if nobody did.
        time: When it was said.
        invited: 1 if the person said it with a personal link that was valid, else 0.
    """

    item: str
    user: str
    label: str
    author: str
    time: str
    invited: int = 0


@dataclass(frozen=True)
class Photo:
    """A photo of which a copy is kept, the observation that it belongs to, and what is known of it."""

    image: str
    item: str
    organ: str = ""
    author: str = ""
    license: str = ""
    date: str = ""
    latitude: str = ""
    longitude: str = ""
    uncertainty: str = ""

    @classmethod
    def known(cls, image: str, item: str, facts: dict[str, str]) -> "Photo":
        """Return a photo with what is known of it, but for notes."""
        return cls(image, item, **{name: value for name, value in facts.items() if name != "note"})


@dataclass
class Votes:
    """Votes, photos, and how many events are no votes, by reason."""

    votes: list[Vote] = field(default_factory=list)
    photos: list[Photo] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def each_vote(
    answers: Iterable[Said], left_out: Counter[str], *, with_flagged: bool = False, with_machine: bool = False
) -> Iterator[Vote]:
    """Give the votes of answers that come by observation, in their order within each.

    Args:
        answers: Answers by observation.
        left_out: Takes the number of events that are no votes, by reason.
        with_flagged: Whether observations count that are flagged and that nobody but their owner looked at:
            blurred or small photos, photos of an earlier observation, and what is like nothing known.
        with_machine: Whether the first class of the last list is a vote of the user :data:`MACHINE`.
    """
    for item, group in groupby(answers, key=attrgetter("item")):
        said = list(group)
        yield from votes_of(item, said, left_out, with_flagged=with_flagged, with_machine=with_machine)


def votes_of(
    item: str,
    said: Sequence[Said],
    left_out: Counter[str],
    *,
    with_flagged: bool = False,
    with_machine: bool = False,
) -> list[Vote]:
    """Return the votes for one observation, from all answers about it."""
    given = len(said)
    said = about_its_photos(said)
    left_out["of earlier photos"] += given - len(said)
    author = next((one.person for one in said if one.consent), "")
    listed = next((one for one in reversed(said) if one.top is not None), None)
    answers = [one for one in said if one.verb != OBSERVE]
    last = {answer.person: answer for answer in answers}  # of each person
    nobody = sum(not answer.person for answer in answers)
    left_out["no vote: observe"] += len(said) - len(answers)
    left_out["of nobody known"] += nobody
    left_out["answered again later"] += len(answers) - nobody - len(last) + ("" in last)
    waits = not with_flagged and _waits(said, last)
    votes = []
    for person, one in last.items():
        if not person:
            continue
        if one.verb == "do_not_know":
            left_out["no vote: do_not_know"] += 1
        elif waits:
            left_out["flagged, until somebody else has looked"] += 1
        else:
            label = f"{PROPOSAL}{one.label}" if one.verb == NEW_NAME else one.label or f"!{one.verb}"
            votes.append(Vote(item, person, label, author, one.time, int(one.key == INVITED)))
    if with_machine and votes and listed is not None:
        votes.append(Vote(item, MACHINE, listed.best, author, listed.time))
    return votes


def about_its_photos(said: Sequence[Answer]) -> list[Answer]:
    """Leave out what others said of an observation before its owner sent other photos for it."""
    owner, photos, start = _owner_of(said), set[str](), 0
    for place, one in enumerate(said):
        if one.person == owner and one.photos not in photos:
            photos.add(one.photos)
            start = place
    return [one for place, one in enumerate(said) if place >= start or one.person == owner]


def _owner_of(said: Sequence[Said]) -> str:
    """Return the owner of an observation, whose first answers may have been deleted."""
    return next((one.person for one in said if one.consent or one.verb == OBSERVE), said[0].person)


def _waits(said: Sequence[Said], last: Mapping[str, Said]) -> bool:
    """Whether an observation is flagged, and nobody but its owner has said what it is.

    Who proposes a name for what is like nothing known has looked.
    """
    is_flagged = any(one.flags for one in said)
    if not is_flagged and all(one.status != NOVEL for one in said):
        return False
    owner = _owner_of(said)
    others = [one for person, one in last.items() if person != owner and one.verb != "do_not_know"]
    is_proposed = any(one.verb == NEW_NAME for one in last.values())
    return not (others or (is_proposed and not is_flagged))


def collect_votes(
    events: Iterable[Event], *, with_flagged: bool = False, with_machine: bool = False
) -> Votes:
    """Collect the votes of events in memory; see :func:`each_vote`.

    Returns:
        Votes by observation, photos with copies, and what was left out.
    """
    events = list(events)
    photos: dict[str, Photo] = {}
    owners: dict[str, tuple[str, str]] = {}
    for event in events:
        for image in event.images if event.consent else ():  # the owner's last word counts
            if owners.setdefault(image, (event.item, event.person)) == (event.item, event.person):
                photos[image] = Photo.known(image, event.item, facts_of(event.content(), image))
    left_out = Counter[str]()
    options = {"with_flagged": with_flagged, "with_machine": with_machine}
    votes = list(each_vote(sorted(events, key=attrgetter("item")), left_out, **options))
    return Votes(votes, list(photos.values()), +left_out)
