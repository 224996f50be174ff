"""Cross-entropy with additive margins on the scores, the common core of the pairwise margin family."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from shortlist._checks import can_read_values, refuse_second_derivative

__all__ = ["margin_rows", "margin_table", "table_of_nonzero", "warn_unless_cosine"]

_FAR_OUTSIDE = 2.0
_LOOKED_AT = 32  # rows
_warned: set[str] = set()


def margin_rows(
    logits: Tensor,
    target: Tensor,
    *,
    on_all: Tensor | None = None,
    on_true: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Cross-entropy (n,) of ``scale (s_j + on_all_j)`` with the true score ``scale (s_y + on_true_y)``."""
    if scale != 1:
        change = None if on_true is None else scale * on_true[target][:, None]
        shifted = logits if on_all is None else logits + on_all
        if change is not None and on_all is not None:
            change = change - scale * on_all[target][:, None]
        moved = _Scaled.apply(shifted, target[:, None], change, scale)
        return _ScaledGradient.apply(cross_entropy(moved, target, reduction="none"), scale)
    moved = logits if on_all is None else logits + on_all
    if on_true is not None:
        change = (on_true if on_all is None else on_true - on_all)[target][:, None]
        # in place where the tensor is our own: one less of the scores' size to fill
        add = moved.scatter_add if moved is logits else moved.scatter_add_
        moved = add(1, target[:, None], change)
    return cross_entropy(moved, target, reduction="none")


class _Scaled(torch.autograd.Function):
    """Scores times a scale; the gradient is handed on *unscaled*: `_ScaledGradient` scales that of the rows.

    It spares a pass over all scores in the backward pass, which is a third of a cross-entropy.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, change: Tensor | None, scale: float) -> Tensor:
        moved = scale * scores
        return moved if change is None else moved.scatter_add_(1, target, change)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a margin loss with a scale")
        return gradients[0], None, None, None


class _ScaledGradient(torch.autograd.Function):
    """The rows as they are; their gradient times the scale."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0] * ctx.scale, None


def margin_table(
    logits: Tensor, *, on_all: Tensor | None = None, on_true: Tensor | None = None, scale: float = 1.0
) -> Tensor:
    """:func:`margin_rows` of each row for each class taken as the true one, (n, c)."""
    moved = scale * (logits if on_all is None else logits + on_all)
    if on_true is None and on_all is None:
        return -moved.log_softmax(-1)
    true = scale * (logits if on_true is None else logits + on_true)
    # The sum over the others is the whole less one term. That would cancel for the largest term only, whose
    # others are added up by themselves.
    largest = moved.argmax(-1, keepdim=True)
    whole = moved.logsumexp(-1, keepdim=True)
    rest = moved.scatter(-1, largest, -torch.inf)
    others = whole + torch.log1p(-(rest - whole).exp())
    others = others.scatter(-1, largest, rest.logsumexp(-1, keepdim=True))
    return softplus(others - true)


def table_of_nonzero(of_target: Callable[[Tensor, Tensor], Tensor], logits: Tensor, share: Tensor) -> Tensor:
    """The row loss (n, c) for each class that has a share, 0 for the others; one evaluation for each."""
    row, column = (share > 0).nonzero(as_tuple=True)
    return torch.zeros_like(logits).index_put((row, column), of_target(logits[row], column))


def warn_unless_cosine(logits: Tensor, *, scale: float, name: str) -> None:
    """Warn once per loss if scores that ought to be cosines, times a scale, are far outside [-1, 1]."""
    if scale <= 1 or name in _warned or not can_read_values(logits) or not logits.numel():
        return
    low, high = logits.detach()[:_LOOKED_AT].aminmax()
    size = max(-float(low) if torch.isfinite(low) else 0.0, float(high))
    if size > _FAR_OUTSIDE:
        _warned.add(name)
        warnings.warn(
            f"{name} expects cosine scores in [-1, 1], which it multiplies by scale={scale:g}, "
            f"got scores up to {size:.3g}: use a cosine head, or scale=1",
            stacklevel=4,
        )
