"""Priors, weights and margins of the classes, from their training counts."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_class_vector, check_number, tensor_of

ZeroCounts = Literal["error", "floor"]
"""What a class without examples is: an error, or counted as one example (``floor``)."""
Counts = Tensor | np.ndarray | Sequence[float]
"""Number of training examples of each class (c,): a tensor, an array or a list."""


def as_counts(class_counts: Any, *, device: torch.device | None = None) -> Tensor:
    """Convert counts from a list or an array to a tensor; leave anything else as it is.

    Example:
        >>> as_counts([6, 3, 1])
        tensor([6, 3, 1])
    """
    if isinstance(class_counts, list | tuple) and all(isinstance(n, int | float) for n in class_counts):
        return torch.tensor(class_counts, device=device)
    return tensor_of(class_counts, device=device)


def usable_counts(
    class_counts: Counts,
    *,
    zero_counts: ZeroCounts,
    num_classes: int | None = None,
    anywhere: bool = False,
) -> Tensor:
    """Check the counts and return them in float64, each at least 1; ``anywhere`` checks accelerators too."""
    check_choice("zero_counts", zero_counts, ("error", "floor"))
    class_counts = as_counts(class_counts)
    low = check_class_vector("class_counts", class_counts, num_classes=num_classes)
    if not class_counts.numel():
        raise ValueError("class_counts must have at least one entry, got none")
    if low is None and anywhere and not class_counts.is_meta:
        low = check_class_vector("class_counts", class_counts.cpu())
    if zero_counts == "error" and low is not None and low < 1:
        first = int(class_counts.argmin())
        raise ValueError(
            f"class_counts must be >= 1, got {low:g} for class {first}; zero_counts='floor' counts it as 1"
        )
    counts = class_counts.double()
    return counts if low is not None and low >= 1 else counts.clamp_min(1)


def _as_given(result: Tensor, class_counts: Tensor) -> Tensor:
    """Cast to the type of the counts if that is float32 or float64, else to the default type."""
    kept = class_counts.dtype in (torch.float32, torch.float64)
    return result.to(class_counts.dtype if kept else torch.get_default_dtype())


def class_priors(class_counts: Counts, *, zero_counts: ZeroCounts = "error") -> Tensor:
    r"""Return the share of each class in the training set, :math:`\pi_c = n_c / \sum n`.

    Args:
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        zero_counts: What to do with a class that has none: ``"error"``, or ``"floor"`` to count it as 1. A
            prior is never 0, and its logarithm never infinite. Functions do not look at counts on an
            accelerator or under ``torch.compile``, where ``"error"`` acts as ``"floor"``; modules look once,
            when they are made.

    Returns:
        Priors (c,) that add up to 1, in float64 for float64 counts, else in the default type.

    Raises:
        ValueError: If the counts are not a vector of finite numbers >= 0, or >= 1 with ``"error"``.

    Example:
        >>> class_priors(torch.tensor([6, 3, 1]))
        tensor([0.6000, 0.3000, 0.1000])
    """
    class_counts = as_counts(class_counts)
    counts = usable_counts(class_counts, zero_counts=zero_counts)
    return _as_given(counts / counts.sum(), class_counts)


def class_balanced_weights(
    class_counts: Counts, *, beta: float = 0.9999, zero_counts: ZeroCounts = "error"
) -> Tensor:
    r"""Return weights by effective number of examples, :math:`(1 - \beta) / (1 - \beta^{n_c})`, with mean 1.

    ``beta=0`` weighs all classes alike; as beta nears 1 the weights become inverse counts.

    Args:
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        beta: How much the effective number follows the counts, in [0, 1); 0 gives equal weights.
        zero_counts: See :func:`class_priors`.

    Returns:
        Weights (c,), for the ``weight`` of any loss.

    Example:
        >>> class_balanced_weights(torch.tensor([100, 1]), beta=0.99)
        tensor([0.0311, 1.9689])

    References:
        Y. Cui, M. Jia, T. Lin, Y. Song, S. Belongie, "Class-Balanced Loss Based on Effective Number of
        Samples", CVPR 2019.
    """
    check_number("beta", beta, low=0.0)
    if beta >= 1:
        raise ValueError(f"beta must be < 1, got {beta!r}")
    class_counts = as_counts(class_counts)
    counts = usable_counts(class_counts, zero_counts=zero_counts)
    weights = (1 - beta) / (1 - beta**counts)
    return _as_given(weights / weights.mean(), class_counts)


def margins_from_counts(
    class_counts: Counts, *, max_margin: float, zero_counts: ZeroCounts = "error"
) -> Tensor:
    r"""Return margins proportional to :math:`n_c^{-1/4}`, the largest of which is ``max_margin``.

    Args:
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        max_margin: Margin of the rarest class.
        zero_counts: See :func:`class_priors`.

    Returns:
        Margins (c,).

    Example:
        >>> margins_from_counts(torch.tensor([16, 1]), max_margin=0.4)
        tensor([0.2000, 0.4000])
    """
    check_number("max_margin", max_margin, above=0.0)
    class_counts = as_counts(class_counts)
    raw = usable_counts(class_counts, zero_counts=zero_counts).pow(-0.25)
    return _as_given(max_margin * raw / raw.max(), class_counts)
