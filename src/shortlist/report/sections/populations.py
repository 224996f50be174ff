"""Lists from several photos and of groups of photos: what a threshold of their own changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist._text import format_percent
from shortlist.metrics import ListNumbers, PopulationNumbers, PopulationResults
from shortlist.report.drawings import Series, describe, line_plot
from shortlist.report.parts import Drawing, Sign, Table, metric_cell
from shortlist.report.views import MethodView

_OWN, _COMMON = "own threshold", "threshold of single photos"
_HEADS = ("test objects", "calibration objects", "coverage", "size", "coverage, common threshold", "size")


@dataclass(frozen=True)
class Populations:
    """What is measured of the first run: a drawing by number of photos, and a table for each column."""

    name: str
    run: str
    level: str
    drawing: Drawing | None
    tables: Sequence[Table]


def measure_populations(view: MethodView) -> Populations | None:
    """Show coverage and size by number of photos and by group; None if the data say neither."""
    run = view.method.runs[0]
    populations = run.results.populations
    if populations is None or not (populations.photos or populations.groups):
        return None
    tables = [_table(column, lines) for column, lines in populations.groups.items()]
    drawing = _by_photos(view.name, populations) if populations.photos else None
    return Populations(
        f"populations-{view.name}", run.name, format_percent(populations.level), drawing, tables
    )


def _by_photos(name: str, found: PopulationResults) -> Drawing:
    numbers = [int(photos) for photos in found.photos]
    pairs = [(line.own, line.common) for line in found.photos.values()]

    def series(value: str) -> list[Series]:
        columns = zip(*([_value(lists, value) for lists in pair] for pair in pairs), strict=True)
        marks = [3.0] * len(numbers)
        labels = zip((_OWN, _COMMON), columns, strict=True)
        return [Series(label, numbers, list(ys), style, marks) for style, (label, ys) in enumerate(labels)]

    coverage, size = series("coverage"), series("size")
    panels = [
        line_plot(
            lines,
            x_label="photos of an object",
            y_label=label,
            description=describe(f"{label} by number of photos", lines, percent=is_share),
            x_ticks=[(float(number), str(number)) for number in numbers],
            percent=is_share,
            level=found.level if is_share else None,
        )
        for lines, label, is_share in ((coverage, "coverage", True), (size, "names in a list", False))
    ]
    return Drawing(
        f"photos-{name}",
        "By number of photos",
        "Test objects with at least so many photos, whose scores are fused. Dashed: the promised coverage.",
        panels,
        signs=[Sign(label, style) for style, label in enumerate((_OWN, _COMMON))],
        tables=[_table("photos", found.photos)],
    )


def _value(lists: ListNumbers | None, value: str) -> float | None:
    if lists is None:
        return None
    return lists.size if value == "size" else lists.coverage.value


def _table(head: str, lines: Mapping[str, PopulationNumbers]) -> Table:
    body = []
    for name, line in lines.items():
        own_cells = ("-", "-") if line.own is None else _cells(line.own)
        body.append([name, line.objects, line.calibration, *own_cells, *_cells(line.common)])
    return Table(f"Coverage in percent, and names in a list, by {head}", [head, *_HEADS], body)


def _cells(lists: ListNumbers) -> tuple[object, str]:
    return metric_cell(lists.coverage), f"{lists.size:.2f}"
