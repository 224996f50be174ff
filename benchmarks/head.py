"""Memory and time of a training step of the head alone: features by 50,000 classes, in bfloat16, and a loss.

Memory is the most that tensors hold at once during a step, beside weights and features, in bytes per score:
scores and gradient in bfloat16 are 4. The head has few features then, so that its weights do not count. Time
is of the processor, on one thread, beside the step without a loss. Each loss is measured whole and by blocks
of rows, as it goes from four million scores on.

With ``--shards``, two processes take steps with cross-entropy, once with a copy of the head each whose
gradients are averaged, and once with half of the classes each, on the rows of both.

    python benchmarks/head.py            # as in docs/guides/cluster.md
    python benchmarks/head.py --shards
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from unittest.mock import patch

import torch
import torch.distributed as dist
from measure import peak_bytes
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from shortlist.losses import call_loss, create

LOSSES = {
    "cross_entropy": {},
    "focal": {},
    "logit_adjusted": {},
    "topk_hinge": {},
    "noised_topk": {},
    "smooth_topk": {},
    "ranked_topk": {"distribution": [0.5, 0, 0, 0, 0.5], "candidates": 16},
    "assume_negative": {},
    "expected_positive": {},
}
FEW_FEATURES = 8


def make_loss(name: str, classes: int) -> nn.Module:
    """A loss of so many classes, for lists of five."""
    if name == "cross_entropy":
        return nn.CrossEntropyLoss()
    return create(name, class_counts=1 + torch.arange(classes) % 200, **LOSSES[name])


def make_step(rows: int, classes: int, features: int, loss: nn.Module | None) -> Callable[[], None]:
    """A step of the head: forward in bfloat16, loss, backward; without a loss, the scores' sum."""
    head, inputs = nn.Linear(features, classes), torch.randn(rows, features, requires_grad=True)
    target, ids = torch.randint(classes, (rows,)), torch.arange(rows)

    def step() -> None:
        head.zero_grad()
        inputs.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            value = head(inputs).sum() if loss is None else call_loss(loss, head(inputs), target, ids)
        value.backward()

    return step


@contextmanager
def divided(into_blocks: bool) -> Iterator[None]:
    """Have all losses computed by blocks of rows, or none."""
    with patch("shortlist.losses._row_blocks._MANY", 1 if into_blocks else 1 << 62):
        yield


def seconds(step: Callable[[], None], repeats: int, clock: Callable[[], float] = process_time) -> float:
    """The median time of a step."""
    step()
    times = []
    for _ in range(repeats):
        start = clock()
        step()
        times.append(clock() - start)
    return median(times)


def bytes_held(step: Callable[[], None]) -> int:
    """The most that tensors hold at once during a step."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    return peak_bytes(profiler)


def compare_losses(given: argparse.Namespace) -> None:
    """Print a line for each loss."""
    torch.set_num_threads(1)
    rows, classes = given.rows, given.classes
    alone = seconds(make_step(rows, classes, given.features, None), given.repeats)
    print(f"{rows} rows x {classes} classes; head of {given.features} features alone {1e3 * alone:.0f} ms")
    print(f"{'':20}bytes per score         step / head alone")
    print(f"{'':20}   whole  by blocks       whole  by blocks")
    for name in given.losses:
        loss, numbers = make_loss(name, classes), []
        for into_blocks in (False, True):
            with divided(into_blocks):
                held = bytes_held(make_step(rows, classes, FEW_FEATURES, loss)) / rows / classes
                took = seconds(make_step(rows, classes, given.features, loss), given.repeats) / alone
            numbers.append((held, took))
        (held, took), (own_held, own_took) = numbers
        print(f"{name:20}{held:8.1f}{own_held:11.1f}{took:12.2f}{own_took:11.2f}", flush=True)


class _AllRows(torch.autograd.Function):
    """The features of all processes, of equally many rows each; the gradient is summed over them."""

    @staticmethod
    def forward(ctx, features: Tensor) -> Tensor:
        parts = [torch.empty_like(features) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, features.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[override]
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


class _SplitCrossEntropy(torch.autograd.Function):
    """The mean cross-entropy of rows whose scores are divided among the processes by classes."""

    @staticmethod
    def forward(ctx, scores: Tensor, target: Tensor, first: int) -> Tensor:
        scores = scores.float()
        highest = scores.amax(1)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        powers = (scores - highest[:, None]).exp_()
        own = (target >= first) & (target < first + scores.shape[1])
        place = torch.where(own, target - first, 0)[:, None]
        sums = torch.stack([powers.sum(1), torch.where(own, scores.gather(1, place)[:, 0], 0)])
        dist.all_reduce(sums)
        powers /= sums[0][:, None]
        ctx.save_for_backward(powers.scatter_add_(1, place, -own.float()[:, None]))
        return (highest + sums[0].log() - sums[1]).mean()

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return (gradient * (upstream / len(gradient))).bfloat16(), None, None


def shard_steps(rank: int, given: argparse.Namespace, folder: str) -> None:
    """Measure both ways in one of two processes; the first one prints."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    rows, classes, features = given.rows, given.classes, given.features
    whole = nn.Linear(features, classes)
    inputs, target = torch.randn(2 * rows, features), torch.randint(classes, (2 * rows,))
    mine = slice(rank * rows, (rank + 1) * rows)
    first = rank * classes // 2
    shard = nn.Linear(features, (rank + 1) * classes // 2 - first)
    with torch.no_grad():
        shard.weight.copy_(whole.weight[first : first + len(shard.bias)])
        shard.bias.copy_(whole.bias[first : first + len(shard.bias)])
    copy = DistributedDataParallel(whole)

    def copied() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return cross_entropy(copy(inputs[mine]), target[mine])

    def divided() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores = shard(_AllRows.apply(inputs[mine].requires_grad_()))
        return _SplitCrossEntropy.apply(scores, target, first)  # type: ignore[return-value]

    values, times = [], []
    for forward in (copied, divided):

        def step(forward: Callable[[], Tensor] = forward) -> None:
            copy.zero_grad()
            shard.zero_grad()
            forward().backward()

        value = forward().detach()
        if forward is copied:
            dist.all_reduce(value)
            value /= 2
        values.append(value.item())
        times.append(seconds(step, given.repeats, perf_counter))
    assert abs(values[0] - values[1]) < 1e-2, values  # the same loss of the same rows
    if rank == 0:
        moved = 4 * classes * features / 1e6
        print(
            f"2 processes, {rows} rows each, {features} x {classes} weights of {moved:.0f} MB, by the clock"
        )
        print(f"  a copy each, gradients averaged  {1e3 * times[0]:8.0f} ms")
        print(f"  half of the classes each         {1e3 * times[1]:8.0f} ms", flush=True)
    dist.barrier()
    os._exit(0)  # gloo's threads may abort a process that is taken down


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--classes", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--shards", action="store_true")
    given = parser.parse_args()
    if not given.shards:
        compare_losses(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        spawn(shard_steps, (given, str(Path(folder))), nprocs=2)


if __name__ == "__main__":
    main()
