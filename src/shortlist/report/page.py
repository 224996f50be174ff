"""Make one page about runs, which opens in any browser without an internet connection.

The order of things: :func:`make_page` reads the runs and groups them into experiments. For each experiment,
every function of :data:`SECTIONS` measures one section of the page: it takes the experiment and returns plain
values, or None to be left out. The functions of :data:`METHOD_SECTIONS` do the same for each method. Only
then the templates write what was found: ``templates/page.html`` goes through the sections and shows each by
the template of its name.

To add a section called ``speed``:

1. ``sections/speed.py`` has ``measure_speed(view)``: it returns the numbers, a dataclass or a dict, and no
   markup. ``ExperimentView`` says where the data are; ``sections/recipes.py`` is a short example.
2. ``templates/speed.html`` shows them. They are called ``section`` there; ``_parts.html`` has what shows
   tables and drawings.
3. One line of :data:`SECTIONS`, ``"speed": measure_speed``, puts it in its place.
"""

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch import Tensor

from shortlist._progress import Progress
from shortlist._store.files import write_text
from shortlist.compare import RowReader, compare_groups
from shortlist.palette import DARK, LIGHT
from shortlist.report.columns import group_columns, score_columns, set_names
from shortlist.report.models import read_models
from shortlist.report.pictures import BUDGET, Pictures, open_pictures
from shortlist.report.render import page_style, render
from shortlist.report.rows import measure_method
from shortlist.report.sections.accuracy import measure_accuracy
from shortlist.report.sections.beside_published import measure_beside_published
from shortlist.report.sections.classes import measure_classes
from shortlist.report.sections.confused import measure_confused
from shortlist.report.sections.frequency import measure_frequency
from shortlist.report.sections.organs import measure_organs
from shortlist.report.sections.own import Section, measure_own, own_sections
from shortlist.report.sections.populations import measure_populations
from shortlist.report.sections.recipes import measure_recipes
from shortlist.report.sections.reliability import measure_reliability
from shortlist.report.sections.sets import measure_sets
from shortlist.report.sections.short_lists import measure_short_lists
from shortlist.report.sections.sizes import measure_sizes
from shortlist.report.sections.sizes_beside import measure_sizes_beside
from shortlist.report.sections.summary import measure_summary
from shortlist.report.sections.training import measure_training
from shortlist.report.views import ExperimentView, MethodPart, MethodView
from shortlist.report.words import count
from shortlist.runs import Experiment, Group, group_by_data, group_runs, read_runs

SECTIONS: Mapping[str, Callable[[ExperimentView], Any]] = {
    "summary": measure_summary,
    "accuracy": measure_accuracy,
    "sets": measure_sets,
    "sizes_beside": measure_sizes_beside,
    "beside_published": measure_beside_published,
    "training": measure_training,
    "methods": lambda view: view.methods,
    "recipes": measure_recipes,
}
"""What is said of an experiment, in order."""

METHOD_SECTIONS: Mapping[str, Callable[[MethodView], Any]] = {
    "sizes": measure_sizes,
    "frequency": measure_frequency,
    "organs": measure_organs,
    "populations": measure_populations,
    "reliability": measure_reliability,
    "classes": measure_classes,
    "confused": measure_confused,
    "short_lists": measure_short_lists,
}
"""What is said of each method, in order."""


@dataclass(frozen=True)
class PageReport:
    """The facts about a page that was made.

    Args:
        runs: Number of runs on it.
        left_out: By folder, the reason why a run is not on the page.
        remarks: Sentences about what the page lacks, such as pictures.
    """

    runs: int
    left_out: Mapping[str, str]
    remarks: Sequence[str]


@dataclass(frozen=True)
class ExperimentPart:
    """An experiment on the page: its title, and by name the sections that have something to say."""

    title: str
    sections: Mapping[str, Any]


def write_page(
    folders: Iterable[str | Path],
    output: str | Path,
    *,
    title: str | None = None,
    pictures: bool = True,
    data: str | Path | None = None,
    sections: Sequence[str] = (),
    progress: Progress | None = None,
) -> PageReport:
    """Write a page about runs, see :func:`make_page`; an existing file is replaced."""
    how: Any = {"title": title, "pictures": pictures, "data": data, "sections": sections}
    page, report = make_page(folders, **how, progress=progress)
    write_text(output, page)
    return report


def make_page(
    folders: Iterable[str | Path],
    *,
    title: str | None = None,
    pictures: bool = True,
    data: str | Path | None = None,
    sections: Sequence[str] = (),
    progress: Progress | None = None,
) -> tuple[str, PageReport]:
    """Make a self-contained page about runs.

    Runs of the same data are compared; of these, runs that differ only by their seed are one method. A run
    that is unfinished, damaged or from another version is named on the page and left out.

    Args:
        folders: Run folders, or folders of saved models that carry the results of their runs.
        title: Title of the page.
        pictures: Whether to open the data sets for pictures of rows.
        data: Place where the data of the runs lie now, if they were moved.
        sections: Functions of the caller's own, ``package.module:function``, each from an
            :class:`~shortlist.report.views.ExperimentView` to a :class:`~shortlist.report.parts.Table`. They
            come last.
        progress: Function that is called with (what, done, of how many).

    Returns:
        The HTML, and the facts about the page.

    Raises:
        ValueError: If no run can be used; the message says why for each.
    """
    own_tables = own_sections(sections)
    models, folders, left_out = read_models(folders)
    runs, others = read_runs(folders)
    left_out |= others
    if not runs and not models:
        reasons = "; ".join(left_out.values()) or "none was given"
        raise ValueError(f"there is no run to report: {reasons}")
    groups, others = group_runs(runs)
    experiments, number = group_by_data(groups), sum(len(group.runs) for group in groups) + len(models)
    work = _Work(BUDGET // max(1, len(experiments)) if pictures else None, progress, experiments, data)
    parts = [
        _measure_experiment(number, each, work, own_tables)
        for number, each in enumerate(experiments, start=1)
    ]
    parts += [_measure_model(number, each, work) for number, each in enumerate(models, start=len(parts) + 1)]
    report = PageReport(number, left_out | others, work.remarks)
    return _render_page(title or f"Short lists: {count(number, 'run')}", parts, report), report


class _Work:
    """The state while a page is made: room for pictures, remarks so far, and how many methods are done.

    Args:
        budget: Bytes of pictures for each experiment; None for a page without.
        progress: See :func:`make_page`.
        experiments: All that there is to do.
        data: See :func:`make_page`.
    """

    def __init__(
        self,
        budget: int | None,
        progress: Progress | None,
        experiments: Sequence[Experiment],
        data: str | Path | None = None,
    ) -> None:
        self.data = data
        self.budget, self.progress, self.remarks, self.done = budget, progress, [], 0
        self.total = sum(len(experiment.methods) for experiment in experiments)

    def finish(self) -> None:
        """Tell that one more method is done."""
        self.done += 1
        if self.progress is not None:
            self.progress("methods", self.done, self.total)

    def open_pictures(self, method: Group, target: Tensor) -> Pictures | None:
        """Open the pictures that go with the test rows of a method; without any, remark why."""
        if self.budget is None:
            return None
        source, reason = open_pictures(
            method.runs[0], target, budget=self.budget, place=self.data, progress=self.progress
        )
        if reason is not None:
            self.remarks.append(f"without pictures: {reason}")
        return source


def _measure_experiment(
    number: int, experiment: Experiment, work: _Work, own: Mapping[str, Section]
) -> ExperimentPart:
    columns = score_columns(experiment) + group_columns(experiment)
    methods, names = experiment.methods, [name for _, name, _ in columns] + set_names(experiment)
    measured = [name for name in names if any(name in method.metrics for method in methods)]
    read = RowReader()  # the tests and the sections look at the same rows
    leaders = compare_groups(methods, measured, read=read).best
    view = ExperimentView(number, experiment, leaders, _measure_methods(number, experiment, work, read))
    sections = {**SECTIONS, "own": lambda view: measure_own(own, view)}
    return ExperimentPart(experiment.title, _measure_sections(sections, view))


def _measure_model(number: int, experiment: Experiment, work: _Work) -> ExperimentPart:
    """Measure the sections of a model, which need no rows."""
    (method,) = experiment.methods
    no_rows: Any = None
    classes = measure_classes(MethodView(f"{number}-1", method, no_rows, None))
    view = ExperimentView(number, experiment, {}, [MethodPart(method.label, 1, {"classes": classes})])
    sections = {name: SECTIONS[name] for name in ("summary", "accuracy", "sets", "methods")}
    work.remarks.append(f"{method.runs[0].path} is a model: the page has the results of its run, and no rows")
    return ExperimentPart(experiment.title, _measure_sections(sections, view))


def _measure_methods(number: int, experiment: Experiment, work: _Work, read: RowReader) -> list[MethodPart]:
    """Measure the sections of each method; all share the pictures of the first."""
    parts: list[MethodPart] = []
    pictures: Pictures | None = None
    for place, method in enumerate(experiment.methods, start=1):
        rows = measure_method(method, read)
        if place == 1:
            pictures = work.open_pictures(method, rows.target)
        view = MethodView(f"{number}-{place}", method, rows, pictures)
        parts.append(MethodPart(method.label, len(method.runs), _measure_sections(METHOD_SECTIONS, view)))
        work.finish()
    if pictures is not None and pictures.refused:
        work.remarks.append(f"{count(pictures.refused, 'picture')} left out, to keep the page small")
    return parts


def _measure_sections(sections: Mapping[str, Callable[[Any], Any]], view: Any) -> dict[str, Any]:
    measured = {name: measure(view) for name, measure in sections.items()}
    return {name: section for name, section in measured.items() if section is not None}


def _render_page(title: str, experiments: Sequence[ExperimentPart], report: PageReport) -> str:
    return render(
        "page.html",
        title=title,
        style=page_style(),
        light=LIGHT,
        dark=DARK,
        experiments=experiments,
        report=report,
        version=_version(),
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _version() -> str:
    try:
        return importlib.metadata.version("shortlist")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
