"""Observations of a store as occurrences of a Darwin Core archive."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shortlist.curation import aggregate_votes
from shortlist.feedback.darwin_core import Media, Occurrence, strictest_license, write_archive
from shortlist.feedback.event import Shown
from shortlist.feedback.location import Location
from shortlist.feedback.store import answers_by_item, database_at, lists_at, photos_of
from shortlist.feedback.votes import Vote, votes_of

if TYPE_CHECKING:  # torch comes with it
    from shortlist.class_table import ClassTable

_TOGETHER = 500  # observations whose lists are read at a time
_KINDS = {
    b"\xff\xd8": ("image/jpeg", ".jpg"),
    b"\x89P": ("image/png", ".png"),
    b"RI": ("image/webp", ".webp"),
}


class _Listed(NamedTuple):
    """The last answer to a list of an observation: its number, and what the list promised."""

    number: int
    promised: float | None


def export_archive(
    path: str | Path,
    store: str | Path,
    table: "ClassTable",
    *,
    title: str,
    with_unverified: bool = False,
    with_flagged: bool = False,
    media_url: str = "",
    **rule: Any,
) -> tuple[int, Counter[str]]:
    """Write the observations that may be published as a Darwin Core archive.

    An observation is published if its owner gave consent and a license, it has a date, and people agree on a
    class of the table.

    Args:
        path: The archive, ``.zip``.
        store: Folder or address of the store.
        table: The classes, which have the names.
        title: Title of the data set.
        with_unverified: Whether names count that lead the votes, but are not valid; they are marked.
        with_flagged: Whether observations count that are flagged and that nobody else looked at.
        media_url: Address below which the photos are published, by SHA-256; inside the archive if empty.
        **rule: Options of :func:`~shortlist.curation.votes.aggregate_votes`.

    Returns:
        The number of occurrences, and how many observations with consent were left out, by reason.
    """
    left_out: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:  # for copies that are in a database
        media = _Photos(store, media_url, Path(folder))
        rows = _occurrences(store, table, media, left_out, with_unverified, with_flagged, rule)
        return write_archive(path, rows, title=title), left_out


class _Photos:
    """Which photos observations have, and where each is.

    Args:
        store: The store.
        address: Address below which they are published, if they are.
        folder: Folder for copies from a database.
    """

    def __init__(self, store: str | Path, address: str, folder: Path) -> None:
        self._copies, self._address, self._folder = database_at(store).copies(), address, folder
        self.by_item: dict[str, list[tuple[str, dict[str, str]]]] = {}
        for image, item, facts in photos_of(store):
            self.by_item.setdefault(item, []).append((image, facts))

    def facts(self, item: str) -> dict[str, str]:
        """Return what is known of an observation: of a photo with license and date, if there is one.

        The license is the strictest of all its photos.
        """
        of_photos = [facts for _, facts in self.by_item[item]]
        best = max(of_photos, key=lambda facts: ("license" in facts) + ("date" in facts))
        licenses = [facts["license"] for facts in of_photos if "license" in facts]
        return best | ({"license": strictest_license(licenses)} if licenses else {})

    def media(self, item: str) -> list[Media]:
        """Return the photos of an observation that have a license, and of which there are copies."""
        media = []
        for image, facts in self.by_item[item]:
            if not facts.get("license"):
                continue
            file = self._copies.file(image, self._folder)
            if file is not None:
                with file.open("rb") as stream:
                    kind, suffix = _KINDS.get(stream.read(2), ("image/jpeg", ""))
                name = f"{image}{suffix}"
                url, here = f"{self._address.rstrip('/')}/{name}", (f"images/{name}", kind, file)
                place = (url, kind, None) if self._address else here
                media.append(Media(*place, facts["license"], facts.get("author", "")))
        return media


def _occurrences(
    store: str | Path,
    table: "ClassTable",
    photos: _Photos,
    left_out: Counter[str],
    with_unverified: bool,
    with_flagged: bool,
    rule: Mapping[str, Any],
) -> Iterator[Occurrence]:
    labels, listed = _labels(store, table, with_flagged, rule)
    index = {id: number for number, id in enumerate(table.ids)}

    def named() -> Iterator[tuple[str, Occurrence]]:
        for item in sorted(photos.by_item):
            label, is_valid, votes = labels.get(item, ("", False, 0))
            facts = photos.facts(item)
            reason = _reason(facts, label, is_valid or with_unverified, label in index)
            if reason:
                left_out[reason] += 1
                continue
            word = "vote" if votes == 1 else "votes"
            row = _named(table, index[label], item, facts)
            yield item, replace(row, remarks=f"{votes} {word}", is_verified=is_valid)

    rows = named()
    while batch := list(islice(rows, _TOGETHER)):
        lists = lists_at(store, [listed[item].number for item, _ in batch if item in listed])
        for item, row in batch:
            last = listed.get(item)
            shown = () if last is None else lists.get(last.number, ((), ()))[0]
            remarks = row.remarks + _list_words(shown, last and last.promised, table, index)
            yield replace(row, remarks=remarks, media=photos.media(item))


def _labels(
    store: str | Path, table: "ClassTable", with_flagged: bool, rule: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, bool, int]], dict[str, _Listed]]:
    """Return label, validity and number of votes of each observation, and its last answer to a list."""
    from shortlist.curation import Proposals  # with torch

    votes: list[Vote] = []
    listed: dict[str, _Listed] = {}
    for item, group in groupby(answers_by_item(store), key=attrgetter("item")):
        said = list(group)
        votes += votes_of(item, said, Counter(), with_flagged=with_flagged)
        last = next((row for row in reversed(said) if row.top is not None), None)
        if last is not None:
            listed[item] = _Listed(last.number, last.promised)
    if not votes:
        return {}, listed
    names = ("item", "user", "label", "author", "invited")
    resolve = lru_cache(None)(Proposals(table).resolve)  # a name that was proposed may be a class by now
    votes = [vote._replace(label=resolve(vote.label) or vote.label) for vote in votes]
    columns = {name: [getattr(vote, name) for vote in votes] for name in names}
    decided = aggregate_votes(**columns, **rule)
    names = map(str, decided.items.tolist())
    rows = zip(names, decided.labels.tolist(), decided.valid.tolist(), decided.votes.tolist(), strict=True)
    return {item: (str(label), valid, number) for item, label, valid, number in rows}, listed


def _reason(facts: Mapping[str, str], label: str, is_named: bool, is_class: bool) -> str:
    """Say why an observation is not published; nothing if it is."""
    reasons = {
        "no license": not facts.get("license"),
        "no date": not facts.get("date"),
        "no votes": not label,
        "no valid label": not is_named,
        "no class of the table": not is_class,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _named(table: "ClassTable", number: int, item: str, facts: Mapping[str, str]) -> Occurrence:
    name, author = table.scientific_names[number]
    place = [float(facts[part]) for part in Location._fields if part in facts]
    return Occurrence(
        item,
        name,
        author,
        table.ids[number],
        dict(table.parents_by_class[number]),
        facts["date"],
        Location(*place) if len(place) >= 2 else None,
        facts.get("author", ""),
        facts["license"],
    )


def _list_words(
    shown: tuple[Shown, ...], promised: float | None, table: "ClassTable", index: Mapping[str, int]
) -> str:
    """Say which list was shown, and what it promised."""
    names = [
        f"{table.names[index[entry.id]] if entry.id in index else entry.id} {entry.probability:.2f}"
        for entry in shown
        if entry.in_set
    ]
    words = f"; list: {', '.join(names)}" if names else ""
    return words + ("" if promised is None else f"; {100 * promised:g} of 100 such lists hold the name")
