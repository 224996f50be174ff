"""The runs of a page: read, those that cannot be read left out with the reason, the rest put in order."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shortlist.class_table import ClassTable
from shortlist.metrics import Figure, Results, aggregate
from shortlist.recipes.recipe import NO_METHOD, Recipe
from shortlist.report.published import flatten
from shortlist.runs.run import Run, RunError

__all__ = ["Experiment", "LeftOut", "Method", "ReadRun", "group_runs", "read_runs"]


@dataclass(frozen=True)
class ReadRun:
    """A finished run with all that the page needs, but for its scores."""

    run: Run
    name: str
    recipe: Recipe
    info: Mapping[str, Any]
    class_table: ClassTable
    results: Results
    epochs: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class LeftOut:
    """A run that is not on the page, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Method:
    """Runs that differ only by their seed.

    Args:
        label: The name of its runs if they share one; the loss and what else tells it from the others if not.
        runs: The runs, by seed.
        figures: By name, the mean over the runs with its interval over seeds; of a single run its own figure
            with its interval over test rows.
    """

    label: str
    runs: Sequence[ReadRun]
    figures: Mapping[str, Figure]

    @property
    def is_limit(self) -> bool:
        """Whether the scores are the data's own probabilities, which no method can beat."""
        return _is_posterior(self.runs[0])


@dataclass(frozen=True)
class Experiment:
    """Methods whose figures may be compared: same data, same classes, same number of test rows."""

    title: str
    methods: Sequence[Method]

    @property
    def first(self) -> ReadRun:
        """A run of it, for what all share."""
        return self.methods[0].runs[0]


def read_runs(paths: Iterable[str | Path]) -> tuple[list[ReadRun], list[LeftOut]]:
    """Read run folders; one that is unfinished, damaged or from another version is left out."""
    runs, left_out, seen = [], [], set()
    for path in paths:
        place = Path(path).resolve()
        if place in seen:
            continue
        seen.add(place)
        try:
            runs.append(_read(path))
        except Exception as error:  # any file may be amiss, in any way
            message = " ".join(str(error).split()) or type(error).__name__
            left_out.append(LeftOut(str(path), message))
    return _without_copies(runs, left_out), left_out


def _without_copies(runs: Sequence[ReadRun], left_out: list[LeftOut]) -> list[ReadRun]:
    """Each seed of a method once: a copy would pass for a run without any spread."""
    kept: dict[str, ReadRun] = {}
    for run in runs:
        same = kept.setdefault(_key([*_keys(run), run.recipe.seed]), run)
        if same is not run:
            reason = f"it has the recipe and the seed of {same.run.path}"
            left_out.append(LeftOut(str(run.run.path), reason))
    return list(kept.values())


def _read(path: str | Path) -> ReadRun:
    run = Run.open(path)
    needed = ("model/class_table.json", "results.json", "scores/test.safetensors")
    missing = [name for name in needed if not (run.path / name).is_file()]
    if missing:
        raise RunError(f"{' and '.join(missing)} missing; the run's state is {run.info().get('state')!r}")
    if run.state != "finished":
        raise RunError(f"not finished: its state is {run.state!r}")
    recipe, table = run.recipe, run.class_table
    results = Results.load(run.path / "results.json")
    if results.classes != len(table):
        raise RunError(f"results.json is of {results.classes} classes, class_table.json of {len(table)}")
    _check_scores(run, results)
    run.score_map(torch.zeros(1, len(table)))
    if run.predictors().keys() != set(results.sets):
        raise RunError("results.json is not of the predictors that are there: evaluate the run again")
    epochs = _read_epochs(run.path / "epochs.csv") + _read_epochs(run.path / "epochs_second_stage.csv")
    return ReadRun(run, run.path.name, recipe, run.info(), table, results, epochs)


def _check_scores(run: Run, results: Results) -> None:
    """Scores of the shape that the results are of, so that they can be read later; only the head is read."""
    shape, expected = run.score_shape("test"), (results.rows + results.ignored_rows, results.classes)
    if shape != expected:
        raise RunError(
            f"{run.path} holds test scores {shape}, results.json is of {expected}: evaluate the run again"
        )


def _is_posterior(run: ReadRun) -> bool:
    return run.info.get("scores_from") == "posterior"


def _read_epochs(path: Path) -> list[dict[str, float]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: float(value) for key, value in line.items() if value} for line in csv.DictReader(file)]


def group_runs(runs: Sequence[ReadRun]) -> list[Experiment]:
    """Runs of the same data together, and in these the runs that differ only by seed, in the given order."""
    experiments: dict[str, dict[str, list[ReadRun]]] = {}
    for run in runs:
        data, method = _keys(run)
        experiments.setdefault(data, {}).setdefault(method, []).append(run)
    found = []
    for methods in experiments.values():
        groups = [sorted(group, key=lambda run: run.recipe.seed) for group in methods.values()]
        labels = _labels(groups)
        found.append(
            [Method(label, group, _figures(group)) for label, group in zip(labels, groups, strict=True)]
        )
    titles = _titles([methods[0].runs[0] for methods in found])
    return [Experiment(title, methods) for title, methods in zip(titles, found, strict=True)]


def _keys(run: ReadRun) -> tuple[str, str]:
    """What is the same in all runs of an experiment, and in all runs of a method."""
    content = run.recipe.model_dump(mode="json")
    rest = {key: value for key, value in content.items() if key not in (*NO_METHOD, "seed")}
    data = _key([content["data"], run.class_table.ids, run.results.rows])
    return data, _key([rest, sorted(run.results.figures()), _is_posterior(run)])


def _key(content: Any) -> str:
    return json.dumps(content, sort_keys=True, default=str)


def _figures(runs: Sequence[ReadRun]) -> Mapping[str, Figure]:
    if len(runs) == 1:
        return runs[0].results.figures()
    return aggregate([run.results for run in runs]).figures


def _titles(runs: Sequence[ReadRun]) -> list[str]:
    """Data set and number of classes; of those that share these, also what tells them apart."""
    plain = [f"{run.recipe.data.name}, {len(run.class_table):,} classes" for run in runs]
    titles = []
    for run, title in zip(runs, plain, strict=True):
        alike = [other for other, same in zip(runs, plain, strict=True) if same == title]
        flat = flatten(run.recipe.model_dump(mode="json"))
        keys = [key for key in differing_keys(alike) if key.startswith("data.")]
        parts = [f"{key.removeprefix('data.')} {flat.get(key, 'not set')}" for key in keys]
        titles.append(", ".join([title, *parts]))
    return titles


def differing_keys(runs: Sequence[ReadRun]) -> list[str]:
    """Dotted keys of the recipes whose values are not the same in all runs, names and such apart."""
    flats = [flatten(run.recipe.model_dump(mode="json")) for run in runs]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    return [
        key
        for key in keys
        if key not in (*NO_METHOD, "seed")
        and len({_key(flat.get(key)) for flat in flats}) > 1  # one may lack it
    ]


def _labels(groups: Sequence[Sequence[ReadRun]]) -> list[str]:
    names = [{run.recipe.name for run in group} for group in groups]
    labels = []
    for group, own in zip(groups, names, strict=True):
        if _is_posterior(group[0]):
            labels.append("the data's own probabilities")
        elif len(own) == 1 and names.count(own) == 1 and own != {Recipe.model_fields["name"].default}:
            labels.append(group[0].recipe.name)
        else:
            labels.append(_label_of_recipe(group[0], [other[0] for other in groups]))
    return [
        label if labels.count(label) == 1 else f"{label} ({group[0].name})"
        for label, group in zip(labels, groups, strict=True)
    ]


def _label_of_recipe(run: ReadRun, runs: Sequence[ReadRun]) -> str:
    """The loss, and what differs among methods of the same loss."""
    alike = [other for other in runs if other.recipe.loss.name == run.recipe.loss.name]
    flat = flatten(run.recipe.model_dump(mode="json"))
    parts = [f"{key} {flat[key]}" for key in differing_keys(alike) if key in flat][:3]
    return ", ".join([run.recipe.loss.name, *(part.removeprefix("loss.") for part in parts)])
