"""Logit-adjusted cross-entropy with an adaptive margin."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import Reduction, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._margins import CountedLoss, Margins, Weighting, counts_of, margin_loss, without_priors
from shortlist.priors import Counts, ZeroCounts


def logit_adjusted_adaptive_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    tau: float = 1.0,
    margin: float = 1.0,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy with logit adjustment and the adaptive margin of LDAM together.

    .. math:: \ell(s, y) = \log \Bigl( 1 + \sum_{j \ne y} e^{\Delta_{yj} + s_j - s_y} \Bigr), \qquad
        \Delta_{yj} = \tau \log \frac{\pi_j}{\pi_y} + m\,\pi_y^{-1/4}

    Not consistent for the balanced error, but published ahead of both on iNaturalist 2018. With equal counts
    of c classes it is cross-entropy with one margin, :math:`m\,c^{1/4}`. The paper has ``tau=1`` and
    ``margin=1``, which is large for rare classes (10 for a class of one in 10,000): sweep the margin from 0.1
    to 1. ``margin=0`` is the logit-adjusted loss, ``tau=0`` the adaptive margin alone.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        tau: Strength of the logit adjustment.
        margin: Strength of the adaptive margin (m in the formula), >= 0.
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
        >>> scores, counts = torch.tensor([[0.0, 0.0]]), torch.tensor([1, 1])
        >>> target = torch.tensor([1])
        >>> logit_adjusted_adaptive_loss(scores, target, class_counts=counts)  # log(1 + exp(2 ** 0.25))
        tensor(1.4550)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 11 and section 6.2.
    """
    _check_options(tau, margin)
    counts = counts_of(logits, class_counts, zero_counts)
    priors = counts / counts.sum()
    adjustment = tau * priors.log()
    margins = Margins(on_all=adjustment, on_true=adjustment - margin * priors.pow(-0.25))
    return margin_loss(logits, target, margins, weighting, weight, ignore_index, reduction)


def _check_options(tau: float, margin: float) -> None:
    check_number("tau", tau)
    check_number("margin", margin, low=0.0)


class LogitAdjustedAdaptiveLoss(CountedLoss):
    """Module of :func:`logit_adjusted_adaptive_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(tau=(0.5, 1.0, 2.0))

    @options_of(logit_adjusted_adaptive_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors without tau times the log priors, if there is no margin."""
        return ScoreMeaning() if options["margin"] else without_priors(options["tau"], options)
