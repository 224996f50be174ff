"""The state of a suite: which runs exist, which grid points are chosen, and what can run next."""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any

from shortlist._store.files import write_text
from shortlist._store.json import read_json, strict_json
from shortlist.metrics import larger_is_better, value_of
from shortlist.recipes import (
    Recipe,
    differing_keys,
    flat_content,
    recipe_content,
    with_absolute_places,
    without_default_predictors,
)
from shortlist.runs import Run, RunError, first_stage_files, why
from shortlist.suites.plan import (
    Cell,
    Point,
    Task,
    plan_suite,
    resolve,
    run_name,
    source_cell,
)
from shortlist.suites.sharing import Sharing, check_part, split_cells
from shortlist.suites.suite import Suite, SuiteError

_SEEN_FROM = "seen_from.json"
_ROUNDING = 1e-9  # below this, a difference of two metrics is not one


@dataclass(frozen=True)
class Choice:
    """A chosen grid point, and the validation metric of every point (mean over seeds; None if it failed)."""

    point: Point
    metrics: dict[str, float | None]


class SuiteState:
    """The state of a suite in its folder; only runs that were not finished before are read again.

    Args:
        suite: The suite.
        folder: Folder of its runs.
        seen_from: Folder that relative places of its data are relative to; the current one by default.
        part: Make only the i-th of n parts, as (i, n); all by default.
    """

    def __init__(
        self,
        suite: Suite,
        folder: Path,
        *,
        seen_from: str | Path = ".",
        part: tuple[int, int] | None = None,
    ) -> None:
        check_part(part)
        self.suite, self.folder, self.seen_from = suite, folder, seen_from
        self.cells = plan_suite(suite)
        self.sharing = Sharing(suite, self.cells)
        self._part = None if part is None else part[0]
        self._parts = {} if part is None else split_cells(suite, self.cells, self.sharing, part[1])
        self.failed: set[str] = set()
        self.unreadable: dict[str, str] = {}  # why a run that is there cannot be used, by its name
        self.undecided: dict[str, str] = {}  # why no grid point can be chosen, by the method's folder
        self._finished: set[tuple[str, bool]] = set()
        self._choices: dict[tuple[str, ...], Choice] = {}
        self._recipes: dict[tuple[str, ...], Recipe] = {}

    def tuning_seeds(self, cell: Cell) -> list[int]:
        """Return the seeds for every grid point; none if nothing is chosen here or in reusing methods."""
        users = [c for c in self.cells if c.method.source == cell.name and c.place == cell.place]
        tuned = any(len(c.points) > 1 for c in (cell, *users))
        return self.suite.tune.seeds if tuned else []

    def choice(self, cell: Cell) -> Choice | None:
        """Return the best grid point by the validation rows, if all its tuning runs are there."""
        key = (*cell.place, cell.name)
        if key not in self._choices:
            chosen = self._choose(cell)
            if chosen is None:
                return None
            self._choices[key] = chosen
        return self._choices[key]

    def _choose(self, cell: Cell) -> Choice | None:
        if len(cell.points) == 1:
            return Choice(cell.points[0], {})
        if cell.method.source is not None and self.source(cell) is None:
            return None
        metrics: dict[str, float | None] = {}
        for point in cell.points:
            names = [run_name(cell, point, seed) for seed in self.tuning_seeds(cell)]
            there = [self.is_finished(cell, point, name) for name in names]
            if not all(is_there or name in self.failed for is_there, name in zip(there, names, strict=True)):
                return None
            values = [
                self.validation_metric(cell, name) if is_there else None
                for is_there, name in zip(there, names, strict=True)
            ]
            numbers = [value for value in values if value is not None]
            metrics[point.label] = fmean(numbers) if len(numbers) == len(values) else None
        sign = 1 if larger_is_better(self.metric(cell)) else -1
        signed = {label: sign * value for label, value in metrics.items() if value is not None}
        best = next(
            (p for p in cell.points if p.label in signed and is_best(signed[p.label], signed.values())), None
        )
        folder = str(PurePosixPath(run_name(cell, cell.points[0], 0)).parent.parent)
        self.undecided.pop(folder, None)
        if best is None:
            self.undecided[folder] = (
                f"{folder}: nothing to choose by: no grid point has a finite {self.metric(cell)} of the "
                f"validation rows with every tuning seed. Write another tune.metric and run the suite again: "
                f"nothing is trained twice"
            )
            return None
        return Choice(best, metrics)

    def metric(self, cell: Cell) -> str:
        """Return the metric by which a cell's grid point is chosen."""
        return cell.method.metric or self.suite.tune.metric

    def validation_metric(self, cell: Cell, name: str) -> float | None:
        """Return that metric of a run on the validation rows; None where it is not defined."""
        metrics = Run.open(self.folder / name).results_of("val").metrics()
        value = value_of(metrics, self.metric(cell))
        return None if value is None or not math.isfinite(value) else value

    def source(self, cell: Cell) -> tuple[Cell, Point] | None:
        """Return the cell and grid point whose scores a cell reuses, if it does and the point is chosen."""
        other = source_cell(cell, self.cells)
        choice = None if other is None else self.choice(other)
        return None if other is None or choice is None else (other, choice.point)

    def recipe(self, cell: Cell, point: Point, seed: int) -> Recipe:
        """Return the recipe of a run whose source, if it has one, is chosen."""
        source = self.source(cell)
        key = (*cell.place, cell.name, point.label, str(seed), "" if source is None else source[1].label)
        if key not in self._recipes:  # each is asked for whenever a run ends
            self._recipes[key] = resolve(self.suite, cell, point, seed, source)
        return self._recipes[key]

    def is_finished(self, cell: Cell, point: Point, name: str, *, tested: bool = False) -> bool:
        """Return whether a run is finished, with its validation results and, if asked for, its test results.

        It must be of the recipe that is asked for. One that cannot be read is not done; ``unreadable`` says
        why.
        """
        if (name, tested) in self._finished:
            return True
        path = self.folder / name
        if not (path / "run.json").is_file():
            return False
        try:
            run = Run.open(path)
            recipe, info = run.recipe, run.info
            planned = self.recipe(cell, point, int(name.rpartition("-")[2]))
            planned = with_absolute_places(planned, seen_from=self.seen_from)  # as a run has it
            if _is_other(path, cell, info.get("scores_from"), recipe, planned):
                return False
            parts = ["val", *(["test"] if tested else [])]
            if info["state"] != "finished" or not all(map(run.has_results, parts)):
                return False
            for part in parts:
                run.results_of(part)
        except SuiteError:
            raise
        except Exception as error:  # any file may be damaged in any way
            self.unreadable[name] = why(path, error)
            return False
        self.unreadable.pop(name, None)
        self._finished.add((name, tested))
        return True

    def wanted(self, cell: Cell) -> dict[tuple[Point, int], bool]:
        """Return the runs of a cell that are needed so far, and whether their test results are needed."""
        wanted = {(point, seed): False for point in cell.points for seed in self.tuning_seeds(cell)}
        choice = self.choice(cell)
        if choice is not None:
            wanted |= {(choice.point, seed): True for seed in self.suite.seeds}
        return {
            (point, seed): tested for (point, seed), tested in wanted.items() if self._is_mine(cell, seed)
        }

    def _is_mine(self, cell: Cell, seed: int) -> bool:
        """Return whether the runs of a method and a seed belong to the part that is made here."""
        return self._part in (None, self._parts.get(((*cell.place, cell.name), seed)))

    def ready(self) -> list[Task]:
        """Return the missing runs that can be made now, and existing runs whose test results are missing."""
        tasks, trainings = [], {}
        for cell in self.cells:
            source = self.source(cell)
            if cell.method.source is not None and source is None:
                continue
            for (point, seed), tested in self.wanted(cell).items():
                name = run_name(cell, point, seed)
                if name in self.failed or self.is_finished(cell, point, name, tested=tested):
                    continue
                taken = None
                if source is not None:
                    taken = run_name(*source, seed)
                    if not self.is_finished(*source, taken):
                        continue
                recipe = self.recipe(cell, point, seed)
                folder = None if taken is None else str(self.folder / taken)
                made = tested and self.is_finished(cell, point, name)
                path, content = str(self.folder / name), recipe.model_dump(mode="json")
                task = Task(name, path, content, folder, cell.method.posterior, tested, made)
                task = replace(task, tuned=self._is_tuned(cell), locks=(f"{path}.lock",))
                if made or not cell.method.trains:
                    tasks.append(task)
                elif (first_stage := self._first_stage(cell, point, seed, recipe)) is not None:
                    tasks.append(replace(task, first_stage=first_stage))
                else:
                    task = self._training(task, cell, point, seed, recipe)
                    trainings.setdefault((self.sharing.key(cell, point), seed), []).append(task)
        # of runs that share a training one is made, the others follow
        begun = (
            next((t for t in group if Path(t.folder).exists()), group[0]) for group in trainings.values()
        )
        return [*tasks, *begun]

    def _first_stage(self, cell: Cell, point: Point, seed: int, recipe: Recipe) -> str | None:
        """Return the folder of a finished run with the same training, if it has kept the epoch."""
        for other, there in self.sharing.alike(cell, point):
            name = run_name(other, there, seed)
            if (other is cell and there is point) or not self.is_finished(other, there, name):
                continue
            with suppress(RunError, OSError):  # of an earlier suite, which asked for less, or damaged
                first_stage_files(
                    Run.open(self.folder / name), with_absolute_places(recipe, seen_from=self.seen_from)
                )
                return str(self.folder / name)
        return None

    def _training(self, task: Task, cell: Cell, point: Point, seed: int, recipe: Recipe) -> Task:
        """Return a task whose training keeps what others need of it, under the lease of all of them."""
        content = self.sharing.keeping(cell, point, recipe).model_dump(mode="json")
        first = run_name(*self.sharing.alike(cell, point)[0], seed)
        locks = dict.fromkeys((*task.locks, f"{self.folder / first}.lock"))
        return replace(task, recipe=content, locks=tuple(locks))

    def _is_tuned(self, cell: Cell) -> bool:
        """Return whether the validation rows choose among grid points of a cell, or of the one it reuses."""
        source = source_cell(cell, self.cells)
        return len(cell.points) > 1 or (source is not None and self._is_tuned(source))

    def note_failures(self) -> None:
        """Note the runs that failed when they were last tried, for ``shortlist suite status``."""
        for path in self.failure_files():
            self.failed.add(str(path.relative_to(self.folder)).removesuffix(".failure.txt"))

    def failure_files(self) -> list[Path]:
        """Return the files that tell why runs failed."""
        names = [
            run_name(cell, point, seed)
            for cell in self.cells
            for point in cell.points
            for seed in {*self.suite.seeds, *self.tuning_seeds(cell)}
        ]
        return [path for name in names if (path := self.folder / f"{name}.failure.txt").is_file()]

    def count(self) -> tuple[dict[str, int], dict[str, int]]:
        """Count by kind ("trained", "of others") all runs, and the finished ones.

        Runs that share a training are one that is trained, and others that are made of it. While a grid
        point is not chosen yet, the first one stands for it.
        """
        total, done = ({"trained": 0, "of others": 0} for _ in range(2))
        seen: tuple[set[Any], set[Any]] = (set(), set())
        for cell in self.cells:
            has_source = cell.method.source is None or self.source(cell) is not None
            wanted = self.wanted(cell) if has_source else {}
            for point, seed in self.all_runs(cell):
                finished = (point, seed) in wanted and self.is_finished(
                    cell, point, run_name(cell, point, seed), tested=wanted[point, seed]
                )
                training = (self.sharing.key(cell, point), seed) if cell.method.trains else None
                for counts, trainings, counted in ((total, seen[0], True), (done, seen[1], finished)):
                    if counted:
                        is_first = training is not None and training not in trainings
                        counts["trained" if is_first else "of others"] += 1
                        trainings.add(training)
        return total, done

    def all_runs(self, cell: Cell) -> dict[tuple[Point, int], None]:
        """Return all runs of a cell that will be needed, as far as that is known."""
        seeds, choice = self.tuning_seeds(cell), self.choice(cell)
        chosen = cell.points[0] if choice is None else choice.point
        runs = {(point, seed): None for point in cell.points for seed in seeds}
        runs |= {(chosen, seed): None for seed in self.suite.seeds if seed not in seeds}
        return {(point, seed): None for point, seed in runs if self._is_mine(cell, seed)}


def _is_other(path: Path, cell: Cell, taken: str | None, recipe: Recipe, planned: Recipe) -> bool:
    """Return whether a run has another recipe than planned; it is not trained again without being asked."""
    kind = "trained" if taken is None else "posterior" if taken == "posterior" else "of scores"
    wanted = "trained" if cell.method.trains else "posterior" if cell.method.posterior else "of scores"
    made, asked = (without_default_predictors(content) for content in (recipe, planned))
    if kind == wanted and recipe_content(made) == recipe_content(asked):
        return False
    if "trained" in (kind, wanted):
        raise SuiteError(
            f"{path} was made with another recipe than the suite has now{_difference(made, asked)}: rename "
            f"the suite or choose another --out, or remove that folder"
        )
    return True  # its source's choice is another one now: it is made again in no time


def _difference(made: Recipe, asked: Recipe) -> str:
    """Name the first key that differs, with both values."""
    keys = differing_keys([made, asked])
    if not keys:
        return ""
    before, now = (flat_content(content).get(keys[0]) for content in (made, asked))
    return f" ({keys[0]} was {before}, and is {now})"


def note_seen_from(folder: Path) -> None:
    """Note the current folder, from which a suite is run: relative places of its data are relative to it."""
    if last_seen_from(folder) != Path.cwd():
        write_text(folder / _SEEN_FROM, strict_json({"folder": str(Path.cwd())}) + "\n")


def last_seen_from(folder: Path) -> Path | None:
    """Return the folder from which a suite was last run; ``None`` if that was never noted."""
    path = folder / _SEEN_FROM
    return Path(read_json(path)["folder"]) if path.is_file() else None


def is_best(value: float, values: Iterable[float]) -> bool:
    """Whether a value is the largest but for rounding, which another machine or order of sums may change."""
    best = max(values)
    return value >= best - _ROUNDING * max(1.0, abs(best))
