"""People who are invited to a store: each has a personal link, which can be revoked.

A link has a token: a serial and the name, signed by the store's secret. The store knows the serial that
counts now, so that a new link ends the link before.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, insert, select, update

from shortlist._text import check_distinct, composed
from shortlist.feedback._database import Database, now
from shortlist.feedback._invited import admitted_key, key_of_link, read_serials
from shortlist.feedback._tables import people
from shortlist.feedback.event import check_person
from shortlist.feedback.store import database_at

_SIGNATURE, _SERIAL = 32, 16  # bytes of the parts of a token, before the name


class Person(NamedTuple):
    """An invited person: the name, since when, and when the link was revoked, if it was; times in UTC."""

    name: str
    since: str
    revoked: str


def invite(location: str | Path, name: str) -> str:
    """Invite a person; or give the person a new link, which ends the link before.

    Args:
        location: Folder or address of a store, which must exist.
        name: Name of the person.

    Returns:
        The token of the link.

    Raises:
        ValueError: If there is no store, or a person cannot have this name.
    """
    name = composed(name)
    check_person(name)
    check_distinct("name", name)
    if not name:
        raise ValueError("name must be given, got an empty name")
    database = database_at(location)
    secret, serial = bytes.fromhex(database.manifest()["secret"]), secrets.token_bytes(_SERIAL)
    values = {"serial": serial.hex(), "since": now(), "revoked": ""}
    with _writing(database) as connection:
        changed = connection.execute(update(people).where(people.c.name == name).values(values))
        if not changed.rowcount:
            connection.execute(insert(people).values(name=name, **values))
    content = serial + name.encode()
    return base64.urlsafe_b64encode(_signed(content, secret) + content).decode().rstrip("=")


def revoke(location: str | Path, name: str) -> None:
    """End the link of a person. Nobody can use the name then, until the person is invited again.

    Raises:
        ValueError: If nobody of this name is invited.
    """
    database, name = database_at(location), composed(name)
    database.manifest()
    invited = (people.c.name == name) & (people.c.name > "") & (people.c.revoked == "")
    with _writing(database) as connection:
        if not connection.execute(update(people).where(invited).values(revoked=now())).rowcount:
            raise ValueError(f"name must be that of an invited person, got {name[:80]!r}: see people list")


def list_people(location: str | Path) -> list[Person]:
    """Return the people who were invited to a store, by name."""
    database = database_at(location)
    database.manifest()
    query = select(people.c.name, people.c.since, people.c.revoked).where(people.c.name > "")
    with database.reading() as connection:
        return [Person(*row) for row in connection.execute(query.order_by(people.c.name))]


def read_token(secret: bytes, token: str) -> tuple[str, str]:
    """Return whose token it is, and the key of events that are sent with it.

    Whether the link still counts is said by :func:`admit`, and by the store when it takes an event.

    Raises:
        ValueError: If the token was not made with this secret.
    """
    try:
        content = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        content = b""
    signature, said = content[:_SIGNATURE], content[_SIGNATURE:]
    if not hmac.compare_digest(signature, _signed(said, secret)):
        raise ValueError("token must be one that shortlist people add gave out for this store")
    return said[_SERIAL:].decode(), key_of_link(said[:_SERIAL].hex())


def admit(location: str | Path, person: str, key: str) -> str:
    """Return the key that a store records of a person, if the person may use the name now.

    Raises:
        InviteError: If the name is an invited person's, and the key is not of the link that counts.
    """
    with database_at(location).reading() as connection:
        return admitted_key(read_serials(connection, [person]), person, key)


def _signed(content: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, b"person\0" + content, hashlib.sha256).digest()


@contextmanager
def _writing(database: Database) -> Iterator[Connection]:
    try:
        with database.errors(), database.turn() as connection:
            yield connection
    finally:
        database.writes.dispose()
