"""Our value of a published metric: of the test rows, the best of all epochs, or the seconds of an epoch."""

from collections.abc import Sequence
from statistics import median

from shortlist.metrics import Estimate, mean_with_interval
from shortlist.runs import Group, Run


def own_numbers(method: Group, name: str) -> list[float]:
    """Return a metric of each run, as far as it is known; names are those of ``PublishedValue.name``."""
    numbers = [own_number(run, name) for run in method.runs]
    return [number for number in numbers if number is not None]


def own_number(run: Run, name: str) -> float | None:
    """Return a metric of a run: of its test rows, or ``validation.top5``, the best of its epochs.

    ``epoch_seconds`` is the median, since the first epochs warm up.
    """
    if name == "epoch_seconds":
        return median(run.info[name]) if run.info.get(name) else None
    start, _, metric = name.partition(".")
    if start == "validation":
        return max((epoch[f"val_{metric}"] for epoch in run.epochs if f"val_{metric}" in epoch), default=None)
    estimate = run.results.metrics().get(name)
    return None if estimate is None else estimate.value


def own_estimate(method: Group, name: str, numbers: Sequence[float] | None = None) -> Estimate | None:
    """Return the mean of a metric over the runs, with its interval; None where no run has it."""
    if name != "epoch_seconds" and not name.startswith("validation."):
        return method.metrics.get(name)
    numbers = own_numbers(method, name) if numbers is None else numbers
    return mean_with_interval(numbers) if numbers else None
