"""Put runs into the cells of a printed table: by what they are, each departure named."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shortlist.papers.layouts import Layout, Line, find_column
from shortlist.papers.matching import OwnValue, PublishedValue, find_published, own_values
from shortlist.papers.published import PublishedNumber
from shortlist.recipes import Recipe, flat_content
from shortlist.runs import Group

Key = tuple[str, str, str]
"""Name of the published table, method (empty: one's own) and column."""

# what makes a method, apart from K and from the data
_METHOD = ("loss", "reweighting", "second_stage", "adjust", "sampler", "anneal", "head")


@dataclass(frozen=True)
class Match:
    """Runs that have a number of a cell, and the metric of theirs that it is."""

    group: Group
    value: PublishedValue | OwnValue


Fit = Mapping[str, Match]
"""The runs of each number of a cell, by the table's name of the metric."""


@dataclass
class OwnMethod:
    """A method that the publication does not have: its label, and its cells."""

    label: str
    fits: Mapping[Key, Sequence[Fit]]


@dataclass(frozen=True)
class Filled:
    """The runs in the cells of a printed table.

    Args:
        fits: By cell the runs that fit each of its numbers with the fewest departures; mostly one group of
            seeds.
        own: Methods that the publication does not have.
        unused: Labels of runs that fit no cell.
        left_out: By folder, why runs could not be read.
    """

    fits: Mapping[Key, Sequence[Fit]]
    own: Sequence[OwnMethod]
    unused: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def fill_layout(layout: Layout, groups: Iterable[Group], left_out: Mapping[str, str] | None = None) -> Filled:
    """Find the cell of each group of runs: of a published method, else in a row or column of its own.

    Args:
        layout: The printed table.
        groups: Runs that differ by their seeds, as from ``group_runs``.
        left_out: By folder, why other runs could not be read.
    """
    if not layout.has_numbers:
        raise ValueError(f"RUNS go with a table of numbers, got {layout.name}, which has words")
    published: dict[Key, list[tuple[str, Match]]] = {}
    own: dict[str, tuple[str, dict[Key, list[tuple[str, Match]]]]] = {}
    unused = []
    names = {place.table.name for place in layout.places()}
    for group in groups:
        recipe = group.runs[0].recipe
        content = recipe.model_dump(mode="json")
        values = [v for v in find_published(content, every=True) if v.table.name in names]
        cells = _nearest({(v.table.name, v.method, v.column, v.metric): v for v in values})
        into = published
        if not cells:
            cells = _nearest(_own_cells(layout, content))
            into = own.setdefault(_identity(recipe), (_label(recipe), {}))[1] if cells else {}
        for (*key, metric), value in cells.items():
            into.setdefault((key[0], key[1], key[2]), []).append((metric, Match(group, value)))
        unused += [] if cells else [group.label]
    methods = [OwnMethod(label, _fewest(matches)) for label, matches in own.values()]
    return Filled(_fewest(published), _named_apart(methods), unused, left_out or {})


def _nearest(cells: Mapping[tuple[str, str, str, str], Any]) -> dict[tuple[str, str, str, str], Any]:
    """Keep, of the cells of a table that have one metric of a method, those with the fewest departures."""
    least: dict[tuple[str, str, str], int] = {}
    for (table, method, _, metric), value in cells.items():
        key = (table, method, metric)
        least[key] = min(least.get(key, 1000), len(value.departures))
    return {
        cell: value
        for cell, value in cells.items()
        if len(value.departures) == least[cell[0], cell[1], cell[3]]
    }


def _fewest(cells: Mapping[Key, Sequence[tuple[str, Match]]]) -> dict[Key, list[Fit]]:
    """Keep, of the runs of each number, those with the fewest departures; further ones are further fits."""
    fits: dict[Key, list[Fit]] = {}
    for key, matches in cells.items():
        by_metric: dict[str, list[Match]] = {}
        for metric, match in matches:
            by_metric.setdefault(metric, []).append(match)
        for metric, entries in by_metric.items():
            least = min(len(match.value.departures) for match in entries)
            by_metric[metric] = [match for match in entries if len(match.value.departures) == least]
        fits[key] = [
            {metric: entries[turn] for metric, entries in by_metric.items() if turn < len(entries)}
            for turn in range(max(map(len, by_metric.values())))
        ]
    return fits


def _own_cells(layout: Layout, content: Mapping[str, Any]) -> dict[tuple[str, str, str, str], Any]:
    """Find where a method that the publication does not have fits."""
    cells = {}
    for lines in own_places(layout):
        for address in lines:
            table, column = find_column(address)
            metrics = [number.metric for number in shape_of(address)]
            for value in own_values(content, table, column, metrics):
                cells[table.name, "", column.name, value.metric] = value
    return cells


def own_places(layout: Layout) -> list[list[Mapping[str, Any]]]:
    """Return, for each part of a table that could have a line of one's own, the addresses of its cells."""
    lines, across = (
        (layout.rows, layout.columns) if layout.methods_are_rows else (layout.columns, layout.rows)
    )
    return [[{**rest, **line.at} for line in across] for _, rest in own_lines(lines)]


def own_lines(lines: Sequence[Line]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the sections of a table, each with the address that its lines share but for their methods."""
    sections: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for line in lines:
        rest = {key: value for key, value in line.at.items() if key != "method"}
        sections[str(sorted(rest.items()))] = (line.section, rest)  # the last section with this address
    return list(sections.values())


def shape_of(address: Mapping[str, Any]) -> tuple[PublishedNumber, ...]:
    """Return the numbers that a cell of this column has, taken from a method that has some."""
    table, column = find_column(address)
    place = [head.name for head in table.columns].index(column.name)
    cells = [row.cells[place] for row in table.rows if row.cells[place]]
    metrics = address.get("metrics")
    return tuple(number for number in cells[0] if not metrics or number.metric in metrics)


def _identity(recipe: Recipe) -> str:
    """Return what runs of one method share, whatever the data: the name of a recipe, or its options."""
    if recipe.name != Recipe.model_fields["name"].default:
        return recipe.name
    flat = flat_content(recipe)
    return str([(key, flat[key]) for key in sorted(flat) if key.split(".")[0] in _METHOD and key != "loss.k"])


def _label(recipe: Recipe) -> str:
    return recipe.loss.name if recipe.name == Recipe.model_fields["name"].default else recipe.name


def _named_apart(methods: list[OwnMethod]) -> list[OwnMethod]:
    """Number the methods of the same label, whose options differ."""
    labels = [method.label for method in methods]
    for place, method in enumerate(methods):
        if labels.count(labels[place]) > 1:
            method.label += f" ({labels[: place + 1].count(labels[place])})"
    return methods
