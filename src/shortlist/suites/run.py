"""Run the missing runs of a suite, on several processes, and write its tables."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import yaml

from shortlist._checks import check_count
from shortlist._store.files import lock_folder, sweep_below, write_text
from shortlist.recipes import check_code
from shortlist.suites.plan import Task, resolve
from shortlist.suites.state import SuiteState, note_seen_from
from shortlist.suites.suite import Suite, SuiteError
from shortlist.suites.table import write_tables
from shortlist.suites.worker import Outcome, do_task, start_worker


@dataclass
class SuiteProgress:
    """The progress of a suite: runs done and in all, share of the work, seconds left, current runs.

    ``event`` is the run that just ended, if one did.
    """

    done: int
    total: int
    share: float
    seconds_left: float | None = None
    running: dict[str, float] = field(default_factory=dict)
    event: Outcome | None = None


Watch = Callable[[SuiteProgress], None]


def run_suite(
    suite: Suite, out: str | Path, *, jobs: int = 1, watch: Watch | None = None, allow_code: bool = False
) -> SuiteState:
    """Run the missing runs, choose grid points on validation rows, and write the tables.

    Args:
        suite: Suite to run.
        out: Folder for the runs, which are in ``out/<name of the suite>``.
        jobs: Number of runs at the same time, each in a process with its share of the threads; 1 runs in this
            process.
        watch: Function that is called with the progress.
        allow_code: Whether to run code that the recipes name; see :func:`shortlist.train`.

    Returns:
        The state afterwards; ``failed`` names the runs that failed.
    """
    check_count("jobs", jobs)
    folder = Path(out).absolute() / suite.name
    state = SuiteState(suite, folder)
    _check_code(state, allow_code)
    with _locked(folder):
        tracker = _Tracker(state, jobs, watch)  # refuses runs of other recipes, before anything is written
        content = suite.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        write_text(folder / "suite.yaml", yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        note_seen_from(folder)
        with _executor(jobs, tracker.tell) as executor:
            _work(state, executor, jobs, tracker, allow_code)
        write_tables(state)
    return state


def _check_code(state: SuiteState, allow_code: bool) -> None:
    """Refuse code in any recipe of a suite before the first run, not when its turn has come."""
    for cell in state.cells:
        for point in cell.points if cell.method.trains else ():
            try:
                check_code(resolve(state.suite, cell, point, 0), allow_code=allow_code)
            except ValueError as error:
                raise SuiteError(f"{state.suite.name}: {error}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    in_use = SuiteError(f"{folder} is in use: another process is running this suite")
    with lock_folder(folder, in_use):
        sweep_below(folder)  # runs that are finished are not locked again, and none would sweep them
        yield


class _Tracker:
    """A counter of the work done, in units of a training run."""

    def __init__(self, state: SuiteState, jobs: int, watch: Watch | None) -> None:
        self.watch, self.start, self.jobs = watch, time.monotonic(), jobs
        total, done = state.count()
        self.runs, self.done = sum(total.values()), sum(done.values())
        small = Task("", "", {}, posterior=True).weight
        self.work = total["trained"] + small * total["of scores"]
        self.before = self.now = done["trained"] + small * done["of scores"]
        self.running: dict[str, float] = {}
        self.ended: set[str] = set()
        self._guard = threading.Lock()
        self._send(None)

    def tell(self, message: tuple[str, float]) -> None:
        """Note the share of its work that a run has done."""
        name, share = message
        with self._guard:
            if name in self.running:
                self.running[name] = share
                self._send(None)

    def begin(self, task: Task) -> None:
        with self._guard:
            self.running[task.name] = 0.0

    def end(self, task: Task, outcome: Outcome) -> None:
        with self._guard:
            self.running.pop(task.name, None)
            again = task.name in self.ended  # chosen after it was made: only its test results were missing
            self.now += 0.0 if again else task.weight
            self.done += outcome.failure is None and not again
            self.ended.add(task.name)
            self._send(None if again and outcome.failure is None else outcome)

    def _send(self, event: Outcome | None) -> None:
        if self.watch is None:
            return
        now = self.now + sum(self.running.values())
        made, elapsed = now - self.before, time.monotonic() - self.start
        left = elapsed * max(0.0, self.work - now) / made if made > 0.5 else None  # not by the small ones
        share = now / self.work if self.work else 1.0
        self.watch(SuiteProgress(self.done, self.runs, min(1.0, share), left, dict(self.running), event))


class _InThisProcess(Executor):
    """An executor that runs each task immediately, in this process."""

    def submit(self, fn: Callable, /, *args, **kwargs) -> Future:
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def _executor(jobs: int, tell: Callable[[tuple[str, float]], None]) -> Iterator[Executor]:
    # no more than were asked for (OMP_NUM_THREADS): where others use the cores too, threads that wait for
    # each other take ten times the processor's time of one
    threads = max(1, min(torch.get_num_threads(), _cores() // jobs))
    if jobs == 1:
        start_worker(tell, threads)
        yield _InThisProcess()
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    queue = context.Queue()
    reader = threading.Thread(target=lambda: [tell(message) for message in iter(queue.get, None)])
    reader.start()
    executor = ProcessPoolExecutor(jobs, context, start_worker, (_Putter(queue), threads))
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
        queue.put(None)
        reader.join()


class _Putter:
    """A function that sends its arguments to the process that reads the queue."""

    def __init__(self, queue: multiprocessing.Queue) -> None:
        self.queue = queue

    def __call__(self, message: tuple[str, float]) -> None:
        self.queue.put(message)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _work(state: SuiteState, executor: Executor, jobs: int, tracker: _Tracker, allow_code: bool) -> None:
    """Keep all processes at work until nothing is left to do; new tasks are looked for after each run."""
    running: dict[Future, Task] = {}
    while True:
        under_way = {task.name for task in running.values()}
        ready = [task for task in state.ready() if task.name not in under_way]
        ready.sort(
            key=lambda task: (not task.made, task.weight)
        )  # small ones first: others may wait for them
        for task in ready[: jobs - len(running)]:
            tracker.begin(task)
            running[executor.submit(do_task, replace(task, allow_code=allow_code))] = task
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            task = running.pop(future)
            try:
                outcome = future.result()
            except BrokenExecutor as error:
                raise SuiteError(
                    f"a process ended in the middle of {task.name} (out of memory?): the same command goes "
                    f"on from here, with fewer --jobs it takes less memory"
                ) from error
            if outcome.failure is not None:
                state.failed.add(task.name)
            tracker.end(task, outcome)
