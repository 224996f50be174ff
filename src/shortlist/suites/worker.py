"""Make one run of a suite in any process: train it, resume it, or make it from another run's scores."""

import os
import shutil
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shortlist._messages import one_line
from shortlist._store.files import link_file, replacing_folder, write_text
from shortlist._store.lease import Lease, LeaseLostError, holding
from shortlist.metrics import Results, evaluate
from shortlist.recipes import Recipe, build_data, check_code, code_in_recipe, make_recipe
from shortlist.runs import (
    Run,
    RunFolder,
    calibrate_run,
    describe_model,
    evaluate_run,
    load_network,
    scored_parts,
    with_label_sets,
)
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.suites.plan import Task
from shortlist.suites.suite import SuiteError
from shortlist.training import resume, train

Tell = Callable[[tuple[str, float]], Any]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task; ``failure`` is one line, with the traceback in a file beside the run.

    ``busy`` says that another process has the run, and nothing was done.
    """

    name: str
    seconds: float
    failure: str | None = None
    warnings: tuple[str, ...] = ()
    busy: bool = False


def start_worker(threads: int, gpu: str | None, end: Connection) -> None:
    """Prepare a process that makes runs: its share of the cores, its GPU, and its end.

    It ends when the other end of a pipe is closed, also by a kill: a suite that has ended must not leave
    processes behind that hold its runs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it, which closes
    use_share(threads, gpu)
    threading.Thread(target=_end_with, args=(end,), daemon=True).start()


def use_share(threads: int, gpu: str | None) -> None:
    """Use so many threads, also in processes that this one starts, and one GPU if there are any."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu


def _end_with(end: Connection) -> None:
    wait([end])
    os._exit(1)


def do_task(task: Task, tell: Tell | None = None) -> Outcome:
    """Make a run under its leases; a failure is written down and returned, so that the others continue."""
    start, failure = time.monotonic(), Path(f"{task.folder}.failure.txt")
    about = {"run": task.name, "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "share": 0.0}
    with warnings.catch_warnings(record=True) as caught, ExitStack() as stack:
        warnings.simplefilter("always")
        try:
            leases = []
            for path in task.locks:
                leases.append(stack.enter_context(holding(path, task.stale, **about)))
                if leases[-1] is None:
                    return Outcome(task.name, time.monotonic() - start, busy=True)
            _make(task, Path(task.folder), tell, leases)
        except LeaseLostError:
            return Outcome(task.name, time.monotonic() - start, busy=True)
        except Exception as error:
            with suppress(OSError):  # the disk may be full
                write_text(failure, traceback.format_exc())
            return Outcome(task.name, time.monotonic() - start, f"{one_line(error)} ({failure})")
    failure.unlink(missing_ok=True)
    for_users = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    messages = tuple(dict.fromkeys(map(one_line, for_users)))
    return Outcome(task.name, time.monotonic() - start, warnings=messages)


def _make(task: Task, folder: Path, tell: Tell | None, leases: Sequence[Lease | None]) -> None:
    recipe, start = make_recipe(task.recipe), time.monotonic()
    check_code(recipe, allow_code=task.allow_code)  # in this process, which may have run nothing before
    if task.made:
        final_results(folder, tuned=task.tuned)
        return
    if task.source is not None or task.posterior:
        _make_of_scores(task, folder, recipe)
        return
    last = [0.0, 0.0]

    def note(what: str, done: int, total: int, *_: object) -> None:
        now, share = time.monotonic(), done / max(1, total) if what == "training" else last[1]
        for lease in leases:
            if lease is not None:
                lease.check(share=round(share, 4))
        if tell is not None and what == "training" and now - last[0] > 0.3:
            last[0] = now
            tell((task.name, share))
        last[1] = share

    _clear_stillborn(folder)
    # no test results until it is known to be chosen
    what: dict[str, Any] = {"progress": note, "test": False, "allow_code": task.allow_code}
    if folder.exists():
        run = resume(folder, **what)
    else:
        run = train(recipe, folder, first_stage=task.first_stage, **what)
    _note_seconds(run.path, time.monotonic() - start)
    validation_results(run.path)
    if task.test:
        final_results(run.path, tuned=task.tuned)


def _note_seconds(path: Path, seconds: float) -> None:
    """Note once what a run has cost, with the epochs before a stop."""
    folder = RunFolder(path)
    with folder.locked():
        info = folder.info
        if "seconds" not in info:
            before = [] if "first_stage_from" in info else info.get("epoch_seconds", [])
            folder.set_state(folder.state, seconds=round(max(seconds, sum(before)), 1))


def _clear_stillborn(folder: Path) -> None:
    """Remove the folder of a process that was killed before it noted its start."""
    if folder.is_dir() and not (folder / "run.json").exists():
        for path in folder.iterdir():
            if path.name == "recipe.yaml" or path.name.startswith("."):
                path.unlink()
        with suppress(OSError):  # it holds something else: opening it will say so
            folder.rmdir()


def _make_of_scores(task: Task, folder: Path, recipe: Recipe) -> None:
    """Make a run from another run's scores, under another name first so that it is complete or missing."""
    if (folder / "checkpoints").is_dir():
        raise SuiteError(
            f"{folder} holds a network, which would be lost: remove that folder, or keep it elsewhere"
        )
    start = time.monotonic()
    taken = "posterior" if task.source is None else os.path.relpath(task.source, folder)
    if _was_made(folder, recipe, taken):  # by another process meanwhile
        if task.test:
            final_results(folder, tuned=task.tuned)
        return
    shutil.rmtree(folder, ignore_errors=True)  # made of the scores of what was chosen before
    with replacing_folder(folder) as new:
        new.rmdir()
        run = RunFolder.create(new, recipe)
        if task.source is not None:
            source = Run.open(task.source)
            _link(source, run.path)
            run.set_state("started", input_shape=source.info.get("input_shape"))
        else:
            _save_posterior(run, recipe)
        recipe = run.complete_recipe(recipe, len(run.read().class_table))
        calibrate_run(run.read(), recipe, network=_network_for_folds(task, run.read(), recipe))
        validation_results(new)
        if task.test:
            final_results(new, tuned=task.tuned)
        run.set_state("finished", scores_from=taken, seconds=round(time.monotonic() - start, 1))


def _was_made(folder: Path, recipe: Recipe, taken: str) -> bool:
    """Return whether a run is there that was made of the same scores by the same recipe."""
    with suppress(ValueError, OSError):  # not there, or not whole
        run = Run.open(folder)
        run.results_of("val")
        return run.info.get("scores_from") == taken and run.state == "finished" and run.has_recipe(recipe)
    return False


def _network_for_folds(task: Task, run: Run, recipe: Recipe) -> nn.Module | None:
    """Return the network where a calibration asks for one that only code of somebody's own can make."""
    far = recipe.novelty is not None and recipe.novelty.strangeness == "distance"
    if not (far or recipe.adjust.tau == "cross_fit") or not code_in_recipe(recipe):
        return None
    return load_network(run, allow_code=True)


def _link(source: Run, folder: Path) -> None:
    """Give a new run the scores and the network of another; the model's manifest comes with its files."""
    for name in ["model/model.json", *source.score_files(), "scores/declared.json"]:
        link_file(source.checked(name), folder / name)
    for name in ("epochs.csv", "model/class_table.json", "model/network.safetensors"):
        if (source.path / name).is_file():
            link_file(source.path / name, folder / name)


def _save_posterior(run: RunFolder, recipe: Recipe) -> None:
    data: Any = build_data(recipe)
    data.class_table.save(run.model_path / "class_table.json")
    parts: dict[str, Any] = scored_parts(data)
    for part, split in parts.items():
        inputs = split.batch(torch.arange(len(split)))[0]
        run.save_scores(part, {"set": data.log_posterior(inputs).float()}, split.targets)
    run.save_declared({"set": ScoreMap(len(data.priors), contains=PriorRecord.given(data.priors))})
    describe_model(run)


def validation_results(path: Path) -> Results:
    """Return the metrics of a run on validation rows, by which grid points are chosen; compute them once."""
    folder = RunFolder(path)
    with folder.locked():  # which takes away what a killed process left
        run = folder.read()
        with suppress(ValueError, OSError):  # not there, or not whole
            return run.results_of("val")
        # nobody looks at intervals here
        options: Any = run.recipe.evaluation.options | {"num_resamples": 0}
        rows = run.measure("val", metrics=run.own_metrics())
        results = evaluate(rows, None, run.predictors, run.class_table, **options)
        results = with_label_sets(run, run.recipe, "val", results).without_measured()
        folder.save_results(results, "val")
        return results


def final_results(path: Path, *, tuned: bool = False) -> Results:
    """Return the metrics on test rows of chosen runs; compute them once.

    Args:
        path: Folder of a run whose grid point is chosen.
        tuned: Whether there was a choice, by the validation rows; the promises then say so.
    """
    folder = RunFolder(path)
    with folder.locked():
        with suppress(ValueError, OSError):  # not there, or not whole
            return folder.read().results
        if tuned:
            folder.set_state(folder.state, tuned=True)
        return evaluate_run(folder.read())
