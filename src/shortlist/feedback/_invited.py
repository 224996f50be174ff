"""Who may use a name in a store: a name of the table ``people`` belongs to who has its link."""

from collections.abc import Collection

from sqlalchemy import Connection, select

from shortlist.feedback._database import FeedbackError
from shortlist.feedback._tables import people

INVITED = "invited"
"""Key of the events of invited people, as they are recorded."""


class InviteError(FeedbackError):
    """A name that is used without its personal link, or with a link that counts no more."""


def key_of_link(serial: str) -> str:
    """Return the key with which an event comes that was sent with a personal link."""
    return f"{INVITED}:{serial}"


def read_serials(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Return the serial of the link that counts now, of those names that are invited; empty if revoked."""
    query = select(people.c.name, people.c.serial, people.c.revoked)
    query = query.where(people.c.name.in_(names), people.c.name > "")  # rows of deleted people have no name
    return {name: "" if revoked else serial for name, serial, revoked in connection.execute(query)}


def admitted_key(serials: dict[str, str], person: str, key: str) -> str:
    """Return the key to record of a person, if the person may use the name.

    Raises:
        InviteError: If the name is that of an invited person and the key is not of the link that counts, or
            if the key is of a link and nobody of this name is invited.
    """
    if person not in serials and not key.startswith(key_of_link("")):
        return key
    if not serials.get(person) or key != key_of_link(serials[person]):
        raise InviteError(f"person must be a name with its valid link: {person[:80]!r} is invited or was")
    return INVITED
