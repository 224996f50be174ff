"""Run the missing runs of a suite, on several processes, and write its tables."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from shortlist._bounds import check_choice
from shortlist._checks import check_count
from shortlist._messages import one_line
from shortlist._store.files import lock_folder, read_text, sweep_below, write_text
from shortlist._store.lease import LeaseWatch, holding, read_lease
from shortlist.recipes import check_code
from shortlist.runs import file_identity
from shortlist.suites.crew import Crew, local_crew, ray_crew
from shortlist.suites.plan import Task, resolve, source_cell
from shortlist.suites.state import SuiteState, note_seen_from
from shortlist.suites.status import release_left
from shortlist.suites.suite import Suite, SuiteError
from shortlist.suites.table import write_tables
from shortlist.suites.worker import Outcome

_ATTEMPTS = 4  # of a run whose process is lost each time
_LOOK = 1.0  # seconds after which to look what other processes have done


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
    suite: Suite,
    out: str | Path,
    *,
    jobs: int = 1,
    watch: Watch | None = None,
    allow_code: bool = False,
    part: tuple[int, int] | None = None,
    engine: str = "local",
    address: str | None = None,
    gpus: float = 0,
) -> SuiteState:
    """Run the missing runs, choose grid points on validation rows, and write the tables.

    Several processes, on several machines too, may run one suite in one folder: each makes runs that nobody
    else has, and waits at the end for those of others.

    Args:
        suite: Suite to run.
        out: Folder for the runs, which are in ``out/<name of the suite>``.
        jobs: Number of runs at the same time, each in a process with its GPU and its share of the cores; 1
            runs in this process.
        watch: Function that is called with the progress.
        allow_code: Whether to run code that the recipes name; see :func:`shortlist.train`.
        part: Make only the i-th of n parts, as (i, n), which need nothing of each other.
        engine: ``local``, or ``ray`` for tasks of Ray.
        address: Of a running cluster of Ray; without it, Ray is started on this machine.
        gpus: GPUs of each task of Ray.

    Returns:
        The state afterwards; ``failed`` names the runs that failed.
    """
    check_count("jobs", jobs)
    check_choice("engine", engine, ("local", "ray"))
    folder = Path(out).absolute() / suite.name
    state = SuiteState(suite, folder, part=part)
    _check_code(state, allow_code)
    with _joined(folder):
        tracker = _Tracker(state, jobs, watch)  # refuses runs of other recipes, before anything is written
        content = suite.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        write_text(folder / "suite.yaml", text)
        note_seen_from(folder)
        crew = ray_crew(jobs, address, gpus) if engine == "ray" else local_crew(jobs, tracker.tell)
        with crew as workers:
            _Work(state, workers, jobs, tracker, allow_code).do()
        _write_tables(state, text)
    return state


def _write_tables(state: SuiteState, text: str) -> None:
    """Write the tables, one process at a time: who comes last has seen all runs.

    If the suite was changed meanwhile, they are left to the process that runs it as it is now.
    """
    watch, path = LeaseWatch(), state.folder / "tables.lock"
    while True:
        gone = watch.gone(path)
        with holding(path, gone or ()) if gone is not None else nullcontext() as lease:
            if lease is not None:
                if read_text(state.folder / "suite.yaml") == text:
                    whole = SuiteState(state.suite, state.folder)  # of all parts
                    whole.failed |= state.failed
                    write_tables(whole)
                return
        time.sleep(0.2)


def _check_code(state: SuiteState, allow_code: bool) -> None:
    """Refuse code in any recipe of a suite before the first run, not when its turn has come."""
    for cell in state.cells:
        source = source_cell(cell, state.cells)
        first = None if source is None else (source, source.points[0])
        for point in cell.points:
            try:
                check_code(resolve(state.suite, cell, point, 0, first), allow_code=allow_code)
            except ValueError as error:
                raise SuiteError(f"{state.suite.name}: {error}") from error


@contextmanager
def _joined(folder: Path) -> Iterator[None]:
    """Work in a folder together with others; an earlier version wants it for itself."""
    folder.mkdir(parents=True, exist_ok=True)
    in_use = SuiteError(f"{folder} is in use: a process of an earlier version is running this suite")
    with lock_folder(folder, in_use, shared=True):
        sweep_below(folder)  # runs that are finished are not locked again, and none would sweep them
        release_left(folder)
        yield


class _Tracker:
    """A counter of the work done, in units of a training run."""

    def __init__(self, state: SuiteState, jobs: int, watch: Watch | None) -> None:
        self.watch, self.start, self.jobs = watch, time.monotonic(), jobs
        total, done = state.count()
        self.runs, self.done = sum(total.values()), sum(done.values())
        small = Task("", "", {}, posterior=True).weight
        self.work = total["trained"] + small * total["of others"]
        self.before = self.now = done["trained"] + small * done["of others"]
        self.running: dict[str, float] = {}
        self.ended: set[str] = set()
        self._guard = threading.Lock()
        self._send(None)

    def tell(self, message: tuple[str, float]) -> None:
        """Note the share of its work that a run has done."""
        name, share = message
        with self._guard:
            if name in self.running and share > self.running[name]:
                self.running[name] = share
                self._send(None)

    def begin(self, task: Task) -> None:
        """Note that a run is made."""
        with self._guard:
            self.running[task.name] = 0.0

    def stop(self, task: Task) -> None:
        """Note that a run is no longer made here, and is not finished."""
        with self._guard:
            self.running.pop(task.name, None)

    def see(self, tasks: Iterable[Task]) -> None:
        """Read what processes write to their leases of their progress."""
        for task in tasks:
            for lock in task.locks[:1]:
                with suppress(OSError, ValueError):
                    self.tell((task.name, (read_lease(lock) or {}).get("share", 0.0)))

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


class _Work:
    """The work on a suite: tasks that run here, and those that other processes have."""

    def __init__(self, state: SuiteState, crew: Crew, jobs: int, tracker: _Tracker, allow_code: bool) -> None:
        self.state, self.crew, self.jobs, self.tracker = state, crew, jobs, tracker
        self.allow_code = allow_code
        self.running: dict[Future[Outcome], Task] = {}
        self.leases, self.lost = LeaseWatch(), Counter[str]()
        self.failures = {path: file_identity(path) for path in state.failure_files()}

    def do(self) -> None:
        """Keep the crew at work until nothing is left to do; new tasks are looked for after each run."""
        while True:
            waits = self._begin()
            if not self.running and not waits:
                return
            if self.running:
                done = wait(self.running, timeout=_LOOK, return_when=FIRST_COMPLETED).done
                for future in done:
                    self._end(self.running.pop(future), future)
            else:
                time.sleep(_LOOK)
            self.tracker.see(self.running.values())

    def _begin(self) -> bool:
        """Begin with tasks that nobody has; return whether any waits for another process."""
        self._note_failures_of_others()
        under_way = {task.name for task in self.running.values()}
        locked = {lock for task in self.running.values() for lock in task.locks}
        ready = [task for task in self.state.ready() if task.name not in under_way]
        # small ones first: others may wait for them
        ready.sort(key=lambda task: (not task.made, task.weight))
        waits = False
        for task in ready:
            if len(self.running) >= self.jobs:
                break
            gone = [self.leases.gone(Path(lock)) for lock in task.locks]
            if None in gone:
                waits = True
            elif locked.isdisjoint(task.locks):
                stale = tuple(token for tokens in gone if tokens is not None for token in tokens)
                self.tracker.begin(task)
                future = self.crew.submit(replace(task, allow_code=self.allow_code, stale=stale))
                self.running[future] = task
                locked |= {*task.locks}
        return waits

    def _end(self, task: Task, future: "Future[Outcome]") -> None:
        error = future.exception()
        if error is None:
            outcome = future.result()
        elif isinstance(error, KeyboardInterrupt):
            raise error
        else:  # the process was lost
            self.lost[task.name] += 1
            if self.lost[task.name] < _ATTEMPTS:
                self.tracker.stop(task)
                return  # it is ready again, and goes on from its last epoch
            why = f"the process that made it was lost {_ATTEMPTS} times (out of memory?): {one_line(error)}"
            outcome = Outcome(task.name, 0.0, f"{why}; the same command goes on from here")
        if outcome.busy:
            self.tracker.stop(task)
            return
        if outcome.failure is not None:
            self.state.failed.add(task.name)
            self.failures[Path(f"{task.folder}.failure.txt")] = None
        self.tracker.end(task, outcome)

    def _note_failures_of_others(self) -> None:
        """Leave alone what has failed elsewhere since the beginning: it is not tried twice at a time."""
        for path in self.state.failure_files():
            identity = file_identity(path)
            if path not in self.failures or self.failures[path] not in (None, identity):
                self.state.failed.add(str(path.relative_to(self.state.folder)).removesuffix(".failure.txt"))
