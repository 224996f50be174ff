"""Metrics of detected strangers: how many known rows are flagged, and how many strangers."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import tensor_words
from shortlist.metrics.class_means import Average, average_rows

STRANGER = -1
"""The target of rows that belong to none of the known classes."""


def false_alarm_rate(
    flags: Bool[Tensor, " n"],
    target: Int[Tensor, " n"],
    *,
    num_classes: int,
    average: Average = "micro",
    groups: Int[Tensor, " c"] | None = None,
) -> Float[Tensor, "..."]:
    """Compute the share of rows of known classes that are flagged as strangers.

    Args:
        flags: Whether each row (n,) is flagged.
        target: Class of each row (n,); -1 for strangers, which are left out.
        num_classes: Number of known classes c.
        average: ``"micro"``: over rows; ``"macro"``: over classes; ``"group"``: over the classes of each
            group; ``"none"``: each class's own. See :func:`~shortlist.metrics.average_classes`.
        groups: Group of each class (c,), as from ``ClassTable.groups()``, for ``average="group"``.

    Returns:
        float64; NaN where there is no row.

    Example:
        >>> flags, target = torch.tensor([True, False, True, True]), torch.tensor([0, 0, 1, -1])
        >>> false_alarm_rate(flags, target, num_classes=2, average="none")
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    _check_rows("flags", flags, target, torch.bool)
    in_table = target != STRANGER
    return average_rows(
        flags[in_table], target[in_table], num_classes=num_classes, average=average, groups=groups
    )


def novelty_power(flags: Bool[Tensor, " n"], target: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Compute the share of strangers that are flagged; NaN if there is none.

    Args:
        flags: Whether each row (n,) is flagged.
        target: Class of each row (n,); -1 for strangers.

    Example:
        >>> novelty_power(torch.tensor([True, False, True, True]), torch.tensor([0, -1, -1, -1]))
        tensor(0.6667, dtype=torch.float64)
    """
    _check_rows("flags", flags, target, torch.bool)
    return flags[target == STRANGER].double().mean()


def novelty_auroc(strangeness: Float[Tensor, " n"], target: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Compute how often a stranger is stranger than a known row; equal ones count one half.

    This is the area under the curve of power against false alarms. It is NaN without strangers or without
    known rows.

    Args:
        strangeness: Strangeness of each row (n,).
        target: Class of each row (n,); -1 for strangers.

    Example:
        >>> novelty_auroc(torch.tensor([0.1, 0.5, 0.5, 0.9]), torch.tensor([0, 1, -1, -1]))  # 3.5 of 4 pairs
        tensor(0.8750, dtype=torch.float64)
    """
    _check_rows("strangeness", strangeness, target, None)
    of_table = strangeness[target != STRANGER].sort().values
    new = strangeness[target == STRANGER]
    below = torch.searchsorted(of_table, new).double()
    not_above = torch.searchsorted(of_table, new, right=True).double()
    return ((below + not_above) / 2).mean() / len(of_table) if len(of_table) else below.sum() * torch.nan


def _check_rows(name: str, values: Tensor, target: Tensor, dtype: torch.dtype | None) -> None:
    wanted = "a floating tensor" if dtype is None else "a bool tensor"
    right = isinstance(values, Tensor) and values.ndim == 1
    if not right or not (values.is_floating_point() if dtype is None else values.dtype == dtype):
        raise ValueError(f"{name} must be {wanted} of shape (n,), got {tensor_words(values)}")
    if not isinstance(target, Tensor) or target.dtype != torch.int64 or target.shape != values.shape:
        raise ValueError(f"target must be int64 of shape ({len(values)},), got {tensor_words(target)}")
