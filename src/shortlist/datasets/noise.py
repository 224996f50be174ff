"""Label noise among classes that look alike."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shortlist._checks import check_count, check_number
from shortlist.datasets.splits import TensorSplit


def alphabetical_blocks(names: Sequence[str], size: int) -> Tensor:
    """Return a group for each class (c,): blocks of so many classes in alphabetical order.

    Blocks of five of CIFAR-100's classes are the groups of a published implementation. They are not its
    superclasses: 10 of the 200 pairs within a block share one.

    Example:
        >>> alphabetical_blocks(["oak", "elm", "fir", "ash"], 2)
        tensor([1, 0, 1, 0])
    """
    check_count("size", size)
    order = sorted(range(len(names)), key=lambda index: names[index])
    groups = torch.empty(len(names), dtype=torch.int64)
    groups[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(names)) // size
    return groups


def redraw_within_groups(
    targets: Tensor, groups: Tensor, *, probability: float, generator: torch.Generator | None = None
) -> Tensor:
    """Redraw each label with the given probability, uniformly within its group of classes.

    The new label may be the old one, so that in groups of ``m`` classes a share of
    ``probability * (m - 1) / m`` of the labels changes.

    Args:
        targets: Class index of each row (n,).
        groups: Group (superclass) of each class (c,), int64; see ``ClassTable.parent_index``.
        probability: Probability that a label is redrawn, in [0, 1].
        generator: Random generator of the draws.

    Returns:
        New labels (n,); ``targets`` is not changed.

    Example:
        >>> redraw_within_groups(torch.tensor([0, 2]), torch.tensor([0, 1, 2]), probability=1.0)
        tensor([0, 2])
    """
    check_number("probability", probability, low=0.0, high=1.0)
    if groups.dtype != torch.int64 or groups.ndim != 1:
        raise ValueError(f"groups must be int64 of shape (c,), got {groups.dtype} {tuple(groups.shape)}")
    if len(targets) and not (0 <= int(targets.min()) and int(targets.max()) < len(groups)):
        bad = int(targets.min()) if int(targets.min()) < 0 else int(targets.max())
        raise ValueError(f"targets must be in [0, {len(groups)}), got {bad}")
    members = groups.argsort(stable=True)
    sizes = groups.bincount()
    starts = sizes.cumsum(0) - sizes
    chosen = torch.rand(len(targets), generator=generator, dtype=torch.float64) < probability
    where = torch.rand(len(targets), generator=generator, dtype=torch.float64)
    group = groups[targets]
    redrawn = members[starts[group] + (where * sizes[group]).long()]
    return torch.where(chosen, redrawn, targets)


class NoisyTensorSplit(TensorSplit):
    """A part in memory whose ``targets`` are noisy; ``clean_targets`` (n,) are the labels before that."""

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        clean_targets: Tensor,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(inputs, targets, transform=transform)
        if clean_targets.shape != targets.shape:
            raise ValueError(
                f"clean_targets must have shape {tuple(targets.shape)}, got {tuple(clean_targets.shape)}"
            )
        self.clean_targets = clean_targets
