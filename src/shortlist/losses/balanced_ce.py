"""Balanced cross-entropy: each row is weighted by the inverse share of its class."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from shortlist.losses._contract import Reduction, ScoreMeaning, options_of
from shortlist.losses._margins import CountedLoss, Margins, Weighting, counts_of, margin_loss, without_priors
from shortlist.priors import Counts, ZeroCounts


def balanced_ce_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy divided by the prior of the true class.

    .. math:: \ell(s, y) = \frac{1}{\pi_y} \log \sum_j e^{s_j - s_y}, \qquad \pi_c = n_c / \textstyle\sum n

    Consistent for the balanced error, but of no use once a network fits all of its training set, as weights
    then change nothing. With equal counts it is c times cross-entropy. The weights come on top of ``weight``,
    and are not divided out of the mean. Nothing to sweep.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        zero_counts: ``"error"`` or ``"floor"``, see :func:`shortlist.priors.class_priors`.
        weighting: With class weights w, ``"consistent"`` adds the margins ``log(w_j / w_y)`` of theorem 1, so
            that the weights do not change what the scores converge to; ``"plain"`` only weighs the rows.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores, counts = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([3, 1, 1])
        >>> balanced_ce_loss(scores, torch.tensor([0]), class_counts=counts)  # 0.4076 * 5 / 3
        tensor(0.6793)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 4.
    """
    counts = counts_of(logits, class_counts, zero_counts)
    margins = Margins(factors=counts.sum() / counts)
    return margin_loss(logits, target, margins, weighting, weight, ignore_index, reduction)


class BalancedCELoss(CountedLoss):
    """Module of :func:`balanced_ce_loss`."""

    @options_of(balanced_ce_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors under balanced priors."""
        return without_priors(1.0, options)
