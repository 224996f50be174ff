"""Some classes of a table, those of two tables as one, and classes with what a checklist says of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from shortlist._names import split_author
from shortlist.checklist import Checklist, Taxon
from shortlist.class_table import ClassTable


def take_classes(table: ClassTable, rows: Iterable[int]) -> ClassTable:
    """Return the table of some of the classes, by their numbers."""
    rows = list(rows)

    def taken(column: Any) -> Any:
        if isinstance(column, Mapping):
            return {key: taken(part) for key, part in column.items()}
        return [column[row] for row in rows] if column else ()

    return ClassTable(**{field.name: taken(getattr(table, field.name)) for field in fields(table)})


def add_classes(table: ClassTable, more: ClassTable) -> ClassTable:
    """Return one table with the classes of both; what only one of them says is empty for the other."""

    def joined(first: Any, second: Any) -> Any:
        if isinstance(first, Mapping):
            return {key: joined(first.get(key, ()), second.get(key, ())) for key in {**first, **second}}
        if not first and not second:
            return ()
        empty = type((first or second)[0])()
        return [*(first or [empty] * len(table)), *(second or [empty] * len(more))]

    columns = {
        field.name: joined(getattr(table, field.name), getattr(more, field.name)) for field in fields(table)
    }
    return ClassTable(**columns)


def name_classes(table: ClassTable, checklist: Checklist) -> tuple[ClassTable, list[str]]:
    """Return the table with what a checklist says of its classes, and the names that it does not have.

    Ids and names stay, but a name that is the id of a taxon becomes its name. What the table says already
    counts before the checklist. An author is that of the accepted name: a class that has a synonym as its
    name gets none, and the accepted name becomes a synonym of it.
    """
    taxa = [checklist.find(name) for name in table.names]
    unmatched = [name for name, taxon in zip(table.names, taxa, strict=True) if taxon is None]
    taxa = [taxon or Taxon("", "") for taxon in taxa]
    pairs = zip(table.names, taxa, strict=True)
    named = replace(table, names=[taxon.name if name == taxon.id else name for name, taxon in pairs])
    plain = [name for name, _ in named.scientific_names]

    def filled(column: Sequence[Any], more: Sequence[Any]) -> list[Any]:
        return [old or new for old, new in zip(column or [""] * len(more), more, strict=True)]

    def filled_by_key(
        columns: Mapping[str, Sequence[Any]], more: Sequence[Mapping[str, Any]], none: Any
    ) -> dict:
        keys = dict.fromkeys([*columns, *(key for entry in more for key in entry)])
        return {key: filled(columns.get(key, ()), [entry.get(key, none) for entry in more]) for key in keys}

    authors, synonyms = [], []
    for name, taxon in zip(plain, taxa, strict=True):
        authors.append(taxon.author if name == taxon.name else "")
        others = (f"{taxon.name} {taxon.author}".strip(), *taxon.synonyms)
        synonyms.append([text for text in others if text and split_author(text)[0] != name])
    named = replace(
        named,
        parents=filled_by_key(table.parents, [taxon.parents for taxon in taxa], ""),
        authors=filled(table.authors, authors),
        common_names=filled_by_key(table.common_names, [taxon.common_names for taxon in taxa], ()),
        synonyms=filled(table.synonyms, synonyms),
        external=filled_by_key(table.external, [taxon.external for taxon in taxa], ""),
    )
    return named, unmatched
