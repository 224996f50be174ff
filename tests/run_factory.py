"""One factory of finished run folders with given scores, for all tests that read runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._row_facts import RowFacts
from shortlist.class_table import ClassTable
from shortlist.model.files import read_description, write_description
from shortlist.recipes.recipe import Recipe, make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import describe_model
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_run, evaluate_run
from shortlist.scores import PriorRecord, ScoreMap

TOP_2 = {"two": {"name": "topk", "k": 2}}


def finished_run(
    path: Path,
    recipe: Recipe,
    scores: Mapping[str, tuple[Tensor, Tensor]],
    table: ClassTable,
    *,
    norms: tuple[Tensor, Tensor] | None = None,
    facts: Mapping[str, RowFacts] | None = None,
    **info: Any,
) -> Run:
    """A finished run whose network gave these scores and targets of ``val`` and ``test``.

    The scores are declared to be log-posteriors under the training priors.
    """
    run = RunFolder.create(path, recipe)
    table.save(run.model_path / "class_table.json")
    for part, (output, target) in scores.items():
        save_scores(run, part, output, target, norms)
    for part, known in (facts or {}).items():
        run.save_facts(part, known)
    training = PriorRecord.training(table.class_counts)
    run.save_declared({"set": ScoreMap(len(table), contains=training)})
    describe_model(run)
    calibrate_run(run.read())
    evaluate_run(run.read())
    run.set_state("finished", **info)
    return run.read()


def scored_run(
    path: Path,
    table: ClassTable,
    targets: Mapping[str, Tensor],
    content: Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    draw: int | None = None,
    skill: float = 1.0,
    scale: float = 1.0,
    **info: Any,
) -> Run:
    """A finished run with random scores: the larger ``skill``, the better.

    Args:
        path: Its folder.
        table: Its classes.
        targets: Labels of ``val`` and ``test``.
        content: Of its recipe.
        overrides: Of its recipe.
        draw: Seed of the scores; None: that of the recipe.
        skill: What is added to the score of the true class.
        scale: Factor of all scores.
        info: For ``run.json``.
    """
    recipe = make_recipe({"predictors": TOP_2, **(content or {})}, overrides)
    generator = torch.Generator().manual_seed(recipe.seed if draw is None else draw)
    made = {}
    for part, target in targets.items():
        scores = torch.randn(len(target), len(table), generator=generator)
        scores[torch.arange(len(target)), target.clamp_min(0)] += skill
        made[part] = (scale * scores, target)
    return finished_run(path, recipe, made, table, **info)


def seal(run: Run | RunFolder) -> None:
    """Take the files as they are into the manifests, as if the run had written them so."""
    if (run.model_path / "model.json").is_file():
        write_description(run.model_path, read_description(run.model_path)[0])
    folder = RunFolder(run.path)
    folder.set_state(folder.state, rewriting=folder.info["files"])


def save_scores(
    run: Run | RunFolder,
    part: str,
    output: Tensor,
    target: Tensor,
    norms: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Scores of a network with one head."""
    RunFolder(run.path).save_scores(part, {"set": output}, target, {"set": norms})
