"""The numbers of each class of a method, the worst class first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shortlist._text import format_percent
from shortlist.report.parts import Table
from shortlist.report.views import MethodView

MOST = 500  # classes in the table


@dataclass(frozen=True)
class Classes:
    """What the section shows.

    Args:
        name: Id of the section on the page.
        table: The classes that have test rows, the worst first.
        num_runs: Number of runs that rows are counted over.
        number: Number of classes with test rows, in the table or not.
        left_out: Number of classes without test rows.
    """

    name: str
    table: Table
    num_runs: int
    number: int
    left_out: int


def measure_classes(view: MethodView) -> Classes:
    """Count the hits and the set sizes of each class over all runs of a method."""
    classes, results = view.method.runs[0].class_table, [run.results for run in view.method.runs]
    rows = _sums(each.class_rows for each in results)
    ks = [k for k in results[0].scores.class_hits if k in (1, 5)]
    first = {f"top-{k}": _sums(each.scores.class_hits[k] for each in results) for k in ks}
    present = [index for index, number in enumerate(rows) if number]
    present.sort(key=lambda i: (*(hits[i] / rows[i] for hits in first.values()), classes.names[i]))
    columns: list[tuple[str, Sequence[object]]] = [("class", classes.names)]
    columns += [("training rows", classes.counts)] if classes.counts else []
    columns += [("test rows", rows)]
    columns += [(head, _percents(hits, rows)) for head, hits in first.items()]
    for key in results[0].sets:
        columns.append((f"in {key}", _percents(_sums(each.sets[key].class_hits for each in results), rows)))
        sizes = _sums(each.sets[key].class_sizes for each in results)
        means = [size / max(1, number) for size, number in zip(sizes, rows, strict=True)]
        if len({means[index] for index in present}) > 1:
            columns.append(("its size", [f"{mean:.2f}" for mean in means]))
    body = [[column[index] for _, column in columns] for index in present[:MOST]]
    caption = "Percent of test rows whose first guesses, or whose set, hold the class; mean sizes of the sets"
    table = Table(caption, [head for head, _ in columns], body)
    left_out = len(classes) - len(present)
    return Classes(f"classes-{view.name}", table, len(results), len(present), left_out)


def _sums(parts: Iterable[Sequence[float]]) -> list[float]:
    return [sum(numbers) for numbers in zip(*parts, strict=True)]


def _percents(hits: Sequence[float], rows: Sequence[float]) -> list[str]:
    return [format_percent(hit / max(1, number)) for hit, number in zip(hits, rows, strict=True)]
