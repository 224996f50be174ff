"""The best method of a page by each metric, by the paired tests of ``shortlist compare``."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.compare.comparison import Best, compare_groups
from shortlist.compare.rows import RowReader
from shortlist.runs.experiments import Experiment
from shortlist.runs.groups import Group

__all__ = ["Leader", "find_leaders"]


@dataclass(frozen=True)
class Leader:
    """The best method by a metric with those level with it, the second best, and the test of the two."""

    first: Sequence[Group]
    second: Group
    test: Best


def find_leaders(
    experiment: Experiment, names: Sequence[str], read: RowReader | None = None
) -> dict[str, Leader]:
    """Find the best method by each metric that two or more methods have, without exact probabilities."""
    known = [name for name in names if any(name in method.metrics for method in experiment.methods)]
    methods = {method.label: method for method in experiment.methods}
    return {
        name: Leader([methods[row] for row in found.rows], methods[found.second], found)
        for name, found in compare_groups(experiment.methods, known, read=read).best.items()
    }
