"""People's answers that an app kept, from a file into a store."""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._messages import one_line
from shortlist._store.json import read_json, strict_json
from shortlist.feedback import FeedbackError, FeedbackStore
from shortlist.serve.feedback import event_of, parsed
from shortlist.serve.people_schemas import Feedback
from shortlist.serve.refusals import Refusal

FORMAT = "shortlist answers 1"
_NOT_SAID = ("photos", "time")  # what the file has beside the answer


class Imported(NamedTuple):
    """What came of a file: how many answers are new, how many were there, and why others were refused."""

    new: int
    known: int
    refused: list[str]


def import_answers(store: FeedbackStore, path: str | Path) -> Imported:
    """Record the answers of a file that an app saved; an answer that is there is not recorded again.

    Args:
        store: The store, which checks and writes them as it does those of a server.
        path: The file.

    Raises:
        ValueError: If it is no such file.
    """
    new, known, refused = 0, 0, []
    for number, content in enumerate(_answers(path), start=1):
        try:
            said, copies = _read(content)
            hashes = [hashlib.sha256(copy).hexdigest() for copy in copies]
            kept = store.add(event_of(said, hashes, store.secret, None, key=""), copies)
            new, known = new + kept.new, known + (not kept.new)
        except (Refusal, FeedbackError, ValueError) as error:
            refused.append(f"answer {number}: {one_line(error)}")
    return Imported(new, known, refused)


def _answers(path: str | Path) -> Iterator[Any]:
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} must be a file of answers that an app saved, of the format {FORMAT!r}")
    if not isinstance(content.get("answers"), list):
        raise ValueError(f"{path} must have a list of answers")
    return iter(content["answers"])


def _read(content: Any) -> tuple[Feedback, list[bytes]]:
    """Return what a person said, and the photos to keep."""
    if not isinstance(content, dict) or not isinstance(content.get("photos", []), list):
        raise ValueError("an answer must be an object with a list of photos")
    said = {name: value for name, value in content.items() if name not in _NOT_SAID}
    if said.get("listed") is None or said.get("id") is None:
        raise ValueError("an answer must have a name (id) and a list (listed)")
    try:
        copies = [base64.b64decode(str(photo), validate=True) for photo in content.get("photos", [])]
    except binascii.Error:
        raise ValueError("a photo must be in base64") from None
    return parsed(Feedback, strict_json(said).encode()), copies
