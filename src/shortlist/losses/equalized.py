"""Equalized margin loss: rare classes push common ones down less."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import Reduction, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._margins import CountedLoss, Margins, Weighting, counts_of, margin_loss, without_priors
from shortlist.priors import Counts, ZeroCounts


def equalized_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    tau: float = 1.0,
    threshold: float | None = None,
    rare_factor: float = 0.1,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy in which each other class competes by its share of the rows.

    .. math::
        \ell(s, y) = \log \Bigl( 1 + \sum_{j \ne y} F(\pi_j)\, e^{s_j - s_y} \Bigr),
        \qquad F(\pi) = \pi^{\tau} \;\text{or}\;
        F(\pi) = \begin{cases} r & \pi < \lambda \\ 1 & \text{else} \end{cases}

    :math:`\Delta_{yj} = \log F(\pi_j)` with F non-decreasing into (0, 1]. Not consistent for the balanced
    error. ``tau=0`` is cross-entropy. Sweep ``tau`` from 0.25 to 1. With a ``threshold`` F is that of Tan et
    al.: classes below it hardly compete. They draw, for each row and rare class, whether it competes, with
    probability 1 - gamma; ``rare_factor`` is that probability, which weighs the class in place of the draw.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        tau: Power of the priors, >= 0; goes without a threshold.
        threshold: Share of the training rows, in (0, 1], below which a class is rare; ``None`` for the power
            of the priors.
        rare_factor: F of a rare class, in (0, 1].
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
        >>> equalized_loss(scores, torch.tensor([1]), class_counts=counts)  # log(1 + 3/4)
        tensor(0.5596)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 6. J. Tan et al., "Equalization Loss for Long-Tailed Object
        Recognition", CVPR 2020.
    """
    _check_options(tau, threshold, rare_factor)
    counts = counts_of(logits, class_counts, zero_counts)
    shares = counts / counts.sum()
    if threshold is None:
        log_factors = tau * shares.log()
    else:
        log_factors = torch.where(shares < threshold, math.log(rare_factor), torch.zeros_like(shares))
    margins = Margins(on_all=log_factors, on_true=torch.zeros_like(log_factors))
    return margin_loss(logits, target, margins, weighting, weight, ignore_index, reduction)


def _check_options(tau: float, threshold: float | None, rare_factor: float) -> None:
    check_number("tau", tau, low=0.0)
    check_number("rare_factor", rare_factor, above=0.0, high=1.0)
    if threshold is not None:
        check_number("threshold", threshold, above=0.0, high=1.0)
        if tau != 1.0:
            raise ValueError(f"tau must be left out with a threshold, got {tau}")


class EqualizedLoss(CountedLoss):
    """Module of :func:`equalized_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(tau=(0.25, 0.5, 1.0))

    @options_of(equalized_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors where all classes compete alike; otherwise the scores are not."""
        strength = options["tau"] if options["threshold"] is None else options["rare_factor"] != 1
        return ScoreMeaning() if strength else without_priors(0.0, options)
