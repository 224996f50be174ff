"""The most confused classes of a method, with pictures of rows that were mistaken."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist._text import format_percent
from shortlist.compare import ConfusedPair
from shortlist.report.parts import Table
from shortlist.report.pictures import Picture, Pictures
from shortlist.report.views import MethodView


@dataclass(frozen=True)
class Way:
    """Rows of one class that were taken for another.

    Args:
        true: Name of the class of these rows.
        taken_for: Name of the other class.
        mistakes: Number of rows that were mistaken.
        rows: Number of all rows of this class.
        pictures: Pictures of some mistaken rows.
        training_picture: Training picture of the other class.
    """

    true: str
    taken_for: str
    mistakes: int
    rows: int
    pictures: Sequence[Picture]
    training_picture: Picture | None


ConfusedCard = tuple[Way, Way]
"""Two classes that are taken for each other: the more frequent way, and the other."""


@dataclass(frozen=True)
class Confused:
    """What the section shows.

    Args:
        name: Id of the section on the page.
        cards: The pairs of classes, with pictures.
        table: The numbers of the pairs.
        num_runs: Number of runs that the mistakes are counted over.
        has_pictures: Whether there are pictures at all.
    """

    name: str
    cards: Sequence[ConfusedCard]
    table: Table
    num_runs: int
    has_pictures: bool


def measure_confused(view: MethodView) -> Confused:
    """Find pictures of the most confused classes, and make a table of their numbers."""
    # names are the same in all runs; counts are the training rows of one run, () if not known, and with label
    # noise another seed has others
    names = view.method.runs[0].class_table.names
    cards = [
        (_way(view.pictures, pair, names, rows[0]), _way(view.pictures, pair.turned(), names, rows[1]))
        for pair, rows in zip(view.rows.pairs, view.rows.pair_rows, strict=True)
    ]
    lines = [[way.true, way.taken_for, way.mistakes, way.rows, _share(way)] for card in cards for way in card]
    heads = ["true class", "taken for", "rows", "of", "%"]  # of the same columns; the first two are words
    table = Table("First guesses that are wrong", heads, lines, words=(0, 1))
    return Confused(
        f"confused-{view.name}", cards, table, len(view.method.runs), has_pictures=view.pictures is not None
    )


def _share(way: Way) -> str:
    return format_percent(way.mistakes / way.rows if way.rows else None)


def _way(source: Pictures | None, pair: ConfusedPair, names: Sequence[str], rows: Sequence[int]) -> Way:
    """Count the rows of the first class of a pair that were taken for the second, with pictures of them."""
    true, taken_for = (names[index] for index in pair.classes)
    shown, training_picture = [], None
    if source is not None:
        alts = [f"Test row {row}: {true}, taken for {taken_for}" for row in rows]
        made = [source.test(row, alt=alt, side=64) for row, alt in zip(rows, alts, strict=True)]
        shown = [picture for picture in made if picture is not None]
    if source is not None and shown:
        training_picture = source.of_class(pair.classes[1], alt=f"A training picture of {taken_for}", side=64)
    return Way(true, taken_for, pair.forth, pair.rows[0], shown, training_picture)
