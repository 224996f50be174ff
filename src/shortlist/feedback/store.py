"""A store of events on disk: a folder with a database, and copies of the photos that may be kept."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing
from itertools import islice
from pathlib import Path
from typing import Any

from shortlist._store.files import lock_folder, replacing_folder, sweep
from shortlist._store.manifest import read_sealed, write_sealed
from shortlist._text import composed
from shortlist.feedback._database import (
    NAME,
    FeedbackError,
    Row,
    check_state,
    connect,
    create_tables,
    named_errors,
    read_contents,
    read_photos,
    read_rows,
    read_rows_by_item,
)
from shortlist.feedback._metadata import without_metadata
from shortlist.feedback._writer import Erased, Kept, Writer
from shortlist.feedback.event import ERASED, ERASURE, VERBS, Event, Shown, is_sha256

MANIFEST = "feedback.json"
FORMAT = "shortlist feedback 4"
MAX_BYTES = 64 << 30  # of database and copies
_OPEN_SECONDS = 60.0  # that others may take to open the store
_TOGETHER = 1000  # events that are read at a time
_COUNTS = {
    "people": "SELECT count(DISTINCT person) FROM events WHERE person != ''",
    "images": "SELECT count(DISTINCT image) FROM images WHERE image != ''",
    "copies": "SELECT count(DISTINCT image) FROM images WHERE bytes > 0",
}


class FeedbackStore:
    """The events of people, appended to a database on disk by any number of processes of one machine.

    The folder has ``feedback.json`` (which store it is), ``events.sqlite`` (SQLite in WAL mode) and
    ``images/`` (copies of photos without metadata, named by the SHA-256 of what was sent). Others can read it
    at any time.

    Args:
        folder: Folder of the store, which is made if it does not exist.
        max_bytes: Size of database and copies together at which nothing more is taken.

    Raises:
        FeedbackError: If the folder is no such store, or a process of another machine writes to it.

    Example:
        >>> import tempfile
        >>> with FeedbackStore(Path(tempfile.mkdtemp()) / "feedback") as store:
        ...     event = Event("confirm", "request-1", person="p1", label="oak", images=("0" * 64,))
        ...     store.add(event), store.add(event)
        (Kept(number=1, new=True), Kept(number=1, new=False))
    """

    def __init__(self, folder: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.folder = Path(folder)
        sweep(self.folder.parent)
        if not (self.folder / MANIFEST).exists():
            _create(self.folder)
        manifest = read_manifest(self.folder)
        self.secret = bytes.fromhex(manifest["secret"])
        self._name = manifest["store"]
        with self._alone():
            self._writer = Writer(self.folder, self._name, max_bytes=max_bytes)

    def _alone(self) -> AbstractContextManager[None]:
        """Keep out other processes that open or close the store."""
        in_use = FeedbackError(f"{self.folder} is in use: another process is opening it")
        return lock_folder(self.folder, in_use, wait=_OPEN_SECONDS)

    def submit(self, event: Event, copies: Sequence[bytes] = ()) -> "Future[Kept]":
        """Record an event; the future is done when it is on disk.

        Args:
            event: The event.
            copies: Photos to keep, of those in ``event.images``; only with ``event.consent``. Their metadata
                are not kept.

        Raises:
            ValueError: If a copy is not of one of the images or in an unknown format, or there is no consent.
            FeedbackError: From the future, if the same request said something else before
                (``SameRequestError``), the store is full (``FullError``), or the disk fails.
        """
        if copies and not event.consent:
            raise ValueError("copies must be empty without consent")
        kept = {hashlib.sha256(content).hexdigest(): without_metadata(content) for content in copies}
        if not kept.keys() <= set(event.images):
            raise ValueError("copies must be of the event's images: the SHA-256 of one is not among them")
        taken = [self._writer.copies.take(image, copy) for image, copy in kept.items()]
        return self._writer.append(event, taken)

    def add(self, event: Event, copies: Sequence[bytes] = ()) -> Kept:
        """Record an event, and return when it is on disk."""
        return self.submit(event, copies).result()

    def erase_person(self, person: str) -> Erased:
        """Delete all that is known of a person: events, and copies of photos that nobody else gave.

        The deletion itself is recorded, without the name. What was made from the store before, such as data
        sets, has its own links and is not changed.
        """
        if not person:
            raise ValueError("person must be given, got an empty name")
        return self._writer.erase("person", composed(person)).result()

    def erase_image(self, image: str) -> Erased:
        """Delete all that is known of a photo, given by its SHA-256: its copy and the events about it."""
        if not is_sha256(image):
            raise ValueError(f"image must be a SHA-256 in 64 hexadecimal digits, got {image[:80]!r}")
        return self._writer.erase("image", image).result()

    def events(self) -> Iterator[Event]:
        """Give all events that were not deleted, in their order, each checked."""
        return read_events(self.folder)

    def copy_of(self, image: str) -> Path | None:
        """Return the file of the copy of an image, if there is one."""
        path = self._writer.copies.path(image)
        return path if path.is_file() else None

    def close(self) -> None:
        """Write what waits, and end the thread that writes."""
        self._writer.close()
        with self._alone():
            self._writer.copies.close()

    def __enter__(self) -> "FeedbackStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_store(folder: str | Path) -> bool:
    """Whether a folder is, or was, a store."""
    return any((Path(folder) / name).exists() for name in (MANIFEST, NAME))


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Read which store a folder is.

    Raises:
        FeedbackError: If it is none, or of another version.
    """
    path = Path(folder) / MANIFEST
    if not path.exists():
        raise FeedbackError(f"{folder} is no store of feedback: {path} is missing")
    try:
        return read_sealed(path, FORMAT)
    except (OSError, ValueError) as error:
        raise FeedbackError(str(error)) from error


def read_events(folder: str | Path) -> Iterator[Event]:
    """Give the events of a store that were not deleted, in their order, each checked.

    Raises:
        FeedbackError: If the store is damaged; the message names the file.
    """
    rows = last_answers(folder)
    while some := list(islice(rows, _TOGETHER)):
        contents = read_contents(Path(folder), [row.number for row in some])
        for row in some:
            if contents[row.number]:  # not deleted meanwhile
                yield _event(row, contents[row.number])


def _event(row: Row, content: dict[str, Any]) -> Event:
    names = ("verb", "person", "key", "label", "model", "status", "time")
    return Event(
        request=row.request.hex(),
        observation=row.item,
        consent=bool(row.consent),
        audit=bool(row.audit),
        images=tuple(content["images"]),
        shown=_shown(content),
        choice=content["choice"],
        about=content["about"],
        **{name: getattr(row, name) for name in names},
    )


def _shown(content: dict[str, Any]) -> tuple[Shown, ...]:
    return tuple(Shown(*one) for one in content.get("shown", ()))


def last_answers(folder: str | Path, number: int | None = None) -> Iterator[Row]:
    """Give people's answers among the last rows of a store, or all, without their lists; each is checked."""
    rows = read_rows(Path(folder), read_manifest(folder)["store"], last=number)
    return (row for row in rows if row.verb not in (ERASED, ERASURE))


def answers_by_item(folder: str | Path, *, again: bool = False) -> Iterator[Row]:
    """Give people's answers by observation, in their order within each, without their lists.

    Each is checked, unless they are read ``again``.
    """
    return read_rows_by_item(Path(folder), read_manifest(folder)["store"], again=again)


def shown_at(folder: str | Path, numbers: Sequence[int]) -> dict[int, tuple[Shown, ...]]:
    """Return the lists that some answers are about, by the number of the answer."""
    return {number: _shown(content) for number, content in read_contents(Path(folder), list(numbers)).items()}


def photos_of(folder: str | Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Give each photo that may be kept: its SHA-256, its observation, and what is known of it."""
    return ((image, item, content["about"]) for image, item, content in read_photos(Path(folder)))


def stats_of(folder: str | Path) -> dict[str, Any]:
    """Count what is in a store: events by verb, people, photos, copies, deletions; first and last time."""
    folder = Path(folder)
    store = read_manifest(folder)["store"]
    with named_errors(folder), closing(connect(folder)) as opened:
        opened.execute("BEGIN")
        rows = check_state(opened, folder, store)
        verbs = dict(opened.execute("SELECT verb, count(*) FROM events GROUP BY verb").fetchall())
        count = {name: opened.execute(query).fetchone()[0] for name, query in _COUNTS.items()}
        ends = "SELECT time FROM events WHERE number IN (1, ?) ORDER BY number"
        times = [time for (time,) in opened.execute(ends, (rows,))]
    deletions, erased = verbs.pop(ERASURE, 0), verbs.pop(ERASED, 0)
    return {
        "events": sum(verbs.values()),
        "verbs": {verb: verbs.get(verb, 0) for verb in VERBS},
        **count,
        "deletions": deletions,
        "erased_events": erased,
        "first": times[0] if times else None,
        "last": times[-1] if times else None,
    }


def _create(folder: Path) -> None:
    """Make a store; only its owner can look into it."""
    if is_store(folder):
        raise FeedbackError(f"{folder / MANIFEST} is missing: the store is damaged")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FeedbackError(f"{folder} exists and is no store of feedback: choose another name")
    name = secrets.token_hex(8)
    try:
        with replacing_folder(folder) as temporary:
            temporary.chmod(0o700)
            create_tables(temporary, name)
            content = {"format": FORMAT, "store": name, "secret": secrets.token_hex(32)}
            write_sealed(temporary / MANIFEST, content)
    except FileExistsError:  # another process was faster
        pass
