"""Finished runs, found in folders and taken together where only their seeds differ."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.metrics import Results
from shortlist.suites.plan import recipe_content, recipe_hash
from shortlist.recipes.recipe import Recipe
from shortlist.runs.run import Run, RunError

__all__ = ["FinishedRun", "Group", "alike_runs", "find_runs", "group_runs", "read_run", "why"]


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


def read_run(path: str | Path) -> FinishedRun:
    """A finished run; the message says what is missing if it is none."""
    run = Run.open(path)
    info = run.info()
    if info.get("state") != "finished":
        raise RunError(f"{path} is not finished: its state is {info.get('state')!r}")
    file = run.path / "results.json"
    if not file.is_file():
        raise RunError(f"{path} has no results: {file.name} is missing")
    if not (run.path / "scores" / "test.safetensors").is_file():  # no test over rows could be made
        raise RunError(f"{path} has no scores: scores/test.safetensors is missing")
    return FinishedRun(run.path, run.recipe, Results.load(file), info.get("scores_from"))


def why(path: str | Path, error: Exception) -> str:
    """Why a run is left out, in one line that names it."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return reason if str(path) in reason else f"{path}: {reason}"


def alike_runs(runs: Sequence[FinishedRun]) -> tuple[list[FinishedRun], dict[str, str]]:
    """Runs of one recipe that a mean over seeds may be of, and by folder why others are left out.

    They have the figures of the first, and each seed once: a copy would pass for a run without any spread.
    """
    kept: dict[int, FinishedRun] = {}
    left_out = {}
    names = runs[0].results.figures().keys()
    for run in runs:
        same = kept.setdefault(run.recipe.seed, run)
        if run.results.figures().keys() != names:
            left_out[str(run.path)] = (
                f"{run.path} has other figures than {runs[0].path}, a run of the same recipe: "
                f"evaluate both anew"
            )
            if same is run:
                del kept[run.recipe.seed]
        elif same is not run:
            left_out[str(run.path)] = f"{run.path} has the recipe and the seed of {same.path}"
    return list(kept.values()), left_out


def find_runs(path: str | Path) -> list[Path]:
    """A run folder itself, the runs that count of a suite's folder, or all runs below another folder."""
    path = Path(path)
    if (path / "run.json").exists() or not path.is_dir():
        return [path]
    if (path / "results.csv").is_file() and (path / "suite.yaml").is_file():
        with suppress(KeyError, TypeError, ValueError, csv.Error):  # no table of a suite: all that is there
            with (path / "results.csv").open(encoding="utf-8", newline="") as file:
                return [path / row["run"] for row in csv.DictReader(file)]
    found = []
    for place, folders, files in os.walk(path):  # takes no offence at folders that go while it looks
        folders[:] = [name for name in folders if not name.startswith(".")]  # runs in the making
        found += [Path(place)] if "run.json" in files else []
    return sorted(found) or [path]


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
