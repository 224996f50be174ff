"""The tables of a page: figures of methods and of their sets, published figures, recipes and versions."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from shortlist.metrics import Figure
from shortlist.recipes.content import differing_keys, flat_content
from shortlist.report.best import Leader
from shortlist.report.html import Markup, details, joined, table, tag
from shortlist.report.published import find_published
from shortlist.report.runs import Experiment
from shortlist.report.words import bounds, percent, points, size
from shortlist.runs.finished import FinishedRun
from shortlist.runs.groups import Group

__all__ = [
    "group_columns",
    "published_table",
    "recipe_parts",
    "run_table",
    "score_columns",
    "score_tables",
    "set_names",
    "set_table",
]


def cell(figure: Figure | None, *, share: bool = True, best: bool = False) -> Markup:
    """A figure with its interval below it."""
    if figure is None or figure.value is None:
        return Markup("–")
    show = percent if share else size
    ends = bounds(figure, share=share)
    interval = "" if ends is None else tag("span", f"{show(ends[0])} to {show(ends[1])}", class_="interval")
    return joined([tag("span", show(figure.value), class_="best" if best else None), interval])


def _column(
    methods: Sequence[Group], name: str, *, share: bool = True, leader: Leader | None = None
) -> list[Markup]:
    """A figure of all methods; the best is bold if a test tells it from the second best."""
    best = leader.first if leader is not None and leader.test.significant else []
    return [cell(m.figures.get(name), share=share, best=any(m is one for one in best)) for m in methods]


Column = tuple[str, str, bool]
"""Head, name of the figure, whether it is a share."""


def _by_method(
    caption: str,
    methods: Sequence[Group],
    columns: Sequence[Column],
    leaders: Mapping[str, Leader] | None = None,
) -> Markup:
    """A row for each method."""
    found = leaders or {}
    made = [_column(methods, name, share=share, leader=found.get(name)) for _, name, share in columns]
    heads = ["method", "runs", *(head for head, *_ in columns)]
    rows = [[m.label, len(m.runs), *(column[i] for column in made)] for i, m in enumerate(methods)]
    return table(caption, heads, rows)


def score_columns(experiment: Experiment) -> list[Column]:
    """Figures of the scores."""
    ks = list(experiment.first.results.scores.topk)
    columns = [(f"top-{k}", f"top{k}.micro", True) for k in ks]
    columns += [(f"macro top-{k}", f"top{k}.macro", True) for k in ks]
    columns += [("balanced error", "balanced_error", True), ("calibration error", "calibration_error", True)]
    return [*columns, ("neg. log-lik.", "nll", False)]


def group_columns(experiment: Experiment) -> list[Column]:
    """Accuracy by how many training rows a class has; none if these are not known."""
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    ks = [k for k in experiment.first.results.scores.topk if k in (1, 5)]
    return [(f"top-{k}, {group}", f"top{k}.{group}", True) for k in ks for group in groups]


def score_tables(experiment: Experiment, leaders: Mapping[str, Leader]) -> list[Markup]:
    """Figures of the scores, over all classes and by group."""
    caption = "Accuracy in percent: over rows, and macro, over classes. "
    caption += "Bold: the best, where a paired test tells it from the second best (p < 0.05)."
    tables = [_by_method(caption, experiment.methods, score_columns(experiment), leaders)]
    columns = group_columns(experiment)
    if columns:
        caption = "Macro accuracy in percent by training rows of the class: "
        caption += "few below 20, medium to 100, many above."
        tables.append(_by_method(caption, experiment.methods, columns, leaders))
    return tables


def set_names(experiment: Experiment) -> list[str]:
    """Coverage over rows and over classes of each predictor; that of sets with a promise has no best."""
    keys = experiment.first.results.sets
    return [f"sets.{key}.coverage.{average}" for key in keys for average in ("micro", "macro")]


def set_table(experiment: Experiment, key: str, leaders: Mapping[str, Leader]) -> Markup:
    """Figures of a predictor's sets."""
    methods = [m for m in experiment.methods if f"sets.{key}.size.micro" in m.figures]
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    promised = experiment.first.results.sets[key].promised
    start = f"sets.{key}"
    columns: list[Column] = [
        ("coverage", f"{start}.coverage.micro", True),
        ("macro", f"{start}.coverage.macro", True),
        *((group, f"{start}.coverage.{group}", True) for group in groups),
    ]
    runs = [run for method in methods for run in method.runs]
    if any(sum(number > 0 for number in run.results.sets[key].size_histogram) > 1 for run in runs):
        columns += [
            ("mean size", f"{start}.size.micro", False),
            *((f"size, {group}", f"{start}.size.{group}", False) for group in groups),
            ("empty", f"{start}.empty_share", True),
        ]
    caption = f"{key}: share of sets that hold the true class, in percent"
    caption += ", and classes in a set" if len(columns) > 2 + len(groups) else " (always of the same size)"
    if promised is not None:
        columns.append(("classes below promise", f"{start}.under_covered", True))
        caption += f"; promised {percent(promised, 0)} %"
    return _by_method(caption, methods, columns, leaders)


def published_table(experiment: Experiment) -> tuple[Markup | None, list[str]]:
    """Published figures beside ours, and their sources."""
    rows, sources = [], []
    for method in experiment.methods:
        recipe = method.runs[0].recipe.model_dump(mode="json")
        for value in [] if method.is_limit else find_published(recipe):
            own = method.figures.get(value.name)
            if own is None or own.value is None:
                continue
            difference = points(own.value - value.value)
            source = f"{value.experiment.name}: {value.experiment.source}"
            note = value.experiment.note
            source += f" ({note})" if note else ""
            if source not in sources:
                sources.append(source)
            departures = "; ".join(value.departures) or "nothing known"
            number = f"[{sources.index(source) + 1}]"
            cells = [percent(value.value, 2), cell(own), difference]
            long = tag("span", departures, class_="long")
            rows.append([f"{method.label} {number}", value.figure, *cells, value.method, long])
    if not rows:
        return None, []
    heads = ["method", "figure", "published", "ours", "difference", "called there", "what is not the same"]
    caption = "Published figures and ours, in percent; the difference is ours less theirs, in points"
    if any(row[1] == "balanced_error" for row in rows):
        caption += " (of an error, less is better)"
    return table(caption, heads, rows, words=(0, 1, 5, 6)), sources


def run_table(experiment: Experiment) -> Markup:
    """The runs, and what they were made with."""
    runs = [(method, run) for method in experiment.methods for run in method.runs]
    packages = list(dict.fromkeys(key for _, run in runs for key in run.info.get("versions", {})))
    heads = ["run", "method", "seed", "state", "made", *packages]
    rows = [
        [
            run.name,
            method.label,
            run.recipe.seed,
            run.info.get("state"),
            tag("span", str(run.info.get("created", "")).replace("T", " ")[:16], class_="nowrap"),
            *(run.info.get("versions", {}).get(package, "–") for package in packages),
        ]
        for method, run in runs
    ]
    return table("Runs and versions", heads, rows, words=range(len(heads)))


def recipe_parts(experiment: Experiment) -> list[Markup]:
    """What differs between the recipes, and each whole recipe, closed."""
    firsts = [method.runs[0] for method in experiment.methods]
    parts = []
    keys = differing_keys([run.recipe for run in firsts])
    if keys:
        flats = [flat_content(run.recipe) for run in firsts]
        rows = [[key, *(_value(flat.get(key)) for flat in flats)] for key in keys]
        heads = ["key", *(method.label for method in experiment.methods)]
        parts.append(table("What differs between the recipes", heads, rows, words=range(len(heads))))
    parts += [details(f"Recipe of {m.label}", _recipe(m.runs[0])) for m in experiment.methods]
    return parts


def _value(value: Any) -> str:
    return "–" if value is None else str(value)


def _recipe(run: FinishedRun) -> Markup:
    content = yaml.safe_dump(run.recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return tag("pre", content, tabindex=0)
