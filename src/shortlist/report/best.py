"""The best method of a page by each metric, by the paired tests of ``shortlist compare``."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.compare.comparison import Best, compare_groups
from shortlist.report.runs import Experiment, Method
from shortlist.runs.groups import FinishedRun, Group

__all__ = ["Leader", "find_leaders"]


@dataclass(frozen=True)
class Leader:
    """The best method by a metric with those level with it, the second best, and the test of the two."""

    first: Sequence[Method]
    second: Method
    test: Best


def find_leaders(experiment: Experiment, names: Sequence[str]) -> dict[str, Leader]:
    """Find the best by each metric that two methods or more have; the data's own probabilities are none."""
    known = [name for name in names if any(name in method.figures for method in experiment.methods)]
    groups = [Group(str(place), _finished(method)) for place, method in enumerate(experiment.methods)]
    best = compare_groups(groups, known).best  # methods may share a label, but not a place
    methods = experiment.methods
    return {
        name: Leader([methods[int(row)] for row in found.rows], methods[int(found.second)], found)
        for name, found in best.items()
    }


def _finished(method: Method) -> list[FinishedRun]:
    return [
        FinishedRun(run.run.path, run.recipe, run.results, run.info.get("scores_from")) for run in method.runs
    ]
