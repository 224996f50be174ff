"""The k-th largest score under Gaussian noise (Garcin et al., ICML 2022), sampled or exact."""

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import can_read_values, check_count, check_k, check_number, check_scores, promote
from shortlist.ops._cpu import draws as cpu
from shortlist.ops._noisy_draws import kth_of_draws, kth_of_given
from shortlist.ops.expected_topk import expected_topk
from shortlist.ops.row_operator import row_operator
from shortlist.ops.selection import kth_largest_index

TOLERANCE, NUM_NODES = 1e-5, 22


def perturbed_topk(
    scores: Float[Tensor, "n c"],
    *,
    k: int,
    noise_std: float,
    num_samples: int | None = 5,
    noise: Float[Tensor, "m n c"] | None = None,
    generator: torch.Generator | None = None,
    tolerance: float = TOLERANCE,
    num_nodes: int = NUM_NODES,
) -> Float[Tensor, " n"]:
    r"""Compute the mean k-th largest score when Gaussian noise is added, by sampling or exactly.

    .. math:: \mathbb{E}\, \mathrm{top}_k(s + \varepsilon Z), \qquad Z \sim N(0, I_c)

    The gradient is the chance of each class to be the k-th; where sampled, the share of draws in which it
    was. It reaches every class within the noise's reach of the k-th place, where the plain k-th largest score
    moves one class only.

    **Classes that cannot matter are left out.** A class so far below the k-th score that all such classes
    together have less chance than ``tolerance`` to come among the first k gets neither noise nor gradient.
    This is done where it pays and costs no wait for a device: on the CPU, outside ``torch.compile``, for
    noise that is drawn here.

    **The exact mode** (``num_samples=None``) integrates the chance that at least k of c independent events
    happen over ``num_nodes`` equidistant levels. At the default settings its value is within ``1e-5 *
    noise_std`` of the expectation, and its gradient within 1e-4 in the sum of absolute differences; 64 nodes
    at ``tolerance=1e-13`` give 9 digits in float64. These bounds were measured, for k up to 101 and c up to
    2,000, by ``tests/ops/test_perturbed_topk.py``.

    Args:
        scores: Scores (n, c); ``-inf`` leaves a class out.
        k: Rank, ``1 <= k <= c``.
        noise_std: Standard deviation of the noise (epsilon in the paper); 0 gives the plain k-th largest
            score.
        num_samples: Number of draws (B in the paper, 3 to 10 is usual), or ``None`` for the exact
            expectation.
        noise: Standard normal noise (m, n, c) to use in place of m fresh draws.
        generator: Random generator of the draws, to repeat them.
        tolerance: Probability that the exact mode may neglect.
        num_nodes: Number of integration nodes of the exact mode.

    Returns:
        A tensor (n,): ``-inf`` where fewer than k scores are finite, NaN where a score is NaN.

    Raises:
        ValueError: If an argument is out of its range or the noise does not have the shape (m, n, c).

    Example:
        >>> scores = torch.tensor([[2.4, 2.6, 2.3, 0.5]], requires_grad=True)
        >>> draws = [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]
        >>> noise = torch.tensor(draws)[:, None]
        >>> value = perturbed_topk(scores, k=2, noise_std=1.0, noise=noise)
        >>> value.backward()
        >>> value.item(), scores.grad  # (2.5 + 2.5 + 2.4) / 3; classes 1, 0 and 2 came second
        (2.466..., tensor([[0.3333, 0.3333, 0.3333, 0.0000]]))

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "Stochastic smoothing of the top-K calibrated hinge loss
        for deep imbalanced classification", ICML 2022, Definition 3.4 and Proposition 3.5.
    """
    draws = {"num_samples": num_samples, "noise": noise, "generator": generator}
    scores, places = noisy_places(scores, k=k, noise_std=noise_std, tolerance=tolerance, **draws)
    check_count("num_nodes", num_nodes)
    if places is None:
        return _expected(scores, k, noise_std, tolerance, num_nodes)
    index, drawn = places
    return (scores.gather(1, index) + drawn).mean(1)


def noisy_places(
    scores: Tensor,
    *,
    k: int,
    noise_std: float,
    num_samples: int | None,
    noise: Tensor | None,
    generator: torch.Generator | None,
    tolerance: float = TOLERANCE,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Find the class that comes k-th in each draw; the arguments are those of :func:`perturbed_topk`.

    Returns:
        The scores (n, c), checked and not in half precision; and the class that comes k-th in each draw (n,
        m) with the noise that it has (n, m), or ``None`` if the exact expectation is wanted.
    """
    check_scores(scores, name="scores")
    check_k(k, scores.shape[-1], up_to=True)
    check_number("noise_std", noise_std, low=0.0)
    check_number("tolerance", tolerance, above=0.0, below=0.5)
    if num_samples is not None:
        check_count("num_samples", num_samples)
    if noise is not None and (noise.ndim != 3 or noise.shape[1:] != scores.shape or not len(noise)):
        shape = ", ".join(map(str, scores.shape))
        raise ValueError(f"noise must have shape (m, {shape}), got {tuple(noise.shape)}")
    scores = promote(scores)
    fixed = scores.detach()
    if noise_std < torch.finfo(scores.dtype).tiny:  # 0, or nothing to this type
        index = kth_largest_index(fixed, k)[:, None]
        return scores, (index, torch.zeros_like(index, dtype=scores.dtype))
    if noise is not None:
        index, drawn = kth_of_given(fixed, k, noise_std * noise.to(scores.dtype))
    elif num_samples is not None:
        draws = (fixed, k, noise_std, num_samples, generator)
        index, drawn = cpu.kth_of_draws(*draws, tolerance) if can_read_values(fixed) else kth_of_draws(*draws)
    else:
        return scores, None
    return scores, (index.T, drawn.T)


_expected = row_operator("expected_topk", expected_topk, called="perturbed_topk with num_samples=None")
