"""Printing of results: a table of metrics, and what was promised and measured."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shortlist._messages import counted, examples
from shortlist._text import format_interval, format_percent
from shortlist.cli._console import print_json, print_line
from shortlist.metrics import (
    Averages,
    ListNumbers,
    PopulationNumbers,
    PopulationResults,
    Results,
    format_metric,
)
from shortlist.place import Place, PlaceMatch
from shortlist.promise import Promise
from shortlist.sentences import promise_brief, promise_words

_GROUPS = "few: below 20, many: above 100"


def print_results(
    results: Results, title: str, *, group_words: str = _GROUPS, notes: Iterable[str] = ()
) -> None:
    """Print the table of the metrics, notes, what was promised, and the levels of a taxonomy."""
    Console().print(metrics_table(results, title, group_words=group_words))
    if results.populations is not None:
        for table in population_tables(results.populations):
            Console().print(table)
    for line in [*notes, *promise_lines(results), *_node_lines(results)]:
        print_line(line)


def population_tables(results: PopulationResults) -> list[Table]:
    """Return tables of lists by number of photos and by group: with own thresholds, and the common one."""
    columns = {"photos": results.photos, **results.groups}
    title = f"Lists that promise {format_percent(results.level)} %"
    return [lists_table(title, column, lines) for column, lines in columns.items() if lines]


def lists_table(
    title: str, column: str, lines: Mapping[str, PopulationNumbers], *, common: str = "of single photos"
) -> Table:
    """Return a table of coverage and size with own thresholds beside the common one."""
    caption = f"Percent of objects, and names in a list: with an own threshold, and with that {common}."
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column(column, overflow="fold")
    for head in ("objects", "calibrated on", "coverage", "size", "common", "size"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, line in lines.items():
        with_own = ("-", "-") if line.own is None else _lists(line.own)
        table.add_row(name, f"{line.objects:,}", f"{line.calibration:,}", *with_own, *_lists(line.common))
    return table


def print_place(
    place: Place, match: PlaceMatch, coverage: float, numbers: PopulationNumbers, as_json: bool
) -> None:
    """Print how good lists at a place are, beside lists that are cut to it."""
    if as_json:
        unknown = list(match.unknown)
        facts = {"place": place.name, "classes": match.matched, "unknown": unknown, "coverage": coverage}
        print_json(facts | {"lists": asdict(numbers)})
        return
    title = (
        f"Lists that promise {format_percent(coverage)} % at {place.name} ({counted(match.matched, 'class')})"
    )
    common = "of all photos together, cut to the place"
    Console().print(lists_table(title, "place", {place.name: numbers}, common=common))
    if match.unknown:
        names = counted(len(match.unknown), "name", "is")
        print_line(f"{names} no class of the model: {examples(match.unknown)}")


def _lists(lists: ListNumbers) -> tuple[str, str]:
    return format_metric("coverage", lists.coverage, plus_minus=" ±"), f"{lists.size:.2f}"


def _values(averages: Averages) -> list[str]:
    """Format the averages: micro and macro with intervals, groups without them so that the table fits."""
    means = [(mean.value, mean.low, mean.high) for mean in (averages.micro, averages.macro)]
    groups = [(metric.value, None, None) for metric in averages.groups.values()]
    return [format_interval(*bounds, plus_minus=" ±") for bounds in (*means, *groups)]


def metrics_table(results: Results, title: str, *, group_words: str = _GROUPS) -> Table:
    """Return a table of accuracies and coverages: over rows, over classes and by group of classes.

    Args:
        results: The results.
        title: Title of the table.
        group_words: What the groups of classes are by training rows.
    """
    groups = list(results.groups)
    caption = _caption(results, group_words)
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("accuracy, coverage", overflow="fold")  # in a narrow window names wrap, numbers never
    for name in ("micro", "macro", *groups, "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for k, averages in results.scores.topk.items():
        table.add_row(f"top-{k}", *_values(averages), f"{k}")
    for name, averages in results.own.items():
        means = (averages.micro, averages.macro, *averages.groups.values())
        table.add_row(
            name.replace(".", ": "), *(format_metric(name, each, plus_minus=" ±") for each in means), ""
        )
    table.add_section()
    for name, sets in results.sets.items():
        brief = (
            "" if sets.promise is None or sets.promise.asked is None else f", {promise_brief(sets.promise)}"
        )
        table.add_row(name + brief, *_values(sets.coverage), f"{sets.size.micro.value:.2f}")
    return table


def _caption(results: Results, group_words: str) -> str:
    parts = [f"Percent of {results.rows} rows, ± half the {100 * results.level:g} % interval over rows"]
    parts.append("micro: over rows (exact interval), macro: over classes (interval by resampling)")
    parts += [f"{name}: {group.present} classes, {group.rows} rows" for name, group in results.groups.items()]
    if results.groups:
        parts.append(f"groups by training rows ({group_words})")
    if results.absent_classes:
        parts.append(f"{results.absent_classes} classes have no rows and no part in macro metrics")
    return "; ".join(parts) + "."


def promise_lines(results: Results) -> list[str]:
    """Say what each predictor with a coverage promises, from how many rows, and what was measured."""
    lines = []
    for name, sets in results.sets.items():
        if sets.promise is not None and sets.promise.asked is not None:
            lines += [f"{name}: {promise_words(sets.promise)}", *_low_promise(name, sets.promise, results)]
    return lines


def _low_promise(name: str, promise: Promise, results: Results) -> list[str]:
    """Say so if less is promised than the first guess alone gives, and what to do."""
    topk = results.scores.topk.get(1)
    kinds = {} if topk is None else {"rows": topk.micro.value, "average class": topk.macro.value}
    first = kinds.get(promise.about)
    if first is None or promise.level is None or promise.level >= first:
        return []
    better = next((share for share in (0.95, 0.97, 0.98, 0.99, 0.995) if share >= (1 + first) / 2), 0.999)
    return [
        f"{name}: It promises {format_percent(promise.level)} %, but the first guess alone is right for "
        f"{format_percent(first)} %: some lists are empty. Ask for more in the recipe, such as coverage: "
        f"{better}. (shortlist calibrate --set does it without a new training.)"
    ]


def _node_lines(results: Results) -> list[str]:
    """Say on which levels of a taxonomy the answers are, for each predictor of nodes."""
    return [
        f"{name}: nodes in an answer: "
        + ", ".join(f"{mean:.2f} {level}" for level, mean in sets.nodes.items())
        + "."
        for name, sets in results.sets.items()
        if sets.nodes is not None
    ]
