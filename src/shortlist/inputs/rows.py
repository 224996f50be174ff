"""The row type: an image, its label, and what its source says about it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from shortlist.inputs.addresses import Address, full_path
from shortlist.inputs.labels import Label

ABOUT = ("observation", "organ", "author", "license", "date", "place", "source")
"""What a source may say about an image."""
COLUMNS = {
    "observation": ("observation", "observation_id", "obs_id"),
    "organ": ("organ", "view"),
    "author": ("author", "creator", "photographer", "rights_holder"),
    "license": ("license", "licence"),
    "date": ("date", "observed_on", "event_date"),
    "place": ("place", "locality"),
    "source": ("source", "url", "references"),
}
"""Names under which lists and tar files say it; the first that is there counts."""
_LONGEST = 500  # characters of a text


def first_of(said: Mapping[str, Any], name: str) -> Any:
    """Return the value of the first column in :data:`COLUMNS` that is there; ``None`` if none is."""
    return next((said[column] for column in COLUMNS.get(name, (name,)) if said.get(column) is not None), None)


def plain_about(said: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of :data:`ABOUT` as short texts of one line each, without empty ones."""
    kept = {name: said[name] for name in ABOUT if said.get(name) is not None}
    texts = {name: " ".join(str(value).split())[:_LONGEST] for name, value in kept.items()}
    return {name: text for name, text in texts.items() if text}


@dataclass(frozen=True)
class Row:
    """An image with its label.

    Args:
        address: Where the image is.
        label: Id, name or index of its class, as it is written (:mod:`shortlist.inputs.labels` reads it);
            ``None`` if it is not known.
        split: ``"train"``, ``"val"`` or ``"test"``; empty if the rows are not divided.
        observation: What the image is a photo of: several photos may be of one observation.
        organ: What the photo shows, such as ``"leaf"``.
        author: Who made the photo.
        license: License of the photo.
        date: When it was made.
        place: Where it was made.
        source: Where it comes from.
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
        """What the source says about the image, without empty entries."""
        return {name: text for name in ABOUT if (text := getattr(self, name))}


@dataclass(frozen=True)
class Rows(Sequence[Row]):
    """Rows by column, so that millions of them take little memory.

    Args:
        root: Folder or address that files are relative to.
        files: Path or address of each image as the source names it, or another :data:`Address`.
        labels: Label of each.
        splits: Split of each; empty if the rows are not divided.
        about: Columns of what the source says, by their names in :data:`ABOUT`: lists or Arrow arrays.
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
        """Return a row, or those of a slice."""
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
        """Return what the source says about a row, without empty entries."""
        values = {name: column[row] for name, column in self.about.items()}
        return plain_about({n: v.as_py() if hasattr(v, "as_py") else v for n, v in values.items()})

    def texts(self, columns: Iterable[str]) -> dict[str, list[Any]]:
        """Return these columns of ``about`` as lists of plain values; a column that it lacks is left out."""
        kept = {name: self.about[name] for name in columns if name in self.about}
        return {n: [v.as_py() if hasattr(v, "as_py") else v for v in column] for n, column in kept.items()}

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
