"""Balanced cross-entropy: each row weighed by the inverse share of its class."""

from jaxtyping import Float
from torch import Tensor

from shortlist.losses._contract import ClassLoss, Reduction, class_loss
from shortlist.losses._margins import margin_rows, margin_table
from shortlist.priors import ZeroCounts, class_priors

__all__ = ["BalancedCELoss", "balanced_ce_loss"]


def balanced_ce_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Tensor,
    zero_counts: ZeroCounts = "error",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Cross-entropy divided by the prior of the true class.

    .. math:: \ell(s, y) = \frac{1}{\pi_y} \log \sum_j e^{s_j - s_y}, \qquad \pi_c = n_c / \textstyle\sum n

    Consistent for the balanced error, but of no use once a network fits all of its training set, as weights
    then change nothing. With equal counts it is c times cross-entropy. The weights come on top of ``weight``,
    and are not divided out of the mean. Nothing to sweep.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c), of which the mean loss is taken.
        class_counts: Number of training examples of each class (c,).
        zero_counts: ``"error"`` or ``"floor"``, see :func:`shortlist.priors.class_priors`.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target count for nothing.
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
        adjustment", ICLR 2021, equation 2.
    """
    inverse = 1 / class_priors(class_counts, zero_counts=zero_counts)

    def of_target(logits: Tensor, target: Tensor) -> Tensor:
        return inverse.to(logits)[target] * margin_rows(logits, target)

    def of_all(logits: Tensor, share: Tensor) -> Tensor:
        return inverse.to(logits) * margin_table(logits)

    return class_loss(
        logits,
        target,
        of_target=of_target,
        of_all=of_all,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


class BalancedCELoss(ClassLoss):
    """Module of :func:`balanced_ce_loss`."""

    needs = frozenset({"class_counts"})
    class_counts: Tensor

    def __init__(
        self,
        *,
        class_counts: Tensor,
        zero_counts: ZeroCounts = "error",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        class_priors(class_counts, zero_counts=zero_counts)  # refuses bad counts here, not in the first batch
        self.register_buffer("class_counts", class_counts)
        self.zero_counts: ZeroCounts = zero_counts

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """See :func:`balanced_ce_loss`."""
        return balanced_ce_loss(
            logits,
            target,
            class_counts=self.class_counts,
            zero_counts=self.zero_counts,
            **self.common,
        )
