"""Two-head loss for sets of k classes on average (Garcin et al., 2023)."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import log_softmax, nll_loss, softplus

from shortlist._bounds import check_choice
from shortlist._checks import (
    check_average_size,
    check_class_vector,
    check_number,
    check_scores,
    check_target,
    promote,
    refuse_transforms,
)
from shortlist._precision import wide_type
from shortlist.losses._contract import (
    ClassLoss,
    Reduction,
    ScoreMeaning,
    check_reduction,
    options_of,
    reduce_rows,
    worth_sweeping,
)
from shortlist.losses._global_batch import global_count, global_mean, global_sum_of, largest_in_batch


def average_k_loss(
    set_logits: Float[Tensor, "n c"],
    proposal_logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k: float = 5.0,
    alpha: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy of a proposal head and binary cross-entropy of a set head with pseudo-positives.

    .. math::
        \ell = \frac1N \sum_i \Bigl[ \mathrm{CE}(z'_i, y_i) - \log \sigma(z_{i y_i})
        - \frac{\alpha}{k-1} \sum_{j \in S_i} \log \sigma(z_{ij})
        - \frac{\alpha}{c-k} \sum_{j \notin S_i, j \ne y_i} \log (1 - \sigma(z_{ij})) \Bigr]

    The pseudo-positives S are the ``round((k - 1) N)`` largest entries of the proposal head's softmax over
    the whole batch, the true classes left out; no gradient flows through the choice. Rows thus get as many as
    their ambiguity deserves, k - 1 on average. With ``k=1`` there are none. A class that the proposal head
    masks by -inf is never chosen, even if fewer are then left than wanted. **Across processes** the choice is
    made over the batch of all processes: loss and gradients are those of one process with the whole batch. It
    is collective: all processes of the default group must call it, also to evaluate.

    Predict from the set head: ``softmax(set_logits)`` against a threshold for k classes on average.

    Sweep ``alpha`` from 0.1 to 10 (0.3 on CIFAR-100, 5 on Pl@ntNet-300K).

    Args:
        set_logits: Scores of the set head (n, c).
        proposal_logits: Scores of the proposal head (n, c).
        target: Class indices (n,).
        k: Average size of the sets, a real number with ``1 <= k < c``.
        alpha: Weight of pseudo-positives and negatives against the true class, > 0.
        weight: Weight of each class (c,): a row counts with the weight of its true class.
        ignore_index: Rows with this target are ignored, and get no pseudo-positives.
        reduction: ``"mean"`` (weighted, over all processes), ``"sum"`` or ``"none"`` (each process's own
            rows).

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> set_logits, proposals = torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 0.0]])
        >>> target = torch.tensor([0])
        >>> average_k_loss(set_logits, proposals, target, k=2.0)  # CE + 3 log 2; class 1 is pseudo-positive
        tensor(3.6309)

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "A Two-Head Loss Function for Deep Average-K
        Classification", 2023, equation 15.
    """
    _check_heads(set_logits, proposal_logits)
    refuse_transforms("average_k_loss", set_logits, proposal_logits)
    c = set_logits.shape[1]
    k = _check_options(k, alpha, c)
    check_reduction(reduction)
    check_target(target, set_logits, ignore_index=ignore_index)
    if weight is not None:
        check_class_vector("weight", weight, num_classes=c)
    # flat indices tell the pseudo-positives
    scores, proposals = promote(set_logits).contiguous(), promote(proposal_logits).contiguous()
    ignored = target == ignore_index
    target = target.masked_fill(ignored, 0)
    count = global_count(~ignored)
    log_p = log_softmax(proposals, dim=1)
    chosen, kept = _pseudo_positives(log_p.detach(), target[:, None], ignored, count, k)
    rows = _SetRows.apply(scores, target[:, None], chosen, kept, alpha / max(k - 1, 1e-9), alpha / (c - k))
    rows = rows + nll_loss(log_p, target, reduction="none")
    row_weight = None if weight is None else weight.to(rows.dtype)[target].masked_fill(ignored, 0)
    if row_weight is not None:
        rows = rows * row_weight
    rows = rows.masked_fill(ignored, 0)
    if reduction != "mean":
        return reduce_rows(rows, reduction)
    total = count if row_weight is None else global_sum_of(row_weight.sum()).detach()
    return global_mean(rows.sum(), total)


def _check_heads(set_logits: Tensor, proposal_logits: Tensor) -> None:
    check_scores(set_logits, name="set_logits")
    check_scores(proposal_logits, name="proposal_logits")
    if set_logits.shape != proposal_logits.shape:
        raise ValueError(
            f"set_logits and proposal_logits must have one shape, got {tuple(set_logits.shape)} "
            f"and {tuple(proposal_logits.shape)}"
        )


def _check_options(k: float, alpha: float, num_classes: int | None = None) -> float:
    check_number("alpha", alpha, above=0.0)
    return check_average_size(k, num_classes)


def _pseudo_positives(
    log_p: Tensor, target: Tensor, ignored: Tensor, count: Tensor, k: float
) -> tuple[Tensor, Tensor]:
    """Choose entries of this process's (n, c): flat indices, and which of them are pseudo-positives."""
    others = log_p.scatter(1, target, -torch.inf).masked_fill_(ignored[:, None], -torch.inf)
    wanted = ((k - 1) * count.to(wide_type(log_p))).round()
    per_row = 0
    while per_row < k - 1:  # by comparing: in a compiled graph k may be a symbol, which cannot be rounded
        per_row += 1
    return largest_in_batch(others, wanted=wanted, most=per_row * len(ignored))


class _SetRows(torch.autograd.Function):
    """Binary cross-entropy (n,) of the set head, with the true class and the pseudo-positives as positives.

    Each entry gets its own term before they are added up: one that is taken off the sum again would take its
    rounding error along.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        target: Tensor,
        chosen: Tensor,
        kept: Tensor,
        positive: float,
        negative: float,
    ) -> Tensor:
        terms = softplus(scores).mul_(negative)
        terms.scatter_(1, target, softplus(scores.gather(1, target).neg_()))
        flat = terms.view(-1)
        picked = softplus(scores.reshape(-1)[chosen].neg_()).mul_(positive)
        flat[chosen] = torch.where(kept, picked, flat[chosen])
        ctx.save_for_backward(scores, target, chosen, kept)
        ctx.factors = positive, negative
        return terms.sum(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scores, target, chosen, kept = ctx.saved_tensors
        positive, negative = ctx.factors
        gradient = torch.sigmoid(scores).mul_(negative)
        gradient.scatter_(1, target, torch.sigmoid(scores.gather(1, target).neg_()).neg_())
        flat = gradient.view(-1)
        picked = torch.sigmoid(scores.reshape(-1)[chosen].neg_()).mul_(-positive)
        flat[chosen] = torch.where(kept, picked, flat[chosen])
        gradient.mul_(gradients[0][:, None])
        return gradient, None, None, None, None, None


class AverageKLoss(ClassLoss):
    """Module of :func:`average_k_loss`. It takes the pair of scores that a two-head model returns."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(alpha=(0.1, 0.3, 1.0, 5.0))
    needs = frozenset({"two_heads"})

    @options_of(average_k_loss)
    def __init__(self, **options: Any) -> None: ...

    def forward(self, logits: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        """Compute the loss; ``logits`` is the pair of the set head's and the proposal head's scores."""
        if not isinstance(logits, tuple) or len(logits) != 2:
            raise ValueError(
                f"logits must be the pair (set_logits, proposal_logits), got {type(logits).__name__}"
            )
        return average_k_loss(*logits, target, **self.options)

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe log-posteriors for the proposal head, and for the set head a sigmoid for each class."""
        check_choice("head", head, ("set", "proposal"))
        return ScoreMeaning(without_priors=0.0) if head == "proposal" else ScoreMeaning(sigmoid=True)
