"""Which class a vote is for: one of a table, or one that people propose."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from shortlist._text import composed
from shortlist.checklist import Checklist, Taxon
from shortlist.class_table import ClassTable, class_finder
from shortlist.curation._ballot import PROPOSAL, in_one_spelling
from shortlist.datasets import genera_of


class Proposals:
    """Classes that people propose beside those of a table.

    Args:
        classes: The table.
        checklist: Names that proposals may be: a synonym is a proposal of the accepted name.
    """

    def __init__(self, classes: ClassTable, checklist: Checklist | None = None) -> None:
        self._classes, self._checklist, self._find = classes, checklist, class_finder(classes)
        self._taxa: dict[str, Taxon] = {}
        self._folded: dict[str, set[str]] = {}
        for id, name in zip(classes.ids, classes.names, strict=True):
            for text in (id, name):
                self._folded.setdefault(text.casefold(), set()).add(id)

    def resolve(self, label: str) -> str | None:
        """Return the id of a class, a proposal, or a label of ours such as ``!bad_image``.

        A label is the id or a name of a class, in whatever case, or else a taxon of the checklist.
        ``None`` is said of a name of several classes.
        """
        if label.startswith("!") and not label.startswith(PROPOSAL):
            return label
        text = composed(" ".join(label.removeprefix(PROPOSAL).split())).lstrip("!")
        taxon = None if self._checklist is None else self._checklist.find(text)
        try:
            for name in (text, *(() if taxon is None else (taxon.id, taxon.name, *taxon.synonyms))):
                if (index := self._find(name)) is not None:
                    return self._classes.ids[index]
        except ValueError:  # the name of several classes
            return None
        if ids := self._folded.get(text.casefold(), set()):
            return min(ids) if len(ids) == 1 else None
        if taxon is not None:
            text = taxon.id
            self._taxa[text] = taxon
        return f"{PROPOSAL}{text}" if text else None

    def resolve_column(self, column: Any) -> tuple[Any, int]:
        """Return a column of labels with each resolved, and the number of votes for names of several classes.

        Proposals that differ in upper and lower case alone are one, in the spelling that most votes have.
        """
        import pyarrow

        encoded = column.dictionary_encode()
        counts = Counter(encoded.indices.to_pylist())
        labels = [self.resolve(str(value)) for value in encoded.dictionary.to_pylist()]
        labels = in_one_spelling(labels, counts)
        unclear = sum(counts[code] for code, label in enumerate(labels) if label is None)
        return pyarrow.array(labels, pyarrow.string()).take(encoded.indices), unclear

    def name(self, id: str) -> str:
        """Return the name of a proposed class."""
        return self._taxa[id].name if id in self._taxa else id

    def classes(self, ids: Sequence[str]) -> ClassTable:
        """Return the table of proposed classes, with what the checklist says about them.

        A name without a taxon is its own id. Its genus is read from the name, and the levels above are those
        of a class of the same genus.
        """
        taxa = [self._taxa.get(id, Taxon(id, id)) for id in ids]
        levels, names = self._classes.parents, [taxon.name for taxon in taxa]
        genera = genera_of([*self._classes.names, *names])
        relatives = {genus: row for row, genus in enumerate(levels.get("genus", ())) if genus}

        def parent(level: str, taxon: Taxon) -> str:
            genus = taxon.parents.get("genus") or genera[taxon.name]
            if level in taxon.parents or level == "genus":
                return taxon.parents.get(level, genus)
            return levels[level][relatives[genus]] if genus in relatives else ""

        languages = {language for taxon in taxa for language in taxon.common_names}
        places = {place for taxon in taxa for place in taxon.external}
        return ClassTable(
            names,
            ids,
            parents={level: [parent(level, taxon) for taxon in taxa] for level in levels},
            authors=[taxon.author for taxon in taxa],
            common_names={key: [taxon.common_names.get(key, ()) for taxon in taxa] for key in languages},
            synonyms=[taxon.synonyms for taxon in taxa],
            external={key: [taxon.external.get(key, "") for taxon in taxa] for key in places},
        )
