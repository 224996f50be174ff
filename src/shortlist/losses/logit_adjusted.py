"""Logit-adjusted cross-entropy (Menon et al., ICLR 2021)."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import Reduction, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._margins import CountedLoss, Margins, Weighting, counts_of, margin_loss, without_priors
from shortlist.priors import Counts, ZeroCounts


def logit_adjusted_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    tau: float = 1.0,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy of the scores plus the log priors of the classes.

    .. math:: \ell(s, y) = \log \sum_j e^{s_j + \tau \log \pi_j} - (s_y + \tau \log \pi_y)

    :math:`\Delta_{yj} = \tau \log(\pi_j / \pi_y)`. With ``tau=1`` the scores it learns rank classes by
    :math:`P(y|x) / \pi_y`: their argmax minimizes the balanced error, and the top of their list the macro
    top-k error. ``tau=0``, or equal counts, is cross-entropy. Sweep ``tau`` from 0.5 to 2, or leave it at 1,
    where the loss is consistent.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        tau: How far to go from the micro (0) to the macro (1) optimum.
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
        >>> logit_adjusted_loss(scores, torch.tensor([1]), class_counts=counts)  # -log(1/4)
        tensor(1.3863)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 10.
    """
    _check_options(tau)
    counts = counts_of(logits, class_counts, zero_counts)
    margins = Margins(on_all=tau * (counts / counts.sum()).log())
    return margin_loss(logits, target, margins, weighting, weight, ignore_index, reduction)


def _check_options(tau: float) -> None:
    check_number("tau", tau)


class LogitAdjustedLoss(CountedLoss):
    """Module of :func:`logit_adjusted_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(tau=(0.5, 1.0, 2.0))

    @options_of(logit_adjusted_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors without tau times the log priors."""
        return without_priors(options["tau"], options)
