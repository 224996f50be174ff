"""Adaptive-margin loss, LDAM (Cao et al., NeurIPS 2019)."""

from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import ClassLoss, Reduction, class_loss
from shortlist.losses._margins import margin_rows, margin_table, warn_unless_cosine
from shortlist.priors import ZeroCounts, class_priors, margins_from_counts

__all__ = ["LDAMLoss", "ldam_loss"]


def ldam_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Tensor,
    max_margin: float = 0.5,
    scale: float = 30.0,
    zero_counts: ZeroCounts = "error",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Cross-entropy with a margin that is larger for rarer classes, for cosine scores.

    .. math::
        \ell(s, y) = -\log
        \frac{e^{\gamma (s_y - m_y)}}{e^{\gamma (s_y - m_y)} + \sum_{j \ne y} e^{\gamma s_j}},
        \qquad m_c = C n_c^{-1/4}

    In the general pairwise form, on scores times the scale, :math:`\Delta_{yj} = \gamma m_y`. The scores are
    those of a cosine head, in [-1, 1]; the loss warns once if they are not. Not consistent for the balanced
    error. With counts alike, it is cross-entropy of scaled scores with one margin.

    Defaults and what to sweep: ``max_margin`` 0.1 to 0.5, ``scale`` 10 to 40 (Pl@ntNet-300K: 0.2 and 40;
    CIFAR-LT: 0.5 and 30). Usually with deferred re-weighting.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c), of which the mean loss is taken.
        class_counts: Number of training examples of each class (c,).
        max_margin: Margin of the rarest class.
        scale: Factor of the scores (gamma in the formula).
        zero_counts: ``"error"`` or ``"floor"``, see :func:`shortlist.priors.class_priors`.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target count for nothing.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores, counts = torch.tensor([[0.5, 0.1]]), torch.tensor([16, 1])
        >>> target = torch.tensor([1])
        >>> ldam_loss(scores, target, class_counts=counts, scale=1.0)  # log(1 + exp(0.5 - 0.1 + 0.5))
        tensor(1.2412)

    References:
        K. Cao, C. Wei, A. Gaidon, N. Arechiga, T. Ma, "Learning Imbalanced Datasets with
        Label-Distribution-Aware Margin Loss", NeurIPS 2019, equation 13.
    """
    check_number("max_margin", max_margin, above=0.0)
    check_number("scale", scale, above=0.0)
    margins = -margins_from_counts(class_counts, max_margin=max_margin, zero_counts=zero_counts)

    def of_target(logits: Tensor, target: Tensor) -> Tensor:
        warn_unless_cosine(logits, scale=scale, name="ldam_loss")
        return margin_rows(logits, target, on_true=margins.to(logits), scale=scale)

    def of_all(logits: Tensor, share: Tensor) -> Tensor:
        return margin_table(logits, on_true=margins.to(logits), scale=scale)

    return class_loss(
        logits,
        target,
        of_target=of_target,
        of_all=of_all,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


class LDAMLoss(ClassLoss):
    """Module of :func:`ldam_loss`."""

    needs = frozenset({"class_counts", "cosine_scores"})
    class_counts: Tensor

    def __init__(
        self,
        *,
        class_counts: Tensor,
        max_margin: float = 0.5,
        scale: float = 30.0,
        zero_counts: ZeroCounts = "error",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        check_number("max_margin", max_margin, above=0.0)
        check_number("scale", scale, above=0.0)
        class_priors(class_counts, zero_counts=zero_counts)  # refuses bad counts here, not in the first batch
        self.register_buffer("class_counts", class_counts)
        self.max_margin = max_margin
        self.scale = scale
        self.zero_counts: ZeroCounts = zero_counts

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """See :func:`ldam_loss`."""
        return ldam_loss(
            logits,
            target,
            class_counts=self.class_counts,
            max_margin=self.max_margin,
            scale=self.scale,
            zero_counts=self.zero_counts,
            **self.common,
        )
