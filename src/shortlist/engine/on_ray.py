"""Run a pass on Ray Data: a pool of actors, each of which has loaded the model once, takes the shards."""

import logging
import os
import pickle
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist.engine.local import Work, keep_memory

__all__ = ["run_on_ray"]


class _Worker:
    """What an actor holds: the function of a shard."""

    def __init__(self, work: Work) -> None:
        keep_memory()
        torch.set_num_threads(1)
        self.function = work()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the results of a batch of shards; errors too, which Ray would wrap beyond recognition."""
        return {"result": [pickle.dumps(self._one(pickle.loads(shard))) for shard in batch["shard"]]}

    def _one(self, shard: Any) -> tuple[bool, Any]:
        try:
            return True, self.function(shard)
        except Exception as error:
            if os.environ.get("SHORTLIST_DEBUG") == "1":
                traceback.print_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # which some errors do not survive
                error = RuntimeError(f"{type(error).__name__}: {error}")
            return False, error


@contextmanager
def running_ray(address: str | None, workers: int) -> Iterator[Any]:
    """Use the cluster at an address, the one that this process is with, or one that is started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell others what is done here
    import ray

    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"address": address} if address is not None else {"num_cpus": workers}
    if address is None:
        options["include_dashboard"] = False
    ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield ray
    finally:
        ray.shutdown()


def run_on_ray(
    work: Work, shards: Iterable[Any], *, workers: int = 1, address: str | None = None, gpus: float = 0
) -> Iterator[Any]:
    """Give the result of each shard as it is done, as :func:`~shortlist.engine.local.run_local` does.

    An actor that dies is started again and its shard is given to another one. Only shards and results, which
    are small, go through Ray's memory.

    Args:
        work: Function that makes the function of a shard, in each actor. It must be picklable.
        shards: The shards.
        workers: Number of actors, with one thread to compute each.
        address: Address of a running cluster; without it, Ray is started on this machine.
        gpus: Accelerators of each actor.
    """
    check_count("workers", workers)
    items = [{"shard": pickle.dumps(shard)} for shard in shards]
    if not items:
        return
    with running_ray(address, workers) as ray:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of each plan
        context = ray.data.DataContext.get_current()
        shown = context.enable_progress_bars
        context.enable_progress_bars = False  # the caller shows its own
        try:
            pool = ray.data.ActorPoolStrategy(size=min(workers, len(items)))
            found = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
                _Worker,
                fn_constructor_args=(work,),
                batch_size=1,
                compute=pool,
                num_cpus=1,
                num_gpus=gpus,
            )
            for row in found.iter_rows():
                good, result = pickle.loads(row["result"])
                if not good:
                    raise result
                yield result
        finally:
            context.enable_progress_bars = shown
