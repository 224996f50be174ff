"""A turn to write: what is recorded together, after what others wrote."""

from collections.abc import Sequence, Set
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from shortlist.feedback._copies import Taken
from shortlist.feedback._database import AT_ONCE
from shortlist.feedback._invited import read_serials
from shortlist.feedback._tables import Row, contents, events, images, request_key, state
from shortlist.feedback.event import Event


class Turn:
    """What is written together, after what others wrote: rows wait until the turn ends.

    Args:
        connection: Writes alone.
        said: Events that may be written.
    """

    def __init__(self, connection: Connection, said: Sequence[Event] = ()) -> None:
        self.connection = connection
        self._state = tuple(connection.execute(select(state.c.rows, state.c.bytes)).one())
        self.rows, self.bytes = self._state
        self.text = 0  # characters of new rows, which have no pages yet
        self._new: dict[Any, list[dict[str, Any]]] = {events: [], contents: [], images: []}
        before = (events.c.request, events.c.number, events.c.verb)
        before = (*before, events.c.person, events.c.label, events.c.photos)
        before = (*before, events.c.item, events.c.consent, events.c.flags)
        query = select(*before).where(events.c.request.in_([request_key(event.request) for event in said]))
        self.requests = {row[0]: tuple(row[1:]) for row in connection.execute(query)} if said else {}
        names = {event.person for event in said if event.person}
        query = select(events.c.person, events.c.key).where(events.c.person.in_(names), events.c.key > "")
        self.keys = dict(connection.execute(query.distinct()).all()) if names else {}
        self.serials = read_serials(connection, names) if names else {}
        self.first_items = _first_items(connection, {image for event in said for image in event.images})

    def insert(self, row: Row, content: str) -> None:
        """Write a row with its content."""
        self._new[events].append(row._asdict())
        self._new[contents].append({"number": row.number, "content": content})
        self.rows, self.text = row.number, self.text + len(content)

    def insert_images(self, number: int, event: Event, taken: Sequence[Taken]) -> None:
        """Write which images an event is about, with what is kept of them."""
        kept = {copy.image: {"bytes": copy.size, "sha256": copy.sha256} for copy in taken}
        for image in set(event.images):
            record = {"image": image, "number": number, "bytes": 0, "sha256": ""}
            self._new[images].append(record | kept.get(image, {}))
            self.first_items.setdefault(image, event.item)
        self.bytes += sum(copy.size for copy in taken)

    def write(self) -> None:
        """Write the rows that wait."""
        for table, rows in self._new.items():
            if rows:
                self.connection.execute(insert(table), rows)
                rows.clear()

    def end(self) -> None:
        """Write all rows, and how many there are."""
        self.write()
        if self._state != (self.rows, self.bytes):
            self.connection.execute(update(state).values(rows=self.rows, bytes=self.bytes))


def empty(turn: Turn, rows: Sequence[Row]) -> set[str]:
    """Overwrite rows, their contents, and their images; return the images that had copies."""
    numbers, connection = [row.number for row in rows], turn.connection
    given = forget_copies(turn, numbers)
    connection.execute(update(images).where(images.c.number.in_(numbers)).values(image=""))
    overwrite(connection, rows)
    connection.execute(update(contents).where(contents.c.number.in_(numbers)).values(content=""))
    return given


def forget_copies(turn: Turn, numbers: Sequence[int]) -> set[str]:
    """Note that some rows gave no copies; return the images of which they gave some."""
    query = select(images.c.image, images.c.bytes).where(images.c.number.in_(numbers), images.c.bytes > 0)
    kept = turn.connection.execute(query).all()
    turn.bytes -= sum(size for _, size in kept)
    turn.connection.execute(update(images).where(images.c.number.in_(numbers)).values(bytes=0, sha256=""))
    return {image for image, _ in kept}


def overwrite(connection: Connection, rows: Sequence[Row]) -> None:
    """Put rows in place of those that have their numbers."""
    values = [{"at": row.number, **dict(zip(Row._fields[2:], row[2:], strict=True))} for row in rows]
    connection.execute(update(events).where(events.c.number == bindparam("at")), values)


def _first_items(connection: Connection, hashes: Set[str]) -> dict[str, str]:
    """Return the observation that each photo was sent for first, of photos that are known."""
    first: dict[str, str] = {}
    query = select(images.c.image, events.c.item).join(events, events.c.number == images.c.number)
    ordered, names = query.order_by(images.c.number), sorted(hashes)
    for start in range(0, len(names), AT_ONCE):
        some = ordered.where(images.c.image.in_(names[start : start + AT_ONCE]))
        for image, item in connection.execute(some):
            first.setdefault(image, item)
    return first
