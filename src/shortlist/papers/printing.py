"""A printed table as a sheet: the published numbers alone, or ours and the differences below them."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from shortlist._sheets import Cell, Sheet, SheetPart
from shortlist.metrics import Estimate
from shortlist.papers.filling import Filled, Fit, OwnMethod, own_lines, shape_of
from shortlist.papers.layouts import Layout, Line, Place, find_column
from shortlist.papers.ours import own_estimate
from shortlist.papers.published import PublishedNumber, PublishedTable, cell_text, number_text

_NO_RUN = "no run"


def table_sheet(layout: Layout, filled: Filled | None = None) -> Sheet:
    """Print a table of a publication.

    Args:
        layout: The table.
        filled: Runs in its cells; without them the published numbers stand alone.
    """
    printer = _Printer(layout, filled)
    caption = f"{layout.title}: {layout.caption}"
    heads = printer.heads()
    parts = [
        SheetPart([row for line in lines for row in printer.rows(line)] + printer.own_rows(section), section)
        for section, lines in ((key, list(group)) for key, group in groupby(layout.rows, lambda r: r.section))
    ]
    return Sheet(heads, parts, printer.stubs, caption, printer.notes())


class _Printer:
    """Writes the cells of a table, and keeps what must be said below it."""

    def __init__(self, layout: Layout, filled: Filled | None) -> None:
        self._layout, self._filled = layout, filled
        self._marks: dict[str, str] = {}  # what is said about a cell, and its letter
        self._several: list[str] = []  # cells that several groups of runs fit
        self._lacking = self._cells = 0
        self._blank = False
        self.stubs = len(layout.stubs) + (filled is not None)

    @property
    def _own(self) -> Sequence[OwnMethod]:
        return () if self._filled is None else self._filled.own

    def heads(self) -> list[list[str]]:
        """Return the rows of heads; one's own methods are further columns where methods are columns."""
        columns = [column.labels for column in self._layout.columns]
        if not self._layout.methods_are_rows:
            columns += [(*[""] * (len(columns[0]) - 1), method.label) for method in self._own]
        rows = [list(row) for row in zip(*columns, strict=True)]
        stubs = [*self._layout.stubs, *([""] if self._filled is not None else [])]
        return [[*(stubs if row is rows[-1] else [""] * len(stubs)), *row] for row in rows]

    def rows(self, line: Line) -> list[list[Cell]]:
        """Return a row as it is printed, and with runs those of ours and of the differences below it."""
        if line.words:
            return [_plain([*line.labels, *line.words])]
        places = [self._layout.place(line, column) for column in self._layout.columns]
        self._blank |= None in places
        published = [self._published(place) for place in places]
        if self._filled is None:
            return [_plain([*line.labels, *published])]
        methods = [] if self._layout.methods_are_rows else self._own
        fits = [self._fits(place) for place in places]
        own_fits = [self._own_fits(method, {**line.at, **_rest(self._layout.columns)}) for method in methods]
        rows = [_plain([*line.labels, "published", *published, *[""] * len(own_fits)])]
        if not any(place is not None and place.table.compared for place in places):
            return rows
        for turn in range(max(1, *(len(cell) for cell in [*fits, *own_fits]))):
            pairs = [self._pair(place, cell, turn) for place, cell in zip(places, fits, strict=True)]
            ours = [pair[0] for pair in pairs] + [
                self._own_text({**line.at, **_rest(self._layout.columns)}, cell, turn) for cell in own_fits
            ]
            blank = [""] * len(line.labels)
            label = "ours" if turn == 0 else f"ours ({turn + 1})"
            rows.append(_plain([*blank, label, *ours]))
            differences = [pair[1] for pair in pairs]
            if any(differences):
                rows.append(_plain([*blank, "difference", *differences, *[""] * len(own_fits)]))
        return rows

    def own_rows(self, section: str) -> list[list[Cell]]:
        """Return a row for each method of one's own that fits a section, where methods are rows."""
        rows = []
        if not self._layout.methods_are_rows or not self._layout.has_numbers:
            return rows
        for rest in [rest for title, rest in own_lines(self._layout.rows) if title == section]:
            for method in self._own:
                addresses = [{**rest, **column.at} for column in self._layout.columns]
                cells = [self._own_fits(method, address) for address in addresses]
                for turn in range(max(map(len, cells))):
                    texts = [self._own_text(a, cell, turn) for a, cell in zip(addresses, cells, strict=True)]
                    blank = [""] * (len(self._layout.stubs) - 1)
                    label = [method.label, *blank] if self._layout.stubs else []
                    rows.append(_plain([*label, "ours", *texts]))
        return rows

    def _fits(self, place: Place | None) -> Sequence[Fit]:
        if place is None or self._filled is None:
            return ()
        self._cells += place.table.compared
        fits = self._filled.fits.get(place.key, ())
        self._lacking += place.table.compared and not fits
        if len(fits) > 1:
            labels = ", ".join(dict.fromkeys(match.group.label for fit in fits for match in fit.values()))
            line = f"ours, ours (2), ... of {place.method}, {place.column}: {labels}"
            self._several += [] if line in self._several else [line]
        return fits

    def _own_fits(self, method: OwnMethod, address: Mapping[str, Any]) -> Sequence[Fit]:
        table, column = find_column(address)
        return method.fits.get((table.name, "", column.name), ())

    def _published(self, place: Place | None) -> str:
        if place is None:
            return ""
        remarks = list(dict.fromkeys(number.remark for number in place.numbers if number.remark))
        text = cell_text(place.numbers, [number_text(number) for number in place.numbers])
        return self._marked(text, remarks)

    def _pair(self, place: Place | None, fits: Sequence[Fit], turn: int) -> tuple[str, str]:
        """Return our text of a cell, and the difference to the published one."""
        if place is None or not place.table.compared or 0 < len(fits) <= turn:
            return "", ""
        if not fits:
            return _NO_RUN, ""
        estimates = _estimates(fits[turn], place.numbers)
        texts = [_ours(number, estimate, place.table) for number, estimate in estimates]
        if all(text == "-" for text in texts):
            return "not measured", ""
        gaps = [_gap(number, estimate, place.table) for number, estimate in estimates]
        ours = self._marked(cell_text(place.numbers, texts), _departures(fits[turn]))
        return ours, cell_text(place.numbers, gaps)

    def _own_text(self, address: Mapping[str, Any], fits: Sequence[Fit], turn: int) -> str:
        if len(fits) <= turn:
            return ""
        table, numbers = find_column(address)[0], shape_of(address)
        estimates = _estimates(fits[turn], numbers)
        texts = [_ours(number, estimate, table) for number, estimate in estimates]
        return self._marked(cell_text(numbers, texts), _departures(fits[turn]))

    def _marked(self, text: str, remarks: Sequence[str]) -> str:
        if not remarks:
            return text
        said = "; ".join(remarks)
        return f"{text} [{self._marks.setdefault(said, _letters(len(self._marks)))}]"

    def notes(self) -> list[str]:
        """Return what is said below the table, after its cells were written."""
        notes = [] if not self._layout.has_numbers else self._about()
        if self._filled is not None:
            notes.append(
                "ours: mean ± half the 95 % interval over seeds (of one run: over test rows); "
                "difference: ours less published"
            )
            if self._own:
                notes.append("without a published number: your own methods")
            if self._lacking:
                notes.append(f"{_NO_RUN}: {self._lacking} of {self._cells} cells have none of these runs")
            notes += self._several
            notes += [f"fits no cell: {label}" for label in self._filled.unused]
            notes += [f"left out: {reason}" for reason in self._filled.left_out.values()]
        return notes + [f"[{letter}] {said}" for said, letter in self._marks.items()]

    def _about(self) -> list[str]:
        tables = {place.table.name: place.table for place in self._layout.places()}
        notes = list(dict.fromkeys(f"source: {table.source}" for table in tables.values()))
        about = [_said(table, alone=len(tables) == 1) for table in tables.values()]
        notes += list(dict.fromkeys(filter(None, about)))
        if any("±" in self._published(place) for place in self._layout.places()):
            notes.append("±: half the published 95 % interval")
        if self._blank:
            notes.append("empty cell: nothing is printed there")
        return notes + [f"runs: shortlist suite run papers:{suite}" for suite in self._layout.suites]


def _rest(columns: Sequence[Line]) -> Mapping[str, Any]:
    """Return the address that columns of methods share."""
    return own_lines(columns)[0][1]


def _plain(texts: Sequence[str]) -> list[Cell]:
    return [(text, False) for text in texts]


def _said(table: PublishedTable, *, alone: bool) -> str:
    said = [f"mean of {table.runs} runs"] if table.runs else []
    said += [table.note] if table.note else []
    said = ["; ".join(said)] if said else []
    return ": ".join([*([] if alone or not said else [table.name]), *said])


def _estimates(fit: Fit, numbers: Sequence[PublishedNumber]) -> list[tuple[PublishedNumber, Estimate | None]]:
    matches = [fit.get(number.metric) for number in numbers]
    estimates = [None if match is None else own_estimate(match.group, match.value.name) for match in matches]
    return list(zip(numbers, estimates, strict=True))


def _departures(fit: Fit) -> list[str]:
    """List what is not as in the publication."""
    return list(dict.fromkeys(line for match in fit.values() for line in match.value.departures))


def _scale(table: PublishedTable) -> int:
    return 100 if table.unit == "%" else 1


def _ours(number: PublishedNumber, estimate: Estimate | None, table: PublishedTable) -> str:
    """Write our number with the digits of the published one; an interval only where they print one."""
    if estimate is None or estimate.value is None:
        return "-"
    text = f"{_scale(table) * estimate.value:.{number.digits}f}"
    if estimate.low is None or estimate.high is None or number.metric.endswith((".few", ".medium", ".many")):
        return text
    half = _scale(table) * (estimate.high - estimate.low) / 2
    return f"{text} ± {half:.{number.digits}f}"


def _gap(number: PublishedNumber, estimate: Estimate | None, table: PublishedTable) -> str:
    if estimate is None or estimate.value is None:
        return "-"
    return f"{_scale(table) * estimate.value - number.value:+.{number.digits}f}"


def _letters(place: int) -> str:
    """Return a, b, ..., z, aa, ab, ...

    Example:
        >>> _letters(0), _letters(27)
        ('a', 'ab')
    """
    first, last = divmod(place, 26)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)
