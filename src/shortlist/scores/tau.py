"""Choose tau by the balanced error on held-out rows."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_number
from shortlist.scores.held_out_rows import block_rows, held_out
from shortlist.scores.likelihood import log_prior_ratio


class TauFit(NamedTuple):
    """Result of :func:`fit_tau`: ``tau`` and its error, the error at each tau of the grid.

    ``standard_error`` is that of the least error of the grid.
    """

    tau: float
    balanced_error: float
    standard_error: float
    curve: Tensor
    grid: Tensor
    num_absent: int


def fit_tau(
    logits: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    source_priors: Float[Tensor, " c"],
    grid: Float[Tensor, " g"] | None = None,
    standard_errors: int | float = 1.0,
    ignore_index: int = -100,
) -> TauFit:
    r"""Find a strength of the adjustment with a small balanced error on held-out rows.

    .. math::
        \frac{1}{C} \sum_c \frac{1}{n_c} \sum_{i : y_i = c}
        \mathbb{1}\bigl[y_i \ne \arg\max_j (s_{ij} - \tau \log \pi_j)\bigr]

    over the C classes that have rows. A tie with the true class counts as an error, and so does a masked
    target (-inf). With few rows of rare classes the error jumps up and down with tau, and its least value is
    where it happened to be: what is taken is the middle of the taus whose error is within
    ``standard_errors`` standard errors of the least (two Gaussians, one of them 1 % of 10,000 rows: half as
    far above the Bayes error as the least itself). To be exact, the (lower) middle of the longest run of them
    on the grid (of smaller taus if two are as long); but if that run holds 1 and reaches an end of the grid,
    on which its middle would depend, the tau nearest to 1. All of the grid costs one pass over the scores:
    the taus at which a row is right are an interval.

    Args:
        logits: Scores (n, c) of rows that the model was not trained on.
        target: Class indices (n,).
        source_priors: Class frequencies (c,) that the model was trained with, each > 0, adding up to 1.
        grid: Ascending taus (g,) to try; 0, 0.05, ..., 3 if ``None``.
        standard_errors: Errors within this many standard errors of the smallest one count as equally good; 0
            takes the smallest.
        ignore_index: Rows with this target are ignored.

    Returns:
        ``tau``, its ``balanced_error`` in [0, 1], the ``standard_error`` of the least, ``curve`` (g,) of
        balanced errors over ``grid`` (g,), and ``num_absent``, the number of classes without rows, which are
        left out.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
        >>> fit = fit_tau(logits, torch.tensor([0, 1, 1]), source_priors=torch.tensor([0.75, 0.25]))
        >>> round(fit.tau, 2), fit.balanced_error  # right from 1 / log 3 = 0.91 to 2 / log 3 = 1.82
        (1.35, 0.0)

    References:
        Menon et al., ICLR 2021, sections 4.1 and 6.2.
    """
    check_number("standard_errors", standard_errors, low=0.0)
    logits, target = held_out(logits, target, ignore_index)
    num_classes = logits.shape[1]
    log_source = -log_prior_ratio(source_priors, None, num_classes)
    grid = check_grid(torch.linspace(0.0, 3.0, 61, dtype=torch.float64) if grid is None else grid)
    counts = target.bincount(minlength=num_classes)
    share = 1 / (counts[target] * (counts > 0).sum()).double()
    low, high = _right_between(logits, target, log_source)
    curve = torch.stack([1 - share @ ((low < tau) & (tau < high)).double() for tau in grid]).clamp_min(0)
    least = grid[middle_of_best(curve, grid)]
    return chosen_fit(curve, grid, ~((low < least) & (least < high)), target, counts, standard_errors)


def chosen_fit(
    curve: Tensor, grid: Tensor, wrong: Tensor, target: Tensor, counts: Tensor, standard_errors: float
) -> TauFit:
    """Choose a tau near the least of the curve (g,), where these rows are wrong (n,)."""
    error = standard_error(wrong, target)
    chosen = middle_of_best(curve, grid, slack=standard_errors * error)
    num_absent = int((counts == 0).sum())
    return TauFit(float(grid[chosen]), float(curve[chosen]), error, curve, grid, num_absent)


def standard_error(wrong: Tensor, target: Tensor) -> float:
    """Return the standard error of the balanced error of rows that are wrong or not (n,)."""
    counts = target.bincount()
    share = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, target, wrong.double())
    counts, share = counts[counts > 0], share[counts > 0]
    share = share / counts
    return float((share * (1 - share) / counts).sum().sqrt() / len(counts))


def check_grid(grid: Tensor) -> Tensor:
    """Require ascending finite numbers (g,); return them on the CPU in float64."""
    grid = grid.detach().cpu().double()
    if grid.ndim != 1 or not len(grid) or not grid.isfinite().all() or (grid.diff() <= 0).any():
        raise ValueError(f"grid must be at least one finite number in ascending order, got {grid.tolist()}")
    return grid


def _right_between(logits: Tensor, target: Tensor, log_source: Tensor) -> tuple[Tensor, Tensor]:
    """Return the open interval of taus, as two (n,), in which the target has the highest adjusted score."""
    bounds = []
    block = block_rows(logits)
    for rows, true in zip(logits.split(block), target.split(block), strict=True):
        scores = rows.double()
        ahead = scores - scores.gather(1, true[:, None])  # to be made up for by tau times gap
        gap = log_source - log_source[true][:, None]
        needed = ahead / gap
        low = needed.where(gap > 0, -torch.inf).amax(1)
        high = needed.where(gap < 0, torch.inf).amin(1)
        level = ((gap == 0) & (ahead >= 0)).scatter(
            1, true[:, None], False
        )  # the target itself does not count
        never = level.any(1) | scores.gather(1, true[:, None]).isneginf().squeeze(1)
        bounds.append(torch.stack([low.masked_fill(never, torch.inf), high]))
    low, high = torch.cat(bounds, dim=1)
    return low, high


def middle_of_best(curve: Tensor, grid: Tensor, *, slack: float = 0.0) -> int:
    """Return the index of the middle of the longest run near the minimum, or of the tau nearest to 1."""
    best = (curve <= curve.min() + slack + 1e-12).tolist()  # 1e-12: rounding of sums
    runs: list[list[int]] = [[]]
    for index, is_best in enumerate(best):
        if is_best:
            runs[-1].append(index)
        elif runs[-1]:
            runs.append([])
    longest = max(runs, key=len)
    reaches_an_end = longest[0] == 0 or longest[-1] == len(grid) - 1
    if reaches_an_end and grid[longest[0]] <= 1 <= grid[longest[-1]]:
        return min(longest, key=lambda index: abs(float(grid[index]) - 1))
    return longest[(len(longest) - 1) // 2]
