"""The row type: an image, its label, and what its source says about it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from shortlist.inputs.addresses import Address, full_path
from shortlist.inputs.labels import Label

ABOUT = ("observation", "organ", "author", "license", "date", "place", "source")
"""Names of the facts that a source may give about an image."""
COLUMNS = {
    "observation": ("observation", "observation_id", "obs_id"),
    "organ": ("organ", "view"),
    "author": ("author", "creator", "photographer", "rights_holder"),
    "license": ("license", "licence"),
    "date": ("date", "observed_on", "event_date"),
    "place": ("place", "locality"),
    "source": ("source", "url", "references"),
}
"""Columns of a list, or keys of a tar file, for each fact; the first column that is there counts."""
_LONGEST_TEXT = 500  # characters of a fact


def first_of(source: Mapping[str, Any], name: str) -> Any:
    """Return the value of the first column of a fact that is there (:data:`COLUMNS`), ``None`` if none is."""
    values = (source.get(column) for column in COLUMNS.get(name, (name,)))
    return next((value for value in values if value is not None), None)


def plain_about(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts in :data:`ABOUT` as short texts of one line each, without empty ones."""
    texts = {name: " ".join(str(about[name]).split()) for name in ABOUT if about.get(name) is not None}
    return {name: text[:_LONGEST_TEXT] for name, text in texts.items() if text}


def _plain(value: Any) -> Any:
    """Return an element of a list or of an Arrow array as a plain value."""
    return value.as_py() if hasattr(value, "as_py") else value


@dataclass(frozen=True)
class Row:
    """An image with its label.

    Args:
        address: Where the image is.
        label: Id, name or index of its class, as it is written; ``None`` if the class is not known.
            :func:`~shortlist.inputs.labels.class_indices` finds the class.
        split: ``"train"``, ``"val"`` or ``"test"``; empty if the rows are not divided.
        observation: Name of the observation: the photos that somebody took of one object.
        organ: What the photo shows, such as ``"leaf"``.
        author: Who made the photo.
        license: License of the photo.
        date: When the photo was made.
        place: Where the photo was made.
        source: Where the photo is published.
    """

    address: Address
    label: Label = None
    split: str = ""
    observation: str = ""
    organ: str = ""
    author: str = ""
    license: str = ""
    date: str = ""
    place: str = ""
    source: str = ""

    @property
    def path(self) -> str:
        """Path of the image; only for rows whose images are files."""
        return str(self.address)

    @property
    def class_label(self) -> str:
        """The label as text; empty if there is none."""
        return "" if self.label is None else str(self.label)

    @property
    def about(self) -> dict[str, str]:
        """The facts about the image, without empty ones."""
        return {name: text for name in ABOUT if (text := getattr(self, name))}


@dataclass(frozen=True)
class Rows(Sequence[Row]):
    """Rows by column, so that millions of them take little memory.

    Args:
        root: Folder or address that files are relative to.
        files: Path or address of each image as the source names it, or another :data:`Address`.
        labels: Label of each.
        splits: Split of each; empty if the rows are not divided.
        about: Columns of facts, by their names in :data:`ABOUT`: lists or Arrow arrays.
    """

    root: str
    files: Sequence[Address]
    labels: Sequence[Label]
    splits: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "Rows": ...
    def __getitem__(self, index: int | slice) -> "Row | Rows":
        """Return a row, or the rows of a slice."""
        if isinstance(index, slice):
            return self.take(range(*index.indices(len(self))))
        split = self.splits[index] if self.splits else ""
        return Row(self.address(index), self.labels[index], split, **self.about_row(index))

    def address(self, row: int) -> Address:
        """Return where the image of a row is."""
        file = self.files[row]
        return full_path(self.root, file) if isinstance(file, str) else file

    def addresses(self) -> list[Any]:
        """Return where all images are."""
        return [self.address(row) for row in range(len(self))]

    def about_row(self, row: int) -> dict[str, str]:
        """Return the facts about a row, without empty ones."""
        return plain_about({name: _plain(column[row]) for name, column in self.about.items()})

    def texts(self, columns: Iterable[str]) -> dict[str, list[Any]]:
        """Return these columns of ``about`` as lists of plain values, without columns that are not there."""
        return {name: list(map(_plain, self.about[name])) for name in columns if name in self.about}

    def take(self, rows: Iterable[int]) -> "Rows":
        """Return some rows, by their numbers."""
        rows = list(rows)
        return replace(
            self,
            files=[self.files[row] for row in rows],
            labels=[self.labels[row] for row in rows],
            splits=[self.splits[row] for row in rows] if self.splits else (),
            about={name: [column[row] for row in rows] for name, column in self.about.items()},
        )

    def of_split(self, split: str) -> "Rows":
        """Return the rows of a split."""
        return self.take(row for row, name in enumerate(self.splits) if name == split)
