"""Soft comparators F, rising from 0 to 1 with F(-v) = 1 - F(v); each gives F(v) and its derivative."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["COMPARATORS", "mix"]

_GUARD = 1e-10  # added to differences that something is divided by, as in the original


def _logistic(v: Tensor) -> tuple[Tensor, Tensor]:
    chance = torch.sigmoid(v)
    return chance, chance * (1 - chance)


def _gaussian(v: Tensor) -> tuple[Tensor, Tensor]:
    return 0.5 * (1 + torch.erf(v * math.sqrt(0.5))), torch.exp(-0.5 * v * v) / math.sqrt(2 * math.pi)


def _cauchy(v: Tensor) -> tuple[Tensor, Tensor]:
    return torch.atan(v) / math.pi + 0.5, 1 / (math.pi * (1 + v * v))


def _reciprocal(v: Tensor) -> tuple[Tensor, Tensor]:
    scale = 1 / (2 + v.abs())
    return 0.5 * (v * scale + 1), scale * scale


def _optimal(v: Tensor) -> tuple[Tensor, Tensor]:
    """The one with the least error: linear inside, 1/v tails outside."""
    size = v.abs()
    inverse = 1 / (size.clamp_min(0.25) + _GUARD)
    inside = size <= 0.25
    value = 0.5 + torch.where(inside, v, (0.5 - inverse / 16) * v.sign())
    return value, torch.where(inside, torch.ones_like(v), inverse * inverse / 16)


# logistic_phi is the logistic of an argument that `mix` flattens first
COMPARATORS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "logistic": _logistic,
    "logistic_phi": _logistic,
    "gaussian": _gaussian,
    "cauchy": _cauchy,
    "reciprocal": _reciprocal,
    "optimal": _optimal,
}


def mix(gap: Tensor, slope: Tensor, comparator: str, art_lambda: float) -> tuple[Tensor, Tensor]:
    """The weight F(slope gap) that a wire gives to its partner, and its derivative in the gap."""
    v = gap * slope
    if comparator == "logistic_phi":
        size = gap.abs()
        power = (size + _GUARD).pow(-art_lambda)
        slope = slope * power * (1 - art_lambda * size / (size + _GUARD))
        v = v * power
    chance, derivative = COMPARATORS[comparator](v)
    return chance, derivative * slope
