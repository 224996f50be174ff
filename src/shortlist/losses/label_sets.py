"""Losses for rows with several labels: two common ones beside ``sparse_top``, and one of their number."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softplus

from shortlist._checks import promote
from shortlist.losses._contract import (
    ClassLoss,
    Reduction,
    ScoreMeaning,
    check_reduction,
    options_of,
    reduce_rows,
)
from shortlist.losses.sparse_top import SparseTopLoss, scores_and_labels


def binary_ce_loss(logits: Float[Tensor, "n c"], target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    r"""Compute binary cross-entropy, the sum over classes for each row.

    .. math:: \ell(s, Y) = -\sum_{j \in Y} \log \sigma(s_j) - \sum_{j \notin Y} \log (1 - \sigma(s_j))

    A class whose score is above 0 is more likely in the set than not.

    Args:
        logits: Scores (n, c).
        target: Labels (n, c), each 0 or 1 (any type), with at least one 1 in each row.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Example:
        >>> binary_ce_loss(torch.zeros(1, 3), torch.tensor([[1, 1, 0]]))  # 3 log 2
        tensor(2.0794)

    References:
        C. Garcin, thesis, equation 6.3.
    """
    logits, labels = scores_and_labels(logits, target, reduction)
    return reduce_rows((softplus(logits) - labels * logits).sum(1), reduction)


def shared_ce_loss(logits: Float[Tensor, "n c"], target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    r"""Compute cross-entropy of the softmax with a target that the labels of a row share equally.

    .. math:: \ell(s, Y) = -\frac{1}{|Y|} \sum_{j \in Y} \log \mathrm{softmax}_j(s)

    With one label for each row it is plain cross-entropy. The labels of a large set get a weaker signal
    each, which is what ``sparse_top`` was made to avoid.

    Args:
        logits: Scores (n, c).
        target: Labels (n, c), each 0 or 1 (any type), with at least one 1 in each row.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Example:
        >>> shared_ce_loss(torch.zeros(1, 4), torch.tensor([[1, 1, 0, 0]]))  # log 4
        tensor(1.3863)

    References:
        C. Garcin, thesis, section 6.2.2.
    """
    logits, labels = scores_and_labels(logits, target, reduction)
    terms = torch.where(labels > 0, log_softmax(logits, 1), 0)  # -inf of a class that is left out counts not
    return reduce_rows(-terms.sum(1) / labels.sum(1), reduction)


def set_size_loss(
    size_logits: Float[Tensor, " n"], target: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    r"""Compute the Poisson loss of how many labels beyond the first each row has.

    .. math:: \ell(z, Y) = r - (|Y| - 1) \log r, \qquad r = \log(1 + e^z)

    It is smallest where ``1 + r`` is the mean size, whatever the distribution of sizes, and its gradient is
    never larger than the size.

    Args:
        size_logits: Output of a size head (n,).
        target: Labels (n, c), each 0 or 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Example:
        >>> set_size_loss(torch.tensor([0.5413]), torch.tensor([[1, 1, 0]]))  # r = 1: a set of 2
        tensor(1.)
    """
    check_reduction(reduction)
    if size_logits.shape != target.shape[:1]:
        raise ValueError(
            f"size_logits must be one for each row, ({len(target)},), got {tuple(size_logits.shape)}"
        )
    more = target.sum(1).to(promote(size_logits).dtype) - 1
    rate = softplus(promote(size_logits))
    return reduce_rows(rate - more * _log_softplus(promote(size_logits)), reduction)


def _log_softplus(values: Tensor) -> Tensor:
    """Return log(log(1 + e^z)); far below 0 it is z itself, where softplus is rounded to 0."""
    small = values < -20
    return torch.where(small, values, softplus(torch.where(small, 0, values)).log())


class BinaryCELoss(ClassLoss):
    """Module of :func:`binary_ce_loss`."""

    needs = frozenset({"label_sets"})
    takes_weight = False
    meaning = ScoreMeaning(sigmoid=True)

    @options_of(binary_ce_loss)
    def __init__(self, **options: Any) -> None: ...


class SharedCELoss(ClassLoss):
    """Module of :func:`shared_ce_loss`."""

    needs = frozenset({"label_sets"})
    takes_weight = False

    @options_of(shared_ce_loss)
    def __init__(self, **options: Any) -> None: ...


LABEL_SET_LOSSES: dict[str, type[nn.Module]] = {
    "binary_ce": BinaryCELoss,
    "shared_ce": SharedCELoss,
    "sparse_top": SparseTopLoss,
}
"""The module of each loss for photos with several labels, by the name that recipes use."""
