"""Run a pass on Ray Data: a pool of actors, each of which has loaded the model once, takes the shards."""

import logging
import os
import pickle
import threading
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist._memory import keep_memory
from shortlist.passes.local import Work, function_of

_ATTEMPTS = 4  # Ray itself would try for ever with what kills each worker that takes it
_END_SECONDS = 20.0  # for the threads of Ray Data, after an error too


class _Attempts:
    """An actor that counts how often workers have begun with something, whether or not they live."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()

    def begin(self, what: str) -> int:
        """Note an attempt, and return how many there were."""
        self.begun[what] += 1
        return self.begun[what]

    def end(self, what: str) -> None:
        """Forget the attempts of something that was done."""
        del self.begun[what]


class _Worker:
    """What an actor holds: the function of a shard.

    Args:
        work: Function that makes it.
        attempts: The actor that counts attempts.
        workers: Number of actors, all of which may be starting at the same time.
    """

    def __init__(self, work: Work, attempts: Any, workers: int) -> None:
        keep_memory()
        torch.set_num_threads(1)
        self.attempts, self.function = attempts, None
        if self._count("start") <= _ATTEMPTS * workers:
            self.function = function_of(work)
            self.attempts.end.remote("start")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the shard of a batch; an error too: Ray would wrap it beyond recognition."""
        ((name, shard),) = zip(batch["name"], batch["shard"], strict=True)
        return {"result": [pickle.dumps(self._attempt(name, shard))]}

    def _count(self, what: str) -> int:
        import ray

        return ray.get(self.attempts.begin.remote(what))

    def _attempt(self, name: str, shard: bytes) -> tuple[bool, Any]:
        if self.function is None:
            return False, _died("before they had loaded the model")
        if self._count(f"shard {name}") > _ATTEMPTS:
            return False, _died(f"{_ATTEMPTS} times while they worked on {name}")
        try:
            result = True, self.function(pickle.loads(shard))
        except Exception as error:
            if os.environ.get("SHORTLIST_DEBUG") == "1":
                traceback.print_exc()
            result = False, _picklable(error)
        self.attempts.end.remote(f"shard {name}")
        return result


def _picklable(error: Exception) -> Exception:
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:  # which some errors do not survive
        return RuntimeError(f"{type(error).__name__}: {error}")


def _died(how: str) -> RuntimeError:
    return RuntimeError(
        f"workers of Ray ended again and again, {how}, perhaps for want of memory; what is finished is kept: "
        "run the command again, with fewer --workers if it was memory"
    )


@contextmanager
def running_ray(address: str | None, workers: int) -> Iterator[Any]:
    """Use the cluster at an address, the one that this process is with, or one that is started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell others what is done here
    import ray

    if ray.is_initialized():
        yield ray
        return
    # "local", because None would join a cluster that others have started on this machine
    here: dict[str, Any] = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    options: dict[str, Any] = here if address is None else {"address": address}
    ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    before = set(threading.enumerate())
    try:
        yield ray
    finally:
        _wait_for_threads(before)
        ray.shutdown()


def _wait_for_threads(before: Collection[threading.Thread]) -> None:
    """Wait for the threads that Ray Data has started: one that asks Ray after its end ends this process."""
    until = time.monotonic() + _END_SECONDS
    for thread in set(threading.enumerate()) - set(before):
        if thread.name != "Prefetcher":  # it never ends, and asks for nothing when the others have ended
            thread.join(max(0.0, until - time.monotonic()))


def run_on_ray(
    work: Work, shards: Iterable[Any], *, workers: int = 1, address: str | None = None, gpus: float = 0
) -> Iterator[Any]:
    """Give the result of each shard as it is done, as :func:`~shortlist.passes.local.run_local` does.

    An actor that dies is started again and its shard is given to another one, up to four times. Only shards
    and results, which are small, go through Ray's memory.

    Args:
        work: Function that makes the function of a shard, in each actor. It must be picklable.
        shards: The shards.
        workers: Number of actors, with one thread to compute each.
        address: Address of a running cluster; without it, Ray is started on this machine.
        gpus: Accelerators of each actor.

    Raises:
        RuntimeError: If a shard, which it names, killed each actor that took it, or none loaded the model.
    """
    check_count("workers", workers)
    items = [
        {"name": str(getattr(shard, "name", number)), "shard": pickle.dumps(shard)}
        for number, shard in enumerate(shards)
    ]
    if not items:
        return
    with running_ray(address, workers) as ray:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of each plan
        context = ray.data.DataContext.get_current()
        shown = context.enable_progress_bars
        context.enable_progress_bars = False  # the caller shows its own
        try:
            rows = iter(_mapped(ray, work, items, min(workers, len(items)), gpus).iter_rows())
            with closing(rows):  # an error would keep it, and its threads with it
                for row in rows:
                    good, result = pickle.loads(row["result"])
                    if not good:
                        raise result
                    yield result
        finally:
            context.enable_progress_bars = shown


def _mapped(ray: Any, work: Work, items: list[dict[str, Any]], size: int, gpus: float) -> Any:
    """Return the data set of the results, which are made as they are asked for."""
    counting: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    attempts = ray.remote(**counting)(_Attempts).remote()
    return ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Worker,
        fn_constructor_args=(work, attempts, size),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=size),
        num_cpus=1,
        num_gpus=gpus,
    )
