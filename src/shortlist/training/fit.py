"""Run a recipe: train, keep the best epoch, score, calibrate, evaluate."""

from pathlib import Path

import torch

from shortlist._progress import Progress
from shortlist.datasets import Splits
from shortlist.recipes import Parts, Recipe, build_model, build_parts, check_code, moved, prepare_second_stage
from shortlist.runs import (
    Run,
    RunFolder,
    best_state,
    check_room_for_scores,
    find_kept_epoch,
    load_network,
    make_model,
    read_checkpoint,
    score_run,
)
from shortlist.training.callbacks import epoch_seconds
from shortlist.training.module import SetClassifier
from shortlist.training.processes import connected, decided_by_first, is_first_process, is_torchrun, uses_cuda
from shortlist.training.remake import find_lost, prepare_remake
from shortlist.training.stage import (
    SECOND_STAGE,
    first_stage,
    keep_given_network,
    quiet_lightning,
    run_stage,
)
from shortlist.training.trackers import closing_trackers, log_finished

_PATIENCE = 120.0  # seconds after which even a shared file system knows that a process is gone


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    test: bool = True,
    allow_code: bool = False,
    first_stage: str | Path | None = None,
) -> Run:
    """Run a recipe in a new folder.

    Args:
        recipe: Recipe to run.
        folder: Run folder to make; it must not exist. It is removed again if the run fails before the first
            epoch ends, since there is nothing to resume. Under torchrun, which gives the same command again
            after it has lost a process, a run of the same recipe goes on.
        progress: Function that is called with (what, done, of how many) as the run proceeds, and with the
            metrics so far while it trains.
        test: Whether to evaluate the test rows; their scores are saved in any case.
        allow_code: Whether to run code that the recipe names (a network or a logger by
            ``package.module:function``); see ``SECURITY.md``. Code that the user's settings trust always may.
        first_stage: Folder of a finished run whose first stage is taken over: its recipe differs only in the
            metric that chooses the epoch (one of which it has kept the best epoch: ``selection.keep``), in
            the second stage, and in what follows from the scores. The numbers are those of a training anew.
    """
    check_code(recipe, allow_code=allow_code)
    source = None if first_stage is None else Run.open(first_stage)
    with connected(recipe):
        if not is_first_process():
            return _follow(RunFolder(folder), recipe, progress)
        if is_torchrun() and (begun := _begun_before(folder, recipe)) is not None:
            return _proceed(RunFolder(folder), begun.recipe, progress, test)
        if Path(folder).exists():
            _check_data(recipe, folder, progress)
        run = RunFolder.create(folder, recipe, source)
        try:
            return _proceed(run, recipe, progress, test)
        except Exception:
            run.discard_if_untrained()
            raise


def _begun_before(folder: str | Path, recipe: Recipe) -> Run | None:
    """Open a run of the same recipe, if there is one: torchrun has started its processes again."""
    if not Path(folder).exists():
        return None
    run = Run.open(folder)
    run.check_recipe()
    return run if run.has_recipe(recipe) else None


def resume(
    folder: str | Path,
    *,
    progress: Progress | None = None,
    test: bool = True,
    allow_code: bool = False,
    data: str | Path | None = None,
) -> Run:
    """Continue a run from its last complete epoch, with the same result as without the stop.

    Files of a finished run that were lost or damaged since are made again from its best epoch, with a
    warning that names them. The arguments are those of :func:`train`; ``data`` is where the data lie now, if
    they were moved.
    """
    run = Run.open(folder)
    run.check_recipe()
    recipe = moved(run.recipe, data)
    check_code(recipe, allow_code=allow_code)
    with connected(recipe):
        if not is_first_process():
            return _follow(RunFolder(folder), recipe, progress)
        return _proceed(RunFolder(folder), recipe, progress, test)


def _follow(run: RunFolder, recipe: Recipe, progress: Progress | None) -> Run:
    """Join the first process in the training, if that is not over yet."""
    if decided_by_first(lambda: not (run.path / "run.json").is_file() or run.state == "started"):
        _fit(run, recipe, build_parts(recipe, progress=progress), progress)
    return run.read()


def _check_data(recipe: Recipe, folder: str | Path, progress: Progress | None) -> None:
    """Look at the data of a run whose folder exists, so that its user mends both at once.

    Raises:
        ValueError: If there is something wrong with the data too.
    """
    try:
        build_parts(recipe, pretrained=False, progress=progress)
    except (ValueError, OSError) as error:
        both = f"{str(error).rstrip('.')}. Besides, {folder} exists: choose another --out"
        raise ValueError(both) from error


def _proceed(run: RunFolder, recipe: Recipe, progress: Progress | None, test: bool) -> Run:
    """Finish a run as the first process; its recipe names no code, or code that is allowed."""
    patience = _PATIENCE if is_torchrun() else 0.0  # a lost process may hold the lock for a moment
    with run.locked(wait=patience), closing_trackers(run.path):
        begun = decided_by_first(lambda: run.state == "started")
        lost = find_lost(run) if run.state == "finished" else []
        if run.state == "finished" and not lost:
            return run.read()
        parts = build_parts(recipe, pretrained=begun, progress=progress)
        if lost:  # only now: without the data nothing could be made again
            prepare_remake(run)
        else:
            run.check_data(parts.data.class_table)
        parts.data.class_table.save(run.model_path / "class_table.json")
        if begun:
            check_room_for_scores(run, parts.data)
            recipe = run.complete_recipe(recipe, len(parts.data.class_table))
            run.set_state("started", input_shape=list(parts.sample.shape))
            _fit(run, recipe, parts, progress)
            last = read_checkpoint(run.path / first_stage(recipe).folder / "last.ckpt")
            kept = find_kept_epoch(run.read(), recipe).to_dict()
            run.set_state("trained", kept_epoch=kept, epoch_seconds=epoch_seconds(last))
        _finish(run, recipe, parts.data, progress, test)
        if not lost:
            with quiet_lightning():
                log_finished(run.read(), recipe)
    return run.read()


def _fit(run: RunFolder, recipe: Recipe, parts: Parts, progress: Progress | None) -> None:
    """Train the network to the end of its last stage."""
    if "first_stage_from" not in run.info:  # else its epochs are there
        module = SetClassifier(recipe, parts)
        if recipe.trains:
            run_stage(first_stage(recipe), run, recipe, module, parts.data, progress)
        else:
            decided_by_first(lambda: keep_given_network(run, recipe, module))
    if recipe.second_stage is not None:
        _second_stage(run, recipe, parts.data, progress)


def _second_stage(run: RunFolder, recipe: Recipe, data: Splits, progress: Progress | None) -> None:
    """Train only the classifier, on class-balanced batches, from the best epoch of the first stage."""
    stage = recipe.second_stage
    assert stage is not None
    torch.manual_seed(recipe.seed)
    sample = data.train[0][0]
    model = build_model(recipe, len(data.class_table), sample, pretrained=False, allow_code=True)
    model.load_state_dict(best_state(run.read(), first_stage(recipe).folder))
    prepare_second_stage(model, recipe)
    changed = recipe.model_copy(update={"epochs": stage.epochs, "steps": None, "reweighting": None})
    module = SetClassifier(changed, Parts.of(recipe, data, sample, model), lr=stage.lr)
    run_stage(SECOND_STAGE, run, changed, module, data, progress)


def _finish(run: RunFolder, recipe: Recipe, data: Splits, progress: Progress | None, test: bool) -> None:
    """Score validation and test rows by the best epoch, and write the finished model and the results."""
    network = load_network(run.read(), allow_code=True)
    if uses_cuda(recipe):
        network.cuda()
    score_run(run, recipe, data, network, progress=progress)
    make_model(run, recipe, data, network.cpu(), test=test)
