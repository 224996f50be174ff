"""Two processes that know of each other, for what must come out as in one."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp


def in_two_processes(function: Callable, folder: Path, *, before: Callable | None = None) -> list[Any]:
    """What ``function(rank)`` returns in each of two processes joined by gloo.

    With ``before``, ``function(rank, before())``, where ``before`` is called ahead of the connection.
    """
    # forked from one process that has imported what takes long, and nothing else: it has no threads
    mp.get_context("forkserver").set_forkserver_preload(["torch.distributed", "shortlist.losses"])
    mp.start_processes(_run, (function, before, str(folder)), nprocs=2, start_method="forkserver")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def _run(rank: int, function: Callable, before: Callable | None, folder: str) -> None:
    made_before = () if before is None else (before(),)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    assert torch.distributed.get_world_size() == 2
    mine, other = (Path(folder) / f"{part}.pt" for part in (rank, 1 - rank))
    torch.save(function(rank, *made_before), mine.with_suffix(".part"))
    mine.with_suffix(".part").rename(mine)
    while not other.exists():  # else one leaves while the other still speaks to it
        time.sleep(0.01)
    # Neither the group nor the interpreter is taken down: gloo's threads may still let go of a tensor then,
    # and the process aborts now and then ("terminate called without an active exception").
    os._exit(0)
