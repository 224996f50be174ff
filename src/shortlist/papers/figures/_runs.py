"""What the figures of runs share: reading runs, taking them together by method, means over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from shortlist.metrics import Estimate
from shortlist.metrics.aggregation import mean_with_interval
from shortlist.papers.figures._frame import Numbers, Progress
from shortlist.runs.finished import read_finished, why
from shortlist.runs.groups import group_runs
from shortlist.runs.run import Run, RunError

__all__ = ["Mean", "MethodRuns", "mapped_scores", "mean_over_seeds", "measure_runs", "network_scores"]

Found = TypeVar("Found")


@dataclass(frozen=True)
class MethodRuns(Generic[Found]):
    """What was found in each run of a method, by seed.

    Args:
        label: The method's name.
        paths: Its run folders.
        seeds: Their seeds.
        found: What was found in each.
        is_limit: Whether the scores are the data's own probabilities, which no method can beat.
    """

    label: str
    paths: Sequence[str]
    seeds: Sequence[int]
    found: Sequence[Found]
    is_limit: bool

    def about(self) -> Numbers:
        """Return what the numbers say of the method itself."""
        names = {"label": self.label, "seeds": list(self.seeds), "runs": list(self.paths)}
        return names | {"is_limit": self.is_limit}


class Mean(NamedTuple):
    """A mean, and the ends of its 95 % interval; None where there is too little to tell."""

    value: float | None
    low: float | None
    high: float | None


def mean_over_seeds(values: Sequence[float | None]) -> Mean:
    """Average some values (of seeds, of classes), with a 95 % t-interval; None among them are left out.

    Example:
        >>> mean_over_seeds([0.5, None])
        Mean(value=0.5, low=None, high=None)
    """
    present = [value for value in values if value is not None]
    mean = mean_with_interval(present) if present else Estimate(None)
    return Mean(mean.value, mean.low, mean.high)


def measure_runs(
    runs: Sequence[str | Path], measure: Callable[[Run], Found], progress: Progress | None
) -> tuple[list[MethodRuns[Found]], dict[str, str]]:
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
    measured: dict[Path, Found] = {}
    left_out: dict[str, str] = {}
    paths = list(dict.fromkeys(map(Path, runs)))
    for number, path in enumerate(paths):
        try:
            finished = read_finished(path)
            measured[finished.path] = measure(finished)
            read.append(finished)
        except Exception as error:  # any file of a run may be amiss, in any way
            left_out[str(path)] = why(path, error)
        if progress is not None:
            progress("reading runs", number + 1, len(paths))
    if not read:
        reasons = "; ".join(dict.fromkeys(left_out.values())) or "none"
        raise ValueError(f"runs must hold at least one run that can be used, got {reasons}")
    groups, others = group_runs(read)
    methods = [
        MethodRuns(
            label=group.label,
            paths=[str(run.path) for run in group.runs],
            seeds=[run.recipe.seed for run in group.runs],
            found=[measured[run.path] for run in group.runs],
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
