"""Sums, means and rankings over the batch of all processes.

Under data-parallel training each process has a part of the batch, and gradients are averaged over processes.
A quantity of the whole batch is then computed from sums over all processes, and its local part is multiplied
by their number, which the averaging divides by again: loss and gradients are those of one process with the
whole batch. The calls are collective, in the default process group: if one process makes them, all must.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.distributed as dist
from torch import Tensor

from shortlist._checks import can_read_values, is_transformed
from shortlist.ops import largest_indices

_alone: ContextVar[bool] = ContextVar("in_one_process", default=False)


def num_processes() -> int:
    """Count the processes that share the batch."""
    if not dist.is_available() or not dist.is_initialized() or _alone.get():
        return 1
    return dist.get_world_size()


@contextmanager
def in_one_process() -> Iterator[None]:
    """Take a batch for the whole one inside this context, though there are other processes.

    A process that trains something by itself would wait for the others without end.
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def _sum_over_processes(tensor: Tensor) -> Tensor:
    if num_processes() > 1:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
    return tensor


def global_count(counted: Tensor) -> Tensor:
    """Count the rows that are not ignored, over all processes."""
    return _sum_over_processes(counted.sum())


def global_sum_of(local: Tensor) -> Tensor:
    """Add up over all processes; the gradient, averaged over them, is that of the sum."""
    if num_processes() == 1:
        return local
    scaled = local * num_processes()
    return scaled + (_sum_over_processes(local.detach()) - scaled).detach()


def global_mean(local_sum: Tensor, count: Tensor) -> Tensor:
    """Take the mean over the rows of all processes, given the local sum and the global count."""
    return global_sum_of(local_sum) / count


def weighted_mean(rows: Tensor, total: Tensor) -> Tensor:
    """Divide the sum of weighted rows (n,) by the sum of their weights.

    Where the rows want a gradient, both sums are those of all processes: the processes' own means, averaged,
    would give the rows of a process with small weights too much. Without a gradient, nothing is trained, and
    a process may well be the only one that asks.
    """
    trains = rows.requires_grad and torch.is_grad_enabled()
    if num_processes() == 1 or not trains or is_transformed(rows):
        return rows.sum() / total
    return global_mean(rows.sum(), _sum_over_processes(total.detach()))


def largest_in_batch(values: Tensor, *, wanted: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Find the local entries among the ``wanted`` largest of all processes' values; -inf never counts.

    Args:
        values: Values of this process, of any shape.
        wanted: How many entries to find over all processes, a scalar tensor.
        most: Upper bound of ``wanted`` that is known without reading the tensor; used with one process.

    Returns:
        Flat indices (m,), and which of them are among the largest (m,). The others are not left out: an
        accelerator would have to wait for the number, and a compiled graph cannot depend on it.
    """
    flat = values.reshape(-1)
    if num_processes() == 1 and not can_read_values(values):
        top, index = flat.topk(most)
        return index, (torch.arange(most, device=top.device) < wanted) & (top > -torch.inf)
    index = _local_part_of_largest(flat, int(wanted))
    return index, flat[index] > -torch.inf


def _local_part_of_largest(flat: Tensor, wanted: int) -> Tensor:
    if num_processes() == 1 or wanted == 0:
        return largest_indices(flat, wanted)
    local = min(wanted, flat.numel())
    top, index = flat.topk(local, sorted=True)
    padded = top.new_full((wanted,), -torch.inf)
    padded[:local] = top
    shared = [torch.empty_like(padded) for _ in range(num_processes())]
    dist.all_gather(shared, padded)
    everywhere = torch.stack(shared)
    bound = everywhere.flatten().topk(wanted).values[-1]
    # of those equal to the bound, the first processes take as many as are left
    above = int((everywhere > bound).sum())
    tied = (everywhere == bound).sum(1)
    before = int(tied[: dist.get_rank()].sum())
    mine = max(0, min(int(tied[dist.get_rank()]), wanted - above - before))
    return index[: int((top > bound).sum()) + mine]
