"""Time and memory of forward and backward of one loss, beside cross-entropy."""

import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

__all__ = ["Batch", "Loss", "Timing", "compare", "make_pool", "peak_bytes", "peak_memory"]

Loss = Callable[[Tensor, Tensor], Tensor]

_POOL = 8  # inputs to draw from, so that no branch predictor learns one by heart
_BLOCK = 0.01  # seconds of calls of one loss before it is the other one's turn
_WARM_UPS, _WARM_UP_LIMIT = 3, 0.5
_PROFILED = 3


class Batch(NamedTuple):
    """Scores (n, c), a leaf that wants a gradient, and class indices (n,)."""

    scores: Tensor
    target: Tensor


class Timing(NamedTuple):
    """Median milliseconds of a loss and of the cross-entropy measured in turns with it."""

    ms: float
    cross_entropy_ms: float
    repetitions: int

    @property
    def ratio(self) -> float:
        """How many times slower than cross-entropy."""
        return self.ms / self.cross_entropy_ms


def make_pool(n: int, c: int, scale: float) -> list[Batch]:
    """Some batches of normal scores with this standard deviation."""
    return [Batch((scale * torch.randn(n, c)).requires_grad_(), torch.randint(c, (n,))) for _ in range(_POOL)]


def compare(loss: Loss, pool: list[Batch], *, budget: float, at_least: int) -> Timing:
    """Call a loss and cross-entropy in turns until the time is used up.

    Args:
        loss: From scores and target, a scalar.
        pool: Batches; each call takes one at random.
        budget: Seconds to spend on both together, after warm-up.
        at_least: Calls of the loss to make even if they take longer.
    """
    _warm_up(cross_entropy, pool)
    _warm_up(loss, pool)
    of_loss: list[float] = []
    of_cross_entropy: list[float] = []
    stop = perf_counter() + budget
    while len(of_loss) < at_least or perf_counter() < stop:
        # at least 3, as the first one finds the caches full of the other loss's data
        of_cross_entropy += _block(cross_entropy, pool, at_least=3)
        of_loss += _block(loss, pool, at_least=1)
    return Timing(1e3 * median(of_loss), 1e3 * median(of_cross_entropy), len(of_loss))


def _warm_up(loss: Loss, pool: list[Batch]) -> None:
    stop = perf_counter() + _WARM_UP_LIMIT
    for _ in range(_WARM_UPS):
        _seconds(loss, random.choice(pool))
        if perf_counter() > stop:
            break


def _block(loss: Loss, pool: list[Batch], *, at_least: int) -> list[float]:
    times: list[float] = []
    while len(times) < at_least or sum(times) < _BLOCK:
        times.append(_seconds(loss, random.choice(pool)))
    return times


def _seconds(loss: Loss, batch: Batch) -> float:
    batch.scores.grad = None
    start = perf_counter()
    loss(batch.scores, batch.target).backward()
    return perf_counter() - start


def peak_memory(loss: Loss, pool: list[Batch]) -> float:
    """Most bytes held at once by forward and backward, the gradient included, as a multiple of the scores'.

    The profiler sees what goes through PyTorch's allocator, which is all tensors; it does not see the small
    buffers that kernels keep for a row at a time. ``x.exp().sum()``, say, takes 2: the exponentials, kept for
    the backward pass, and the gradient.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of each start and stop otherwise
    _warm_up(loss, pool)
    peaks = []
    for batch in pool[:_PROFILED]:
        batch.scores.grad = None
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            loss(batch.scores, batch.target).backward()
        peaks.append(peak_bytes(profiler) / batch.scores.nbytes)
    return max(peaks)


def peak_bytes(profiler: profile) -> int:
    """Most bytes that were held at once by what was allocated during a profile with memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    memory = sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"])
    held = peak = 0
    for event in memory:
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak
