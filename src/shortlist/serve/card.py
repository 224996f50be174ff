"""The model card: what the model is, what it can do, and how well it does it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist.class_table import GROUPS
from shortlist.metrics import Averages, Results
from shortlist.model import Choice, Model, card_files, description_of
from shortlist.predictors import CalibrationRows, Population
from shortlist.sentences import LANGUAGE, ladder_words, novelty_words, scope_words, speaking
from shortlist.serve.answer_form import promise_form
from shortlist.serve.limits import MAX_IMAGES, Limits
from shortlist.serve.places import promise_at

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
SIZES = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50)
_COMMON = 0.9  # coverage for which fewer photos, or all groups, are taken where the rows are too few
_MOST_VALUES = 50  # of a column


def run_facts(path: str | Path | None) -> tuple[Results | None, dict[str, Any] | None]:
    """Return the test results of a run and some facts about its training; ``None`` for a model alone."""
    from shortlist.runs import Run

    if path is None or not (Path(path) / "run.json").is_file():
        return None, None
    run = Run.open(path)
    recipe, info = run.recipe, run.info
    facts = {
        "created": info.get("created"),
        "updated": info.get("updated"),
        "recipe": recipe.name,
        "data": recipe.data.name,
        "network": recipe.model.name,
        "loss": recipe.loss.name,
        "epochs": recipe.epochs,
        "seed": recipe.seed,
    }  # no paths, which are private
    return run.results, facts


def model_card(
    model: Model,
    *,
    name: str,
    version: str,
    results: Results | None = None,
    training: Mapping[str, Any] | None = None,
    limits: Limits,
) -> dict[str, Any]:
    """Return the model card as plain values.

    Args:
        model: The model.
        name: Name to show.
        version: Name of this very model.
        results: Results on test rows, if there are any.
        training: Facts about the training.
        limits: Limits of the server that a client should know.
    """
    table = model.classes
    groups = None
    if table.counts:
        counted = table.groups().bincount(minlength=len(GROUPS)).tolist()
        groups = dict(zip(GROUPS, counted, strict=True))
    return {
        "name": name,
        "version": version,
        "about": model.about,
        "classes": len(table),
        "levels": list(table.parents),
        "training_examples": sum(table.counts) if table.counts else None,
        "groups": groups,
        "scores": model.score_map.words(),
        "predictors": [_predictor(model, key) for key in model.predictors],
        "choices": _choices(model),
        "novelty": None
        if model.novelty is None
        else {"level": model.novelty.level, "words": novelty_words(model.novelty)},
        "ladder": ladder(model, Choice()),
        "ladder_macro": ladder(model, Choice(macro=True)),
        "metrics": None if results is None else _metrics(results),
        "training": None if training is None else dict(training),
        "limits": _limits(limits),
        "page": _page(model, results),
    }


def _page(model: Model, results: Results | None) -> str:
    """Return the page for people that goes with the saved model, with the server's results."""
    about = description_of(model.spec, model.preprocessing, model.classifier, model.about)
    described = {**about, "novelty": model.novelty is not None}
    words = model.score_map.words()
    return card_files(described, model.promises, model.classes, words, results)["README.md"]


def _limits(limits: Limits) -> dict[str, Any]:
    return {
        "images": MAX_IMAGES,
        "batch_images": limits.batch_images,
        "image_bytes": limits.image_bytes,
        "request_bytes": limits.request_bytes,
        "pixels": limits.pixels,
        "requests_per_minute": limits.rate or None,
        "answers_per_minute": limits.answer_rate or None,
        "formats": ["image/jpeg", "image/png", "image/webp"],
    }


def _predictor(model: Model, name: str) -> dict[str, Any]:
    predictor = model.predictors[name]
    return {
        "name": name,
        "kind": type(predictor).__name__,
        "options": predictor.options(),
        "macro": predictor.weights is not None,
        "promise": promise_form(model.promises[name]),
    }


def _choices(model: Model) -> dict[str, Any]:
    """Say what can be asked for."""
    population, macro = _population(model), _population(model, macro=True)
    most = None if population is None else population.max_size
    return {
        "predictor": list(model.predictors),
        "top": {"min": 1, "max": len(model.classes)},
        "average": None if most is None or most < 1 else {"min": 1, "max": most},
        "coverage": None if population is None else {"above": 0, "below": 1},
        "macro": macro is not None,
        "groups": {} if model.calibration_rows is None else _groups(model.calibration_rows),
    }


def _groups(rows: CalibrationRows) -> dict[str, list[str]]:
    """Return the columns that photos can be chosen by, with their values, if these are few."""
    return {
        column: list(names)
        for column, (_, names) in rows.facts.groups.items()
        if 2 <= len(names) <= _MOST_VALUES
    }


def _population(model: Model, *, macro: bool = False) -> Population | None:
    return None if model.score_map.now is None else model.population(Choice(top=1, macro=macro))


def ladder(model: Model, choice: Choice, language: str = LANGUAGE) -> dict[str, Any] | None:
    """Say what each step of a control from fewer to surer means, as far as the calibration rows tell.

    Args:
        model: The model.
        choice: Which objects it is about.
        language: Language of the sentences.
    """
    if model.score_map.now is None or model.population(replace(choice, top=1)) is None:
        return None
    choice = replace(choice, coverage=_COMMON)
    population = model.population(choice)
    assert population is not None  # as for lists of one class
    sizes = [size for size in SIZES if size <= population.max_size]
    tops = [k for k in (1, 2, 3, 5, 10, 20) if k <= population.num_classes]
    promise = promise_at(model.resolve(choice)[1], choice.place, language)
    with speaking(language):
        said = {"words": ladder_words(promise), "scope": scope_words(promise)}
    return {
        "rows": population.size,
        **said,
        "coverage": _coverage_steps(population),
        "average": [{"average": size, "share": population.coverage_at(size)} for size in sizes],
        "top": [{"top": k, "share": population.coverage_of_top(k)} for k in tops],
    }


def _coverage_steps(population: Population) -> list[dict[str, float]]:
    """Return the coverages whose lists are of use: one name or more on average, but not all classes.

    Of coverages with the same lists, the surest is kept.
    """
    surest: dict[float, float] = {}
    for level, size in zip(COVERAGES, population.sizes_at(COVERAGES), strict=True):
        if size is not None and 1 <= size < population.num_classes:
            surest[size] = level
    return [{"coverage": level, "average_size": size} for size, level in surest.items()]


def _metrics(results: Results) -> dict[str, Any]:
    return {
        "rows": results.rows,
        "groups": {name: vars(group) for name, group in results.groups.items()},
        "topk": {str(k): _averages(found) for k, found in results.scores.topk.items()},
        "calibration_error": results.scores.calibration_error.value,
        "sets": {
            name: {
                "coverage": _averages(sets.coverage),
                "size": _averages(sets.size),
                "empty_share": sets.empty_share.value,
                "promised": None if sets.promise is None else sets.promise.level,
            }
            for name, sets in results.sets.items()
        },
    }


def _averages(averages: Averages) -> dict[str, Any]:
    named = {"micro": averages.micro, "macro": averages.macro, **averages.groups}
    return {name: vars(estimate) for name, estimate in named.items()}
