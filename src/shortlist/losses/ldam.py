"""Adaptive-margin loss, LDAM (Cao et al., NeurIPS 2019)."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import Reduction, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._margins import (
    CountedLoss,
    Margins,
    Weighting,
    counts_of,
    margin_loss,
    warn_unless_cosine,
)
from shortlist.priors import Counts, ZeroCounts


def ldam_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    max_margin: float = 0.5,
    scale: float = 30.0,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy with a margin that is larger for rarer classes, for cosine scores.

    .. math::
        \ell(s, y) = -\log
        \frac{e^{\gamma (s_y - m_y)}}{e^{\gamma (s_y - m_y)} + \sum_{j \ne y} e^{\gamma s_j}},
        \qquad m_c = C n_c^{-1/4}

    C is such that the largest margin is ``max_margin``. In the form of :func:`pairwise_margin_loss`, on
    scores times the scale, :math:`\Delta_{yj} = \gamma m_y`. The scores are those of a cosine head, in
    [-1, 1]; the loss warns once if they are not. Not consistent for the balanced error. With equal counts, it
    is cross-entropy of scaled scores with one margin.

    Defaults and what to sweep: ``max_margin`` 0.1 to 0.5, ``scale`` 10 to 40 (Pl@ntNet-300K: 0.2 and 40;
    CIFAR-LT: 0.5 and 30). Usually with deferred re-weighting.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        max_margin: Margin of the rarest class.
        scale: Factor of the scores (gamma in the formula).
        zero_counts: ``"error"`` or ``"floor"``, see :func:`shortlist.priors.class_priors`.
        weighting: With class weights w, ``"consistent"`` adds the margins ``log(w_j / w_y)`` of theorem 1
            of Menon et al. 2021, so that the weights do not change what the scores converge to;
            ``"plain"`` only weighs the rows.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
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
    _check_options(max_margin, scale)
    # counts >= 1 in float64, so that raw > 0; as priors.margins_from_counts, but faster than pow(-1/4)
    raw = counts_of(logits, class_counts, zero_counts).rsqrt().sqrt()
    margins = Margins(on_true=-max_margin * raw / raw.max(), scale=scale)  # added to scores before the scale
    loss = margin_loss(logits, target, margins, weighting, weight, ignore_index, reduction)
    warn_unless_cosine(logits, scale=scale, name="ldam_loss", target=target, ignore_index=ignore_index)
    return loss


def _check_options(max_margin: float, scale: float) -> None:
    check_number("max_margin", max_margin, above=0.0)
    check_number("scale", scale, above=0.0)


class LDAMLoss(CountedLoss):
    """Module of :func:`ldam_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(max_margin=(0.1, 0.2, 0.5), scale=(10.0, 30.0))
    needs = frozenset({"class_counts", "cosine_scores"})

    @options_of(ldam_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe cosines, which the loss multiplies by its scale; they are not log-posteriors."""
        return ScoreMeaning(scale=options["scale"])
