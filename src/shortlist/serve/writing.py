"""Answers as JSON text.

Of an answer most is its candidates, and of a candidate most is about its class: that part is written once for
each class. A list of 20 classes takes a third of the time that a general writer of JSON takes.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from shortlist.class_table import ClassTable
from shortlist.serve.exchange import Answer, Listed

__all__ = ["AnswerWriter", "joined"]


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class AnswerWriter:
    """A writer of answers about the classes of a table.

    Args:
        table: The classes.
        rare: Whether each class is rare.
        image_form: Function from a known image to plain values.
    """

    def __init__(self, table: ClassTable, rare: Sequence[bool], image_form: Callable[[Any], Any]) -> None:
        self._image_form = image_form
        self._classes: dict[int, str] = {}
        self._table, self._rare = table, rare

    def text(self, answer: Answer) -> str:
        """Return an answer, without the last brace."""
        ancestor = answer.common_ancestor
        rest = {
            "status": answer.status,
            "set_size": answer.set_size,
            "set_probability": round(answer.set_probability, 6),
            "choice": vars(answer.choice),
            "promise": dict(answer.promise),
            "common_ancestor": None if ancestor is None else ancestor._asdict(),
            "renormalized": answer.renormalized,
            "novelty": None if answer.novelty is None else dict(answer.novelty),
        }
        candidates = ",".join(map(self._candidate, answer.candidates))
        return f'{_json(rest)[:-1]},"candidates":[{candidates}]'

    def _candidate(self, listed: Listed) -> str:
        top, coverage, average = listed.enters_at
        images = (
            _json([self._image_form(image) for image in listed.related_images])
            if listed.related_images
            else "[]"
        )
        return (
            f'{{{self._class(listed.class_index)},"probability":{listed.probability!r},'
            f'"in_set":{"true" if listed.in_set else "false"},'
            f'"enters_at":{{"top":{top},"coverage":{"null" if coverage is None else repr(coverage)},'
            f'"average":{"null" if average is None else repr(average)}}},"related_images":{images}}}'
        )

    def _class(self, index: int) -> str:
        """Return what is always the same of a class."""
        found = self._classes.get(index)
        if found is None:
            parents = {level: column[index] for level, column in self._table.parents.items()}
            about = {"id": self._table.ids[index], "name": self._table.names[index], "parents": parents}
            found = self._classes[index] = _json({**about, "rare": self._rare[index]})[1:-1]
        return found


def joined(*parts: str, **more: Any) -> bytes:
    """Return the bytes of an object from texts without their last brace, and more keys."""
    return f"{','.join(parts)},{_json(more)[1:]}".encode()
