"""The places of a server: files of a folder, and lists of classes that come with a request."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from shortlist._messages import examples, one_line
from shortlist.class_table import ClassTable
from shortlist.place import Place, PlaceMatch
from shortlist.promise import Promise
from shortlist.sentences import LANGUAGE
from shortlist.serve.refusals import Refusal

TITLES = "places.json"
"""File of a folder of places that has their titles."""
ALL = "all"
"""What clients of Pl@ntNet's API call all classes, so that no place has this name."""
_KINDS = (".csv", ".tsv", ".txt")
_LOG = logging.getLogger("shortlist.serve")


def read_places(folder: str | Path) -> list[Place]:
    """Read the places of a folder, by name: one from each file, named by its stem.

    Titles are in ``places.json``: for each name a text, or texts by language.

    Raises:
        ValueError: If there is none, a file cannot be read as a place, or titles are of no place.
    """
    paths: dict[str, Path] = {}
    for path in sorted(Path(folder).glob("[!.]*")):
        if path.suffix.lower() in _KINDS and paths.setdefault(path.stem, path) != path:
            raise ValueError(
                f"{path} must have another name: {paths[path.stem].name} is the place {path.stem}"
            )
    if not paths:
        raise ValueError(f"--places must be a folder with files {', '.join(_KINDS)}, got none in {folder}")
    if ALL in paths:
        raise ValueError(f"{paths[ALL]} must have another name: {ALL} stands for all classes")
    titles = _titles(Path(folder) / TITLES)
    for name in titles.keys() - paths.keys():
        raise ValueError(f"{TITLES} must have names of files in {folder}, got {name!r}")
    return [
        Place(place.weights, name, titles.get(name, ""), place.synonyms)
        for name, place in ((name, Place.from_file(path)) for name, path in paths.items())
    ]


def _titles(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        titles = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {one_line(error)}") from error
    if not isinstance(titles, dict) or not all(map(_is_title, titles.values())):
        raise ValueError(f"{path} must have a title for each name, a text or texts by language")
    return titles


def _is_title(title: object) -> bool:
    return isinstance(title, str) or (
        isinstance(title, dict) and all(isinstance(t, str) for t in title.values())
    )


class ServedPlaces:
    """The places that requests can name.

    Args:
        places: The places; none by default.
        classes: Classes of the model.

    Raises:
        ValueError: If a place has no class of the model.
    """

    def __init__(self, places: Sequence[Place], classes: ClassTable) -> None:
        self._classes, self._ids = classes, frozenset(classes.ids)
        self._places = {place.name: (place, place.match(classes)) for place in places}
        for place, match in self._places.values():
            if match.unknown:
                count, names = len(match.unknown), examples([name[:80] for name in match.unknown], limit=20)
                _LOG.warning(
                    "place %s: names that are no class of the model: %d (%s)", place.name, count, names
                )
        self._inline = lru_cache(maxsize=64)(Place.of)  # of values that clients choose

    def __iter__(self) -> Iterator[tuple[Place, PlaceMatch]]:
        return iter(self._places.values())

    def get(self, name: str) -> tuple[Place, PlaceMatch] | None:
        """Return the place of a name, if there is one."""
        return self._places.get(name)

    def chosen(self, name: str | None, classes: Sequence[str]) -> Place | None:
        """Return the place that a request names, or that has the classes it lists; else all classes."""
        if name is not None and classes:
            raise Refusal(422, "bad_parameter", "At most one of place and classes must be given.")
        if name is not None:
            return self._named(name)
        if not classes:
            return None
        unknown = next((id for id in classes if id not in self._ids), None)
        if unknown is not None:
            raise Refusal(
                422, "bad_parameter", f"classes must be ids of the model's classes, got {unknown[:80]!r}."
            )
        return self._inline(tuple(sorted(set(classes))))

    def _named(self, name: str) -> Place:
        place = self.get(name)
        if place is None:
            names = (
                examples([*self._places], limit=10)
                if self._places
                else "none: it was started without --places"
            )
            raise Refusal(
                422, "unknown_place", f"place must be one of this server ({names}), got {name[:80]!r}."
            )
        return place[0]

    def forms(self, language: str = LANGUAGE) -> list[dict[str, Any]]:
        """Return all places as plain values, with titles in a language where they have them."""
        return [
            {
                "name": place.name,
                "title": title_of(place, language),
                "titles": {} if isinstance(place.title, str) else dict(place.title),
                "classes": match.matched,
                "unknown": len(match.unknown),
                "unknown_names": [name[:200] for name in match.unknown[:100]],
            }
            for place, match in self
        ]


def promise_at(promise: Promise, place: Place | None, language: str) -> Promise:
    """Return a promise whose place, if there is one, is called by its title in a language."""
    return replace(promise, place=title_of(place, language)) if place and promise.place else promise


def title_of(place: Place, language: str) -> str:
    """Return the title of a place in a language, in English, or in any; else its name."""
    if isinstance(place.title, str):
        return place.shown
    return place.title.get(language) or place.title.get(LANGUAGE) or place.shown
