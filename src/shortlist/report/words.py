"""Sentences about the figures: nothing that the numbers do not say."""

import math
from collections.abc import Mapping, Sequence

from shortlist.compare.comparison import Best
from shortlist.metrics import Figure
from shortlist.report.runs import Experiment
from shortlist.runs.groups import Group

__all__ = ["compare_sentence", "interval_sentence", "overview_sentence", "percent", "set_sentences"]


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent.

    Example:
        >>> percent(0.12345), percent(None)
        ('12.3', '–')
    """
    return "–" if value is None else f"{100 * value:.{digits}f}"


def points(difference: float) -> str:
    """A difference of shares in percent points, with its sign.

    Example:
        >>> points(-0.0123)
        '-1.2'
    """
    return f"{100 * difference:+.1f}"


def size(value: float | None) -> str:
    """A mean size."""
    return "–" if value is None else f"{value:.2f}"


def bounds(figure: Figure, *, share: bool = True) -> tuple[float, float] | None:
    """The interval, cut to what a share or a size can be; None if there is none."""
    if figure.low is None or figure.high is None:
        return None
    return max(0.0, figure.low), min(1.0, figure.high) if share else figure.high


def with_interval(figure: Figure) -> str:
    """A share with its interval.

    Example:
        >>> with_interval(Figure(0.5, 0.45, 0.55))
        '50.0 % (45.0 to 55.0)'
    """
    ends = bounds(figure)
    return f"{percent(figure.value)} %" + (f" ({percent(ends[0])} to {percent(ends[1])})" if ends else "")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    Example:
        >>> count(1, "run"), count(3, "class", "classes")
        ('1 run', '3 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def overview_sentence(experiment: Experiment) -> str:
    """What was run on what."""
    results, runs = experiment.first.results, sum(len(method.runs) for method in experiment.methods)
    methods = count(len(experiment.methods), "method")
    text = f"{count(runs, 'run')} of {methods} on {experiment.first.recipe.data.name}: "
    text += f"{count(results.classes, 'class', 'classes')}, {count(results.rows, 'test row')}."
    if results.groups:
        parts = [f"{group.classes:,} {name}" for name, group in results.groups.items()]
        text += f" Classes by training rows: {', '.join(parts)} (few: below 20, many: above 100)."
    if results.absent_classes:
        absent = count(results.absent_classes, "class has", "classes have")
        text += f" {absent} no test rows and no part in macro figures."
    return text


def interval_sentence(experiment: Experiment) -> str:
    """Where the intervals come from."""
    several = any(len(method.runs) > 1 for method in experiment.methods)
    single = any(len(method.runs) == 1 for method in experiment.methods)
    level = f"{100 * experiment.first.results.level:g} %"
    parts = []
    if several:
        parts.append("for methods with several runs it is of their mean over seeds (Student's t)")
    if single:
        parts.append(
            "for methods with one run it comes from resampled test rows and says nothing of other seeds"
        )
    text = f"Brackets hold {level} intervals: {'; '.join(parts)}."
    if any(len(method.runs) == 2 for method in experiment.methods):
        text += " An interval of two seeds is very wide."
    return text


def compare_sentence(methods: Sequence[Group], name: str, words: str, test: Best | None) -> str | None:
    """Which method has the best value of a share, which follows, and whether a test tells them apart.

    Args:
        methods: Methods of one experiment.
        name: Of the figure, as in ``Results.figures``; more of it is better.
        words: What to call it.
        test: Of the best against the second best; None if there are no two.
    """
    best, second = _ranked(methods, name)
    if not best:
        return None
    limits = [m.figures[name] for m in methods if m.is_limit and name in m.figures]
    possible = f" The data's own probabilities reach {with_interval(limits[0])}." if limits else ""
    who, reached = _together(best), with_interval(best[0].figures[name])
    if second is None and len(best) == 1:
        return f"{words} of {who}: {reached}.{possible}"
    if second is None:
        return f"{words}: {who} are level at {reached}.{possible}"
    text = f"{words}: {who} {'is' if len(best) == 1 else 'are'} highest with {reached}, "
    text += f"then {second.label} with {with_interval(second.figures[name])}."
    return text + ("" if test is None else f" {_tested(test)}") + possible


def _ranked(methods: Sequence[Group], name: str) -> tuple[list[Group], Group | None]:
    """The methods that have the most of a figure, and the next one; the limit is no method."""
    known = [(m.figures[name].value, m) for m in methods if name in m.figures and not m.is_limit]
    ranked = [(value, m) for value, m in known if value is not None and math.isfinite(value)]
    ranked.sort(key=lambda entry: -entry[0])
    best = [m for value, m in ranked if value == ranked[0][0]]
    return best, ranked[len(best)][1] if len(best) < len(ranked) else None


def _together(methods: Sequence[Group]) -> str:
    *others, last = [method.label for method in methods]
    return f"{', '.join(others)} and {last}" if others else last


def _tested(test: Best) -> str:
    if test.p_value is None or test.difference is None:
        return f"Nothing is said about chance ({test.test})."
    numbers = f"{points(test.difference)} points, p = {test.p_value:.2g}, {test.test}"
    if test.significant:
        return f"The difference is significant ({numbers})."
    return f"The difference may be chance ({numbers}): this does not settle which is better."


def set_sentences(experiment: Experiment, tests: Mapping[str, Best]) -> list[str]:
    """For each predictor: what it promises or is set to, what came of it, and the best without a promise.

    Args:
        experiment: Whose predictors.
        tests: By figure, the best method against the second best.
    """
    sentences = []
    for key in experiment.first.results.sets:
        methods = [m for m in experiment.methods if f"sets.{key}.coverage.micro" in m.figures]
        section = experiment.first.recipe.predictors.get(key)
        if methods and (section is None or section.name != "topk"):  # that is top-K accuracy once more
            sentences.append(_set_sentence(key, methods, tests.get(f"sets.{key}.coverage.micro")))
    return sentences


def _set_sentence(key: str, methods: Sequence[Group], test: Best | None) -> str:
    first = methods[0].runs[0]
    promised, section = first.results.sets[key].promised, first.recipe.predictors.get(key)
    wanted = None if section is None else section.options.get("k")
    if promised is not None:
        text = f"{key}: promises that {percent(promised, 0)} % of the sets hold the true class. "
    elif wanted is not None and section is not None and section.name == "average_k":
        text = f"{key}: set to {wanted:g} classes on average. "
    else:
        text = f"{key}: "
    text += _reached(key, methods)
    if promised is not None:
        return text + _kept(key, methods, promised)
    best, second = _ranked(methods, f"sets.{key}.coverage.micro")
    if test is None or second is None:
        return text
    return f"{text} Most often by {_together(best)}, then {second.label}. {_tested(test)}"


def _reached(key: str, methods: Sequence[Group]) -> str:
    """Coverage and size of each method, or their range if these are many."""
    coverage = {m.label: m.figures[f"sets.{key}.coverage.micro"] for m in methods}
    sizes = {m.label: m.figures[f"sets.{key}.size.micro"].value for m in methods}
    if len(methods) <= 3:
        parts = [
            f"{label} {with_interval(coverage[label])} with {size(sizes[label])} classes"
            for label in coverage
        ]
        return f"True class held, and mean size: {'; '.join(parts)}."
    low, high = (f(coverage, key=lambda label: coverage[label].value or 0.0) for f in (min, max))
    short, long = (f(sizes, key=lambda label: sizes[label] or 0.0) for f in (min, max))
    held = f"{percent(coverage[low].value)} % ({low}) to {percent(coverage[high].value)} % ({high})"
    mean = f"{size(sizes[short])} ({short}) to {size(sizes[long])} ({long})"
    return f"The true class is held in {held} of rows, with {mean} classes on average."


def _kept(key: str, methods: Sequence[Group], promised: float) -> str:
    """Whether the promise was kept, over all rows and for the rarest classes."""
    below = [m for m in methods if (m.figures[f"sets.{key}.coverage.micro"].value or 0.0) < promised]
    clearly = [m for m in below if _below(m.figures[f"sets.{key}.coverage.micro"], promised)]
    if not below:
        text = " The promise was reached." if len(methods) == 1 else " All reach the promise."
    else:
        text = f" Below the promise: {', '.join(m.label for m in below)}"
        if len(below) == 1:
            text += " (by more than its interval allows)." if clearly else " (within its interval)."
        else:
            text += f", {len(clearly) or 'none'} of them by more than the interval allows."
    few = [(m, m.figures.get(f"sets.{key}.coverage.few")) for m in methods]
    values = [figure.value for _, figure in few if figure is not None and figure.value is not None]
    if values:
        spread = (
            percent(values[0])
            if len(set(values)) == 1
            else f"{percent(min(values))} to {percent(max(values))}"
        )
        text += f" For classes with few training rows the mean over classes is {spread} %"
        section = methods[0].runs[0].recipe.predictors.get(key)
        marginal = section is not None and section.options.get("threshold") in (None, "marginal")
        text += ": the promise is about all rows together, not about each class." if marginal else "."
    return text


def _below(figure: Figure, promised: float) -> bool:
    ends = bounds(figure)
    return ends is not None and ends[1] < promised
