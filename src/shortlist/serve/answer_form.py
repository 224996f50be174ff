"""Answers as plain values, in the form of ``/v1``."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import orjson

from shortlist._languages import best_language
from shortlist.class_table import ClassTable
from shortlist.model import Choice, NextPhoto, NodesAnswer
from shortlist.predictors import Candidate, NoveltyDetector
from shortlist.promise import Promise
from shortlist.sentences import (
    language_for,
    next_photo_words,
    novelty_words,
    promise_words,
    speaking,
    why_not,
)
from shortlist.serve.exchange import Answer
from shortlist.serve.places import promise_at


def to_json(content: Any) -> bytes:
    """Return plain values as JSON."""
    return orjson.dumps(content)


def promise_form(promise: Promise) -> dict[str, Any]:
    """Return a promise in numbers and in words, and whether it is about this very list."""
    content = promise.to_dict()
    del content["void"]
    return {
        **content,
        "spread": promise.spread,
        "share_range": promise.share_range,
        "words": promise_words(promise),
        "holds": promise.holds,
        "why_not": why_not(promise),
    }


_said_in = lru_cache(maxsize=256)(language_for)  # of texts that clients choose


@lru_cache(maxsize=1000)  # many lists have the same promise
def _promise_text(promise: Promise, language: str) -> orjson.Fragment:
    with speaking(language):
        return orjson.Fragment(to_json(promise_form(promise)))


def choice_form(choice: Choice) -> dict[str, Any]:
    """Return what made the set."""
    names = ("predictor", "top", "average", "coverage", "macro", "at_least", "at_most")
    return {
        **{name: getattr(choice, name) for name in names},
        "place": None if choice.place is None else choice.place.name,
        "group": None if choice.group is None else ":".join(choice.group),
    }


class AnswerForm:
    """Writes answers about the classes of a table.

    Args:
        table: The classes.
        novelty: Detector of strangers, if there is one.
        image_form: Function from a known image to plain values.
    """

    def __init__(
        self, table: ClassTable, novelty: NoveltyDetector | None, image_form: Callable[[Any], Any]
    ) -> None:
        self._image_form = image_form
        self._novelty = novelty
        rare = table.groups().eq(0).tolist() if table.counts else [False] * len(table)
        authors = [author for _, author in table.scientific_names]
        columns = zip(table.ids, table.names, authors, table.parents_by_class, rare, strict=True)
        self._classes = [
            {"id": id, "name": name, "author": author, "parents": parents, "rare": is_rare}
            for id, name, author, parents, is_rare in columns
        ]
        languages = lru_cache(maxsize=256)(lambda wanted: best_language(wanted, table.common_names))
        by_language = lru_cache(maxsize=None)(self._in_language)  # as many as the table has
        self._table, self._language, self._by_language = table, languages, by_language

    def classes(self, language: str) -> list[dict[str, Any]]:
        """Return what is always the same of each class, with its common names in a language."""
        return self._by_language(self._language(language))

    def _in_language(self, key: str | None) -> list[dict[str, Any]]:
        names = self._table.common_names_in(key or "")
        pairs = zip(self._classes, names, strict=True)
        return [{**form, "common_names": list(common)} for form, common in pairs]

    def __call__(self, answer: Answer, language: str) -> dict[str, Any]:
        """Return an answer as plain values, with names and sentences in a language."""
        classes, said = self.classes(language), _said_in(language)
        listed, ancestor = answer.listed, answer.common_ancestor
        pairs = zip(listed.candidates, answer.related_images, strict=True)
        return {
            "status": answer.status,
            "candidates": [self._candidate(candidate, images, classes) for candidate, images in pairs],
            "set_size": len(listed.members),
            "set_probability": round(min(listed.mass or 0.0, 1.0), 6),
            "choice": choice_form(listed.choice),
            "promise": _promise_text(promise_at(listed.promise, listed.choice.place, said), said),
            "common_ancestor": None if ancestor is None else ancestor._asdict(),
            "next_photo": None if answer.next_photo is None else self._next_photo(answer.next_photo, said),
            "renormalized": listed.choice.place is not None,
            "novelty": None if listed.novelty is None else self._novelty_form(listed.novelty._asdict(), said),
            "nodes": None if listed.nodes is None else _nodes_form(listed.nodes, said),
        }

    def _novelty_form(self, values: dict[str, Any], language: str) -> dict[str, Any]:
        if self._novelty is None:
            return values
        with speaking(language):
            return {**values, "level": self._novelty.level, "words": novelty_words(self._novelty)}

    def _next_photo(self, photo: NextPhoto, language: str) -> dict[str, Any]:
        first, second = (self._classes[index] for index in photo.classes)
        with speaking(language):
            words = next_photo_words(photo, first["name"], second["name"])
        shares = {"told_apart": round(photo.told_apart, 4), "told_apart_now": round(photo.told_apart_now, 4)}
        ids = {"organ": photo.organ, "classes": [first["id"], second["id"]]}
        return {**ids, **shares, "objects": photo.objects, "words": words}

    def _candidate(self, candidate: Candidate, images: Any, classes: Sequence[Any]) -> dict[str, Any]:
        top, coverage, average = candidate.enters_at
        return {
            **classes[candidate.index],
            "probability": candidate.probability,
            "in_set": candidate.in_set,
            "enters_at": {"top": top, "coverage": coverage, "average": average},
            "related_images": list(map(self._image_form, images)),
        }


def _nodes_form(answer: NodesAnswer, language: str) -> dict[str, Any]:
    nodes = [
        {"name": name, "level": level, "mass": round(min(mass or 0.0, 1.0), 6), "size": size}
        for name, level, mass, size in ((n.name, n.level, n.mass, n.size) for n in answer.nodes)
    ]
    return {"predictor": answer.predictor, "nodes": nodes, "promise": _promise_text(answer.promise, language)}
