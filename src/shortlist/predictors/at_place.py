"""The posterior at a place, where classes are as frequent as they are there."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_class_vector, tensor_of
from shortlist.class_table import ClassTable
from shortlist.place import Place

PlaceLike = Place | Tensor | np.ndarray | Sequence[float]
"""A place, or how often each class (c,) occurs there."""


def place_weights(place: PlaceLike, class_table: ClassTable | None = None) -> tuple[Float[Tensor, " c"], str]:
    """Return how often each class occurs at a place (c,), float64 that adds up to 1, and the place's name."""
    if isinstance(place, Place):
        if class_table is None:
            raise ValueError("class_table must be given for a Place, got None")
        return place.vector(class_table), place.name
    weights = torch.tensor(place) if isinstance(place, list | tuple) else tensor_of(place)
    check_class_vector("place", weights)
    weights = weights.detach().cpu().double()
    if not bool((weights > 0).any()):
        raise ValueError("place must be above 0 for some class, got 0 for all")
    return weights / weights.sum(), ""


def check_size_at_place(k: float, classes: int | None) -> None:
    """Require sets that are not larger than the number of classes of a place, if there is one."""
    if classes is not None and k > classes:
        raise ValueError(f"k must be <= the number of classes of the place ({classes}), got {k}")


def place_offset(weights: Float[Tensor, " c"], priors: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Return what turns log-posteriors under ``priors`` into scores at a place, by addition.

    Args:
        weights: Frequency of the classes at the place, >= 0; -inf is the offset of a class without weight.
        priors: Class priors that the log-posteriors contain. A class without one is ruled out.
    """
    return (weights.double().log() - priors.double().log()).where(priors > 0, -torch.inf)
