"""Soft comparators F, rising from 0 to 1 with F(-v) = 1 - F(v); each gives F(v) and its derivative."""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

_GUARD = 1e-10  # added to differences that something is divided by, as in the original


def _logistic(v: Tensor) -> tuple[Tensor, Tensor]:
    chance = torch.sigmoid(v)
    return chance, chance * (1 - chance)


def _gaussian(v: Tensor) -> tuple[Tensor, Tensor]:
    return 0.5 * (1 + torch.erf(v * math.sqrt(0.5))), torch.exp(-0.5 * v * v) / math.sqrt(2 * math.pi)


def _cauchy(v: Tensor) -> tuple[Tensor, Tensor]:
    # the usual choice, on small tensors: as few operations as can be
    half, pi = _constant(0.5, v.dtype, v.device), _constant(math.pi, v.dtype, v.device)
    chance = torch.add(half, torch.atan(v), alpha=1 / math.pi)
    return chance, torch.addcmul(pi, v, v, value=math.pi).reciprocal_()


@lru_cache(maxsize=32)
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=device)


def _reciprocal(v: Tensor) -> tuple[Tensor, Tensor]:
    scale = 1 / (2 + v.abs())
    return 0.5 * (v * scale + 1), scale * scale


def _optimal(v: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the comparator with the least error: linear inside, 1/v tails outside."""
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


def mix(v: Tensor, comparator: str, steepness: float, art_lambda: float) -> tuple[Tensor, Tensor]:
    """Return the weight F(v) of a wire's partner, with v = steepness * gap, and its derivative in v."""
    if comparator != "logistic_phi":
        return COMPARATORS[comparator](v)
    size = v.abs() / steepness
    power = (size + _GUARD).pow(-art_lambda)
    chance, derivative = _logistic(v * power)
    return chance, derivative * power * (1 - art_lambda * size / (size + _GUARD))
