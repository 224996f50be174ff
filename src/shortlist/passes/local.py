"""Run a pass on this machine: in this process, or in several."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist._memory import keep_memory

Work = Callable[[], Callable[[Any], Any]]
"""Function that each worker calls once. It returns the function from a shard to its result."""

Engine = Callable[..., Iterator[Any]]
"""Function that runs work on shards, such as :func:`run_local`."""

_function: Callable[[Any], Any] | None = None  # of this worker process


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread inside this context: the number of threads changes the last bits of products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def function_of(work: Work) -> Callable[[Any], Any]:
    """Return the function of a shard; if it cannot be made, a function that raises the error for each shard.

    Pools of processes and of actors do not report an error of a worker that starts.
    """
    try:
        return work()
    except Exception as error:
        problem = error

    def fail(_: Any) -> Any:
        raise problem

    return fail


def run_local(work: Work, shards: Iterable[Any], *, workers: int = 1) -> Iterator[Any]:
    """Give the result of each shard as it is done.

    Args:
        work: Function that makes the function of a shard, in each worker. It must be picklable.
        shards: The shards, which are asked for as workers become free.
        workers: Number of processes, each with one thread to compute; with 1, all is done in this one.

    Raises:
        RuntimeError: If a worker was killed.
    """
    check_count("workers", workers)
    if workers == 1:
        with one_thread():
            function = work()
            for shard in shards:
                yield function(shard)
        return
    context = multiprocessing.get_context("spawn")  # a fork would take over locks that threads hold
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(work,))
    try:
        yield from _results(pool, iter(shards), 2 * workers)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process ended before its work was done, perhaps for want of memory; what is finished "
            "is kept: run the command again, with fewer --workers if it was memory"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _results(pool: ProcessPoolExecutor, shards: Iterator[Any], ahead: int) -> Iterator[Any]:
    """Give the pool a few shards at a time, since it keeps every shard that it gets in memory."""
    waiting: set[Future] = {pool.submit(_call, shard) for shard in islice(shards, ahead)}
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        waiting |= {pool.submit(_call, shard) for shard in islice(shards, len(done))}
        for future in done:
            yield future.result()


def _begin(work: Work) -> None:
    global _function
    keep_memory()
    torch.set_num_threads(1)
    _function = function_of(work)


def _call(shard: Any) -> Any:
    assert _function is not None
    return _function(shard)
