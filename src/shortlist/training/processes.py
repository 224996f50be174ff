"""The processes of a training that torchrun started: they begin together, and end together.

torchrun starts all processes with the same command, also anew after it has lost one. The first process knows
what is left to do, since only it writes to the run folder; the others ask it. Trainings on one machine that
are started without torchrun need none of this: Lightning starts their further processes when it needs them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shortlist.recipes import Recipe
from shortlist.runs import RunError

T = TypeVar("T")

# the first process scores and measures alone, however long it takes; a lost process is noticed at once
_LONGEST_END = timedelta(days=30)


def is_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return dist.is_available() and dist.is_torchelastic_launched()


def is_first_process() -> bool:
    """Return whether this process writes the files that are written once."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


def uses_cuda(recipe: Recipe) -> bool:
    """Return whether a recipe trains on CUDA devices of this machine."""
    return torch.cuda.is_available() and recipe.accelerator in ("auto", "gpu", "cuda")


@contextmanager
def connected(recipe: Recipe) -> Iterator[None]:
    """Connect the processes that torchrun started, and let none leave before all are done.

    A process that left early could not be started again if the first one is lost while it scores.

    Raises:
        ValueError: If there are not as many processes as the recipe says.
        RunError: If another process stopped.
    """
    _check_counts(recipe)
    if not is_torchrun() or dist.is_initialized():  # somebody's own script has its own connection
        yield
        return
    on_cuda = uses_cuda(recipe)
    if on_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # one backend, by name: Lightning asks for it before it takes means
    dist.init_process_group("nccl" if on_cuda else "gloo")
    try:
        end: Any = dist.new_group(backend="gloo", timeout=_LONGEST_END)
        yield
        with _told_plainly():
            dist.barrier(end)
    finally:
        dist.destroy_process_group()


def decided_by_first(decide: Callable[[], T]) -> T:
    """Return what the first process decides; where processes are not connected, each decides by itself.

    Raises:
        RunError: If the first process stopped before it decided.
    """
    if not dist.is_initialized():
        return decide()
    decision = [decide() if dist.get_rank() == 0 else None]
    with _told_plainly():
        dist.broadcast_object_list(decision)
    return decision[0]  # type: ignore[return-value]


def same_everywhere(what: str, value: T) -> T:
    """Return a value that all processes must have read from the run folder.

    Raises:
        RunError: If they read different ones.
    """
    if dist.is_initialized():
        values: list[T] = [value] * dist.get_world_size()
        dist.all_gather_object(values, value)
        if any(other != values[0] for other in values):
            raise RunError(
                f"{what} must be the same for all processes, got {values}: the run folder must be at the "
                "same path on all machines, on a file system that they share"
            )
    return value


@contextmanager
def _told_plainly() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of any kind: each backend has its own
        raise RunError("another process of this training stopped: its own message says why") from error


def _check_counts(recipe: Recipe) -> None:
    wanted = f"devices {recipe.devices} and num_nodes {recipe.num_nodes}"
    if not is_torchrun():
        if recipe.num_nodes > 1:
            raise ValueError(
                f"num_nodes must be 1 without torchrun, got {recipe.num_nodes}: start the training on each "
                "machine by python -m torch.distributed.run"
            )
        return
    here, all_of_them = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    if (here, all_of_them) != (recipe.devices, recipe.devices * recipe.num_nodes):
        raise ValueError(
            f"torchrun started {here} processes here and {all_of_them} in all, but the recipe has {wanted}: "
            "give --nproc-per-node and --nnodes these numbers, or change the recipe with --set"
        )
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # the store would still hold the addresses of the lost processes, and be another one for some machines
        raise ValueError(
            f"--max-restarts of torchrun must be 0, got {restarts}, unless the environment of each torchrun "
            "has TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: otherwise processes started again cannot connect"
        )
