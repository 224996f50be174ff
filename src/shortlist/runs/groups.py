"""Find finished runs in folders, group those that differ only by their seed, and name the groups."""

import csv
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shortlist._progress import each
from shortlist.metrics import Estimate, aggregate
from shortlist.recipes import Recipe, differing_keys, flat_content, recipe_hash
from shortlist.runs.finished import read_finished, why
from shortlist.runs.run import Run


@dataclass(frozen=True)
class Group:
    """A method: runs that differ only by their seeds, by seed.

    Args:
        label: Name of the method, in every table and on every page.
        runs: The runs.
        over: Dotted keys of the recipe by which runs differ as by their seeds, such as ``data.seed``.
    """

    label: str
    runs: Sequence[Run]
    over: tuple[str, ...] = ()

    @property
    def by_draw(self) -> dict[tuple[Any, ...], Run]:
        """The runs by their seed and what else they are averaged over."""
        return {_draw(run, self.over): run for run in self.runs}

    @cached_property
    def metrics(self) -> Mapping[str, Estimate]:
        """Means over the runs with their intervals over seeds, by name; a single run's own metrics."""
        if len(self.runs) == 1:
            return self.runs[0].results.metrics()
        return aggregate([run.results for run in self.runs]).metrics

    @property
    def recipe_hash(self) -> str:
        """Digits that differ for methods whose recipes do, seeds apart."""
        return recipe_hash(self.runs[0].recipe, seed=False)

    @property
    def is_limit(self) -> bool:
        """Whether the scores are the data's own probabilities, which no method can beat."""
        return self.runs[0].is_limit


def find_runs(path: str | Path) -> list[Path]:
    """Find the runs of a folder: the run itself, the chosen runs of a suite, or all runs in subfolders.

    The folder of the model in a run is that run.
    """
    path = Path(path)
    if path.name == "model" and (path.parent / "run.json").exists():
        return [path.parent]
    if (path / "run.json").exists() or not path.is_dir():
        return [path]
    if (path / "results.csv").is_file() and (path / "suite.yaml").is_file():
        with suppress(KeyError, TypeError, ValueError, csv.Error):  # no table of a suite: take all runs
            with (path / "results.csv").open(encoding="utf-8", newline="") as file:
                return [path / row["run"] for row in csv.DictReader(file)]
    runs = []
    for place, folders, files in os.walk(path):  # ignores folders that disappear meanwhile
        folders[:] = [name for name in folders if not name.startswith(".")]  # runs that are being written
        runs += [Path(place)] if "run.json" in files else []
    return sorted(runs) or [path]


def read_runs(paths: Iterable[str | Path]) -> tuple[list[Run], dict[str, str]]:
    """Read the runs of some folders (see :func:`find_runs`), each once.

    Returns:
        The finished runs, and by folder the reason why others are left out.
    """
    runs, left_out, seen = [], {}, set()
    for path in each("reading runs", list(itertools.chain.from_iterable(map(find_runs, paths)))):
        place = path.resolve()
        if place in seen:
            continue
        seen.add(place)
        try:
            runs.append(read_finished(path))
        except Exception as error:  # any file of a run may be damaged in any way
            left_out[str(path)] = why(path, error)
    return runs, left_out


def _draw(run: Run, over: Sequence[str]) -> tuple[Any, ...]:
    flat = flat_content(run.recipe) if over else {}
    return (run.recipe.seed, *(json.dumps(flat.get(key)) for key in over))


def group_runs(runs: Sequence[Run], over: Sequence[str] = ()) -> tuple[list[Group], dict[str, str]]:
    """Group runs whose recipes differ only by seed, name, and the keys ``over`` which they are averaged.

    Returns:
        The groups, and by folder why some runs are in none: see :func:`alike_runs`.

    Raises:
        ValueError: If no recipe has one of the keys.
    """
    for key in over:
        if not any(key in flat_content(run.recipe) for run in runs):
            raise ValueError(f"over must be a key of a recipe, such as data.seed or data.root, got {key!r}")
    members: dict[tuple[str, bool], list[Run]] = {}
    for run in runs:
        method = recipe_hash(run.recipe, seed=False, over=over)
        members.setdefault((method, run.is_limit), []).append(run)
    left_out: dict[str, str] = {}
    alike = []
    for group in members.values():
        kept, others = alike_runs(group, over)
        alike.append(kept)
        left_out |= others
    labels = _labels(alike)
    return [Group(label, group, tuple(over)) for label, group in zip(labels, alike, strict=True)], left_out


def alike_runs(runs: Sequence[Run], over: Sequence[str] = ()) -> tuple[list[Run], dict[str, str]]:
    """Choose the runs of one recipe that may be averaged over seeds and the keys ``over``, by seed.

    They have the metrics of the first, and each seed once: a copy would pass for a run without any spread.

    Returns:
        The runs, and by folder why others are left out.
    """
    kept: dict[tuple[Any, ...], Run] = {}
    left_out = {}
    names = runs[0].results.metrics().keys()
    for run in runs:
        if run.results.metrics().keys() != names:
            left_out[str(run.path)] = (
                f"{run.path} has other metrics than {runs[0].path}, a run of the same recipe: "
                f"evaluate both anew"
            )
            continue
        same = kept.setdefault(_draw(run, over), run)
        if same is not run:
            left_out[str(run.path)] = f"{run.path} has the recipe and the seed of {same.path}"
    return [kept[draw] for draw in sorted(kept)], left_out


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Name the groups.

    By the name that its recipes were given, if they share it and it is not that of all groups; else by the
    loss. Groups of the same name or loss are told apart by their options.
    """
    firsts = [group[0] for group in groups]
    names = [{run.recipe.name for run in group} for group in groups]
    unnamed = Recipe.model_fields["name"].default
    shared = len(names) > 1 and all(of_group == names[0] for of_group in names)
    plain = [
        run.recipe.name if len(of_group) == 1 and of_group != {unnamed} and not shared else _kind(run)
        for run, of_group in zip(firsts, names, strict=True)
    ]
    labels = list(plain)
    for base in dict.fromkeys(plain):
        places = [place for place, label in enumerate(plain) if label == base]
        parts = _telling_parts([firsts[place].recipe for place in places])
        for place, part in zip(places, parts, strict=True):
            labels[place] = ", ".join([base, *part])
    return [
        label if labels.count(label) == 1 else f"{label} ({run.path.name})"
        for label, run in zip(labels, firsts, strict=True)
    ]


def _kind(run: Run) -> str:
    return "the data's own probabilities" if run.is_limit else run.recipe.loss.name


def _telling_parts(recipes: Sequence[Recipe]) -> list[list[str]]:
    """Find the fewest options that distinguish the recipes, those of the loss before those of the data."""
    flats = [flat_content(recipe) for recipe in recipes]
    keys = differing_keys(recipes)
    keys.sort(key=lambda key: (key.startswith("data."), not key.startswith("loss.")))
    telling: list[str] = []
    before = 1
    for key in keys:
        distinguished = len({tuple(json.dumps(flat.get(k)) for k in (*telling, key)) for flat in flats})
        if distinguished > before:
            telling, before = [*telling, key], distinguished
    return [[_words(key, flat[key]) for key in telling if key in flat] for flat in flats]


def _words(key: str, value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    if key == "loss.name":
        return shown
    return f"{key.removeprefix('loss.').removeprefix('data.')} {shown}"
