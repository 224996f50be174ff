"""Focal loss (Lin et al., ICCV 2017)."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_number
from shortlist.losses._contract import (
    ClassLoss,
    Reduction,
    ScoreMeaning,
    class_loss,
    options_of,
    worth_sweeping,
)
from shortlist.losses._margins import margin_rows, margin_table


def focal_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    gamma: float = 2.0,
    weight_in_focus: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy with less weight on rows whose true class is already likely.

    .. math:: \ell(s, y) = (1 - p_y)^{\gamma} (-\log p_y), \qquad p = \mathrm{softmax}(s)

    ``gamma=0`` is cross-entropy. Sweep ``gamma`` from 0.5 to 2. In the LDAM authors' code, class weights
    enter the fading factor too, which becomes :math:`1 - p_y^{w_y}`; ``weight_in_focus=True`` does the same.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        gamma: How fast the weight falls as the true class becomes likely, >= 0; 0 gives cross-entropy.
        weight_in_focus: Whether the class weight also acts inside the focusing factor.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))  # (1/2)^2 log 2
        tensor(0.1733)

    References:
        T. Lin, P. Goyal, R. Girshick, K. He, P. Dollar, "Focal Loss for Dense Object Detection", ICCV 2017.
    """
    _check_options(gamma)

    def faded(loss: Tensor, focus: Tensor | float) -> Tensor:
        # 1 - p = -expm1(-loss): exact for p near 1; the tiny floor keeps the derivative of x^gamma finite
        # there. An infinite loss is added at the end: times the derivative of its factor, 0, it would be NaN
        limits = torch.finfo(loss.dtype)
        finite = loss.clamp_max(limits.max)
        return (-torch.expm1(-focus * finite)).clamp_min(limits.tiny).pow(gamma) * finite + (loss - finite)

    inside = weight if weight_in_focus and weight is not None else None

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        focus = 1.0 if inside is None else inside.to(logits)[target]
        return faded(margin_rows(logits, target), focus)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        return faded(margin_table(logits, share), 1.0 if inside is None else inside.to(logits))

    return class_loss(logits, target, row_loss, class_losses, weight, ignore_index, reduction)


def _check_options(gamma: float) -> None:
    check_number("gamma", gamma, low=0.0)


class FocalLoss(ClassLoss):
    """Module of :func:`focal_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(gamma=(0.5, 1.0, 2.0))

    @options_of(focal_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors with gamma 0; otherwise the scores are only close to log-posteriors."""
        return ScoreMeaning() if options["gamma"] else ScoreMeaning(without_priors=0.0)
