"""Write votes and photos of a store as files that other tools read."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from shortlist._bounds import check_choice
from shortlist._store.files import write_text
from shortlist._tables import write_parts
from shortlist.curation import store_folder
from shortlist.feedback.event import is_sha256
from shortlist.feedback.store import copies_in, database_at, is_address
from shortlist.feedback.votes import Photo, Vote

_TOGETHER = 10_000  # rows that are in memory at a time
FORMS = ("votes", "crowd-kit", "peerannot")
"""The forms: of ``shortlist data votes``, of crowd-kit (task, worker, label) and of peerannot."""


def write_votes(path: str | Path, votes: Iterable[Vote], *, form: str = "votes") -> list[Path]:
    """Write votes in a form of :data:`FORMS`.

    Args:
        path: File to write: ``.csv`` or ``.parquet``; for ``peerannot`` ``.json``.
        votes: The votes.
        form: ``votes`` has the columns item, user, label, author, time, invited. ``crowd-kit`` has task,
            worker, label. ``peerannot`` is ``{task: {worker: label}}`` with numbers for all three; a file
            beside it with ``.names.json`` at its end has what they stand for.

    Returns:
        The files that were written.
    """
    check_choice("form", form, FORMS)
    if form == "peerannot":
        return _write_answers(Path(path), list(votes))
    names = {"votes": Vote._fields, "crowd-kit": ("task", "worker", "label")}[form]
    _write_rows(path, names, (vote[: len(names)] for vote in votes))
    return [Path(path)]


def _write_rows(path: str | Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows of which few are in memory at a time."""
    rows = iter(rows)

    def parts() -> Iterator[dict[str, Sequence[Any]]]:
        columns: Sequence[Any] = [()] * len(names)
        while batch := list(islice(rows, _TOGETHER)):
            columns = list(zip(*batch, strict=True))
            yield dict(zip(names, columns, strict=True))
        if not columns[0]:  # a table without rows
            yield dict(zip(names, columns, strict=True))

    write_parts(path, parts())


def _write_answers(path: Path, votes: Sequence[Vote]) -> list[Path]:
    if path.suffix.lower() != ".json":
        raise ValueError(f"path must end in .json for peerannot, got {path}")
    names = {
        "tasks": sorted({vote.item for vote in votes}),
        "workers": sorted({vote.user for vote in votes}),
        "labels": sorted({vote.label for vote in votes}),
    }
    number = {kind: {name: i for i, name in enumerate(texts)} for kind, texts in names.items()}
    answers: dict[str, dict[str, int]] = {str(i): {} for i in range(len(names["tasks"]))}
    for vote in votes:
        task, worker = number["tasks"][vote.item], number["workers"][vote.user]
        answers[str(task)][str(worker)] = number["labels"][vote.label]
    beside = path.with_suffix(".names.json")
    write_text(beside, json.dumps(names, ensure_ascii=False, indent=1) + "\n")
    write_text(path, json.dumps(answers) + "\n")
    return [path, beside]


def photo_files(store: str | Path, images: Iterable[str]) -> tuple[str, ...]:
    """Return the files of photos of which there are copies; in a database, the SHA-256 of the photos."""
    if is_address(store):
        return tuple(images)
    copies = database_at(store).copies()
    files = (copies.file(image, Path(store)) for image in images)
    return tuple(str(file) for file in files if file is not None)


def write_photos(path: str | Path, photos: Iterable[Photo], store: str | Path) -> int:
    """Write which photos there are copies of, with the file of each, for ``shortlist data build --images``.

    Columns: path (absolute), item, image (the SHA-256), organ, author, license, date, latitude, longitude,
    uncertainty (in meters). Copies in a database are first written to a folder beside ``path``, with its name
    and ``-files``; those that were deleted since an earlier export are removed from it.

    Returns:
        The number of photos, with those of which there is no copy.
    """
    path, database, number = Path(path), database_at(store), 0
    copies = database.copies()
    folder = path.with_name(f"{path.stem}-files") / store_folder(database.manifest()["store"])
    names = ("item", "image", *(field.name for field in fields(Photo)[2:]))

    def rows() -> Iterator[list[str]]:
        nonlocal number
        for photo in photos:
            number += 1
            if (file := copies.file(photo.image, folder)) is not None:
                yield [str(file), *(getattr(photo, name) for name in names)]

    _write_rows(path, ("path", *names), rows())
    _remove_deleted(folder, store)
    return number


def _remove_deleted(folder: Path, store: str | Path) -> None:
    """Remove files of an earlier export whose copies were deleted from the store since."""
    if folder.is_dir():
        copies = copies_in(store)
        for file in folder.glob("??/*"):
            if is_sha256(file.name) and file.name not in copies:
                file.unlink(missing_ok=True)
