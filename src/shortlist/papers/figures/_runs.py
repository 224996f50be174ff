"""What the figures of runs share: reading runs, taking them together by method, means over seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from torch import Tensor

from shortlist.metrics import Estimate, mean_with_interval
from shortlist.papers.figures._frame import Numbers, Progress, with_progress
from shortlist.papers.ours import own_number
from shortlist.runs import Run, RunError, group_runs, read_finished, why

T = TypeVar("T")


@dataclass(frozen=True)
class MethodRuns(Generic[T]):
    """What was measured of each run of a method.

    Args:
        label: The method's name.
        paths: Its run folders.
        seeds: Their seeds.
        by_run: What was measured of each.
        is_limit: Whether the scores are the data's own probabilities, which no method can beat.
    """

    label: str
    paths: Sequence[str]
    seeds: Sequence[int]
    by_run: Sequence[T]
    is_limit: bool

    def about(self) -> Numbers:
        """Return what the numbers say of the method itself."""
        names = {"label": self.label, "seeds": list(self.seeds), "runs": list(self.paths)}
        return names | {"is_limit": self.is_limit}


def seed_mean(values: Sequence[float | None]) -> Estimate:
    """Average some values (of seeds, of classes), with a 95 % t-interval; None among them are left out.

    Example:
        >>> seed_mean([0.5, None])
        Estimate(value=0.5, low=None, high=None)
    """
    present = [value for value in values if value is not None]
    return mean_with_interval(present) if present else Estimate(None)


def mean_columns(columns: Iterable[Sequence[float | None]], name: str = "value") -> Numbers:
    """Average each column over seeds; list the means under a name, and the ends of their intervals.

    Example:
        >>> mean_columns([[0.5], [0.75]], "error")
        {'error': [0.5, 0.75], 'low': [None, None], 'high': [None, None]}
    """
    means = [seed_mean(column) for column in columns]
    ends = {"low": [mean.low for mean in means], "high": [mean.high for mean in means]}
    return {name: [mean.value for mean in means], **ends}


def run_metrics(run: Run, names: Sequence[str]) -> list[float | None]:
    """Read metrics of the results of a run, or of its epochs; it is left out if one is missing.

    ``validation.average5`` is the best of all epochs, ``epoch_seconds`` the median.
    """
    metrics = run.results.metrics()
    values = {name: metrics[name].value if name in metrics else own_number(run, name) for name in names}
    for name in names:
        if name not in metrics and values[name] is None:
            raise RunError(f"{run.path} has no metric {name}")
    return [values[name] for name in names]


def measure_runs(
    runs: Sequence[str | Path], measure: Callable[[Run], T], progress: Progress | None
) -> tuple[list[MethodRuns[T]], dict[str, str]]:
    """Measure each run; those that differ in their seeds alone are one method.

    Args:
        runs: Run folders.
        measure: Called with each run.
        progress: Called after each run.

    Returns:
        The methods, and why runs are left out.

    Raises:
        ValueError: If no run is left.
    """
    read: list[Run] = []
    measured: dict[Path, T] = {}
    left_out: dict[str, str] = {}
    for path in with_progress(list(dict.fromkeys(map(Path, runs))), "reading runs", progress):
        try:
            finished = read_finished(path)
            measured[finished.path] = measure(finished)
            read.append(finished)
        except Exception as error:  # any file of a run may be damaged in any way
            left_out[str(path)] = why(path, error)
    if not read:
        reasons = "; ".join(dict.fromkeys(left_out.values())) or "none"
        raise ValueError(f"runs must hold at least one run that can be used, got {reasons}")
    groups, others = group_runs(read)
    methods = [
        MethodRuns(
            label=group.label,
            paths=[str(run.path) for run in group.runs],
            seeds=[run.recipe.seed for run in group.runs],
            by_run=[measured[run.path] for run in group.runs],
            is_limit=group.is_limit,
        )
        for group in groups
    ]
    return methods, left_out | others


def mapped_scores(run: Run, part: str) -> tuple[Tensor, Tensor]:
    """Read the scores (n, c) that the run predicts from, and targets (n,), of rows that count."""
    return _counted(run, part, *run.scored(part))


def network_scores(run: Run, part: str) -> tuple[Tensor, Tensor]:
    """Read the scores (n, c) as the network gave them, and targets (n,), of rows that count."""
    return _counted(run, part, *run.load_scores(part))


def _counted(run: Run, part: str, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    num_classes = len(run.class_table)
    if scores.ndim != 2 or scores.shape[1] != num_classes:
        raise RunError(
            f"{run.path} has scores of {part} of shape {tuple(scores.shape)} for {num_classes} classes"
        )
    kept = target != -100
    if not kept.any():
        raise RunError(f"{run.path} has no rows of {part} with a class")
    return scores[kept], target[kept]
