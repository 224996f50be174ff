"""Read saved models that carry the results of their runs, as experiments of one method."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shortlist.model import SavedModel
from shortlist.runs import Experiment, Group, find_runs, why


def read_models(
    folders: Iterable[str | Path],
) -> tuple[list[Experiment], list[str | Path], dict[str, str]]:
    """Read the saved models among some folders.

    Returns:
        An experiment for each model, the folders that are no models, and by folder why a model is left out.
    """
    experiments, others, left_out = [], [], {}
    for folder in folders:
        path = Path(folder)
        if not (path / "model.json").is_file() or find_runs(path) != [path]:
            others.append(folder)
            continue
        try:
            experiments.append(_experiment(path))
        except ValueError as error:
            left_out[str(path)] = why(path, error)
    return experiments, others, left_out


def _experiment(path: Path) -> Experiment:
    saved = SavedModel(path)
    if saved.results is None:
        raise ValueError(f"{path} has no results of test rows: report the run that it was made of")
    training = saved.description["about"].get("training") or {}
    # what the sections ask of a recipe, which a model has not
    recipe = SimpleNamespace(
        data=SimpleNamespace(name=training.get("data set", "unknown data")),
        evaluation=SimpleNamespace(group_words="as its recipe divides them"),
        named_predictors={},
    )
    about: Any = {"path": path, "recipe": recipe, "is_limit": False}
    run: Any = SimpleNamespace(**about, results=saved.results, class_table=saved.class_table)
    return Experiment(f"{path.name}, {len(saved.class_table):,} classes", [Group(path.name, [run])])
