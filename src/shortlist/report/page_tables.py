"""The tables of a page: figures of methods and of their sets, published figures, recipes and versions."""

from collections.abc import Sequence
from typing import Any

import yaml

from shortlist.metrics import Figure
from shortlist.report.page_html import Markup, details, joined, table, tag
from shortlist.report.page_runs import Experiment, Method, ReadRun, differing_keys
from shortlist.report.page_words import bounds, percent, size
from shortlist.report.published import find_published, flatten

__all__ = [
    "group_table",
    "published_table",
    "recipe_parts",
    "run_table",
    "score_table",
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
    methods: Sequence[Method], name: str, *, share: bool = True, lower: bool | None = False
) -> list[Markup]:
    """A figure of all methods; the best is bold, unless ``lower`` is None."""
    of_methods = [m for m in methods if not m.is_limit]
    values = [figure.value for m in of_methods if (figure := m.figures.get(name)) is not None]
    known = [value for value in values if value is not None]
    best = None if lower is None or len(set(known)) < 2 else (min if lower else max)(known)
    column = []
    for method in methods:
        figure = method.figures.get(name)
        is_best = figure is not None and figure.value == best and not method.is_limit
        column.append(cell(figure, share=share, best=is_best))
    return column


def _by_method(
    caption: str, methods: Sequence[Method], columns: Sequence[tuple[str, str, bool, bool | None]]
) -> Markup:
    """A row for each method; columns are (head, name of the figure, is a share, lower is better)."""
    made = [_column(methods, name, share=share, lower=lower) for _, name, share, lower in columns]
    heads = ["method", "runs", *(head for head, *_ in columns)]
    rows = [[m.label, len(m.runs), *(column[i] for column in made)] for i, m in enumerate(methods)]
    return table(caption, heads, rows)


def score_table(experiment: Experiment) -> Markup:
    """Figures of the scores."""
    ks = list(experiment.first.results.scores.topk)
    columns: list[tuple[str, str, bool, bool | None]] = [
        (f"top-{k}", f"top{k}.micro", True, False) for k in ks
    ]
    columns += [(f"macro top-{k}", f"top{k}.macro", True, False) for k in ks]
    columns += [("balanced error", "balanced_error", True, True)]
    columns += [("calibration error", "calibration_error", True, True), ("neg. log-lik.", "nll", False, True)]
    caption = "Accuracy in percent: over rows, and macro, over classes. The best of each column is bold."
    return _by_method(caption, experiment.methods, columns)


def group_table(experiment: Experiment) -> Markup | None:
    """Accuracy by how many training rows a class has."""
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    if not groups:
        return None
    ks = [k for k in experiment.first.results.scores.topk if k in (1, 5)]
    columns = [(f"top-{k}, {group}", f"top{k}.{group}", True, False) for k in ks for group in groups]
    caption = (
        "Macro accuracy in percent by training rows of the class: few below 20, medium to 100, many above."
    )
    return _by_method(caption, experiment.methods, columns)


def set_table(experiment: Experiment, key: str) -> Markup:
    """Figures of a predictor's sets."""
    methods = [m for m in experiment.methods if f"sets.{key}.size.micro" in m.figures]
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    promised = experiment.first.results.sets[key].promised
    start = f"sets.{key}"
    columns: list[tuple[str, str, bool, bool | None]] = [
        ("coverage", f"{start}.coverage.micro", True, None),
        ("macro", f"{start}.coverage.macro", True, None),
        *((group, f"{start}.coverage.{group}", True, None) for group in groups),
    ]
    runs = [run for method in methods for run in method.runs]
    if any(sum(number > 0 for number in run.results.sets[key].size_histogram) > 1 for run in runs):
        columns += [
            ("mean size", f"{start}.size.micro", False, None),
            *((f"size, {group}", f"{start}.size.{group}", False, None) for group in groups),
            ("empty", f"{start}.empty_share", True, None),
        ]
    caption = f"{key}: share of sets that hold the true class, in percent"
    caption += ", and classes in a set" if len(columns) > 2 + len(groups) else " (always of the same size)"
    if promised is not None:
        columns.append(("classes below promise", f"{start}.under_covered", True, None))
        caption += f"; promised {percent(promised, 0)} %"
    return _by_method(caption, methods, columns)


def published_table(experiment: Experiment) -> tuple[Markup | None, list[str]]:
    """Published figures beside ours, and their sources."""
    rows, sources = [], []
    for method in experiment.methods:
        recipe = method.runs[0].recipe.model_dump(mode="json")
        for value in [] if method.is_limit else find_published(recipe):
            own = method.figures.get(value.name)
            if own is None or own.value is None:
                continue
            difference = f"{100 * (own.value - value.value):+.1f}"
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
    return table("Published figures and ours, in percent", heads, rows, words=(0, 1, 5, 6)), sources


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
    keys = differing_keys(firsts)
    if keys:
        flats = [flatten(run.recipe.model_dump(mode="json")) for run in firsts]
        rows = [[key, *(_value(flat.get(key)) for flat in flats)] for key in keys]
        heads = ["key", *(method.label for method in experiment.methods)]
        parts.append(table("What differs between the recipes", heads, rows, words=range(len(heads))))
    parts += [details(f"Recipe of {m.label}", _recipe(m.runs[0])) for m in experiment.methods]
    return parts


def _value(value: Any) -> str:
    return "–" if value is None else str(value)


def _recipe(run: ReadRun) -> Markup:
    content = yaml.safe_dump(run.recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return tag("pre", content, tabindex=0)
