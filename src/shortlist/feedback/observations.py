"""Observations: photos of one object, of one person, and what people said about them."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._text import composed
from shortlist.feedback._database import read_contents, read_rows_of_item
from shortlist.feedback._tables import Row
from shortlist.feedback.event import OBSERVE, Shown, check_name, facts_of
from shortlist.feedback.store import database_at
from shortlist.feedback.votes import about_its_photos

_NAME, _MARK = 16, 8  # bytes of the two parts of an id


def observation_id(secret: bytes, person: str, name: str) -> str:
    """Return the id of a person's observation, which nobody else can make or hit.

    Args:
        secret: Secret of the store.
        person: The person who made it.
        name: The person's own name for it, or that of its photos.

    Raises:
        ValueError: If the name is blank or has control characters.
    """
    check_name("observation", name)
    first = _keyed(secret, _NAME, "observation", composed(person), name)
    return first + _keyed(secret, _MARK, "owner", composed(person), first)


def owns(secret: bytes, person: str, id: str) -> bool:
    """Whether an observation is of a person: its id says so, whatever was deleted since."""
    mark = _keyed(secret, _MARK, "owner", composed(person), id[: 2 * _NAME])
    return hmac.compare_digest(mark.encode(), id[2 * _NAME :].encode())


def _keyed(secret: bytes, size: int, *words: str) -> str:
    text = b"".join(b"%d:%s" % (len(word.encode()), word.encode()) for word in words)
    return hashlib.blake2b(text, key=secret, digest_size=size).hexdigest()


@dataclass(frozen=True)
class Observation:
    """An observation as its store has it now.

    Attributes:
        id: Its id.
        photos: What is known of each photo, by SHA-256; of photos that may be kept, if any may.
        consent: Whether the photos may be kept, and shown to others.
        shown: The list that its owner saw last.
        choice: What made the list.
        model: Version of the model that made the list.
        status: Status of the list, such as ``novel``.
        audit: Whether the list was drawn for the audit.
        flags: What may be wrong with the photos.
        key: Key by which its owner was let in.
        answers: The last answer of each person, in the order of the people's first ones.
    """

    id: str
    photos: Mapping[str, Mapping[str, str]]
    consent: bool
    shown: tuple[Shown, ...]
    choice: Mapping[str, Any]
    model: str
    status: str
    audit: bool
    flags: tuple[str, ...]
    key: str
    answers: tuple[Row, ...]

    def answer_of(self, person: str) -> Row | None:
        """Return the last answer of a person, if there is one."""
        return next((answer for answer in self.answers if answer.person == person), None)

    def votes(self) -> Counter[tuple[str, str]]:
        """Count the answers by verb and label."""
        return Counter((answer.verb, answer.label) for answer in self.answers)


def read_observation(store: str | Path, secret: bytes, id: str) -> Observation | None:
    """Read an observation; ``None`` if there is none, or if all that its owner said was deleted."""
    database = database_at(store)
    rows = read_rows_of_item(database, id) if id else []
    of_owner = [row for row in rows if owns(secret, row.person, id)]
    read = read_contents(database, [row.number for row in of_owner])
    of_owner = [row for row in of_owner if read.get(row.number)]  # not deleted meanwhile
    if not of_owner:
        return None
    consenting = [row for row in of_owner if row.consent]
    photos: dict[str, dict[str, str]] = {}
    for row in reversed(consenting or of_owner):  # the last word about a photo counts
        for image in read[row.number]["images"]:
            photos.setdefault(image, facts_of(read[row.number], image))
    last = next((row for row in reversed(of_owner) if row.top is not None), of_owner[-1])
    content = read[last.number]
    return Observation(
        id,
        photos,
        bool(consenting),
        tuple(Shown(*entry) for entry in content["shown"]),
        content["choice"],
        last.model,
        last.status,
        bool(last.audit),
        tuple(dict.fromkeys(flag for row in of_owner for flag in row.flags.split())),
        last.key,
        tuple(
            {row.person: row for row in about_its_photos(rows) if row.verb != OBSERVE and row.person}.values()
        ),
    )
