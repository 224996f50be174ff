"""The tables of a suite: one line for each run that counts, and one for each grid point that was tried."""

import json
from typing import Any

from shortlist._tables import write_columns, write_csv
from shortlist.compare import Comparison, compare_groups
from shortlist.recipes import recipe_hash
from shortlist.runs import Group, Run, RunError, alike_runs, read_finished, why
from shortlist.suites.plan import run_name
from shortlist.suites.state import SuiteState


def result_rows(state: SuiteState) -> list[dict[str, Any]]:
    """Return a line for each finished run at a chosen grid point: the only place where test results are read.

    Columns: suite, axes, method, grid point, seed, run folder (from the suite's), hash of the resolved
    recipe, the recipe itself as JSON, the validation metric, and every test metric under its name.
    """
    rows = []
    for cell, point, name in _chosen_runs(state):
        run = Run.open(state.folder / name)
        recipe = run.recipe
        row = {"suite": state.suite.name, **cell.axes, "method": cell.name, "grid_point": point.label}
        row |= {"seed": recipe.seed, "run": name, "recipe_hash": recipe_hash(recipe)}
        row |= {"recipe": json.dumps(recipe.model_dump(mode="json"))}
        row |= {"tuned_by": state.metric(cell), "val": state.validation_metric(cell, name)}
        rows.append(row | {metric: estimate.value for metric, estimate in run.results.metrics().items()})
    return rows


def _chosen_runs(state: SuiteState) -> list[tuple[Any, Any, str]]:
    chosen = []
    for cell in state.cells:
        choice = state.choice(cell)
        if choice is None or (cell.method.source is not None and state.source(cell) is None):
            continue
        for seed in state.suite.seeds:
            name = run_name(cell, choice.point, seed)
            if state.is_finished(cell, choice.point, name, tested=True):
                chosen.append((cell, choice.point, name))
    return chosen


def tuning_rows(state: SuiteState) -> list[dict[str, Any]]:
    """Return a line for each grid point of each method that had a choice."""
    rows = []
    for cell in state.cells:
        choice = state.choice(cell)
        for label, value in ({} if choice is None else choice.metrics).items():
            row = {"suite": state.suite.name, **cell.axes, "method": cell.name, "grid_point": label}
            chosen = choice is not None and label == choice.point.label
            rows.append(row | {"tuned_by": state.metric(cell), "val": value, "chosen": chosen})
    return rows


def write_tables(state: SuiteState) -> None:
    """Write ``results.csv``, ``results.parquet`` and ``tuning.csv`` into the suite's folder."""
    rows = result_rows(state)
    if rows:
        without = [{key: row[key] for key in row if key != "recipe"} for row in rows]  # it hides the metrics
        write_csv(state.folder / "results.csv", without)
        names = dict.fromkeys(key for row in rows for key in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        write_columns(state.folder / "results.parquet", columns)
    tuning = tuning_rows(state)
    if tuning:
        write_csv(state.folder / "tuning.csv", tuning)


def compare_suite(state: SuiteState, metrics: list[str] | None = None) -> dict[tuple[str, ...], Comparison]:
    """Compare the methods, for each combination of the axes' labels."""
    groups: dict[tuple[str, ...], dict[str, list[Any]]] = {}
    left_out: dict[tuple[str, ...], dict[str, str]] = {}
    for cell, _, name in _chosen_runs(state):
        try:
            run = read_finished(state.folder / name)
        except RunError as error:
            left_out.setdefault(cell.place, {})[name] = why(state.folder / name, error)
            continue
        groups.setdefault(cell.place, {}).setdefault(cell.name, []).append(run)
    wanted, baseline = metrics or state.suite.metrics, state.suite.baseline
    return {
        place: _compare_methods(methods, wanted, baseline, left_out.get(place, {}))
        for place, methods in groups.items()
    }


def _compare_methods(
    methods: dict[str, list[Any]], metrics: list[str], baseline: str | None, left_out: dict[str, str]
) -> Comparison:
    groups = []
    for label, runs in methods.items():
        alike, others = alike_runs(runs)
        left_out = left_out | others
        groups.append(Group(label, alike))
    # those with the predictor may be missing yet, and few classes have no top-5
    metric_names = {name for runs in methods.values() for run in runs for name in run.results.metrics()}
    return compare_groups(
        groups,
        [name for name in metrics if name in metric_names] or None,
        baseline=baseline if baseline in methods else None,  # not finished, or failed
        left_out=left_out,
    )
