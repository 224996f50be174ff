"""Sparse-top loss for multi-label rows: the Fenchel-Young loss of the projection onto the top-k simplex."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_class_vector, check_label_sets, check_scores, promote
from shortlist.losses._contract import ClassLoss, Reduction, check_reduction, options_of, reduce_rows
from shortlist.losses._global_batch import weighted_mean
from shortlist.ops import sparse_top_and_offset


def sparse_top_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute a convex loss of a label set, which is zero iff the set is the sparse top of the scores.

    .. math:: \ell(s, Y) = \Omega^*_k(s) - \sum_{j \in Y} s_j + \tfrac{k}{2}, \qquad k = |Y|, \quad
        \Omega^*_k(s) = \max_q \{ q^\top s - \tfrac12 \|q\|^2 : 0 \le q \le 1, \textstyle\sum q = k \}

    Its gradient is ``sparse_top(s, k=|Y|) - 1_Y``. Each row uses its own number of positives: with another k
    the formula would be unbounded below. With one positive per row it is the sparsemax loss. It is zero once
    each positive leads each negative by 1; there is nothing to sweep but the scale of the scores.

    Args:
        logits: Scores (n, c); ``-inf`` leaves a class out.
        target: Labels (n, c), each 0 or 1 (any type), with at least one 1 in each row.
        weight: Weight of each class (c,): a row counts with the mean weight of its positives.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If the target is not 0/1 of the logits' shape, or a row has no positive.

    Example:
        >>> scores = torch.tensor([[2.0, 0.5, 0.0]])
        >>> sparse_top_loss(scores, torch.tensor([[1, 1, 0]]))  # weights 1, 0.75, 0.25
        tensor(0.0625)

    References:
        C. Garcin, thesis, section 6.2, equation 6.25; M. Blondel, A. Martins, V. Niculae, "Learning with
        Fenchel-Young losses", JMLR 2020; A. Martins, R. Astudillo, "From softmax to sparsemax", ICML 2016.
    """
    logits, labels = scores_and_labels(logits, target, reduction)
    count = labels.sum(1)
    weights, offset = sparse_top_and_offset(logits.detach(), k=count.to(torch.int64))
    change = weights - labels
    # Both add up to k, so that scores may be shifted by the threshold: nothing large cancels.
    value = torch.where(change == 0, 0, change * offset).sum(1) + 0.5 * (count - weights.square().sum(1))
    # Envelope theorem: the maximizer is a constant for the gradient, which is the change.
    used = torch.where(change == 0, 0, change * logits).sum(1)
    rows = value + (used - used.detach()).nan_to_num(nan=0.0)
    if weight is None:
        return reduce_rows(rows, reduction)
    check_class_vector("weight", weight, num_classes=logits.shape[1])
    row_weight = (labels * weight.to(labels.dtype)).sum(1) / count
    rows = rows * row_weight
    return weighted_mean(rows, row_weight.sum()) if reduction == "mean" else reduce_rows(rows, reduction)


def scores_and_labels(logits: Tensor, target: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """Check scores (n, c), labels (n, c) and reduction; return both in one type, float32 at least."""
    check_scores(logits)
    check_reduction(reduction)
    check_label_sets(target, logits)
    logits = promote(logits)
    return logits, target.to(logits.dtype)


class SparseTopLoss(ClassLoss):
    """Module of :func:`sparse_top_loss`."""

    needs = frozenset({"label_sets"})

    @options_of(sparse_top_loss)
    def __init__(self, **options: Any) -> None: ...
