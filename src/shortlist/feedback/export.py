"""Write votes and photos of a store as files that other tools read."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from shortlist._checks import check_choice
from shortlist._files import write_text
from shortlist._tables import write_columns
from shortlist.feedback._copies import Copies
from shortlist.feedback.votes import Photo, Vote

__all__ = ["FORMS", "write_photos", "write_votes"]

FORMS = ("votes", "crowd-kit", "peerannot")
"""The forms: of ``shortlist data votes``, of crowd-kit (task, worker, label) and of peerannot."""


def write_votes(path: str | Path, votes: Sequence[Vote], *, form: str = "votes") -> list[Path]:
    """Write votes in a form of :data:`FORMS`.

    Args:
        path: File to write: ``.csv`` or ``.parquet``; for ``peerannot`` ``.json``.
        votes: The votes.
        form: ``votes`` has the columns item, user, label, author, time. ``crowd-kit`` has task, worker,
            label. ``peerannot`` is ``{task: {worker: label}}`` with numbers for all three; a file beside it
            with ``.names.json`` at its end has what they stand for.

    Returns:
        The files that were written.
    """
    check_choice("form", form, FORMS)
    if form == "peerannot":
        return _write_answers(Path(path), votes)
    names = {"votes": ("item", "user", "label"), "crowd-kit": ("task", "worker", "label")}[form]
    table = {
        names[0]: [vote.item for vote in votes],
        names[1]: [vote.user for vote in votes],
        names[2]: [vote.label for vote in votes],
    }
    if form == "votes":
        table["author"] = [vote.author for vote in votes]
        table["time"] = [vote.time for vote in votes]
    write_columns(path, table)
    return [Path(path)]


def _write_answers(path: Path, votes: Sequence[Vote]) -> list[Path]:
    if path.suffix.lower() != ".json":
        raise ValueError(f"path must end in .json for peerannot, got {path}")
    names = {
        "tasks": sorted({vote.item for vote in votes}),
        "workers": sorted({vote.user for vote in votes}),
        "labels": sorted({vote.label for vote in votes}),
    }
    number = {kind: {name: i for i, name in enumerate(found)} for kind, found in names.items()}
    answers: dict[str, dict[str, int]] = {str(i): {} for i in range(len(names["tasks"]))}
    for vote in votes:
        task, worker = number["tasks"][vote.item], number["workers"][vote.user]
        answers[str(task)][str(worker)] = number["labels"][vote.label]
    beside = path.with_suffix(".names.json")
    write_text(beside, json.dumps(names, ensure_ascii=False, indent=1) + "\n")
    write_text(path, json.dumps(answers) + "\n")
    return [path, beside]


def write_photos(path: str | Path, photos: Sequence[Photo], store: str | Path) -> None:
    """Write which photos there are copies of, with the file of each, for ``shortlist data build --images``.

    Columns: path (absolute), item, image (the SHA-256), organ, author, license, date.
    """
    copies = Copies(Path(store).resolve())
    there = [photo for photo in photos if copies.path(photo.image).is_file()]
    table: dict[str, list[Any]] = {"path": [str(copies.path(photo.image)) for photo in there]}
    rows = [asdict(photo) for photo in there]
    for name in ("item", "image", *(field.name for field in fields(Photo)[2:])):
        table[name] = [row[name] for row in rows]
    write_columns(path, table)
