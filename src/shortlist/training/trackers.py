"""Loggers of a training by name, and what trackers (MLflow, Weights & Biases, TensorBoard) get at its end."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

from lightning.pytorch import loggers

from shortlist._named_code import find_code
from shortlist._store.files import read_text, write_text
from shortlist.model import CARD_FIGURE
from shortlist.recipes import Recipe
from shortlist.runs import Run, RunFolder
from shortlist.sentences import promise_words
from shortlist.training.processes import is_first_process

_TRACKERS = ("tensorboard", "mlflow", "wandb")  # which get what is known at the end


def make_loggers(run: RunFolder, recipe: Recipe) -> list[Any]:
    """Make loggers by name: of this package, or package.module:Class, called with the run's log folder.

    Only recipes that passed :func:`shortlist.recipes.code.check_code` come here.
    """
    return [_logger(name, run.path, recipe) for name in recipe.loggers]


def _logger(name: str, folder: Path, recipe: Recipe) -> Any:
    make = {"csv": _csv, "tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}.get(name)
    if make is None:
        make_own = find_code("loggers", name)
        try:
            return make_own(folder / "logs")
        except Exception as error:  # somebody's own code fails in its own way
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"loggers: {name} cannot be made ({reason})") from error
    try:
        return make(folder, recipe)
    except ModuleNotFoundError as error:
        raise ValueError(f"loggers: {name} is not installed: pip install {name}") from error


def _csv(folder: Path, _: Recipe) -> Any:
    return loggers.CSVLogger(folder, name="logs", version="")


def _tensorboard(folder: Path, _: Recipe) -> Any:
    return loggers.TensorBoardLogger(folder, name="logs", version="")


def _mlflow(folder: Path, recipe: Recipe) -> Any:
    """Make the logger of MLflow; a resumed run goes on in the run of MLflow that it had."""
    from mlflow import get_tracking_uri  # pyright: ignore[reportMissingImports]

    kept = folder / "logs" / "mlflow_run"
    logger = loggers.MLFlowLogger(
        experiment_name=recipe.name,
        run_name=folder.name,
        tracking_uri=get_tracking_uri(),
        run_id=read_text(kept).strip() if kept.is_file() else None,
    )
    if not kept.is_file() and (run_id := logger.run_id):  # in the first process alone
        kept.parent.mkdir(exist_ok=True)
        write_text(kept, f"{run_id}\n")
        logger.log_hyperparams(recipe.model_dump())
    return logger


def _wandb(folder: Path, recipe: Recipe) -> Any:
    """Make the logger of Weights & Biases, which sends nothing unless ``WANDB_MODE`` says so."""
    os.environ.setdefault("WANDB_MODE", "offline")
    kept = folder / "logs" / "wandb_run"
    kept.parent.mkdir(exist_ok=True)
    if is_first_process() and not kept.is_file():
        write_text(kept, f"{uuid4().hex[:12]}\n")
    number = read_text(kept).strip() if is_first_process() else None
    project = os.environ.get("WANDB_PROJECT", recipe.name)
    how: Any = {"id": number, "project": project, "experiment": _open_wandb(folder)}
    logger = loggers.WandbLogger(name=folder.name, save_dir=folder / "logs", **how)
    logger.log_hyperparams(recipe.model_dump())
    return logger


def _open_wandb(folder: Path) -> Any:
    """Return what this process has open of a run in Weights & Biases, or ``None``."""
    opened = getattr(sys.modules.get("wandb"), "run", None)
    kept = folder / "logs" / "wandb_run"
    return opened if opened and kept.is_file() and opened.id == read_text(kept).strip() else None


@contextmanager
def closing_trackers(folder: Path) -> Iterator[None]:
    """End a run in Weights & Biases afterwards: it is open from its first epoch to its results."""
    try:
        yield
    finally:
        if (opened := _open_wandb(folder)) is not None:
            opened.finish()


def log_finished(run: Run, recipe: Recipe) -> None:
    """Give trackers the results on the test rows, the promise of each predictor, and the card's figure.

    The metrics have the names of :meth:`~shortlist.metrics.Results.metrics` after ``test/``, such as
    ``test/sets.conformal.coverage.micro``. The words of a promise are a tag, ``promise.conformal``.
    """
    names = [name for name in recipe.loggers if name in _TRACKERS]
    for name in names:
        try:
            _log(_logger(name, run.path, recipe), run)
        except Exception as error:  # the run is finished, and its tracker somebody else's
            text = f"loggers: {name} has no results of {run.path} ({type(error).__name__}: {error})"
            warnings.warn(text, stacklevel=2)


def _log(logger: Any, run: Run) -> None:
    numbers = {}
    if run.has_results():
        named = {f"test/{name}": each.value for name, each in run.results.metrics().items()}
        numbers = {name: value for name, value in named.items() if value is not None and isfinite(value)}
    promises = {name: predictor.promise for name, predictor in run.predictors.items()}
    levels = {f"promise/{name}": p.level for name, p in promises.items() if p.level is not None}
    words = {f"promise.{name}": promise_words(promise) for name, promise in promises.items()}
    figure = run.model_path / CARD_FIGURE
    logger.log_metrics(numbers | levels)
    _log_words(logger, words, figure if figure.is_file() else None)
    logger.finalize("success")


def _log_words(logger: Any, words: dict[str, str], figure: Path | None) -> None:
    """Give a tracker sentences and a picture, in its own way."""
    if isinstance(logger, loggers.TensorBoardLogger):
        for name, text in words.items():
            logger.experiment.add_text(name, text)
    elif isinstance(logger, loggers.MLFlowLogger):
        for name, text in words.items():
            logger.experiment.set_tag(logger.run_id, name, text)
        if figure is not None:
            logger.experiment.log_artifact(logger.run_id, str(figure))
    else:
        logger.experiment.summary.update(words)
        if figure is not None:
            import wandb  # pyright: ignore[reportMissingImports]

            logger.experiment.log({"coverage": wandb.Html(figure.read_text("utf-8"), inject=False)})
