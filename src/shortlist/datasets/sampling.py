"""Class-balanced batches, and class weights that start at a later epoch."""

import random
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Integer, Num
from torch import Tensor, nn
from torch.utils.data import Sampler

from shortlist._checks import check_class_vector, check_count


class ClassBalancedSampler(Sampler[int]):
    """A sampler that draws a class uniformly, then one of its images uniformly, both with replacement.

    Each epoch is one sequence of draws that depends on the targets, ``seed`` and the epoch alone. Of it, each
    process takes every ``world_size``-th draw: shards are disjoint, equally long (a few further draws fill up
    the last round) and together make the sequence of a single process. Call ``set_epoch`` before each epoch;
    without it all epochs are the same. With Lightning, say ``Trainer(use_distributed_sampler=False)``: it
    would split the shards once more.

    ``state_dict`` in the middle of an epoch and ``load_state_dict`` before the next iteration continue with
    the very draws that were left, also with another number of processes. Of an epoch that was at its end
    nothing is left: go on with ``set_epoch`` of the next. A loader with workers takes draws ahead of the
    training: tell ``state_dict`` how many were used.

    Args:
        target: Class index of each image (n,).
        num_samples: Number of draws per epoch over all processes; ``None`` for n.
        num_classes: If given, a bound that the class indices must keep. Classes without images are not drawn.
        seed: Seed of the draws.
        rank: Rank of this process; ``None`` to ask ``torch.distributed`` when it is needed.
        world_size: Number of processes; given if and only if ``rank`` is.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> target = torch.tensor([0] * 98 + [1] * 2)
        >>> sampler = ClassBalancedSampler(target, num_samples=10_000)
        >>> 0.48 < target[list(sampler)].float().mean() < 0.52
        tensor(True)
        >>> sampler.set_epoch(1)

    References:
        B. Kang, S. Xie, M. Rohrbach, Z. Yan, A. Gordo, J. Feng, Y. Kalantidis, "Decoupling representation and
        classifier for long-tailed recognition", ICLR 2020, section 3 (class-balanced sampling).
    """

    def __init__(
        self,
        target: Integer[Tensor, " n"],
        *,
        num_samples: int | None = None,
        num_classes: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        _check_labels(target, num_classes)
        if num_samples is not None:
            check_count("num_samples", num_samples)
        _check_integer("seed", seed)
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank and world_size must go together, got {rank} and {world_size}")
        if rank is not None and world_size is not None:
            check_count("world_size", world_size)
            _check_integer("rank", rank, below=world_size)
        target = target.cpu()
        self._images = target.argsort(stable=True)  # those of the first class, of the second, ...
        self._counts = target[self._images].unique_consecutive(return_counts=True)[1]
        self._starts = self._counts.cumsum(0) - self._counts
        # of the draws' only source besides the seed: a state of other targets would continue another sequence
        self.target_checksum = zlib.crc32(self._counts.numpy().tobytes() + self._images.numpy().tobytes())
        self.num_samples = target.shape[0] if num_samples is None else num_samples
        self.seed, self.epoch = seed, 0
        self._rank, self._world_size = rank, world_size
        # counts of draws of the epoch, over all processes
        self._resume_at = 0  # left out by the next iteration
        self._start = 0  # left out by this iteration
        self._position = 0  # given out

    def set_epoch(self, epoch: int) -> None:
        """Choose the draws of an epoch; a new epoch starts at its beginning."""
        _check_integer("epoch", epoch)
        if epoch != self.epoch:
            self.epoch = epoch
            self._resume_at = self._start = self._position = 0

    def __len__(self) -> int:
        """Return the number of draws of this process in a whole epoch."""
        return -(-self.num_samples // self._place()[1])

    def __iter__(self) -> Iterator[int]:
        rank, world_size = self._place()
        start = self._start = self._position = self._resume_at
        self._resume_at = 0
        rounds = max(0, -(-(self.num_samples - start) // world_size))
        draws = self._draw(start + rounds * world_size)
        for index in draws[start + rank :: world_size].tolist():
            self._position += world_size
            yield index

    def state_dict(self, *, consumed: int | None = None) -> dict[str, Any]:
        """Return the position in the epoch.

        Args:
            consumed: Number of draws that this process has used since the iteration began, which after a
                resume is in the middle of the epoch. ``None`` counts the draws given out; a loader with
                workers takes these before they are used.
        """
        position = self._position
        if consumed is not None:
            _check_integer("consumed", consumed, below=len(self) + 1)
            position = self._start + consumed * self._place()[1]
        return {
            "epoch": self.epoch,
            "position": position,
            "seed": self.seed,
            "num_samples": self.num_samples,
            "target_checksum": self.target_checksum,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state: the next iteration gives the rest of its epoch."""
        entries = {"epoch", "position", "seed", "num_samples", "target_checksum"}
        if set(state) != entries:
            raise ValueError(f"state must have the entries {sorted(entries)}, got {sorted(state)}")
        for name in ("seed", "num_samples", "target_checksum"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"{name} must be that of the saved state ({state[name]}), got {getattr(self, name)}"
                )
        self.epoch = state["epoch"]
        self._resume_at = self._start = self._position = state["position"]

    def _place(self) -> tuple[int, int]:
        """Return the rank and the number of processes."""
        if self._rank is not None and self._world_size is not None:
            return self._rank, self._world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def _draw(self, length: int) -> Tensor:
        """Return the first ``length`` draws of the epoch."""
        # hashed: with seed + epoch, runs of neighboring seeds would share most of their epochs
        generator = torch.Generator().manual_seed(random.Random(f"{self.seed}, {self.epoch}").getrandbits(32))
        # one row per draw, so that more draws do not change the first ones
        uniform = torch.rand(length, 2, generator=generator, dtype=torch.float64)
        classes = (uniform[:, 0] * self._counts.shape[0]).long()
        within = (uniform[:, 1] * self._counts[classes]).long()
        return self._images[self._starts[classes] + within]


def deferred_weights(epoch: int, *, start_epoch: int, weights: Num[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Return the class weights of an epoch under deferred re-weighting: ones first, the given ones later.

    Args:
        epoch: Number of the epoch, from 0.
        start_epoch: First epoch with the given weights (in the paper, 160 of 200).
        weights: Weight of each class (c,), for example class-balanced weights.

    Returns:
        Weights (c,).

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> weights = torch.tensor([0.5, 1.5])
        >>> deferred_weights(0, start_epoch=160, weights=weights)
        tensor([1., 1.])
        >>> deferred_weights(160, start_epoch=160, weights=weights)
        tensor([0.5000, 1.5000])

    References:
        K. Cao, C. Wei, A. Gaidon, N. Arechiga, T. Ma, "Learning imbalanced datasets with
        label-distribution-aware margin loss", NeurIPS 2019, algorithm 1.
    """
    _check_integer("epoch", epoch)
    _check_integer("start_epoch", start_epoch)
    check_class_vector("weights", weights)
    if not weights.is_floating_point():
        weights = weights.to(torch.get_default_dtype())
    return weights.clone() if epoch >= start_epoch else torch.ones_like(weights)


class DeferredReweighting:
    """A helper that sets a loss's class weights to :func:`deferred_weights` at each ``set_epoch``.

    From the start the loss has weights, which are ones, so that its state has the same entries throughout.

    Args:
        loss: A loss with a buffer ``weight`` that is not in use yet: any class loss of this library,
            ``nn.CrossEntropyLoss``. It is changed in place.
        weights: Weight of each class (c,), on the device of the loss unless it moves later.
        start_epoch: First epoch with the given weights.

    Raises:
        ValueError: If the loss has no ``weight``, or has one already.

    Example:
        >>> loss = nn.CrossEntropyLoss()
        >>> schedule = DeferredReweighting(loss, weights=torch.tensor([0.5, 1.5]), start_epoch=2)
        >>> for epoch in range(4):
        ...     schedule.set_epoch(epoch)
        ...     print(loss.weight.tolist())
        [1.0, 1.0]
        [1.0, 1.0]
        [0.5, 1.5]
        [0.5, 1.5]
    """

    def __init__(self, loss: nn.Module, *, weights: Num[Tensor, " c"], start_epoch: int) -> None:
        if "weight" not in loss._buffers:
            raise ValueError(f"loss must have a buffer named weight, got {type(loss).__name__}")
        if loss.weight is not None:
            raise ValueError(f"loss must have no weight of its own, got {loss.weight}")
        first = deferred_weights(0, start_epoch=start_epoch, weights=weights)
        self.loss, self.weights, self.start_epoch = loss, weights.clone(), start_epoch
        loss.weight = first

    def set_epoch(self, epoch: int) -> None:
        """Set the weights of an epoch."""
        weights = deferred_weights(epoch, start_epoch=self.start_epoch, weights=self.weights)
        buffer = self.loss.weight
        assert isinstance(buffer, Tensor)  # since the constructor
        buffer.copy_(weights)  # in place: stays on the loss's device, and compiled code still sees it


def _check_labels(target: Tensor, num_classes: int | None) -> None:
    if not isinstance(target, Tensor) or target.ndim != 1 or target.dtype not in _INTEGERS or not len(target):
        got = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target must be an integer tensor of shape (n,) with n >= 1, got {got}")
    if num_classes is not None:
        check_count("num_classes", num_classes)
    low, high = int(target.min()), int(target.max())
    if low < 0 or (num_classes is not None and high >= num_classes):
        bound = ">= 0" if num_classes is None else f"in [0, {num_classes})"
        raise ValueError(f"target must be {bound}, got {low if low < 0 else high}")


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _check_integer(name: str, value: int, *, below: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (below and value >= below):
        bound = ">= 0" if below is None else f"in [0, {below})"
        raise ValueError(f"{name} must be an integer {bound}, got {value!r}")
