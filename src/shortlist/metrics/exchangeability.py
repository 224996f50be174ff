"""Test whether new rows are exchangeable with the calibration rows, on which every promise rests."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_count


@dataclass(frozen=True)
class ExchangeabilityTest:
    """The result of a test of exchangeability.

    Args:
        statistic: The largest difference of the two distribution functions, in [0, 1] (Kolmogorov-Smirnov).
        p_value: Chance, if the rows are exchangeable, of a result that is at most this.
    """

    statistic: float
    p_value: float


@torch.no_grad()
def exchangeability_test(
    calibration: Float[Tensor, " n"],
    new: Float[Tensor, " m"],
    *,
    num_permutations: int = 999,
    generator: torch.Generator | None = None,
) -> ExchangeabilityTest:
    """Test whether new scores could have been calibration scores as well.

    The null hypothesis: the n + m scores are exchangeable, as if they were drawn independently from one
    distribution. Under it, a p-value <= a has a chance of at most a, whatever n, m, the distribution and its
    ties: the statistic is compared with those of random divisions of all the scores into n and m.

    A small p-value says that promises of the calibration need not hold for the new rows. A large one does
    not say that they do: the test may have missed a difference, and a difference of the rows that the scores
    do not show.

    Args:
        calibration: Scores (n,) of the calibration rows: conformity scores of true classes, or strangeness
            where new rows have no labels.
        new: The same scores (m,) of new rows.
        num_permutations: Number B of random divisions; the smallest p-value is 1 / (B + 1).
        generator: Random generator of the divisions, on the CPU; the default one if ``None``.

    Example:
        >>> found = exchangeability_test(torch.arange(50.0), torch.arange(50.0) + 30)
        >>> found.statistic, found.p_value < 0.01
        (0.6, True)
    """
    for name, scores in (("calibration", calibration), ("new", new)):
        if not isinstance(scores, Tensor) or scores.ndim != 1 or not scores.is_floating_point():
            raise ValueError(f"{name} must be a floating tensor of shape (n,), got {scores!r:.60}")
        if not len(scores) or bool(scores.isnan().any()):
            raise ValueError(f"{name} must be at least 1 number, got {'NaN' if len(scores) else 'none'}")
    check_count("num_permutations", num_permutations)
    n, m = len(calibration), len(new)
    values, order = torch.cat([calibration.double(), new.double()]).cpu().sort()
    last_of_ties = torch.cat([values[1:] > values[:-1], torch.ones(1, dtype=torch.bool)])
    is_new = order >= n

    def largest_gap(is_new: Tensor) -> int:
        # the difference of both shares times n m, in whole numbers: equal statistics are equal
        gap = torch.where(is_new, n, -m).cumsum(0)
        return int(gap[last_of_ties].abs().max())

    seen = largest_gap(is_new)
    larger = sum(
        largest_gap(is_new[torch.randperm(n + m, generator=generator)]) >= seen
        for _ in range(num_permutations)
    )
    return ExchangeabilityTest(seen / (n * m), (1 + larger) / (num_permutations + 1))
