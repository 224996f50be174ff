"""The names of metrics, as in ``Results.metrics()``, which direction is better, and how to write them."""

import difflib
import re
from collections.abc import Collection, Mapping

from shortlist._text import format_interval
from shortlist.metrics.label_sets import LABEL_SET_METRICS
from shortlist.metrics.results import BELOW_PROMISE, PLAIN, Estimate

_AVERAGES = ("micro", "macro", "few", "medium", "many")
_BINS = r"(?:up_to|over)_\d+"  # groups by bins of training counts, of any bounds
_OF_SETS = ("worst_class", "empty_share", "singleton_hits", *BELOW_PROMISE, "mean_level")
_BY_LEVEL = r"(?:coverage_by|nodes)\.[^.]+"  # of any level that a class table has
_CONFUSED = r"confused_within\.[^.]+"
_OWN = r"(?:metric|cost)\.[\w\-]+"  # of a user's own: more is better, or less
_LABEL_SETS = (
    *(
        f"{how}.{what}"
        for how in ("at_true", "at_predicted", "above_threshold")
        for what in LABEL_SET_METRICS
    ),
    *("size.exact", "size.error"),
)


def default_metrics() -> list[str]:
    """Return the names of the metrics that are shown by default."""
    return ["top1.micro", "top5.micro", "top5.macro"]


def check_metric(name: str, predictors: Collection[str]) -> None:
    """Require the name of a metric that results with these predictors can have."""
    names = [f"top{k}.{average}" for k in (1, 3, 5, 10) for average in _AVERAGES]
    names += [*PLAIN, *_LABEL_SETS]
    for predictor in predictors:
        names += [f"sets.{predictor}.{part}.{mean}" for part in ("coverage", "size") for mean in _AVERAGES]
        names += [f"sets.{predictor}.{part}" for part in _OF_SETS]
    any_k = re.fullmatch(rf"top[1-9]\d*\.(?:{'|'.join(_AVERAGES)}|{_BINS})", name)
    of_sets = re.fullmatch(rf"sets\.(.+)\.(?:{_BY_LEVEL}|(?:coverage|size)\.{_BINS})", name)
    plain = any_k is not None or re.fullmatch(rf"{_CONFUSED}|{_OWN}\.(?:{'|'.join(_AVERAGES)}|{_BINS})", name)
    if name not in names and not plain and (of_sets is None or of_sets[1] not in predictors):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"metrics must be such as top5.macro, nll or sets.NAME.coverage.micro with NAME of "
            f"({', '.join(sorted(predictors)) or 'no predictors here'}), got {name!r}{hint}"
        )


def larger_is_better(name: str) -> bool:
    """Return whether larger values of a metric are better.

    Example:
        >>> larger_is_better("top5.macro"), larger_is_better("nll"), larger_is_better("cost.price.micro")
        (True, False, False)
    """
    small = {*PLAIN, *_OF_SETS, "error"} - {"topk_area", "worst_class", "singleton_hits"}
    return name.rpartition(".")[2] not in small and not name.startswith("cost.") and size_of(name) != name


def has_best(name: str) -> bool:
    """Return whether a metric alone can say that one method is better than another.

    Sizes of sets cannot, nor can where the wrong guesses lie: who makes fewer may make other ones.

    Example:
        >>> has_best("top1.micro"), has_best("sets.average5.size.micro"), has_best("confused_within.genus")
        (True, False, False)
    """
    return size_of(name) != name and re.fullmatch(_CONFUSED, name) is None


def size_of(name: str) -> str | None:
    """Return the size metric that belongs to a coverage or a size; None for metrics that are not of sets.

    Example:
        >>> size_of("sets.average_5.coverage.macro")
        'sets.average_5.size.macro'
    """
    match = re.fullmatch(r"(sets\..+)\.(coverage|size)\.(\w+)", name)
    return f"{match[1]}.size.{match[3]}" if match else None


def predictor_of(name: str) -> str | None:
    """Return the name of the predictor whose sets a metric describes.

    Example:
        >>> predictor_of("sets.average_5.empty_share")
        'average_5'
    """
    match = re.fullmatch(rf"sets\.(.+)\.((coverage|size)\.\w+|{_BY_LEVEL}|{'|'.join(_OF_SETS)})", name)
    return match[1] if match else None


def metric_words(name: str) -> str:
    """Write the name of a metric for people.

    Example:
        >>> metric_words("top5.micro"), metric_words("top5.macro"), metric_words("balanced_error")
        ('top-5', 'macro top-5', 'balanced error')
        >>> metric_words("sets.average5.coverage.micro"), metric_words("sets.average5.size.few")
        ('average5: coverage', 'average5: size, few')
    """
    predictor = predictor_of(name)
    rest = name if predictor is None else name.removeprefix(f"sets.{predictor}.")
    rest = re.sub(r"^(metric|cost)\.", "", rest)
    what, _, average = re.sub(r"^top(?=\d)", "top-", rest).partition(".")
    words = {"": what, "micro": what, "macro": f"macro {what}"}.get(average, f"{what}, {average}")
    return (words if predictor is None else f"{predictor}: {words}").replace("_", " ")


def is_share(name: str) -> bool:
    """Return whether a metric is a share in [0, 1], written in percent."""
    is_count = re.fullmatch(r"sets\..+\.(mean_level|nodes\.[^.]+)", name)
    is_own = name.startswith(("metric.", "cost."))
    is_number = name in ("nll", "brier", "size.error", "epoch_seconds")
    return not is_number and size_of(name) != name and not (is_count or is_own)


def format_metric(name: str, metric: Estimate, *, plus_minus: str = " ± ") -> str:
    """Write the mean and half the interval, in percent for shares.

    Example:
        >>> format_metric("top5.macro", Estimate(0.5, 0.49, 0.51))
        '50.0 ± 1.0'
    """
    factor, digits = (100, 1) if is_share(name) else (1, 2)
    bounds = (metric.value, metric.low, metric.high)
    return format_interval(*bounds, factor=factor, digits=digits, plus_minus=plus_minus)


def value_of(metrics: Mapping[str, Estimate], name: str) -> float | None:
    """Return the metric of a name; None if it is missing or not defined."""
    return metrics[name].value if name in metrics else None
