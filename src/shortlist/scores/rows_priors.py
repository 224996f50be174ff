"""The class priors that held-out rows were drawn with."""

from jaxtyping import Int
from torch import Tensor

from shortlist.scores.prior_record import PriorRecord

_MOST_MISFIT = 3.0  # deviance by degree of freedom up to which a power of the training priors will do


def priors_of_rows(target: Int[Tensor, " n"], training: PriorRecord) -> PriorRecord:
    r"""Estimate the class priors that rows were drawn with, from their classes.

    Validation rows are often not drawn as the training rows are: benchmarks with a long tail have balanced
    ones, and a split that takes at least one row of each class has more of the rare classes. What is taken is
    the power of the training priors under which the classes of the rows are likeliest, one number that a few
    rows can tell. Only where many rows speak clearly against every power (five for each class, deviance above
    three times what chance gives) is it the share of each class, with half a row added to each.

    Args:
        target: Class indices (n,).
        training: Priors of the training rows.

    Example:
        >>> training = PriorRecord.training(torch.tensor([80, 10, 10]))
        >>> balanced = torch.arange(3).repeat(30)
        >>> abs(priors_of_rows(balanced, training).power) < 1e-6  # the training priors to the power 0
        True
        >>> priors_of_rows(torch.tensor([0] * 8 + [1, 2]), training).words()
        'the training priors'
    """
    counts = target.bincount(minlength=len(training)).double()
    rows, num_classes = float(counts.sum()), len(training)
    fitted = training.to_power(_likeliest_power(counts, training.log_priors))
    seen = counts > 0
    saturated = (counts[seen] * (counts[seen] / rows).log()).sum()
    deviance = 2 * float(saturated - counts @ fitted.log_priors)
    if rows >= 5 * num_classes and deviance > _MOST_MISFIT * (num_classes - 1):
        shares = (counts + 0.5) / (rows + 0.5 * num_classes)
        return PriorRecord.given(shares)
    return fitted


def _likeliest_power(counts: Tensor, log_priors: Tensor) -> float:
    """Return the power a that maximizes the likelihood of the counts under priors ** a, by Newton's method.

    It is convex in a. A power near 1 that the rows cannot tell from 1 is 1.
    """
    rows = float(counts.sum())
    if float(log_priors.max() - log_priors.min()) < 1e-9 or not rows:
        return 1.0
    observed, power = float(counts @ log_priors) / rows, 1.0
    spread = 0.0
    for _ in range(100):
        shares = (power * log_priors).softmax(0)
        mean = float(shares @ log_priors)
        spread = float(shares @ (log_priors - mean) ** 2)
        if spread < 1e-12:
            break
        step = max(-0.5, min(0.5, (observed - mean) / spread))
        power = max(-2.0, min(3.0, power + step))
        if abs(step) < 1e-10:
            break
    error = (rows * max(spread, 1e-12)) ** -0.5
    return 1.0 if abs(power - 1.0) <= 2 * error else power
