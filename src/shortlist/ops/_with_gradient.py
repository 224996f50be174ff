"""Values whose gradient is computed with them."""

from typing import Any

import torch
from torch import Tensor

from shortlist._checks import refuse_second_derivative

__all__ = ["with_gradient"]


def with_gradient(scores: Tensor, value: Tensor, gradient: Tensor, name: str) -> Tensor:
    """The value (n,), with the given gradient (n, c) in the scores.

    Where nothing is traced this takes the place of an operator of ``torch.library``, whose way through the
    dispatcher costs as much as dozens of small operations. ``name`` is for the error if the gradient is to be
    differentiated.
    """
    return _WithGradient.apply(scores, value, gradient, name)


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor, name: str) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.name = name
        return value.clone()  # an input that is returned as it is could not be changed in place

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(ctx.name)
        return gradients[0][:, None] * ctx.saved_tensors[0], None, None, None
