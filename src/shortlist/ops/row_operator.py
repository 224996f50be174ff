"""Operators on rows of scores whose gradient is computed with their value, for autograd and transforms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import is_transformed, refuse_second_derivative

RowOperator = Callable[..., Tensor]
"""Takes scores (n, c) and what else its function takes but ``needs_gradient``; returns values (n,)."""


def row_operator(name: str, function: Callable[..., tuple[Tensor, Tensor]], *, called: str) -> RowOperator:
    """Make an operator from a function that returns values (n,) and their gradient in the scores (n, c).

    ``torch.compile`` does not look inside: it would unroll product trees and the layers of networks.
    ``torch.func.grad`` and ``vmap`` take it, the latter in a loop. It has no second derivative.

    Args:
        name: Name of the operator in ``torch.ops.shortlist``.
        function: Takes scores (n, c), other arguments by position, and last ``needs_gradient``; without it
            the gradient that it returns has no rows (0, c). Arguments and result are annotated.
        called: Public name of the operator, for the error if its gradient is differentiated again.
    """
    operator = torch.library.custom_op(f"shortlist::{name}", function, mutates_args=())

    @operator.register_fake
    def _(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        n, c = scores.shape
        return scores.new_empty(n), scores.new_empty(n if others[-1] else 0, c)

    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        ctx.num_others = len(inputs) - 1
        ctx.save_for_backward(output[1])

    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(called)
        return upstream[:, None] * ctx.saved_tensors[0], *([None] * ctx.num_others)

    operator.register_autograd(backward, setup_context=setup_context)

    def apply(scores: Tensor, *others: Any) -> Tensor:
        if is_transformed(scores):
            return _Transformed.apply(scores, operator, called, *others)[0]
        return operator(scores, *others, scores.requires_grad)[0]

    return apply


class _Transformed(torch.autograd.Function):
    """An operator under the transforms of ``torch.func``, which do not take those of ``torch.library``."""

    @staticmethod
    def forward(scores: Tensor, operator: Callable, called: str, *others: Any) -> tuple[Tensor, Tensor]:
        return operator(scores, *others, True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        ctx.called, ctx.num_others = inputs[2], len(inputs) - 1
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0][:, None] * ctx.saved_tensors[0], *([None] * ctx.num_others)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        def at(place: int) -> list:
            return [
                x if dim is None else x.select(dim, place) for x, dim in zip(inputs, in_dims, strict=True)
            ]

        parts = [_Transformed.apply(*at(place)) for place in range(info.batch_size)]
        values, gradients = (torch.stack(part) for part in zip(*parts, strict=True))
        return (values, gradients), (0, 0)


def with_gradient(scores: Tensor, value: Tensor, gradient: Tensor, *, called: str) -> Tensor:
    """Attach the gradient (n, c) in the scores to a value (n,); not for ``torch.compile`` and ``torch.func``.

    For what is computed in one pass but is no operator of its own.

    Args:
        scores: Scores (n, c) that need a gradient.
        value: Function of the scores (n,), computed without autograd.
        gradient: Gradient of the value in the scores (n, c).
        called: Public name of the operator, for the error if its gradient is differentiated again.
    """
    return _WithGradient.apply(scores, value, gradient, called)


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor, called: str) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.called = called
        return value.clone()  # an input that is returned as it is could not be changed in place

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(ctx.called)
        return gradients[0][:, None] * ctx.saved_tensors[0], None, None, None
