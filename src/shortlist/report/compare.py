"""Runs beside each other: means over seeds, and whether the best is better by more than chance."""

import csv
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shortlist.metrics import Figure, Results, aggregate
from shortlist.report.compare_rows import compare_over_rows
from shortlist.report.significance import PairedTest, paired_t_test
from shortlist.report.suite_figures import larger_is_better, predictor_of, size_of, value_of
from shortlist.report.suite_plan import recipe_content, recipe_hash
from shortlist.train.recipe import Recipe
from shortlist.train.runs import Run, RunError

__all__ = [
    "Best",
    "Comparison",
    "FinishedRun",
    "Group",
    "Row",
    "compare_groups",
    "compare_runs",
    "find_runs",
    "group_runs",
    "read_run",
]

LEVEL = 0.05  # of the tests


@dataclass(frozen=True)
class FinishedRun:
    """A run with its results; ``origin`` says where its scores come from, if not from its own training."""

    path: Path
    recipe: Recipe
    results: Results
    origin: str | None = None


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone."""

    label: str
    runs: Sequence[FinishedRun]


@dataclass(frozen=True)
class Row:
    """A group's figures: means over seeds with 95 % t-intervals; the interval over rows for a single run."""

    label: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    recipe_hash: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Best:
    """The best row of a figure, and whether it differs from the second best.

    Args:
        row: Label of the best.
        second: Label of the second best.
        test: Name of the test, or why there is none.
        difference: Mean difference of the two; None without a test.
        p_value: Two-sided; None without a test.
        significant: Whether the p-value is below 0.05.
    """

    row: str
    second: str
    test: str
    difference: float | None = None
    p_value: float | None = None
    significant: bool = False


@dataclass(frozen=True)
class Comparison:
    """Groups of runs by figures; ``left_out`` says why runs are not in it."""

    figures: tuple[str, ...]
    rows: tuple[Row, ...]
    best: Mapping[str, Best]
    left_out: Mapping[str, str] = field(default_factory=dict)


def read_run(path: str | Path) -> FinishedRun:
    """A finished run; the message says what is missing if it is none."""
    run = Run.open(path)
    info = run.info()
    if info.get("state") != "finished":
        raise RunError(f"{path} is not finished: its state is {info.get('state')!r}")
    file = run.path / "results.json"
    if not file.is_file():
        raise RunError(f"{path} has no results: {file.name} is missing")
    return FinishedRun(run.path, run.recipe, Results.load(file), info.get("scores_from"))


def find_runs(path: str | Path) -> list[Path]:
    """A run folder itself, the runs that count of a suite's folder, or all runs below another folder."""
    path = Path(path)
    if (path / "run.json").exists() or not path.is_dir():
        return [path]
    if (path / "results.csv").is_file() and (path / "suite.yaml").is_file():
        with (path / "results.csv").open(encoding="utf-8", newline="") as file:
            return [path / row["run"] for row in csv.DictReader(file)]
    found = []
    for place, folders, files in os.walk(path):  # takes no offence at folders that go while it looks
        folders[:] = [name for name in folders if not name.startswith(".")]  # runs in the making
        found += [Path(place)] if "run.json" in files else []
    return sorted(found) or [path]


def compare_runs(paths: Sequence[str | Path], figures: Sequence[str] | None = None) -> Comparison:
    """Compare run folders; one that cannot be read is left out, and named.

    Args:
        paths: Run folders, folders of suites, or folders with runs below.
        figures: As in :meth:`Results.figures`; by default top-1, top-5 and the coverage of every predictor.

    Raises:
        ValueError: If no run is left, or a figure is in none of them.
    """
    runs, left_out = [], {}
    for path in dict.fromkeys(itertools.chain.from_iterable(map(find_runs, paths))):
        try:
            runs.append(read_run(path))
        except (ValueError, OSError, KeyError) as error:
            left_out[str(path)] = " ".join(str(error).split())
    if not runs:
        reasons = "; ".join(left_out.values())
        raise ValueError(f"runs must hold at least one finished run, got none: {reasons}")
    groups = []
    for group in group_runs(runs):
        names = group.runs[0].results.figures().keys()
        alike = [run for run in group.runs if run.results.figures().keys() == names]
        for run in group.runs:
            if run not in alike:
                left_out[str(run.path)] = (
                    f"{run.path} has other figures than {group.runs[0].path}, a run of the same recipe: "
                    f"evaluate both anew"
                )
        groups.append(Group(group.label, alike))
    return compare_groups(groups, figures, left_out=left_out)


def group_runs(runs: Sequence[FinishedRun]) -> list[Group]:
    """Runs whose recipes differ in no more than seed and name are one group.

    A group is called by its runs' name; groups of the same name also by the options that tell them apart.
    """
    groups: dict[tuple[str, bool], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault((recipe_hash(run.recipe, seed=False), run.origin == "posterior"), []).append(run)
    by_name: dict[str, list[list[FinishedRun]]] = {}
    for members in groups.values():
        by_name.setdefault(members[0].recipe.name, []).append(members)
    return [
        Group(label, members)
        for name, namesakes in by_name.items()
        for label, members in zip(_labels(name, namesakes), namesakes, strict=True)
    ]


def _labels(name: str, namesakes: Sequence[Sequence[FinishedRun]]) -> list[str]:
    if len(namesakes) == 1:
        return [name]
    contents = [_flat(recipe_content(members[0].recipe)) for members in namesakes]
    keys = list(dict.fromkeys(key for content in contents for key in content if key != "seed"))
    keys.sort(key=lambda key: not key.endswith(".name"))  # the loss before its options
    telling: list[str] = []
    parts = 1
    for key in keys:
        found = len({tuple(repr(content.get(k)) for k in (*telling, key)) for content in contents})
        if found > parts:
            telling, parts = [*telling, key], found
    labels = [
        " ".join([name, *(f"{key}={_short(content[key])}" for key in telling if key in content)])
        for content in contents
    ]
    return labels if len(set(labels)) == len(labels) else [f"{label} ({i})" for i, label in enumerate(labels)]


def _flat(content: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= _flat(value, f"{start}{key}.") if isinstance(value, dict) else {f"{start}{key}": value}
    return flat


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def compare_groups(
    groups: Sequence[Group],
    figures: Sequence[str] | None = None,
    *,
    left_out: Mapping[str, str] | None = None,
) -> Comparison:
    """Means of groups of runs, and for each figure a test of the best against the second best."""
    rows = [_row(group) for group in groups]
    known = list(dict.fromkeys(name for row in rows for name in row.figures))
    shown = _shown(figures, known)
    best = {}
    for name in shown:
        found = _best(name, groups, rows)
        if found is not None:
            best[name] = found
    return Comparison(tuple(shown), tuple(rows), best, dict(left_out or {}))


def _row(group: Group) -> Row:
    runs = sorted(group.runs, key=lambda run: run.recipe.seed)
    results = [run.results for run in runs]
    figures = results[0].figures() if len(results) == 1 else dict(aggregate(results).figures)
    paths, seeds = tuple(str(run.path) for run in runs), tuple(run.recipe.seed for run in runs)
    return Row(group.label, paths, seeds, recipe_hash(runs[0].recipe, seed=False), figures)


def _shown(figures: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The figures asked for, each coverage followed by the size of its sets."""
    if figures is None:
        plain = [name for name in ("top1.micro", "top5.micro", "top1.macro", "top5.macro") if name in known]
        figures = plain + [name for name in known if name.endswith("coverage.micro")]
    for name in figures:
        if name not in known:
            raise ValueError(
                f"figures must be of those that the runs have ({', '.join(known)}), got {name!r}"
            )
    shown: list[str] = []
    for name in figures:
        size = size_of(name)
        shown += [name] if size in (None, name) else [name, str(size)]
    return list(dict.fromkeys(shown))


def _best(name: str, groups: Sequence[Group], rows: Sequence[Row]) -> Best | None:
    """None where no row is better than another by the figure alone: sizes, and sets that promise coverage."""
    if size_of(name) == name or _promises(name, groups):
        return None
    values = [value_of(row.figures, name) for row in rows]
    limit = [group.runs[0].origin == "posterior" for group in groups]  # no method
    known = [i for i, value in enumerate(values) if value is not None and not limit[i]]
    if len(known) < 2:
        return None
    sign = -1 if larger_is_better(name) else 1
    first, second = sorted(known, key=lambda i: sign * (values[i] or 0.0))[:2]
    result = _test(name, groups[first], groups[second])
    labels = rows[first].label, rows[second].label
    if isinstance(result, str):
        return Best(*labels, result)
    return Best(*labels, result.test, result.difference, result.p_value, result.p_value < LEVEL)


def _promises(name: str, groups: Sequence[Group]) -> bool:
    predictor = predictor_of(name)
    sets = [group.runs[0].results.sets.get(predictor) for group in groups if predictor is not None]
    return any(one is not None and one.promised is not None for one in sets)


def _test(name: str, first: Group, second: Group) -> PairedTest | str:
    """Over seeds if there are 3 that both have, over test rows otherwise; the reason if neither can be."""
    rows = {run.results.class_rows for run in (*first.runs, *second.runs)}
    if len(rows) > 1:
        return "no test: not the same test rows"
    by_seed = [{run.recipe.seed: run for run in group.runs} for group in (first, second)]
    shared = sorted(by_seed[0].keys() & by_seed[1].keys())
    if len(shared) >= 3:
        values = [[value_of(runs[seed].results.figures(), name) for seed in shared] for runs in by_seed]
        if not any(value is None for side in values for value in side):
            return paired_t_test(*[[float(value or 0.0) for value in side] for side in values])
    return compare_over_rows(name, [run.path for run in first.runs], [run.path for run in second.runs])
