"""The views from which sections of the page are made: an experiment, or one of its methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.compare import Best
from shortlist.report.pictures import Pictures
from shortlist.report.rows import MethodRows
from shortlist.runs import Experiment, Group


@dataclass(frozen=True)
class MethodPart:
    """A method on the page: its name, how many runs it has, and by name what its sections measured."""

    label: str
    num_runs: int
    sections: Mapping[str, Any]


@dataclass(frozen=True)
class ExperimentView:
    """The view of an experiment for its sections.

    Args:
        number: Number of the experiment on the page.
        experiment: The experiment, the way to the data: ``experiment.methods[i].runs[j]`` is a finished run
            with ``name``, ``recipe``, ``results`` (of its test rows) and ``class_table`` (training counts).
        leaders: By metric, the best methods, and the test against the second best.
        methods: What the sections of each method measured; the runs are in ``experiment``.
    """

    number: int
    experiment: Experiment
    leaders: Mapping[str, Best]
    methods: Sequence[MethodPart]


@dataclass(frozen=True)
class MethodView:
    """A method, the end of the ids of its drawings, and what was found in its rows.

    Args:
        name: Numbers of the experiment and of the method, such as ``1-2``.
        method: The method.
        rows: Measurements of the test rows of its runs.
        pictures: Maker of pictures of rows; None if there are none.
    """

    name: str
    method: Group
    rows: MethodRows
    pictures: Pictures | None
