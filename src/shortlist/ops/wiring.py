"""Arrange classes on the wires of a network, so that their numbers do not matter."""

from typing import Literal

import torch
from torch import Tensor

from shortlist.ops.selection import descending

Wiring = Literal["index", "sorted", "random"]


def arrange(
    scores: Tensor, wiring: Wiring, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return the scores in the order of the wires, and the class on each wire, (n, c); ``None`` by index.

    Sorted, the largest score starts on the wire where it is to end. Random, all rows have the same order.
    """
    if wiring == "index":
        return scores, None
    if wiring == "sorted":
        order = descending(scores.detach())[1].flip(-1)
    else:
        drawn = torch.rand(scores.shape[1], device=scores.device, generator=generator)
        order = drawn.argsort().expand(scores.shape)
    return scores.gather(1, order), order


def put_back(values: Tensor, order: Tensor | None) -> Tensor:
    """Return values (n, ..., c) of wires in the order of the classes."""
    if order is None:
        return values
    places = order.argsort(1)
    shape = (places.shape[0], *([1] * (values.ndim - 2)), places.shape[1])
    return values.gather(-1, places.view(shape).expand_as(values))


def wire_of(target: Tensor, order: Tensor | None) -> Tensor:
    """Return the wire (n,) of each row's class."""
    return target if order is None else (order == target[:, None]).int().argmax(1)
