"""Plan the runs of a suite: every combination of axes, methods, grid points and seeds, with its recipe."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from shortlist.datasets import DATASETS
from shortlist.metrics import check_metric
from shortlist.recipes import (
    CALIBRATED_KEYS,
    DEFAULT_NAMES,
    Recipe,
    RecipeError,
    make_recipe,
    recipe_content,
    validation_is_test,
)
from shortlist.suites.suite import Method, Suite, SuiteError


@dataclass(frozen=True)
class Point:
    """A point of a method's grid: its label, which names its folder, and its overrides."""

    label: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """A method on one combination of the axes' values.

    Args:
        axes: Label of the value of each axis.
        axis_overrides: Overrides of these values.
        name: Name of the method.
        method: The method.
        points: Points of the method's grid.
    """

    axes: Mapping[str, str]
    axis_overrides: tuple[str, ...]
    name: str
    method: Method
    points: tuple[Point, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """Labels of the axes' values, which methods that are compared share."""
        return tuple(self.axes.values())


@dataclass(frozen=True)
class Task:
    """A run to make, as plain values that can be sent to another process.

    Args:
        name: Name of the run in its suite.
        folder: Folder of the run.
        recipe: Resolved recipe.
        source: Folder of the run whose scores are reused, if any.
        posterior: Whether the scores are the data's exact log-probabilities.
        test: Whether test results are needed: the grid point is chosen, or there is no choice.
        made: Whether the run exists, and only its test results are missing.
        allow_code: Whether code that the recipe names may be run.
        tuned: Whether the validation rows chose options of the method, or of the one whose scores are reused.
        first_stage: Folder of the finished run whose first stage is taken over, if any.
        locks: Files of the leases under which it is made: its own, and that of all who share its training.
        stale: Tokens of owners of these leases that are gone.
    """

    name: str
    folder: str
    recipe: dict[str, Any]
    source: str | None = None
    posterior: bool = False
    test: bool = True
    made: bool = False
    allow_code: bool = False
    tuned: bool = False
    first_stage: str | None = None
    locks: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()

    @property
    def weight(self) -> float:
        """Share of the work of a training run that this task takes."""
        quick = self.source is not None or self.first_stage is not None or self.posterior
        return 0.05 if quick else 1.0


def plan_suite(suite: Suite) -> list[Cell]:
    """Return all methods on all combinations of axes, and check each recipe.

    Raises:
        SuiteError: If a recipe or a metric is not valid, or two runs would have the same folder.
    """
    cells = []
    for axes, overrides in _combinations(suite):
        for name, method in suite.methods.items():
            grid = method.grid if not method.trains else suite.grid | method.grid
            cells.append(Cell(axes, overrides, name, method, _points(grid)))
    _check_folders(cells)
    predictor_names = [_check_recipes(suite, cell, cells) for cell in cells]
    try:
        for name in suite.metrics:
            check_metric(name, set().union(*predictor_names))
        for cell, predictors in zip(cells, predictor_names, strict=True):
            if len(cell.points) > 1:
                check_metric(cell.method.metric or suite.tune.metric, predictors)
    except ValueError as error:
        raise SuiteError(f"{suite.name}: {error}") from error
    return cells


def _combinations(suite: Suite) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    axes = []
    for axis, values in suite.vary.items():
        if isinstance(values, dict):
            axes.append([(axis, label, tuple(overrides)) for label, overrides in values.items()])
        else:
            axes.append([(axis, _text(value), (f"{axis}={_text(value)}",)) for value in values])
    combined = []
    for combination in itertools.product(*axes):
        labels = {axis: label for axis, label, _ in combination}
        combined.append((labels, tuple(itertools.chain.from_iterable(parts for *_, parts in combination))))
    return combined


def _points(grid: Mapping[str, list[Any]]) -> tuple[Point, ...]:
    short = [key.rpartition(".")[2] for key in grid]
    names = short if len(set(short)) == len(short) else list(grid)
    points = []
    for values in itertools.product(*grid.values()):
        texts = [_text(value) for value in values]
        label = ",".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))
        points.append(
            Point(label or "default", tuple(f"{k}={text}" for k, text in zip(grid, texts, strict=True)))
        )
    return tuple(points)


def _text(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def run_name(cell: Cell, point: Point, seed: int) -> str:
    """Return the folder of a run within its suite: ``axis=value/method/grid point/seed-0``."""
    parts = [*(f"{axis}={label}" for axis, label in cell.axes.items()), cell.name, point.label]
    clean = [re.sub(r"[^\w.=,+\-]+", "_", part).strip("._") or "_" for part in parts]
    return str(PurePosixPath(*clean, f"seed-{seed}"))


def _check_folders(cells: list[Cell]) -> None:
    names = [run_name(cell, point, 0) for cell in cells for point in cell.points]
    for name in names:
        if names.count(name) > 1:
            raise SuiteError(f"two runs would have the folder {name}: their labels must differ")


def _check_recipes(suite: Suite, cell: Cell, cells: list[Cell]) -> set[str]:
    """Resolve the recipes of all points, and return the names of their predictors."""
    source = source_cell(cell, cells)
    predictor_names: set[str] = set()
    for point in cell.points:
        recipe = resolve(suite, cell, point, 0, None if source is None else (source, source.points[0]))
        predictor_names |= DEFAULT_NAMES if recipe.predictors is None else set(recipe.predictors)
        if len(cell.points) > 1 and validation_is_test(recipe):
            raise SuiteError(
                f"methods.{cell.name} has a grid of {len(cell.points)} points, but its validation rows are "
                "the test rows (data.val_is_test), on which nothing may be chosen"
            )
        if cell.method.posterior and not _knows_posterior(recipe.data.name):
            known_ones = ", ".join(name for name, info in DATASETS.items() if info.has_posterior)
            raise SuiteError(
                f"methods.{cell.name}.posterior needs a data set whose distribution is known "
                f"({known_ones}), got {recipe.data.name}"
            )
        if source is not None:
            _check_reuse(cell, recipe, resolve(suite, source, source.points[0], 0))
    return predictor_names


def _knows_posterior(data: str) -> bool:
    return data in DATASETS and DATASETS[data].has_posterior


def _check_reuse(cell: Cell, recipe: Recipe, source: Recipe) -> None:
    """Require that a method that reuses another's scores has the same training options."""
    content, other = recipe_content(recipe), recipe_content(source)
    changed = [key for key in content if content[key] != other[key] and key not in CALIBRATED_KEYS]
    if changed:
        raise SuiteError(
            f"methods.{cell.name} takes the scores of {cell.method.source}, so that only "
            f"{', '.join(CALIBRATED_KEYS)} may differ, got another {changed[0]}"
        )


def source_cell(cell: Cell, cells: list[Cell]) -> Cell | None:
    """Return the cell whose scores a method reuses, on the same axes' values."""
    if cell.method.source is None:
        return None
    return next(other for other in cells if other.name == cell.method.source and other.place == cell.place)


def resolve(
    suite: Suite, cell: Cell, point: Point, seed: int, source: tuple[Cell, Point] | None = None
) -> Recipe:
    """Return the recipe of a run; ``source`` is the cell, with its chosen point, whose scores are reused."""
    if not isinstance(suite.base, dict):
        raise SuiteError(f"base must be a recipe here, as load_suite reads it, got the file {suite.base!r}")
    inherited = () if source is None else (*source[0].method.overrides, *source[1].overrides)
    later_overrides = (*cell.method.overrides, *point.overrides, *suite.overrides)
    overrides = [*cell.axis_overrides, *inherited, *later_overrides]
    for override in overrides:
        if override.partition("=")[0].strip() in ("seed", "name"):
            raise SuiteError(
                f"{run_name(cell, point, seed)}: seeds and names are those of the suite, got {override!r}"
            )
    _check_axes_last(cell, run_name(cell, point, seed), [*inherited, *later_overrides])
    try:
        return make_recipe(suite.base, [*overrides, f"seed={seed}", f"name={cell.name}"])
    except RecipeError as error:
        raise SuiteError(f"{run_name(cell, point, seed)}: {error}") from error


def _check_axes_last(cell: Cell, run: str, later: Sequence[str]) -> None:
    """Require that no section is replaced of which an axis sets a value: its label would not be true.

    A method may change single values of an axis that has labels of its own, which do not name the values.
    """
    replaced = {override.partition("=")[0].strip(): override for override in later}
    for override in cell.axis_overrides:
        key = override.partition("=")[0].strip()
        above = [key[: place.start()] for place in re.finditer(r"\.", key)]
        lost = [axis for axis in [*above, *([key] if key in cell.axes else [])] if axis in replaced]
        if lost:
            raise SuiteError(
                f"{run}: {replaced[lost[0]]!r} comes after {override!r} of vary, and would replace it: "
                "set both in vary, or vary it by a grid of the method"
            )
