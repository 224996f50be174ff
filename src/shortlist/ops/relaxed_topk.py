"""Relaxed ranking: the probability that each class has each of the first k ranks."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_k, check_number, check_scores, promote
from shortlist.ops._network_ranks import network_ranks
from shortlist.ops._relaxed_sorts import neuralsort, sinkhornsort, softsort
from shortlist.ops.comparators import COMPARATORS
from shortlist.ops.networks import NETWORKS
from shortlist.ops.wiring import Wiring, arrange, put_back

_FAR = 6e4  # float16's least number is -65,504
_LEAST = -1e30  # a smaller score is always masked

Relaxation = Literal[
    "neuralsort", "softsort", "sinkhorn", "odd_even", "bitonic", "merge_selection", "splitter"
]
Comparator = Literal["logistic", "logistic_phi", "gaussian", "cauchy", "reciprocal", "optimal"]

_SORTS = {"neuralsort": neuralsort, "softsort": softsort, "sinkhorn": sinkhornsort}


def relaxed_topk(
    scores: Float[Tensor, "n c"],
    *,
    k: int,
    method: Relaxation = "splitter",
    steepness: float = 10.0,
    comparator: Comparator = "cauchy",
    art_lambda: float = 0.25,
    wiring: Wiring = "index",
    rank_weights: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Compute the first k rows of a relaxed permutation matrix, from the largest score down.

    ``P[i, r, j]`` is the chance that class j of row i has rank r, rank 0 being the largest. Each row adds up
    to 1; as ``steepness`` grows, the rows become the one-hot vectors of the k largest scores. No c x c matrix
    is ever built. By networks and by ``sinkhorn`` no class gets more than 1 over all ranks either: exactly,
    or for ``sinkhorn`` up to rounding, while its rows add up to 1 within ``max(1e-10, 1e-13 steepness)``
    (measured up to a steepness of 10,000; the result in float32 is rounded to that).

    ===================  ==============================================================================
    method               how
    ===================  ==============================================================================
    ``neuralsort``       softmax of a function of the rank and of sums of distances, O(c (k + log c))
    ``softsort``         softmax of distances to the r-th largest score, O(c k)
    ``sinkhorn``         entropic transport from squashed scores to evenly spaced ranks, to a tolerance
    ``odd_even``         sorting network of depth c
    ``bitonic``          sorting network of depth log2(c) (log2(c) + 1) / 2
    ``merge_selection``  selection network of sorted blocks of k, merged in pairs: depth O(log k log c)
    ``splitter``         selection network for the top k only, depth about log2(c) + a few per rank
    ===================  ==============================================================================

    Args:
        scores: Scores (n, c); ``-inf``, or anything 60,000 below the best of its row, marks a class that
            cannot be ranked: it is taken as far below all others and gets chance 0.
        k: Number of ranks, ``1 <= k <= c``.
        method: Name of the relaxation.
        steepness: Inverse temperature of the relaxation.
        comparator: For the networks, how the two outputs of a comparator are mixed, a function of
            ``steepness`` times the difference of its inputs.
        art_lambda: For ``logistic_phi``, the power of the difference that its argument is divided by.
        wiring: For the networks, which class starts on which wire: ``"index"``, each on that of its number,
            as published, so that the numbers of the classes matter; ``"sorted"``, in the order of the scores,
            so that they do not, except among equal scores; or ``"random"``, drawn anew by each call.
        rank_weights: If given, (k,) or (n, k), the weighted sum over ranks is returned in place of the rows.
            For the networks this is k times cheaper than the rows.
        generator: Random generator of ``wiring="random"``.

    Returns:
        A tensor (n, k, c); (n, c) with ``rank_weights``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> relaxed_topk(torch.tensor([[0.0, 2.0, 1.0]]), k=2, method="softsort", steepness=3.0)
        tensor([[[0.0024, 0.9503, 0.0473],
                 [0.0453, 0.0453, 0.9094]]])

    References:
        F. Petersen, H. Kuehne, C. Borgelt, O. Deussen, "Differentiable Top-k Classification Learning", ICML
        2022; A. Grover et al., NeuralSort, ICLR 2019; S. Prillo, J. Eisenschlos, SoftSort, ICML 2020; M.
        Cuturi et al., NeurIPS 2019.
    """
    check_scores(scores, name="scores")
    n, c = scores.shape
    check_k(k, c, up_to=True)
    check_choice("method", method, get_args(Relaxation))
    check_choice("comparator", comparator, tuple(COMPARATORS))
    check_choice("wiring", wiring, get_args(Wiring))
    check_number("steepness", steepness, above=0.0)
    check_number("art_lambda", art_lambda, low=0.0, below=1.0)
    if rank_weights is not None and rank_weights.shape not in ((k,), (n, k)):
        raise ValueError(
            f"rank_weights must have shape ({k},) or ({n}, {k}), got {tuple(rank_weights.shape)}"
        )
    scores = promote(scores)
    masked = is_masked(scores)
    nothing_masked = can_read_values(masked) and not masked.any()
    scores = scores if nothing_masked else lower_masked(scores, masked)
    if method in NETWORKS:
        options = {"network": method, "comparator": comparator}
        options |= {"steepness": steepness, "art_lambda": art_lambda}
        wires, order = arrange(scores, wiring, generator)
        ranks = put_back(_by_network(wires, k, rank_weights, options), order)
    else:
        ranks = _by_sort(_SORTS[method](scores, k, 1 / steepness, masked), rank_weights)
    if nothing_masked:
        return ranks
    return ranks.masked_fill(masked if rank_weights is not None else masked[:, None], 0)


def _by_network(scores: Tensor, k: int, weights: Tensor | None, options: dict) -> Tensor:
    if weights is None:
        return network_ranks(scores, torch.eye(k, device=scores.device), **options).transpose(0, 1)
    return network_ranks(scores, weights[None], **options)[0]


def _by_sort(ranks: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return ranks
    return (weights.detach().to(ranks.dtype).unsqueeze(-1) * ranks).sum(1)


def is_masked(scores: Tensor) -> Tensor:
    """Tell which classes are masked: with -inf, -1e9, or the smallest number of their type.

    As scores, such numbers would leave nothing of the others' differences when a network mixes them.
    """
    best = scores.amax(-1, keepdim=True)
    return scores < (best - _FAR).clamp_min(_LEAST)  # also where all are -inf


def lower_masked(scores: Tensor, masked: Tensor) -> Tensor:
    """Replace -inf by a finite number far below the other scores."""
    with torch.no_grad():  # their chances are 0, whatever stands in for them
        high = scores.amax(-1, keepdim=True).clamp_min(_LEAST)  # all may be masked, with -inf
        low = torch.where(masked, high, scores).amin(-1, keepdim=True)
        stand_in = torch.lerp(high, low, 101.0) - 100
    return torch.where(masked, stand_in, scores)
