"""The label rule: which class a label stands for, for every verb that reads labels."""

from collections.abc import Iterable, Sequence

from shortlist._messages import examples
from shortlist._text import composed
from shortlist.class_table import ClassTable, class_finder

UNKNOWN = -100
"""Class index of a row whose class is not known."""
MOST_INDICES = 100_000
"""Whole numbers above this are ids, not class indices, unless there are about as many classes."""

Label = str | int | None
"""A label as it is written in a list, a tar file or the name of a folder; ``None`` if there is none."""


def class_indices(
    labels: Iterable[Label], classes: ClassTable, *, where: object, rows: Sequence[object] | None = None
) -> list[int]:
    """Return the class index of each label, by the rule of :func:`class_finder`; -100 for ``None``.

    Args:
        labels: The labels.
        classes: The classes.
        where: File or folder of the labels, for messages.
        rows: Names of the rows, for messages; their numbers from 1 by default.

    Raises:
        ValueError: If a label stands for no class; the message has the row.
    """
    find, indices = class_finder(classes), []
    for number, label in enumerate(labels):
        try:
            index = UNKNOWN if label is None else find(label)
            if index is None:
                raise ValueError(
                    f"the class {label!r} is none of the {len(classes)} classes ({examples(classes.ids)})"
                )
        except ValueError as error:
            row = number + 1 if rows is None else rows[number]
            raise ValueError(f"{where}, row {row}: {error}") from None
        indices.append(index)
    return indices


def classes_of_labels(labels: Iterable[Label], *, where: object) -> ClassTable:
    """Return the classes of labels, sorted. If all labels are whole numbers: 0, 1, ... up to the highest.

    Raises:
        ValueError: If a label is neither text nor a whole number, or whole numbers are far above the number
            of classes, as ids are.
    """
    labels = [label for label in labels if label is not None]
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise ValueError(f"{where}: a class must be text or a whole number, got {label!r}")
    texts = sorted({composed(str(label)) for label in set(labels)})
    if not texts or not all(text.isdecimal() and str(int(text)) == text for text in texts):
        return ClassTable(texts)
    highest = max(map(int, texts))
    if highest >= max(MOST_INDICES, 10 * len(texts)):
        raise ValueError(
            f"{where}: whole numbers are class indices, but {len(texts)} different ones go up to "
            f"{highest}. If they are ids, give a class_table with these ids or write them with a letter"
        )
    return ClassTable([str(number) for number in range(highest + 1)])
