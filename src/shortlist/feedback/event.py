"""An event: what one person says about one list, with the list that was shown."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shortlist._bounds import check_choice
from shortlist._tables import NO_NUMBER
from shortlist._text import composed
from shortlist.feedback.location import Location

LABELED = ("confirm", "other_class")
"""Verbs that name a class."""
NEW_NAME = "new_name"
"""Verb that proposes a name which the model does not know."""
OBSERVE = "observe"
"""The verb of an observation that comes without a vote."""
VERBS = (*LABELED, NEW_NAME, "none_of_these", "do_not_know", "bad_image", "not_this_kind", OBSERVE)
"""What a person can say."""
ERASED, ERASURE = "erased", "erasure"  # what is left of an event that was deleted; the record of a deletion

NOVEL = "novel"
"""Status of a list of an object that is like nothing known."""
DUPLICATE = "duplicate"
FLAGS = ("blurred", "small", DUPLICATE)
"""What may be wrong with photos: somebody else has to look at them before anything counts."""
ABOUT = ("author", "license", "date", "note")
_SHA256 = re.compile("[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_OF_NOTE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # a note may have lines and tabs
_LONGEST = 500  # characters of a name
_LONGEST_NOTE = 2000
_LONGEST_PROPOSAL = 200


class Shown(NamedTuple):
    """One class of a list that was shown, and whether it was in the set."""

    id: str
    probability: float
    in_set: bool


@dataclass(frozen=True)
class Event:
    """What one person says about one list.

    Args:
        verb: One of :data:`VERBS`.
        request: Name of the request, chosen by who sends it: sent again, it is recorded once.
        person: Opaque name of the person, no address and no real name; empty if not known. It is kept in
            Unicode's composed form, in which votes compare people.
        key: Key by which the person was let in, as a hash; empty on a server without keys. Of an invited
            person it says that, and to the store which link was used.
        label: Id of the class that is meant, for ``confirm`` and ``other_class``; the name that is proposed,
            for ``new_name``.
        images: SHA-256 of each photo of the object, in hexadecimal digits.
        observation: Name of the observation, which all photos of one object share; made from the photos if
            empty.
        consent: Whether copies of the photos may be kept.
        withdraws: Whether the person takes back an earlier consent for this observation.
        shown: The list that the person saw.
        choice: What made the list: a predictor, or a number or a coverage that was asked for.
        model: Version of the model that made it.
        status: Status of the answer, such as ``novel``.
        flags: What may be wrong with the photos, of :data:`FLAGS`; the store adds ``duplicate`` itself.
        audit: Whether the request was drawn at random for the audit.
        about: What else is known of the photos: ``author``, ``license``, ``date``, ``note``.
        organs: What each photo shows, such as ``leaf``: as many as images, or none.
        location: Where the photos were taken, as coarsely as the person wants it known.
        time: When it was recorded, in UTC; set by the store.

    Raises:
        ValueError: If a value is out of bounds; the message names it.
    """

    verb: str
    request: str
    person: str = ""
    label: str = ""
    images: tuple[str, ...] = ()
    observation: str = ""
    consent: bool = False
    shown: tuple[Shown, ...] = ()
    choice: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    status: str = ""
    audit: bool = False
    about: Mapping[str, str] = field(default_factory=dict)
    organs: tuple[str, ...] = ()
    location: Location | None = None
    time: str = ""
    key: str = ""
    flags: tuple[str, ...] = ()
    withdraws: bool = False

    def __post_init__(self) -> None:
        check_choice("verb", self.verb, VERBS)
        for flag in self.flags:
            check_choice("flags", flag, FLAGS)
        if self.consent and self.withdraws:
            raise ValueError("withdraws must be False with consent, got both")
        if (self.label != "") != (self.verb in (*LABELED, NEW_NAME)):
            raise ValueError(f"label must be given for confirm, other_class, new_name alone: {self.verb}")
        if self.verb == NEW_NAME:
            _check_proposal(self.label)
            object.__setattr__(self, "label", composed(" ".join(self.label.split())))
        for name in ("request", "person", "label", "observation", "model", "status", "key"):
            _check_text(name, getattr(self, name), shortest=int(name == "request"))
        for name in ("request", "observation"):
            check_name(name, getattr(self, name))
        object.__setattr__(self, "person", composed(self.person))
        check_person(self.person)
        if wrong := [image for image in self.images if not is_sha256(image)]:
            raise ValueError(f"images must be SHA-256 in 64 hexadecimal digits, got {wrong[0][:80]!r}")
        if not self.images:
            raise ValueError("images must have the SHA-256 of at least one photo, got none")
        if unknown := sorted(set(self.about) - set(ABOUT)):
            raise ValueError(f"about must have keys among {', '.join(ABOUT)}, got {unknown[0][:80]!r}")
        for name, value in self.about.items():
            _check_text(name, value, longest=_LONGEST_NOTE)
            _check_control(name, value)
        for name, value in self._free_texts():
            _check_unicode(name, value)
            if "\0" in value:  # which PostgreSQL cannot keep
                raise ValueError(f"{name} must have no NUL, got {value[:80]!r}")
        if self.organs and len(self.organs) != len(self.images):
            raise ValueError(f"organs must be as many as images ({len(self.images)}), got {len(self.organs)}")
        for organ in self.organs:
            _check_text("organ", organ)
            _check_control("organ", organ)
        if self.location is not None:
            self.location.check()

    def _free_texts(self) -> Iterator[tuple[str, str]]:
        """Give the texts that may have control characters, with what they are."""
        yield from ((name, getattr(self, name)) for name in ("label", "model", "status", "key"))
        yield from (("shown", entry.id) for entry in self.shown)
        for pair in self.choice.items():
            yield from (("choice", text) for text in pair if isinstance(text, str))

    @property
    def photos(self) -> str:
        """Name of the photos, whatever observation they are said to be of."""
        return observation_of(self.images)

    @property
    def promised(self) -> float | None:
        """Coverage that the list promised, if it promised any."""
        promised = self.choice.get("promised")
        return None if promised is None else float(promised)

    @property
    def best(self) -> str:
        """The most probable class of the list; empty without a list."""
        return max(self.shown, key=lambda entry: entry.probability).id if self.shown else ""

    @property
    def top(self) -> float | None:
        """Probability of the most probable class of the list; ``None`` without a list."""
        return float(max(entry.probability for entry in self.shown)) if self.shown else None

    @property
    def is_listed(self) -> bool:
        """Whether the class that is meant was in the set."""
        return any(entry.id == self.label and entry.in_set for entry in self.shown)

    @property
    def item(self) -> str:
        """Name of the observation; made from the photos if none was given."""
        return self.observation or observation_of(self.images)

    def content(self) -> dict[str, Any]:
        """Return what is said as plain values, but for what a store has as columns."""
        content = {
            "images": list(self.images),
            "shown": [list(entry) for entry in self.shown],
            "choice": dict(self.choice),
            "about": {name: value for name, value in self.about.items() if value},
        }
        content |= {"organs": list(self.organs)} if any(self.organs) else {}
        return content | ({} if self.location is None else {"location": list(self.location)})


def facts_of(content: Mapping[str, Any], image: str) -> dict[str, str]:
    """Return what is known of a photo, as text, from the content of an event about it."""
    facts = dict(content["about"])
    if "organs" in content:
        facts["organ"] = content["organs"][content["images"].index(image)]
    for name, value in zip(Location._fields, content.get("location", ()), strict=False):
        facts[name] = "" if value is None else f"{value:.10g}"
    return {name: value for name, value in facts.items() if value}


def is_sha256(text: str) -> bool:
    """Whether a text is a SHA-256 as it is written here."""
    return _SHA256.fullmatch(text) is not None


def observation_of(images: tuple[str, ...]) -> str:
    """Return a name for an observation from its photos, in whatever order: of one photo, its hash."""
    distinct = sorted(set(images))
    return distinct[0] if len(distinct) == 1 else hashlib.sha256(json.dumps(distinct).encode()).hexdigest()


def _check_text(name: str, value: Any, *, shortest: int = 0, longest: int = _LONGEST) -> None:
    if not isinstance(value, str) or not shortest <= len(value) <= longest:
        given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{name} must be text of {shortest} to {longest} characters, got {given}")
    _check_unicode(name, value)


def _check_unicode(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be text that UTF-8 can write, got a lone surrogate") from None


def _check_proposal(name: str) -> None:
    _check_text("name", name, longest=_LONGEST_PROPOSAL)
    check_name("name", name)
    if name.lstrip().startswith("!"):  # labels of ours
        raise ValueError(f"name must not begin with '!', got {name[:80]!r}")


def _check_control(name: str, value: str) -> None:
    if (_CONTROL_OF_NOTE if name == "note" else _CONTROL).search(value):
        raise ValueError(f"{name} must have no control characters, got {value[:80]!r}")


def check_person(person: str) -> None:
    """Refuse a name that a person cannot have."""
    _check_text("person", person)
    check_name("person", person)
    if person.startswith("!"):  # names of ours, such as !machine
        raise ValueError(f"person must not begin with '!', got {person[:80]!r}")


def check_name(name: str, value: str) -> None:
    """Refuse a name that files of votes could not carry: blank, with a control character, or not a value."""
    if value and (not value.strip() or _CONTROL.search(value) or value.strip() in NO_NUMBER):
        raise ValueError(f"{name} must be a name without control characters, got {value[:80]!r}")
