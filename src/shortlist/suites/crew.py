"""Who makes the runs of a suite: this process, several processes of this machine, or tasks of Ray."""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import Queue
from typing import Any, Protocol

import torch

from shortlist.passes import running_ray
from shortlist.suites.plan import Task
from shortlist.suites.worker import Outcome, Tell, do_task, start_worker, use_share


class Crew(Protocol):
    """What makes runs; a future of it has an exception if the process that made the run was lost."""

    def submit(self, task: Task) -> "Future[Outcome]":
        """Begin with a task."""
        ...


@contextmanager
def local_crew(jobs: int, tell: Tell) -> Iterator[Crew]:
    """Use this process for one job, else a process for each, with its GPU and its share of the cores."""
    # no more than were asked for (OMP_NUM_THREADS): where others use the cores too, threads that wait for
    # each other take ten times the processor's time of one
    threads = max(1, min(torch.get_num_threads(), _cores() // jobs))
    if jobs == 1:
        torch.set_num_threads(threads)
        yield _ThisProcess(tell)
        return
    gpus = visible_gpus()
    crew = _Processes([(threads, gpus[job % len(gpus)] if gpus else None) for job in range(jobs)])
    try:
        yield crew
    finally:
        crew.close()


@contextmanager
def ray_crew(jobs: int, address: str | None, gpus: float) -> Iterator[Crew]:
    """Use Ray: a task for each run, on a cluster, or with so many workers that are started here."""
    with running_ray(address, jobs) as ray:
        yield _RayTasks(ray, int(os.environ.get("OMP_NUM_THREADS", 1)), gpus)


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, for ``CUDA_VISIBLE_DEVICES``."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number in range(torch.cuda.device_count())]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _ThisProcess:
    """A crew that makes each run immediately."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def submit(self, task: Task) -> "Future[Outcome]":
        future: Future[Outcome] = Future()
        future.set_result(do_task(task, self.tell))
        return future


class _Processes:
    """A crew of processes; one that is lost takes no other with it, and is started again.

    Args:
        shares: Threads and GPU of each process.
    """

    def __init__(self, shares: list[tuple[int, str | None]]) -> None:
        self._context = multiprocessing.get_context("spawn")  # a forked torch may hang
        self._receive, self._send = self._context.Pipe(duplex=False)
        self._executors = {number: self._start(*share) for number, share in enumerate(shares)}
        self._shares, self._free = shares, Queue[int]()
        for number in self._executors:
            self._free.put(number)

    def _start(self, threads: int, gpu: str | None) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, self._context, start_worker, (threads, gpu, self._receive))

    def submit(self, task: Task) -> "Future[Outcome]":
        number = self._free.get()
        future = self._executors[number].submit(do_task, task)
        future.add_done_callback(partial(self._take_back, number))
        return future

    def _take_back(self, number: int, future: "Future[Outcome]") -> None:
        if not future.cancelled() and future.exception() is not None:
            self._executors[number].shutdown(wait=False)
            self._executors[number] = self._start(*self._shares[number])
        self._free.put(number)

    def close(self) -> None:
        """End all processes at once; what they make goes on from its last epoch."""
        self._send.close()
        self._receive.close()
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)


class _RayTasks:
    """A crew of tasks of Ray, which is asked not to try again: the suite does, from the last epoch."""

    def __init__(self, ray: Any, threads: int, gpus: float) -> None:
        self._do = ray.remote(max_retries=0, num_cpus=1, num_gpus=gpus)(_do_on_ray)
        self._threads = threads

    def submit(self, task: Task) -> "Future[Outcome]":
        return self._do.remote(task, self._threads).future()


def _do_on_ray(task: Task, threads: int) -> Outcome:
    use_share(threads, None)  # Ray gives each task its GPUs
    return do_task(task)
