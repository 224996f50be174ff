"""What runs of a suite where, what it has cost, and when it will end."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from shortlist._store.lease import holding, is_gone, read_lease
from shortlist.runs import Run, RunError
from shortlist.suites.plan import Cell, Point, run_name
from shortlist.suites.state import SuiteState


@dataclass(frozen=True)
class CurrentRun:
    """A run that a process has now.

    Args:
        run: Its name.
        host: Machine of the process.
        process: Number of the process on that machine.
        gpu: Its GPUs, as ``CUDA_VISIBLE_DEVICES`` has them.
        share: Share of the training that is done.
        seconds: Seconds since the process has begun with it.
        stopped: Whether the process is known to have ended: the next one goes on with the run.
    """

    run: str
    host: str
    process: int
    gpu: str | None
    share: float
    seconds: float
    stopped: bool


@dataclass(frozen=True)
class Cost:
    """What a suite has cost, and what is left.

    Args:
        spent: Seconds that its finished and current runs have taken.
        left: Seconds that the other runs will take, by the mean of finished ones of the same kind; ``None``
            while there is none.
        until_end: Seconds until the end, if as many processes go on as there are now; ``None`` if none does.
    """

    spent: float
    left: float | None
    until_end: float | None


def current_runs(state: SuiteState) -> list[CurrentRun]:
    """Return the runs of a suite that processes have now, by name."""
    runs = {}
    for _, holder in _leases(state.folder):
        if "run" in holder:
            about = {key: holder[key] for key in ("run", "host", "process", "gpu", "share", "seconds")}
            runs[holder["run"]] = CurrentRun(**about, stopped=is_gone(holder))
    return [runs[name] for name in sorted(runs)]


def release_left(folder: Path) -> None:
    """Remove leases of processes of this machine that have ended: nobody takes that of a finished run."""
    for path, holder in _leases(folder):
        if is_gone(holder):
            with holding(path):
                pass


def _leases(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the file of each lease below a folder, and what its owner wrote there."""
    for place, _, files in os.walk(folder):  # ignores folders that disappear meanwhile
        for name in files:
            if name.endswith(".lock") and name != ".lock":
                path, holder = Path(place, name), None
                with suppress(ValueError, OSError):  # it ends at this moment, or is a lock of another kind
                    holder = read_lease(path)
                if holder is not None:
                    yield path, holder


def cost_of(state: SuiteState, current: Sequence[CurrentRun]) -> Cost:
    """Estimate what a suite will cost by what its finished runs have cost.

    A run is taken to be like the finished ones of the same grid point, else of the same method, else of the
    same kind (trained, or made of others).
    """
    at_work = {run.run: run for run in current if not run.stopped}
    spent, finished, missing = 0.0, {}, []
    for cell in state.cells:
        for point, seed in state.all_runs(cell):
            name = run_name(cell, point, seed)
            seconds, trained = _seconds(state, name)
            if seconds is None:
                missing.append((cell, point, name))
                continue
            spent += seconds
            for key in _kinds(cell, point, trained):
                finished.setdefault(key, []).append(seconds)
    spent += sum(run.seconds for run in at_work.values())
    left: float | None = 0.0
    for cell, point, name in missing:
        durations = next(
            (finished[key] for key in _kinds(cell, point, cell.method.trains) if key in finished), None
        )
        if durations is None or left is None:
            left = None
            break
        left += fmean(durations) * (1 - (at_work[name].share if name in at_work else 0.0))
    return Cost(spent, left, left / len(at_work) if left is not None and at_work else None)


def _kinds(cell: Cell, point: Point, trained: bool) -> list[tuple[object, ...]]:
    return [(*cell.place, cell.name, point.label, trained), (*cell.place, cell.name, trained), (trained,)]


def _seconds(state: SuiteState, name: str) -> tuple[float | None, bool]:
    """Return the seconds that a finished run took, and whether it trained a first stage."""
    with suppress(RunError, OSError):
        info = Run.open(state.folder / name).info
        if info["state"] == "finished":
            made = "scores_from" in info or "first_stage_from" in info
            return info.get("seconds", sum(info.get("epoch_seconds", []))), not made
    return None, False
