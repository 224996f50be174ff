"""Logit-adjusted cross-entropy with an adaptive margin as well."""

from jaxtyping import Float
from torch import Tensor

from shortlist.losses._contract import ClassLoss, Reduction, class_loss
from shortlist.losses._margins import margin_rows, margin_table
from shortlist.priors import ZeroCounts, class_priors

__all__ = ["LogitAdjustedAdaptiveLoss", "logit_adjusted_adaptive_loss"]


def logit_adjusted_adaptive_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Tensor,
    zero_counts: ZeroCounts = "error",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Logit adjustment and the adaptive margin of LDAM in one.

    .. math:: \ell(s, y) = \log \Bigl( 1 + \sum_{j \ne y} e^{\Delta_{yj} + s_j - s_y} \Bigr), \qquad
        \Delta_{yj} = \log \frac{\pi_j}{\pi_y} + \pi_y^{-1/4}

    Not consistent for the balanced error, but published ahead of both on iNaturalist 2018. With equal counts
    of c classes it is cross-entropy with one margin, :math:`c^{1/4}`. Nothing to sweep.

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
        >>> scores, counts = torch.tensor([[0.0, 0.0]]), torch.tensor([1, 1])
        >>> target = torch.tensor([1])
        >>> logit_adjusted_adaptive_loss(scores, target, class_counts=counts)  # log(1 + exp(2 ** 0.25))
        tensor(1.4550)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 11 and section 5.
    """
    priors = class_priors(class_counts, zero_counts=zero_counts)
    on_all = priors.log()
    on_true = on_all - priors.pow(-0.25)

    def of_target(logits: Tensor, target: Tensor) -> Tensor:
        return margin_rows(logits, target, on_all=on_all.to(logits), on_true=on_true.to(logits))

    def of_all(logits: Tensor, share: Tensor) -> Tensor:
        return margin_table(logits, on_all=on_all.to(logits), on_true=on_true.to(logits))

    return class_loss(
        logits,
        target,
        of_target=of_target,
        of_all=of_all,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


class LogitAdjustedAdaptiveLoss(ClassLoss):
    """Module of :func:`logit_adjusted_adaptive_loss`."""

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
        """See :func:`logit_adjusted_adaptive_loss`."""
        return logit_adjusted_adaptive_loss(
            logits,
            target,
            class_counts=self.class_counts,
            zero_counts=self.zero_counts,
            **self.common,
        )
