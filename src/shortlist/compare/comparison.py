"""Compare runs: means over seeds, and a test of the best against the second best."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from shortlist.compare.paired import LEVEL, Difference, Question, differences_to, tell_apart
from shortlist.compare.promises import promises_of
from shortlist.compare.rows import RowReader
from shortlist.compare.significance import PairedTest
from shortlist.metrics import Estimate, has_best, larger_is_better, predictor_of, size_of, value_of
from shortlist.promise import Promise
from shortlist.recipes import flat_content
from shortlist.runs import Group, Run, group_runs, read_runs


@dataclass(frozen=True)
class Row:
    """A group's metrics: means over seeds with t-intervals, or a single run's with intervals over rows.

    ``promises`` has, by predictor that promises coverage or was asked for some, the promise of each run.
    """

    label: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    recipe_hash: str
    metrics: Mapping[str, Estimate]
    promises: Mapping[str, Sequence[Promise]] = field(default_factory=dict)


@dataclass(frozen=True)
class Best:
    """The best row of a metric, and whether it differs from the second best.

    Args:
        row: Label of the best.
        second: Label of the second best: the next one whose value is not equal to the best.
        test: Name of the test, or why there is none.
        difference: Mean difference of the two; None without a test.
        p_value: Two-sided p-value; None without a test.
        significant: Whether the p-value is below 0.05 and the difference in favor of the best.
        level: Labels of other rows with exactly the value of the best, such as the same scores at another
            temperature; they share the first place.
    """

    row: str
    second: str
    test: str
    difference: float | None = None
    p_value: float | None = None
    significant: bool = False
    level: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """Labels of the best row and of those with the same value."""
        return (self.row, *self.level)


@dataclass(frozen=True)
class Comparison:
    """A table of groups of runs and metrics; ``left_out`` says why some runs are not in it.

    With a baseline, ``differences`` has every other row's difference to it, by metric and label.
    """

    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    best: Mapping[str, Best]
    left_out: Mapping[str, str] = field(default_factory=dict)
    baseline: str | None = None
    differences: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)


def compare_runs(
    paths: Sequence[str | Path],
    metrics: Sequence[str] | None = None,
    *,
    baseline: str | None = None,
    over: Sequence[str] = (),
) -> Comparison:
    """Compare run folders; those that cannot be read are named and left out.

    Args:
        paths: Run folders, suite folders, or any folders that contain runs.
        metrics: Names of metrics, as in :meth:`Results.metrics`; by default top-1, top-5 and the coverage of
            every predictor.
        baseline: Name of the row against which every other row is tested.
        over: Dotted keys of recipes over which runs are averaged as over seeds, such as ``data.seed``.

    Raises:
        ValueError: If no run is left, a metric is in none of them, or no row has the baseline's name.
    """
    runs, left_out = _read(paths)
    groups, others = group_runs(runs, over)
    return compare_groups(groups, metrics, baseline=baseline, left_out=left_out | others)


def compare_each(
    paths: Sequence[str | Path],
    metrics: Sequence[str] | None = None,
    *,
    baseline: str | None = None,
    over: Sequence[str] = (),
    by: Sequence[str] | None = None,
) -> dict[str, Comparison]:
    """Compare run folders in a table for each value of an axis, and never across its values.

    Args:
        paths: As in :func:`compare_runs`.
        metrics: As there; a table leaves out what none of its runs has.
        baseline: As there; a table without it has no differences.
        over: As there.
        by: Dotted keys of recipes that are axes, such as ``data.label_noise``; by default those of the suite
            in whose folder a run lies.

    Returns:
        The comparisons by title, such as ``data.label_noise 0.1``; without an axis one, of an empty title.
    """
    runs, left_out = _read(paths)
    by_title: dict[str, list[Run]] = {}
    for run in runs:
        by_title.setdefault(axis_title(run, by), []).append(run)
    tables = {title: group_runs(of_axis, over) for title, of_axis in by_title.items()}
    names = {name for groups, _ in tables.values() for group in groups for name in group.metrics}
    labels = sorted({group.label for groups, _ in tables.values() for group in groups})
    if len(tables) > 1 and baseline is not None and baseline not in labels:
        raise ValueError(f"baseline must be one of the methods ({', '.join(labels)}), got {baseline!r}")
    comparisons = {}
    for place, (title, (groups, others)) in enumerate(tables.items()):
        has = {name for group in groups for name in group.metrics}
        wanted = [name for name in metrics or () if name in has or name not in names] or None
        here = baseline in {group.label for group in groups} or len(tables) == 1
        lost = (left_out if place == 0 else {}) | others
        comparisons[title] = compare_groups(
            groups, wanted, baseline=baseline if here else None, left_out=lost
        )
    return comparisons


def axis_title(run: Run, by: Sequence[str] | None = None) -> str:
    """Return the place of a run on the axes: of its recipe's keys ``by``, or of the suite that it lies in."""
    if by is not None:
        flat = flat_content(run.recipe)
        for key in by:
            if key not in flat:
                raise ValueError(f"by must be a key of all recipes, such as data.label_noise, got {key!r}")
        return ", ".join(f"{key} {json.dumps(flat[key])}" for key in by)
    folder = run.path.absolute()
    suite = next((parent for parent in folder.parents if (parent / "suite.yaml").is_file()), None)
    parts = () if suite is None else folder.relative_to(suite).parts
    axes = itertools.takewhile(lambda part: "=" in part, parts)
    return ", ".join(part.replace("=", " ", 1) for part in axes)


def _read(paths: Sequence[str | Path]) -> tuple[list[Run], dict[str, str]]:
    runs, left_out = read_runs(paths)
    if not runs:
        reasons = "; ".join(left_out.values())
        raise ValueError(f"runs must hold at least one finished run, got none: {reasons}")
    return runs, left_out


def compare_groups(
    groups: Sequence[Group],
    metrics: Sequence[str] | None = None,
    *,
    baseline: str | None = None,
    left_out: Mapping[str, str] | None = None,
    read: RowReader | None = None,
) -> Comparison:
    """Compute the means of groups of runs, and for each metric test the best against the second best.

    With a baseline also of every other group against that one. ``read`` keeps what was found in test rows,
    for whoever needs it too.
    """
    rows = [_row(group) for group in groups]
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))
    shown = _shown(metrics, names)
    read = read or RowReader()
    best = _find_best(shown, groups, rows, read)
    differences = {} if baseline is None else differences_to(baseline, groups, shown, read)
    return Comparison(tuple(shown), tuple(rows), best, dict(left_out or {}), baseline, differences)


def _row(group: Group) -> Row:
    paths, seeds = (tuple(str(run.path) for run in group.runs), tuple(run.recipe.seed for run in group.runs))
    return Row(group.label, paths, seeds, group.recipe_hash, group.metrics, promises_of(group))


def _shown(metrics: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Return the metrics asked for, each coverage followed by the size of its sets."""
    if metrics is None:
        plain = [name for name in ("top1.micro", "top5.micro", "top1.macro", "top5.macro") if name in names]
        of_their_own = [name for name in names if re.fullmatch(r"(metric|cost)\.[^.]+\.micro", name)]
        metrics = plain + of_their_own + [name for name in names if name.endswith("coverage.micro")]
    for name in metrics:
        if name not in names:
            near = get_close_matches(name, names, n=5, cutoff=0.4) or names[:5]
            raise ValueError(
                f"metrics must be of those that the runs have, got {name!r}; the nearest are "
                f"{', '.join(near)}; docs/guides/metrics.md has all names"
            )
    shown: list[str] = []
    for name in metrics:
        size = size_of(name)
        shown += [name] if size in (None, name) else [name, str(size)]
    return list(dict.fromkeys(shown))


@dataclass(frozen=True)
class _Ranking:
    """Which groups are first and second by a metric, and which others are level with the first."""

    name: str
    first: int
    second: int
    level: Sequence[int]


def _find_best(
    names: Sequence[str], groups: Sequence[Group], rows: Sequence[Row], read: RowReader
) -> dict[str, Best]:
    """The best by each metric that has one, tested against the second best."""
    candidates = [_rank(name, groups, rows) for name in names]
    rankings = [ranking for ranking in candidates if ranking is not None]
    asked = [Question(ranked.name, groups[ranked.first], groups[ranked.second]) for ranked in rankings]
    tests = tell_apart(asked, read)
    return {ranked.name: _best(ranked, rows, test) for ranked, test in zip(rankings, tests, strict=True)}


def _rank(name: str, groups: Sequence[Group], rows: Sequence[Row]) -> _Ranking | None:
    """Rank the groups by a metric; None for one without a best, as the coverage of sets that promise it."""
    if not has_best(name) or _promises(name, groups):
        return None
    values = [value_of(row.metrics, name) for row in rows]
    limit = [group.is_limit for group in groups]  # no method
    comparable = [i for i, value in enumerate(values) if value is not None and not limit[i]]
    if len(comparable) < 2:
        return None
    first, *others = sorted(comparable, key=lambda i: _sign(name) * (values[i] or 0.0))
    level = [i for i in others if values[i] == values[first]]
    second = next((i for i in others if i not in level), others[0])
    return _Ranking(name, first, second, [i for i in level if i != second])


def _best(ranking: _Ranking, rows: Sequence[Row], result: PairedTest | str) -> Best:
    labels = rows[ranking.first].label, rows[ranking.second].label
    same = tuple(rows[i].label for i in ranking.level)
    if isinstance(result, str):
        return Best(*labels, result, level=same)
    # the seeds that both have may say the opposite of the means over all
    significant = result.p_value < LEVEL and _sign(ranking.name) * result.difference < 0
    return Best(*labels, result.test, result.difference, result.p_value, significant, same)


def _sign(name: str) -> int:
    return -1 if larger_is_better(name) else 1


def _promises(name: str, groups: Sequence[Group]) -> bool:
    predictor = predictor_of(name)
    sets = [group.runs[0].results.sets.get(predictor) for group in groups if predictor is not None]
    return any(promise is not None and promise.under_covered is not None for promise in sets)
