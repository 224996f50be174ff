"""The summary of an experiment: sentences that say only what the metrics show."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist._text import format_percent, format_points
from shortlist.compare import Best, kept_words, promises_of, shared_promise
from shortlist.promise import Promise
from shortlist.recipes import PredictorSection
from shortlist.report.views import ExperimentView
from shortlist.report.words import count, with_interval
from shortlist.runs import Experiment, Group
from shortlist.sentences import promise_words


@dataclass(frozen=True)
class Summary:
    """What was run, its results, and what the intervals are.

    Args:
        overview: A sentence about the runs and the data.
        findings: Subject of each sentence, and the rest of the sentence.
        intervals: A sentence about the intervals.
    """

    overview: str
    findings: Sequence[tuple[str, str]]
    intervals: str


def measure_summary(view: ExperimentView) -> Summary:
    """Find the best method by the most important metrics, and what each predictor reached."""
    experiment = view.experiment
    ks = list(experiment.first.results.scores.topk)
    k = max((k for k in ks if k <= 5), default=ks[-1])
    compared = {"top1.micro": "Top-1 accuracy", f"top{k}.micro": f"Top-{k} accuracy"}
    compared |= {f"top{k}.macro": f"Macro top-{k} accuracy (each class counts the same)"}
    compared_words = [
        compare_sentence(experiment.methods, name, words, view.leaders.get(name))
        for name, words in compared.items()
    ]
    sentences = [words for words in compared_words if words] + set_sentences(experiment, view.leaders)
    parts = [sentence.partition(": ") for sentence in sentences]
    findings = [(lead + colon.strip(), rest) for lead, colon, rest in parts]
    return Summary(overview_sentence(experiment), findings, interval_sentence(experiment))


def overview_sentence(experiment: Experiment) -> str:
    """Say which methods were run on which data."""
    results, runs = experiment.first.results, sum(len(method.runs) for method in experiment.methods)
    methods = count(len(experiment.methods), "method")
    text = f"{count(runs, 'run')} of {methods} on {experiment.first.recipe.data.name}: "
    text += f"{count(results.classes, 'class', 'classes')}, {count(results.rows, 'test row')}."
    if results.groups:
        parts = [f"{group.classes:,} {name}" for name, group in results.groups.items()]
        words = experiment.first.recipe.evaluation.group_words
        text += f" Classes by training rows: {', '.join(parts)} ({words})."
    if results.absent_classes:
        absent = count(results.absent_classes, "class has", "classes have")
        text += f" {absent} no test rows and no part in macro metrics."
    return text


def interval_sentence(experiment: Experiment) -> str:
    """Say where the intervals come from."""
    several = any(len(method.runs) > 1 for method in experiment.methods)
    single = any(len(method.runs) == 1 for method in experiment.methods)
    level = f"{format_percent(experiment.first.results.level, 0)} %"
    parts = []
    if several:
        parts.append("for methods with several runs it is of their mean over seeds (Student's t)")
    if single:
        parts.append(
            "for methods with one run it is over test rows (exact for shares of rows, by resampling for "
            "means over classes) and says nothing about other seeds"
        )
    text = f"Brackets hold {level} intervals: {'; '.join(parts)}."
    if any(len(method.runs) == 2 for method in experiment.methods):
        text += " An interval of two seeds is very wide."
    return text


def compare_sentence(methods: Sequence[Group], name: str, words: str, test: Best | None) -> str | None:
    """Say which method is best by a metric, which is second, and whether a test finds a difference.

    Args:
        methods: Methods of one experiment.
        name: Name of the metric, as in ``Results.metrics``; more of it is better.
        words: Name of the metric in the sentence.
        test: The test of the best against the second best; None if there are no two.
    """
    best, second = _ranked(methods, name)
    if not best:
        return None
    limits = [m.metrics[name] for m in methods if m.is_limit and name in m.metrics]
    possible = f" The data's own probabilities reach {with_interval(limits[0])}." if limits else ""
    who, reached = _together(best), with_interval(best[0].metrics[name])
    if second is None and len(best) == 1:
        return f"{words} of {who}: {reached}.{possible}"
    if second is None:
        return f"{words}: {who} are level at {reached}.{possible}"
    text = f"{words}: {who} {'is' if len(best) == 1 else 'are'} highest with {reached}, "
    text += f"then {second.label} with {with_interval(second.metrics[name])}."
    return text + ("" if test is None else f" {_tested(test)}") + possible


def _ranked(methods: Sequence[Group], name: str) -> tuple[list[Group], Group | None]:
    """Find the best methods by a metric, and the next one; exact probabilities are not a method."""
    values = [(m.metrics[name].value, m) for m in methods if name in m.metrics and not m.is_limit]
    ranked = [(value, m) for value, m in values if value is not None and math.isfinite(value)]
    ranked.sort(key=lambda entry: -entry[0])
    best = [m for value, m in ranked if value == ranked[0][0]]
    return best, ranked[len(best)][1] if len(best) < len(ranked) else None


def _together(methods: Sequence[Group]) -> str:
    *others, last = [method.label for method in methods]
    return f"{', '.join(others)} and {last}" if others else last


def _tested(test: Best) -> str:
    if test.p_value is None or test.difference is None:
        return f"Nothing is said about chance ({test.test})."
    numbers = f"{format_points(test.difference)} points, p = {test.p_value:.2g}, {test.test}"
    if test.significant:
        return f"The difference is significant ({numbers})."
    return f"The difference may be chance ({numbers}): this does not settle which is better."


def set_sentences(experiment: Experiment, tests: Mapping[str, Best]) -> list[str]:
    """Say for each predictor what it promises or is set to, what it reached, and which method is best.

    Args:
        experiment: The experiment that has the predictors.
        tests: By metric, the test of the best method against the second best.
    """
    sentences = []
    for key in experiment.first.results.sets:
        methods = [m for m in experiment.methods if f"sets.{key}.coverage.micro" in m.metrics]
        section = experiment.first.recipe.named_predictors.get(key)
        if methods and not (section is not None and _is_top_k_accuracy(section)):
            sentences.append(_set_sentence(key, methods, tests.get(f"sets.{key}.coverage.micro")))
    return sentences


def _is_top_k_accuracy(section: PredictorSection) -> bool:
    """Whether the sets are the first k classes, so that their coverage is a metric of the scores already."""
    return section.name == "topk" and not section.macro and section.options.keys() <= {"k"}


def _set_sentence(key: str, methods: Sequence[Group], test: Best | None) -> str:
    first = methods[0].runs[0]
    section = first.recipe.named_predictors.get(key)
    wanted = None if section is None else section.options.get("k")
    promises = {method.label: promises_of(method).get(key, []) for method in methods}
    promised = [promise for group in promises.values() for promise in group]
    if promised:
        kept = f" {kept_words(promises)}" if kept_words(promises) else ""
        shared = shared_promise(promised)
        rare = _for_rare_classes(key, methods, shared)
        return f"{key}: {promise_words(shared)} {_reached(key, methods)}{kept}{rare}"
    text = f"{key}: "
    if wanted is not None and section is not None and section.name == "average_k":
        text += f"set to {wanted:g} classes on average. "
    text += _reached(key, methods)
    best, second = _ranked(methods, f"sets.{key}.coverage.micro")
    if test is None or second is None:
        return text
    return f"{text} Most often by {_together(best)}, then {second.label}. {_tested(test)}"


def _reached(key: str, methods: Sequence[Group]) -> str:
    """Say coverage and size of each method, or their range if these are many."""
    coverage = {m.label: m.metrics[f"sets.{key}.coverage.micro"] for m in methods}
    sizes = {m.label: m.metrics[f"sets.{key}.size.micro"].value for m in methods}
    if len(methods) <= 3:
        parts = [
            f"{label} {with_interval(coverage[label])} with {_size(sizes[label])} classes"
            for label in coverage
        ]
        return f"True class held, and mean size: {'; '.join(parts)}."
    low, high = (f(coverage, key=lambda label: coverage[label].value or 0.0) for f in (min, max))
    short, long = (f(sizes, key=lambda label: sizes[label] or 0.0) for f in (min, max))
    least, most = (format_percent(coverage[label].value) for label in (low, high))
    held = f"{least} % ({low}) to {most} % ({high})"
    mean = f"{_size(sizes[short])} ({short}) to {_size(sizes[long])} ({long})"
    return f"The true class is held in {held} of rows, with {mean} classes on average."


def _for_rare_classes(key: str, methods: Sequence[Group], promise: Promise) -> str:
    few = [m.metrics.get(f"sets.{key}.coverage.few") for m in methods]
    values = [metric.value for metric in few if metric is not None and metric.value is not None]
    if not values:
        return ""
    spread = " to ".join(format_percent(value) for value in sorted({min(values), max(values)}))
    text = f" For classes with few training rows the mean over classes is {spread} %"
    about_rows = promise.about == "rows"
    return text + (": the promise is about all rows together, not about each class." if about_rows else ".")


def _size(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
