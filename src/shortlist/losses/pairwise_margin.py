"""The pairwise margin loss in its general form (Menon et al., ICLR 2021)."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from shortlist._checks import can_read_values, check_class_vector, check_number
from shortlist.losses._contract import ClassLoss, Reduction, class_loss, options_of
from shortlist.losses._margins import table_of_nonzero


def pairwise_margin_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    margins: Float[Tensor, "c c"],
    factors: Float[Tensor, " c"] | None = None,
    temperature: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute a softmax loss with a margin for each pair of a true and another class.

    .. math::
        \ell(s, y) = \alpha_y T \log \Bigl( 1 + \sum_{j \ne y} e^{(\Delta_{yj} + s_j - s_y) / T} \Bigr)

    Consistent for the balanced error when :math:`\alpha_y = d_y / \pi_y` and
    :math:`\Delta_{yj} = T \log(d_j / d_y)` for some d > 0: margins of logit adjustment shrink with the
    temperature. As T goes to 0 it becomes a weighted hinge with a margin for each pair. With no margins and
    factors it is cross-entropy. Its members with margins that follow from the class counts have functions of
    their own, which need no matrix: ``balanced_ce``, ``ldam``, ``equalized``, ``logit_adjusted``,
    ``logit_adjusted_adaptive``, ``two_parameter_margin``.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged, at the
            cost of one evaluation for each non-zero probability.
        margins: Margins (Delta in the formula) (c, c), with a row for each true class and a column for each
            other class. The diagonal is not used.
        factors: Factor of each class (alpha in the formula) (c,), 1 if not given. Unlike ``weight``, the mean
            is not divided by it.
        temperature: Temperature (T in the formula, 1 / gamma in the paper's appendix B), > 0.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> margins = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
        >>> pairwise_margin_loss(torch.zeros(1, 2), torch.tensor([1]), margins=margins)  # log(1 + exp(2))
        tensor(2.1269)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 11 and, with the temperature, equation 13 of appendix B.
    """
    _check_options(margins, factors, temperature, logits.shape[-1])

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        moved = logits + margins.to(logits)[target].scatter(1, target[:, None], 0.0)
        rows = temperature * cross_entropy(moved / temperature, target, reduction="none")
        return rows if factors is None else rows * factors.to(logits)[target]

    class_losses = partial(table_of_nonzero, row_loss)
    return class_loss(logits, target, row_loss, class_losses, weight, ignore_index, reduction)


def _check_options(
    margins: Tensor, factors: Tensor | None, temperature: float, num_classes: int | None = None
) -> None:
    check_number("temperature", temperature, above=0.0)
    c = margins.shape[0] if num_classes is None else num_classes
    if margins.shape != (c, c):
        raise ValueError(f"margins must have shape ({c}, {c}), got {tuple(margins.shape)}")
    if can_read_values(margins) and not bool(torch.isfinite(margins).all()):
        bad = margins[~torch.isfinite(margins)]
        raise ValueError(f"margins must be finite, got {float(bad[0])}")
    if factors is not None:
        check_class_vector("factors", factors, num_classes=c)


class PairwiseMarginLoss(ClassLoss):
    """Module of :func:`pairwise_margin_loss`."""

    check = staticmethod(_check_options)
    needs = frozenset({"margin_table"})

    @options_of(pairwise_margin_loss)
    def __init__(self, **options: Any) -> None: ...
