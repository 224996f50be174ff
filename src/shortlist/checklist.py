"""Checklists: the names of taxa with authors, synonyms and common names, as a file has them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from shortlist._languages import language_key
from shortlist._messages import examples
from shortlist._names import split_author
from shortlist._tables import text_rows
from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.name_search import NameSearch

LEVELS = ("genus", "family", "order")
"""Levels above species that a checklist tells, the most specific first."""
UNKNOWN_LANGUAGE = "und"
_SUFFIXES = (".csv", ".tsv", ".txt")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType({})
# by what a column is, the names that it may have, without capitals, underscores and prefixes
_COLUMNS = {
    "id": "taxonid id classid coreid taxonkey",
    "name": "scientificname name scientfiicname",
    "plain": "canonicalname",
    "author": "scientificnameauthorship authorship author authors scientfiicnameauthorship",
    "rank": "taxonrank rank",
    "accepted": "acceptednameusageid acceptedid",
    "accepted_name": "acceptednameusage acceptedname",
    "status": "taxonomicstatus status",
    "parent": "parentnameusageid parentid",
    "name_id": "scientificnameid",
    "synonyms": "synonyms",
    "common": "vernacularname vernacularnames commonname commonnames",
    "language": "language lang",
    "preferred": "ispreferredname",
    "gbif": "gbif gbifid",
    "powo": "powo powoid ipni ipniid",
    **{level: level for level in LEVELS},
}
_KEYS = {name: key for key, names in _COLUMNS.items() for name in names.split()}
_COMMON_IN = re.compile(r"(?:common|vernacular)[ _]?names?[ _:(-]+([a-z]{2,3}(?:[-_][a-z]+)?)\)?", re.I)
_IPNI = re.compile(r"(?:ipni:|urn:lsid:ipni\.org:names:)([\w-]+)$", re.I)
_GBIF = re.compile(r"(?:gbif:|https?://www\.gbif\.org/species/)(\d+)$", re.I)


class Taxon(NamedTuple):
    """A taxon of a checklist.

    Attributes:
        id: Its id in the checklist.
        name: Accepted scientific name, without the author.
        author: Author of the name; empty if it is not told.
        rank: Rank, such as ``"species"``; empty if it is not told.
        parents: Its parents by level, as far as they are told, such as ``{"genus": "Quercus"}``.
        synonyms: Other scientific names, with their authors.
        common_names: What people call it by language, the best name first.
        external: Its ids in other databases, such as ``{"gbif": "2878688"}``.
    """

    id: str
    name: str
    author: str = ""
    rank: str = ""
    parents: Mapping[str, str] = _NOTHING
    synonyms: tuple[str, ...] = ()
    common_names: Mapping[str, tuple[str, ...]] = _NO_NAMES
    external: Mapping[str, str] = _NOTHING


class Checklist:
    """Taxa that can be searched by all their names.

    Args:
        taxa: The taxa, each with an id of its own.
        left_out: Numbers of rows of the file that are no taxon and no synonym of one, by reason.

    Example:
        >>> oak = Taxon("1", "Quercus robur", "L.", synonyms=("Quercus pedunculata Ehrh.",))
        >>> checklist = Checklist([oak, Taxon("2", "Fagus sylvatica", "L.")])
        >>> checklist.find("Quercus pedunculata").id, checklist.find("Fagus sylvatica L.").id
        ('1', '2')
        >>> [(taxon.id, name) for taxon, name, _ in checklist.search("qercus ped")]
        [('1', 'Quercus pedunculata Ehrh.')]
    """

    def __init__(self, taxa: Sequence[Taxon], left_out: Mapping[str, int] = MappingProxyType({})) -> None:
        self.taxa, self.left_out = tuple(taxa), dict(left_out)

    def __len__(self) -> int:
        return len(self.taxa)

    @staticmethod
    def read(path: str | Path) -> "Checklist":
        """Read a CSV or TSV, or a Darwin Core taxon table with its files of common names.

        Needed is a column of names (``scientificName`` or ``name``). Others may be ids, authors, ranks,
        ``genus``, ``family`` and ``order``, ``acceptedNameUsageID`` of synonyms, ``synonyms`` with ``|``
        between them, ``common_names_fr`` and so on, ``gbif``, ``powo``. Files beside a Darwin Core table with
        ``vernacular`` in their names have its common names. Of a folder, the one taxon table is read.

        Raises:
            ValueError: If it cannot be read, has no column of names, or has an id twice.
        """
        path = _taxon_table(Path(path))
        raw, left_out = _read_rows(path), Counter[str]()
        taxa = {row.id: row for row in raw if not row.accepted}
        synonyms = _synonyms(raw, taxa, left_out)
        common = _common_names(path, taxa)
        made = [_taxon(row, taxa, synonyms.get(row.id, ()), common.get(row.id)) for row in taxa.values()]
        return Checklist(made, left_out)

    @staticmethod
    def of_classes(table: ClassTable) -> "Checklist":
        """Return the classes of a table as taxa."""
        columns = zip(table.ids, table.scientific_names, table.parents_by_class, strict=True)
        return Checklist(
            [
                Taxon(
                    *(id, name, author, ""),
                    parents,
                    tuple(table.synonyms[index]) if table.synonyms else (),
                    {language: tuple(names[index]) for language, names in table.common_names.items()},
                    {place: ids[index] for place, ids in table.external.items() if ids[index]},
                )
                for index, (id, (name, author), parents) in enumerate(columns)
            ]
        )

    @cached_property
    def _by_text(self) -> dict[str, int | None]:
        names, authors = [taxon.name for taxon in self.taxa], [taxon.author for taxon in self.taxa]
        ids, synonyms = [taxon.id for taxon in self.taxa], [taxon.synonyms for taxon in self.taxa]
        others = ClassTable(names, ids, authors=authors, synonyms=synonyms).other_names
        return {**others, **{id: number for number, id in enumerate(ids)}}

    def find(self, text: str) -> Taxon | None:
        """Return the taxon of an id, a name with or without author, or a synonym; ``None`` for several."""
        text, places = composed(" ".join(text.split())), self._by_text
        place = places[text] if text in places else places.get(split_author(text)[0])
        return None if place is None else self.taxa[place]

    @cached_property
    def _search(self) -> NameSearch:
        numbered: list[tuple[str, int]] = []
        numbered += ((taxon.name, number) for number, taxon in enumerate(self.taxa))
        for number, taxon in enumerate(self.taxa):
            numbered += ((name, number) for names in taxon.common_names.values() for name in names)
        for number, taxon in enumerate(self.taxa):
            numbered += ((name, number) for name in taxon.synonyms)
        return NameSearch([name for name, _ in numbered], [number for _, number in numbered])

    def prepare(self) -> None:
        """Make what a search needs now, and not with the first search."""
        self._search.find("a")

    def search(self, text: str, limit: int = 10) -> list[tuple[Taxon, str, int]]:
        """Return taxa by how a name of theirs begins, the name, and the mistakes; see :class:`NameSearch`."""
        return [(self.taxa[match.owner], *match[1:]) for match in self._search.find(text, limit)]


class _Row(NamedTuple):
    """A row of a taxon table."""

    id: str
    name: str
    author: str
    accepted: str  # id or name of the taxon that it is a synonym of
    cells: Mapping[str, str]
    common: Mapping[str, tuple[str, ...]]


def _taxon_table(path: Path) -> Path:
    """Return the file of taxa: the path, or the one in a folder."""
    if not path.is_dir():
        return path
    tables = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES]
    taxa = [file for file in tables if "vernacular" not in file.stem.lower() and "name" in _keys_of(file)]
    if len(taxa) != 1:
        files = examples([file.name for file in taxa]) if taxa else "none"
        raise ValueError(f"{path} must have one table with a column scientificName, got {files}")
    return taxa[0]


def _keys_of(path: Path) -> set[str | None]:
    with text_rows(path, "a checklist", delimiters="\t|;,") as (header, _):
        return {_key(name) for name in header}


def _key(name: str) -> str | None:
    """Return what a column is, by its name."""
    plain = re.sub(r"[^a-z]", "", name.rsplit(":", 1)[-1].rsplit("/", 1)[-1].lower())
    return _KEYS.get(plain)


def _cells(path: Path, wanted: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Give the cells of each row by what their columns are, and common names by language."""
    with text_rows(path, "a checklist", delimiters="\t|;,") as (header, rows):
        columns: dict[str, int] = {}
        languages = {}
        for place, name in enumerate(header):
            if in_language := _COMMON_IN.fullmatch(name.strip()):
                languages[place] = language_key(in_language[1])
            elif (key := _key(name)) is not None:
                columns.setdefault(key, place)
        if wanted not in columns:
            names = " or ".join(_COLUMNS[wanted].split()[:2])
            raise ValueError(f"{path} must have a column {names}, got {', '.join(header)[:200]}")
        for cells in rows:
            texts = {key: text for key, place in columns.items() if (text := composed(cells[place].strip()))}
            common = {language: cells[place] for place, language in languages.items() if cells[place].strip()}
            yield texts, common


def _read_rows(path: Path) -> list[_Row]:
    rows, seen = [], set()
    for cells, by_language in _cells(path, "name"):
        if "name" not in cells:
            continue
        name, author = _plain(cells)
        id = cells.get("id") or " ".join([name, author]).strip()
        if id in seen:
            raise ValueError(f"{path}: ids must all be different, got {id[:80]!r} twice")
        seen.add(id)
        accepted = cells.get("accepted", "")
        if not accepted and "synonym" in cells.get("status", "").lower():
            accepted = cells.get("accepted_name", "") or "?"
        if "common" in cells:
            by_language.setdefault(language_key(cells.get("language", UNKNOWN_LANGUAGE)), cells["common"])
        common = {language: _parts(text) for language, text in by_language.items()}
        rows.append(_Row(id, name, author, "" if accepted == id else accepted, cells, common or _NO_NAMES))
    if not rows:
        raise ValueError(f"{path} must have at least 1 name, got none")
    return rows


def _plain(cells: Mapping[str, str]) -> tuple[str, str]:
    """Return a name without its author, and the author."""
    name, author = cells["name"], cells.get("author", "")
    if "plain" in cells:
        return cells["plain"], author
    name = name.removesuffix(author).rstrip() or name
    if author and not any(word[0].isupper() for word in name.split()[1:]):
        return name, author
    plain, own_author = split_author(name)
    return plain, author or own_author


def _parts(text: str) -> tuple[str, ...]:
    """Return the names of a cell, parted by ``|`` or ``;``, each once."""
    parts = (composed(part.strip()) for part in re.split(r"[|;]", text))
    return tuple(dict.fromkeys(part for part in parts if part))


def _synonyms(
    rows: Sequence[_Row], taxa: Mapping[str, _Row], left_out: Counter[str]
) -> dict[str, tuple[str, ...]]:
    """Return the synonyms of each taxon, by its id."""
    accepted = {row.id: row.accepted for row in rows if row.accepted}
    by_name: dict[str, str] = {}
    for row in taxa.values():
        by_name.setdefault(row.name, row.id)
        by_name.setdefault(f"{row.name} {row.author}", row.id)
    synonyms: dict[str, list[str]] = {}
    for row in rows:
        target, steps = row.accepted, 0
        while target in accepted and steps < 10:  # a synonym of a synonym
            target, steps = accepted[target], steps + 1
        if not target:
            continue
        target = target if target in taxa else by_name.get(target, "")
        if not target:
            left_out["synonyms of a name that is not there"] += 1
            continue
        synonyms.setdefault(target, []).append(f"{row.name} {row.author}".strip())
    for row in taxa.values():
        if "synonyms" in row.cells:
            synonyms.setdefault(row.id, []).extend(_parts(row.cells["synonyms"]))
    return {id: tuple(dict.fromkeys(names)) for id, names in synonyms.items()}


def _common_names(path: Path, taxa: Mapping[str, _Row]) -> dict[str, dict[str, list[str]]]:
    """Return common names by taxon and language from files beside a table of taxa with ids."""
    common: dict[str, dict[str, list[str]]] = {}
    if all("id" not in row.cells for row in taxa.values()):
        return common
    files = [file for file in sorted(path.parent.iterdir()) if "vernacular" in file.stem.lower()]
    for cells, _ in chain.from_iterable(_cells(f, "common") for f in files if f.suffix.lower() in _SUFFIXES):
        if (id := cells.get("id")) in taxa and "common" in cells:
            names = common.setdefault(str(id), {})
            listed = names.setdefault(language_key(cells.get("language", UNKNOWN_LANGUAGE)), [])
            best = cells.get("preferred", "").lower() in ("true", "1", "t", "yes")
            if cells["common"].casefold() not in map(str.casefold, listed):
                listed.insert(0 if best else len(listed), cells["common"])
    return common


def _taxon(
    row: _Row, taxa: Mapping[str, _Row], synonyms: tuple[str, ...], common: Mapping[str, list[str]] | None
) -> Taxon:
    names = {language: tuple(listed) for language, listed in (common or {}).items()}
    names |= {language: listed for language, listed in row.common.items() if language not in names}
    external = {place: row.cells[place] for place in ("gbif", "powo") if place in row.cells}
    if "powo" not in external and (ipni := _IPNI.match(row.cells.get("name_id", ""))):
        external["powo"] = ipni[1]
    if "gbif" not in external and (gbif := _GBIF.match(row.id)):
        external["gbif"] = gbif[1]
    rank = row.cells.get("rank", "").lower()
    facts = (_parents(row, taxa), synonyms, names or _NO_NAMES, external or _NOTHING)
    return Taxon(row.id, row.name, row.author, rank, *facts)


def _parents(row: _Row, taxa: Mapping[str, _Row]) -> dict[str, str]:
    """Return the parents of a row: from its columns, else from the rows above it."""
    parents = {level: split_author(row.cells[level])[0] for level in LEVELS if level in row.cells}
    above, steps = taxa.get(row.cells.get("parent", "")), 0
    while above is not None and steps < 20:
        rank = above.cells.get("rank", "").lower()
        if rank in LEVELS:
            parents.setdefault(rank, above.name)
        above, steps = taxa.get(above.cells.get("parent", "")), steps + 1
    parents.pop(row.cells.get("rank", "").lower(), None)  # a genus is in no genus
    return {level: parents[level] for level in LEVELS if level in parents}
