"""What is wrong with a store of feedback, file by file."""

import hashlib
from contextlib import closing
from pathlib import Path

from shortlist._store.doctor import Finding, with_leftovers
from shortlist.feedback._copies import Copies
from shortlist.feedback._database import NAME, FeedbackError, check_bytes, connect, named_errors
from shortlist.feedback.store import MANIFEST, read_events, read_manifest

_BACK = "put it back from a copy of the store"


def examine_store(folder: str | Path) -> list[Finding]:
    """Check the manifest, every row of the log, and every copy of a photo."""
    folder = Path(folder)
    try:
        read_manifest(folder)
    except FeedbackError as error:
        return [Finding(MANIFEST, str(error), _BACK)]
    try:
        _check_pages(folder)
        kept = {image for event in read_events(folder) if event.consent for image in event.images}
    except (FeedbackError, OSError) as error:
        return [Finding(NAME, str(error), _BACK)]
    findings, copies, recorded = [], Copies(folder), _recorded_copies(folder)
    for path in copies:
        name = str(path.relative_to(folder))
        if path.name not in kept:
            what = "is a copy that no event speaks of"
            findings.append(Finding(name, what, "remove it"))
        elif not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() not in recorded.get(
            path.name, ()
        ):
            findings.append(Finding(name, "is damaged or was changed", f"{_BACK}, or remove it"))
    for image in sorted(recorded):
        if not copies.path(image).exists():
            place = str(copies.path(image).relative_to(folder))
            findings.append(Finding(place, "is missing", _BACK))
    for path in copies.waiting():
        what = "a killed process left it, or one is writing"
        name = str(path.relative_to(folder))
        findings.append(Finding(name, what, "whoever opens the store next to write clears it"))
    return with_leftovers(folder, findings)


def _check_pages(folder: Path) -> None:
    """Let SQLite look at its own pages and indexes."""
    with named_errors(folder), closing(connect(folder)) as opened:
        (said,) = opened.execute("PRAGMA integrity_check(1)").fetchone()
        if said != "ok":
            raise FeedbackError(f"{folder / NAME} is damaged: {said}")
        check_bytes(opened, folder)


def _recorded_copies(folder: Path) -> dict[str, set[str]]:
    """Return the images with copies, and the SHA-256 that the copy of each may have."""
    recorded: dict[str, set[str]] = {}
    with named_errors(folder), closing(connect(folder)) as opened:
        for image, sha256 in opened.execute("SELECT image, sha256 FROM images WHERE bytes > 0"):
            recorded.setdefault(image, set()).add(sha256)
    return recorded
