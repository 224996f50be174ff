"""The recipes of the runs: versions, what differs between the recipes, and each recipe in full."""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from shortlist.recipes import differing_keys, flat_content
from shortlist.report.parts import Table
from shortlist.report.views import ExperimentView
from shortlist.runs import Experiment, Run


@dataclass(frozen=True)
class Recipes:
    """The runs with their versions, the keys that differ (None if none), and the recipe of each method."""

    runs: Table
    differences: Table | None
    recipes: Sequence[tuple[str, str]]


def measure_recipes(view: ExperimentView) -> Recipes:
    """Gather recipes and versions of all runs."""
    recipes = [(method.label, _yaml(method.runs[0])) for method in view.experiment.methods]
    return Recipes(_run_table(view.experiment), _difference_table(view.experiment), recipes)


def _yaml(run: Run) -> str:
    return yaml.safe_dump(run.recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _run_table(experiment: Experiment) -> Table:
    runs = [(method, run) for method in experiment.methods for run in method.runs]
    packages = list(dict.fromkeys(key for _, run in runs for key in run.info.get("versions", {})))
    heads = ["run", "method", "seed", "state", "made", *packages]
    rows = [
        [
            run.name,
            method.label,
            run.recipe.seed,
            run.info.get("state"),
            str(run.info.get("created", "")).replace("T", " ")[:16],
            *(run.info.get("versions", {}).get(package, "-") for package in packages),
        ]
        for method, run in runs
    ]
    return Table("Runs and versions", heads, rows, words=range(len(heads)))


def _difference_table(experiment: Experiment) -> Table | None:
    firsts = [method.runs[0] for method in experiment.methods]
    keys = differing_keys([run.recipe for run in firsts])
    if not keys:
        return None
    flats = [flat_content(run.recipe) for run in firsts]
    rows = [[key, *("-" if flat.get(key) is None else str(flat[key]) for flat in flats)] for key in keys]
    heads = ["key", *(method.label for method in experiment.methods)]
    return Table("What differs between the recipes", heads, rows, words=range(len(heads)))
