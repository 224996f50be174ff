"""Answers as JSON text.

Of an answer most is its candidates, and of a candidate most is about its class: that part is written once for
each class. A list of 20 classes takes a third of the time that a general writer of JSON takes.
Probabilities have 7 digits, as many as their float32 has. The steps of a ladder are 1 / 20,001 apart or more:
9 digits tell each from the next.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from shortlist.class_table import ClassTable
from shortlist.serve.exchange import Answer, Choice, Listed, NodesAnswer

__all__ = ["AnswerWriter", "joined"]

_CANDIDATE = (  # to format with % takes half the time, and a list has 20
    '{%s,"probability":%.7g,"in_set":%s,"enters_at":{"top":%d,"coverage":%s,"average":%s},"related_images":%s}'
)


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
        self._promises: dict[tuple[Choice, str | None], str] = {}
        self._table, self._rare = table, rare

    def text(self, answer: Answer) -> str:
        """Return an answer, without the last brace."""
        ancestor = answer.common_ancestor
        rest = {
            "status": answer.status,
            "set_size": answer.set_size,
            "set_probability": round(answer.set_probability, 6),
            "common_ancestor": None if ancestor is None else ancestor._asdict(),
            "renormalized": answer.renormalized,
            "novelty": None if answer.novelty is None else dict(answer.novelty),
            "nodes": None if answer.nodes is None else _nodes_form(answer.nodes),
        }
        candidates = ",".join(map(self._candidate, answer.candidates))
        return f'{_json(rest)[:-1]},{self._promise(answer)},"candidates":[{candidates}]'

    def _promise(self, answer: Answer) -> str:
        """Return what made the set and what it promises: the same for all lists of a choice."""
        key = (answer.choice, answer.promise["why_not"])
        found = self._promises.get(key)
        if found is None:
            if len(self._promises) > 1000:  # of values that clients choose
                self._promises.clear()
            parts = {"choice": vars(answer.choice), "promise": dict(answer.promise)}
            found = self._promises[key] = _json(parts)[1:-1]
        return found

    def _candidate(self, listed: Listed) -> str:
        index, _, _, _, probability, in_set, _, (top, coverage, average), images = listed
        return _CANDIDATE % (
            self._classes.get(index) or self._class(index),
            probability,
            "true" if in_set else "false",
            top,
            "null" if coverage is None else format(coverage, ".9g"),
            "null" if average is None else format(average, ".9g"),
            _json(list(map(self._image_form, images))) if images else "[]",
        )

    def _class(self, index: int) -> str:
        """Return what is always the same of a class."""
        parents = {level: column[index] for level, column in self._table.parents.items()}
        about = {"id": self._table.ids[index], "name": self._table.names[index], "parents": parents}
        found = self._classes[index] = _json({**about, "rare": self._rare[index]})[1:-1]
        return found


def _nodes_form(found: NodesAnswer) -> dict[str, Any]:
    nodes = [
        {
            "name": node.name,
            "level": node.level,
            "mass": round(min(node.mass or 0.0, 1.0), 6),
            "size": node.size,
        }
        for node in found.nodes
    ]
    return {"predictor": found.predictor, "nodes": nodes, "promise": dict(found.promise)}


def joined(*parts: str, **more: Any) -> bytes:
    """Return the bytes of an object from texts without their last brace, and more keys."""
    return f"{','.join(parts)},{_json(more)[1:]}".encode()
