"""Margin loss with one power of the prior for the true class and one for the other classes."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import Reduction, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._margins import CountedLoss, Margins, Weighting, counts_of, margin_loss, without_priors
from shortlist.priors import Counts, ZeroCounts


def two_parameter_margin_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    tau_true: float = 1.0,
    tau_others: float = 1.0,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute logit-adjusted cross-entropy with one strength for the true class and one for the others.

    .. math:: \ell(s, y) = \log \Bigl( 1 + \sum_{j \ne y} e^{\Delta_{yj} + s_j - s_y} \Bigr), \qquad
        \Delta_{yj} = \tau_2 \log \pi_j - \tau_1 \log \pi_y

    Equal strengths give ``logit_adjusted_loss``; ``tau_true=0`` gives ``equalized_loss``; both 0,
    cross-entropy. Consistent for the balanced error at ``tau_true = tau_others = 1``. Sweep both from 0 to
    1.5.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        tau_true: Strength on the true class (tau_1 in the formula).
        tau_others: Strength on the others (tau_2 in the formula).
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
        >>> scores, counts = torch.tensor([[0.0, 0.0]]), torch.tensor([3, 1])
        >>> two_parameter_margin_loss(scores, torch.tensor([1]), class_counts=counts)  # -log(1/4)
        tensor(1.3863)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, section 5.3.
    """
    _check_options(tau_true, tau_others)
    counts = counts_of(logits, class_counts, zero_counts)
    log_priors = (counts / counts.sum()).log()
    margins = Margins(on_all=tau_others * log_priors, on_true=tau_true * log_priors)
    return margin_loss(logits, target, margins, weighting, weight, ignore_index, reduction)


def _check_options(tau_true: float, tau_others: float) -> None:
    check_number("tau_true", tau_true)
    check_number("tau_others", tau_others)


class TwoParameterMarginLoss(CountedLoss):
    """Module of :func:`two_parameter_margin_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(tau_true=(0.5, 1.0, 1.5), tau_others=(0.5, 1.0, 1.5))

    @options_of(two_parameter_margin_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors without tau times the log priors, if both taus are equal."""
        same = options["tau_true"] == options["tau_others"]
        return without_priors(options["tau_true"], options) if same else ScoreMeaning()
