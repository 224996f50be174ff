"""Choose images of a class that are spread over it."""

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import check_count


def farthest_points(vectors: Tensor, count: int) -> np.ndarray:
    """Choose vectors by farthest points: first the one nearest to the mean, then always the farthest.

    Each vector that is not chosen has a chosen one at most twice as far as under the best choice of so many
    (Gonzalez, Clustering to minimize the maximum intercluster distance, 1985). It takes ``count`` products of
    all vectors with one of them.

    Args:
        vectors: Unit vectors (m, d).
        count: How many to choose.

    Returns:
        The chosen rows (at most ``count``), ascending.

    Example:
        >>> farthest_points(torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [0.9, 0.4]]), 2)
        array([2, 3])
    """
    check_count("count", count)
    if len(vectors) <= count:
        return np.arange(len(vectors))
    vectors = vectors.float()
    chosen = [int((vectors @ vectors.mean(0)).argmax())]
    nearest = vectors @ vectors[chosen[0]]  # of each vector, the similarity to the nearest chosen one
    while len(chosen) < count:
        nearest[chosen[-1]] = torch.inf
        chosen.append(int(nearest.argmin()))
        torch.maximum(nearest, vectors @ vectors[chosen[-1]], out=nearest)
    return np.sort(np.array(chosen))
