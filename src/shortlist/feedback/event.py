"""An event: what one person says about one list, with the list that was shown."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shortlist._checks import check_choice

__all__ = ["ERASED", "ERASURE", "LABELED", "REJECTED", "VERBS", "Event", "Shown", "observation_of"]

LABELED = ("confirm", "other_class")
"""Verbs that name a class."""
REJECTED = ("bad_image", "not_this_kind")
"""Verbs that say of an image that it does not belong here."""
VERBS = (*LABELED, "none_of_these", "do_not_know", *REJECTED)
"""What a person can say."""
ERASED, ERASURE = "erased", "erasure"  # what is left of an event that was deleted; the record of a deletion

ABOUT = ("organ", "author", "license", "date", "note")
_SHA256 = re.compile("[0-9a-f]{64}")
_LONGEST = 500  # characters of a name
_LONGEST_NOTE = 2000


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
        person: Opaque name of the person, no address and no real name; empty if not known.
        label: Id of the class that is meant, for ``confirm`` and ``other_class``.
        images: SHA-256 of each photo of the object, in hexadecimal digits.
        observation: Name of the observation, which all photos of one object share; made from the photos if
            empty.
        consent: Whether copies of the photos may be kept.
        shown: The list that the person saw.
        choice: What made the list: a predictor, or a number or a coverage that was asked for.
        model: Version of the model that made it.
        status: Status of the answer, such as ``novel``.
        audit: Whether the request was drawn at random for the audit.
        about: What else is known of the photos: ``organ``, ``author``, ``license``, ``date``, ``note``.
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
    time: str = ""

    def __post_init__(self) -> None:
        check_choice("verb", self.verb, VERBS)
        if (self.label != "") != (self.verb in LABELED):
            raise ValueError(f"label must be given for confirm and other_class, and only there: {self.verb}")
        _check_text("request", self.request, shortest=1)
        for name in ("person", "label", "observation", "model", "status"):
            _check_text(name, getattr(self, name))
        if self.person.startswith("!"):  # names of ours, such as !machine
            raise ValueError(f"person must not begin with '!', got {self.person[:80]!r}")
        if wrong := [image for image in self.images if not _SHA256.fullmatch(image)]:
            raise ValueError(f"images must be SHA-256 in 64 hexadecimal digits, got {wrong[0][:80]!r}")
        if not self.images:
            raise ValueError("images must have the SHA-256 of at least one photo, got none")
        if unknown := sorted(set(self.about) - set(ABOUT)):
            raise ValueError(f"about must have keys among {', '.join(ABOUT)}, got {unknown[0][:80]!r}")
        for name, value in self.about.items():
            _check_text(name, value, longest=_LONGEST_NOTE)

    @property
    def item(self) -> str:
        """Name of the observation; made from the photos if none was given."""
        return self.observation or observation_of(self.images)

    def content(self) -> dict[str, Any]:
        """Return all that is said as plain values, without name of the request and time."""
        return {
            "verb": self.verb,
            "person": self.person,
            "label": self.label,
            "images": list(self.images),
            "observation": self.item,
            "consent": self.consent,
            "shown": [list(one) for one in self.shown],
            "choice": dict(self.choice),
            "model": self.model,
            "status": self.status,
            "audit": self.audit,
            "about": {name: value for name, value in self.about.items() if value},
        }


def observation_of(images: tuple[str, ...]) -> str:
    """Return a name for an observation from its photos, in whatever order: of one photo, its hash."""
    distinct = sorted(set(images))
    return distinct[0] if len(distinct) == 1 else hashlib.sha256(json.dumps(distinct).encode()).hexdigest()


def _check_text(name: str, value: Any, *, shortest: int = 0, longest: int = _LONGEST) -> None:
    if not isinstance(value, str) or not shortest <= len(value) <= longest:
        found = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{name} must be text of {shortest} to {longest} characters, got {found}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be text that UTF-8 can write, got a lone surrogate") from None
