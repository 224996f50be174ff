"""Row losses of very many scores, some rows at a time, so that no copy is made of all of them.

Losses compute in float32 and keep one to twenty numbers for each score until the backward pass. Of 256 rows
and 50,000 classes in bfloat16, this is 5 to 50 times as much as the scores. Here each block of rows goes
through forward and backward at once, and what stays is the gradient, in the type of the scores.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from shortlist._checks import is_transformed, promote, refuse_second_derivative

_MANY = 1 << 22  # scores; below, all of them are in memory without trouble
_BLOCK = 1 << 20


def has_many_scores(logits: Tensor) -> bool:
    """Return whether the loss of a batch should be computed by blocks: it is large and wants a gradient."""
    if torch.compiler.is_compiling() or is_transformed(logits):  # a compiled graph decides what to keep
        return False
    return logits.requires_grad and torch.is_grad_enabled() and logits.numel() >= _MANY


def rows_by_blocks(row_loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Tensor:
    """Compute the loss of each row (n,) from scores (n, c) of any floating type and class indices (n,).

    Args:
        row_loss: Computes the loss (n,) of each row from that row alone, from float32 or float64 scores.
        logits: Scores that want a gradient.
        target: Class indices.
    """
    # float16 would lose small gradients, which are scaled only in the backward pass
    kept_type = torch.float32 if logits.dtype == torch.float16 else logits.dtype
    gradient = torch.empty_like(logits, dtype=kept_type)
    values = []
    for rows in _blocks(logits):
        with torch.enable_grad():
            leaf = promote(logits.detach()[rows]).requires_grad_()
            value = row_loss(leaf, target[rows])
        if not values and _needs_other_gradients(value, leaf):
            return row_loss(promote(logits), target)
        with torch.autocast(logits.device.type, enabled=False):  # as backward passes are
            gradient[rows] = torch.autograd.grad(value.sum(), leaf)[0]
        values.append(value.detach())
    return _KnownGradient.apply(logits, torch.cat(values), gradient)  # type: ignore[no-any-return]


def _blocks(scores: Tensor) -> list[slice]:
    n, c = scores.shape
    size = max(1, _BLOCK // c)
    return [slice(start, start + size) for start in range(0, n, size)]


def _needs_other_gradients(value: Tensor, leaf: Tensor) -> bool:
    """Return whether anything but the scores wants a gradient, such as a margin that is learned."""
    pending: list[Any] = [value.grad_fn]
    seen = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if getattr(node, "variable", leaf) is not leaf:
            return True
        pending += [inner for inner, _ in node.next_functions]
    return False


class _KnownGradient(torch.autograd.Function):
    """Values of rows whose gradient is known already."""

    @staticmethod
    def forward(ctx: FunctionCtx, logits: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = logits.dtype  # type: ignore[attr-defined]
        return values.clone()  # which may be changed in place

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        refuse_second_derivative("a loss of more than four million scores")
        (gradient,) = ctx.saved_tensors
        scaled = torch.empty_like(gradient, dtype=ctx.dtype)
        for rows in _blocks(gradient):
            scaled[rows] = promote(gradient[rows]) * upstream[rows, None]
        return scaled, None, None
