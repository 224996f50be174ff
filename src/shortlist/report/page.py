"""One page about runs, to be opened in any browser without a network."""

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from torch import Tensor

from shortlist._files import write_text
from shortlist.report import charts as figures
from shortlist.report import tables
from shortlist.report.best import Leader, find_leaders, tests_part
from shortlist.report.examples import confusion_figure, lists_figure
from shortlist.report.html import Markup, bullets, details, document, joined, tag
from shortlist.report.pictures import BUDGET, Pictures, open_pictures
from shortlist.report.rows import look_at_method
from shortlist.report.runs import Experiment, group_by_data
from shortlist.report.words import (
    compare_sentence,
    count,
    interval_sentence,
    overview_sentence,
    set_sentences,
)
from shortlist.runs.groups import Group, group_runs, read_runs

__all__ = ["PageReport", "make_page", "write_page"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PageReport:
    """What came of a page.

    Args:
        runs: Runs on it.
        left_out: By folder, why a run is not on it.
        remarks: What the page had to do without, such as pictures.
    """

    runs: int
    left_out: Mapping[str, str]
    remarks: Sequence[str]


def write_page(
    folders: Iterable[str | Path],
    output: str | Path,
    *,
    title: str | None = None,
    pictures: bool = True,
    progress: Progress | None = None,
) -> PageReport:
    """Write a page about runs, see :func:`make_page`; a file that is there is replaced whole."""
    page, report = make_page(folders, title=title, pictures=pictures, progress=progress)
    write_text(output, page)
    return report


def make_page(
    folders: Iterable[str | Path],
    *,
    title: str | None = None,
    pictures: bool = True,
    progress: Progress | None = None,
) -> tuple[str, PageReport]:
    """A self-contained page about runs.

    Runs of the same data are compared; of these, runs that differ only by their seed are one method. A run
    that is unfinished, damaged or from another version is named on the page and left out.

    Args:
        folders: Run folders.
        title: Of the page.
        pictures: Whether to open the data sets for pictures of rows.
        progress: Called with (what, done, of how many).

    Returns:
        HTML, and what came of it.

    Raises:
        ValueError: If no run can be used; the message says why for each.
    """
    runs, left_out = read_runs(folders)
    if not runs:
        reasons = "; ".join(left_out.values()) or "none was given"
        raise ValueError(f"there is no run to report: {reasons}")
    groups, others = group_runs(runs)
    left_out |= others
    experiments = group_by_data(groups)
    remarks: list[str] = []
    steps = _Steps(progress, sum(len(experiment.methods) for experiment in experiments))
    sections = []
    for number, experiment in enumerate(experiments, start=1):
        budget = BUDGET // len(experiments) if pictures else None
        sections.append(_experiment(number, experiment, budget, remarks, steps))
    number = sum(len(group.runs) for group in groups)
    heading = title or f"Short lists: {count(number, 'run')}"
    head = _head(heading, experiments, left_out, remarks)
    page = document(heading, joined([head, tag("main", *sections), _foot()]))
    return page, PageReport(number, left_out, remarks)


class _Steps:
    """Tells how many methods are done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def next(self, what: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(what, self.done, self.total)


def _head(
    heading: str, experiments: Sequence[Experiment], left_out: Mapping[str, str], remarks: Sequence[str]
) -> Markup:
    parts: list[object] = [tag("h1", heading)]
    if len(experiments) > 1:
        links = [tag("a", e.title, href=f"#data-{i}") for i, e in enumerate(experiments, start=1)]
        parts.append(tag("nav", bullets(links), aria_label="Data sets"))
    if left_out:
        note = f"{count(len(left_out), 'run is', 'runs are')} not on this page."
        parts.append(tag("div", tag("p", note), bullets(left_out.values()), class_="warning", id="left-out"))
    if remarks:
        words = [f"{remark[0].upper()}{remark[1:].rstrip('.')}." for remark in remarks]
        parts.append(tag("div", bullets(words), class_="warning", id="remarks"))
    return tag("header", *parts)


def _foot() -> Markup:
    try:
        version = importlib.metadata.version("shortlist")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return tag("footer", tag("p", f"Made by shortlist {version}, {made}.", class_="soft"))


def _experiment(
    number: int, experiment: Experiment, budget: int | None, remarks: list[str], steps: _Steps
) -> Markup:
    """All about the runs of one data set."""
    columns = tables.score_columns(experiment) + tables.group_columns(experiment)
    names = [name for _, name, _ in columns] + tables.set_names(experiment)
    leaders = find_leaders(experiment, names)
    parts: list[object] = [tag("h2", experiment.title, id=f"data-{number}"), *_summary(experiment, leaders)]
    parts += [tag("h3", "Accuracy"), *tables.score_tables(experiment, leaders), tests_part(leaders)]
    parts.append(figures.accuracy_figure(f"accuracy-{number}", experiment))
    keys = experiment.first.results.sets
    if keys:
        parts.append(tag("h3", "Sets"))
        parts += [tables.set_table(experiment, key, leaders) for key in keys]
    published, sources = tables.published_table(experiment)
    if published is not None:
        note = "Data set and loss are the paper's; what else is known to differ is listed."
        entries = tag("ol", *(tag("li", source) for source in sources))
        parts += [tag("h3", "Beside published figures"), tag("p", note), published, entries]
    parts += [
        tag("h3", "Training"),
        figures.learning_figure(f"learning-{number}", experiment) or _no_curves(),
    ]
    parts.append(tag("h3", "Each method"))
    parts += _methods(number, experiment, budget, remarks, steps)
    parts += [tag("h3", "Recipes and versions"), tables.run_table(experiment)]
    parts += tables.recipe_parts(experiment)
    return tag("section", *parts, aria_labelledby=f"data-{number}")


def _no_curves() -> Markup:
    return tag("p", "No run has figures by epoch.")


def _summary(experiment: Experiment, leaders: Mapping[str, Leader]) -> list[Markup]:
    ks = list(experiment.first.results.scores.topk)
    k = max((k for k in ks if k <= 5), default=ks[-1])
    compared = [("top1.micro", "Top-1 accuracy"), (f"top{k}.micro", f"Top-{k} accuracy")]
    compared += [(f"top{k}.macro", f"Macro top-{k} accuracy (each class counts the same)")]
    tests = {name: leader.test for name, leader in leaders.items()}
    found = [
        compare_sentence(experiment.methods, name, words, tests.get(name))
        for name, words in dict(compared).items()
    ]
    sentences = [sentence for sentence in found if sentence is not None] + set_sentences(experiment, tests)
    return [
        tag("p", overview_sentence(experiment)),
        bullets(_with_lead(sentence) for sentence in sentences),
        tag("p", interval_sentence(experiment), class_="soft"),
    ]


def _with_lead(sentence: str) -> Markup:
    """What a sentence is about, up to its first colon, in bold."""
    lead, colon, rest = sentence.partition(": ")
    return joined([tag("strong", lead + colon.strip()), " ", rest])


def _methods(
    number: int, experiment: Experiment, budget: int | None, remarks: list[str], steps: _Steps
) -> list[Markup]:
    """The figures of each method; the first is open."""
    made: list[Markup] = []
    source: Pictures | None = None
    for place, method in enumerate(experiment.methods, start=1):
        rows = look_at_method(method)
        if place == 1 and budget is not None:
            source = _pictures(method, rows.target, budget, remarks)
        name = f"{number}-{place}"
        content = [
            figures.size_figure(f"sizes-{name}", method, rows) or "",
            tag(
                "div",
                figures.frequency_figure(f"frequency-{name}", method) or "",
                figures.reliability_figure(f"reliability-{name}", method),
                class_="side",
            ),
            confusion_figure(f"confused-{name}", method, rows, source),
            lists_figure(f"lists-{name}", method, rows, source),
        ]
        summary = f"{method.label} ({count(len(method.runs), 'run')})"
        made.append(details(summary, *content, opened=place == 1, class_="method"))
        steps.next(method.label)
    if source is not None and source.refused:
        remarks.append(f"{count(source.refused, 'picture')} left out, to keep the page small")
    return made


def _pictures(method: Group, target: Tensor, budget: int, remarks: list[str]) -> Pictures | None:
    source, reason = open_pictures(method.runs[0], target, budget=budget)
    if reason is not None:
        remarks.append(f"without pictures: {reason}")
    return source
