"""Expected positive regularization: fit the observed positives, and hold the mean set size at k."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from shortlist._bounds import check_choice
from shortlist._checks import (
    check_average_size,
    check_class_vector,
    check_number,
    check_scores,
    check_target,
    promote,
)
from shortlist.losses._contract import ClassLoss, Normalization, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._global_batch import global_count, global_mean, global_sum_of


def expected_positive_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k: float = 5.0,
    beta: float = 0.01,
    normalization: Normalization = "paper",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean"] = "mean",
) -> Tensor:
    r"""Compute minus the log chance of the true class, plus a penalty that holds the mean set size at k.

    .. math:: \ell = -\frac1N \sum_i \log \sigma(z_{i y_i}) + \beta (\hat K - k)^2, \qquad
        \hat K = \frac1N \sum_{ij} \sigma(z_{ij})

    ``normalization="original"`` is the authors' code: the first term is a mean over N c entries with
    :math:`-\log(\sigma + 10^{-5})`, and the square is divided by :math:`c^2`. The mean over the batch is
    taken over the batch of all processes; it is collective, all processes of the default group must call it.
    Sweep ``beta`` from 0.001 to 0.1 (0.01 on CIFAR-100 and by default, 0.001 on Pl@ntNet-300K, in the
    paper's normalization). With ``beta=0`` it is minus the mean log chance, which has no minimum.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,).
        k: Wanted mean number of positives of a row, a real number with ``1 <= k < c``.
        beta: Weight of the squared penalty, >= 0.
        normalization: ``"paper"`` or ``"original"``.
        weight: Weight of each class (c,) in the first term.
        ignore_index: Rows with this target are ignored.
        reduction: Only ``"mean"``, since the penalty belongs to the batch and not to rows.

    Returns:
        A scalar.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> expected_positive_loss(torch.zeros(1, 4), torch.tensor([0]), k=1.0, beta=1.0)  # log 2 + (2 - 1)^2
        tensor(1.6931)

    References:
        E. Cole, O. Mac Aodha, T. Lorieul, P. Perona, D. Morris, N. Jojic, "Multi-Label Learning from Single
        Positive Labels", CVPR 2021, equation 7.
    """
    check_scores(logits)
    c = logits.shape[1]
    k = _check_options(k, beta, normalization, reduction, c)
    check_target(target, logits, ignore_index=ignore_index)
    if weight is not None:
        check_class_vector("weight", weight, num_classes=c)
    logits = promote(logits)
    counted = target != ignore_index
    target = torch.where(counted, target, 0)
    true = logits.gather(1, target[:, None]).squeeze(1)
    rows = softplus(-true) if normalization == "paper" else -torch.log(torch.sigmoid(true) + 1e-5)
    row_weight = torch.ones_like(rows) if weight is None else weight.to(rows.dtype)[target]
    row_weight = torch.where(counted, row_weight, 0)
    count = global_count(counted).to(rows.dtype)
    total = count if weight is None else global_sum_of(row_weight.sum()).detach()
    fit = global_mean(torch.where(counted, rows * row_weight, 0).sum(), total)
    expected = global_mean(torch.where(counted[:, None], torch.sigmoid(logits), 0).sum(), count)
    square = beta * (expected - k).square()
    return fit + square if normalization == "paper" else fit / c + square / c**2


def _check_options(
    k: float, beta: float, normalization: str, reduction: str, num_classes: int | None = None
) -> float:
    check_number("beta", beta, low=0.0)
    check_choice("normalization", normalization, ("paper", "original"))
    check_choice("reduction", reduction, ("mean",))
    return check_average_size(k, num_classes)


class ExpectedPositiveLoss(ClassLoss):
    """Module of :func:`expected_positive_loss`."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(beta=(0.001, 0.01, 0.1))
    meaning = ScoreMeaning(sigmoid=True, free_levels=True)

    @options_of(expected_positive_loss)
    def __init__(self, **options: Any) -> None: ...
