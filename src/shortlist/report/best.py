"""The best method of a page by each figure, by the paired tests of ``shortlist compare``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist.compare.comparison import Best, compare_groups
from shortlist.metrics.names import is_share
from shortlist.report.html import Markup, details, table, tag
from shortlist.report.runs import Experiment
from shortlist.report.words import count, points
from shortlist.runs.groups import Group

__all__ = ["Leader", "find_leaders", "tests_part"]


@dataclass(frozen=True)
class Leader:
    """The best method by a figure with those level with it, the second best, and the test of the two."""

    first: Sequence[Group]
    second: Group
    test: Best


def find_leaders(experiment: Experiment, names: Sequence[str]) -> dict[str, Leader]:
    """For each figure that two methods or more have, the best; the data's own probabilities are none."""
    known = [name for name in names if any(name in method.figures for method in experiment.methods)]
    methods = {method.label: method for method in experiment.methods}
    return {
        name: Leader([methods[row] for row in found.rows], methods[found.second], found)
        for name, found in compare_groups(experiment.methods, known).best.items()
    }


def tests_part(leaders: Mapping[str, Leader]) -> Markup:
    """All tests, closed."""
    if not leaders:
        return Markup("")
    rows = [
        [
            name,
            ", ".join(method.label for method in one.first),
            one.second.label,
            _difference(name, one.test),
            _p(one.test),
            tag("span", one.test.test, class_="long"),
        ]
        for name, one in leaders.items()
    ]
    heads = ["figure", "best", "second best", "difference", "p", "test"]
    made = table("Best and second best, by paired tests", heads, rows, words=(0, 1, 2, 5))
    note = (
        "Differences are in points where the figure is in percent. Best and second best are picked first and "
    )
    note += f"tested then, in {count(len(rows), 'test')}: read a p near 0.05 as a hint."
    return details("The tests", made, tag("p", note, class_="soft"))


def _difference(name: str, test: Best) -> str:
    if test.difference is None:
        return "–"
    return points(test.difference) if is_share(name) else f"{test.difference:+.3f}"


def _p(test: Best) -> str:
    return "–" if test.p_value is None else f"{test.p_value:.2g}"
