"""What is wrong with a store of feedback, file by file."""

from pathlib import Path

from sqlalchemy import select

from shortlist._store.doctor import Finding, with_leftovers
from shortlist.feedback._database import Database, FeedbackError, check_bytes
from shortlist.feedback._sqlite import MANIFEST, NAME
from shortlist.feedback._tables import images
from shortlist.feedback.store import database_at, is_address, read_events

_BACK = "put it back from a copy of the store"


def examine_store(location: str | Path) -> list[Finding]:
    """Check the manifest, every row of the log, and every copy of a photo."""
    database = database_at(location)
    try:
        database.manifest()
    except FeedbackError as error:
        return [Finding("state" if is_address(location) else MANIFEST, str(error), _BACK)]
    try:
        database.check_pages()
        with database.reading() as connection:
            check_bytes(connection, database)
        kept = {image for event in read_events(location) if event.consent for image in event.images}
    except (FeedbackError, OSError) as error:
        return [Finding("events" if is_address(location) else NAME, str(error), _BACK)]
    findings = _examine_copies(database, kept)
    return findings if is_address(location) else with_leftovers(Path(location), findings)


def _examine_copies(database: Database, kept: set[str]) -> list[Finding]:
    """Compare the copies with what events say of them."""
    findings, copies, recorded, there = [], database.copies(), _recorded_copies(database), set()
    for name, image, sha256 in copies.each():
        there.add(image)
        if image not in kept:
            findings.append(Finding(name, "is a copy that no event speaks of", "remove it"))
        elif sha256 not in recorded.get(image, ()):
            findings.append(Finding(name, "is damaged or was changed", f"{_BACK}, or remove it"))
    for image in sorted(recorded.keys() - there):
        findings.append(Finding(copies.name(image), "is missing", _BACK))
    for path in copies.waiting():
        what = "a killed process left it, or one is writing"
        name = str(path.relative_to(database.location))
        findings.append(Finding(name, what, "whoever opens the store next to write clears it"))
    return findings


def _recorded_copies(database: Database) -> dict[str, set[str]]:
    """Return the images with copies, and the SHA-256 that the copy of each may have."""
    recorded: dict[str, set[str]] = {}
    with database.reading() as connection:
        query = select(images.c.image, images.c.sha256).where(images.c.bytes > 0)
        for image, sha256 in connection.execute(query):
            recorded.setdefault(image, set()).add(sha256)
    return recorded
