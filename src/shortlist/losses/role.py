"""ROLE: classifier and label estimates learn from each other (Cole et al., CVPR 2021)."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from shortlist._checks import (
    check_average_size,
    check_number,
    check_scores,
    check_target,
    promote,
    refuse_second_derivative,
    refuse_transforms,
)
from shortlist.losses._contract import ScoreMeaning
from shortlist.losses._global_batch import global_count, global_sum_of, num_processes
from shortlist.losses.label_estimates import LabelEstimates

_GUARD = 1e-5  # -log(x + 1e-5) for each -log(x), as in the original


def role_loss(
    logits: Float[Tensor, "n c"],
    estimates: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    k: float = 5.0,
    size_weight: float = 1.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Compute the loss by which classifier and label estimates fit each other, given the observed class.

    .. math::
        \ell = \tfrac12 \bigl[ \ell(P|Q) + \ell(Q|P) \bigr], \qquad
        \ell(P|Q) = \tfrac{1}{Nc} \sum_{ij} \bigl[ 1_{j = y_i} \nu(P_{ij}) + Q_{ij} \nu(P_{ij})
        + (1 - Q_{ij}) \nu(1 - P_{ij}) \bigr] + \lambda \Bigl( \frac{\hat K(P) - k}{c} \Bigr)^2

    with :math:`P = \sigma(\text{logits})`, :math:`Q = \sigma(\text{estimates})` and
    :math:`\nu(x) = -\log(x + 10^{-5})`. No gradient goes to the second argument of each side.
    :math:`\hat K` is the mean row sum of the batch, of all processes: the loss is collective, all processes
    of the default group must call it. It is one number for the batch, so there is no ``reduction``.

    Args:
        logits: Scores of the classifier (n, c).
        estimates: Scores of the label estimates of the same rows (n, c), for example of
            :class:`LabelEstimates`.
        target: The observed class of each row (n,).
        k: Expected number of positives of a row, a real number with ``1 <= k < c``.
        size_weight: Weight of the term for the expected size (lambda in the formula), >= 0.
        ignore_index: Rows with this target are ignored; neither side learns from them.

    Returns:
        A scalar.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> role_loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0]), k=1.0)  # 1.5 log 2
        tensor(1.0397)

    References:
        E. Cole, O. Mac Aodha, T. Lorieul, P. Perona, D. Morris, N. Jojic, "Multi-Label Learning from Single
        Positive Labels", CVPR 2021, equation 9.
    """
    check_scores(logits)
    check_scores(estimates, name="estimates")
    if estimates.shape != logits.shape:
        raise ValueError(
            f"estimates must have the logits' shape {tuple(logits.shape)}, got {tuple(estimates.shape)}"
        )
    refuse_transforms("role_loss", logits, estimates)
    k = _check_options(k, size_weight, logits.shape[1])
    all_count = check_target(target, logits, ignore_index=ignore_index)
    ignored = (target == ignore_index)[:, None]
    index = target[:, None].masked_fill(ignored, 0)
    return _Mirror.apply(promote(logits), promote(estimates), index, ignored, all_count, k, size_weight)


def _check_options(k: float, size_weight: float, num_classes: int | None = None) -> float:
    check_number("size_weight", size_weight, low=0.0)
    return check_average_size(k, num_classes)


class _Mirror(torch.autograd.Function):
    """Value and both gradients in one pass. Autograd would keep a dozen tensors of the scores' size."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        estimates: Tensor,
        target: Tensor,
        ignored: Tensor,
        all_count: bool,
        k: float,
        size_weight: float,
    ) -> Tensor:
        def total(entries: Tensor) -> Tensor:
            rows = entries.sum(2, keepdim=True)
            return (rows if all_count else rows.masked_fill_(ignored, 0)).sum(1, keepdim=True)

        c = logits.shape[1]
        share = 0.5 / c / global_count(~ignored).to(logits.dtype)
        if logits.device.type == "cpu":  # one side fits the caches
            p, q = logits.sigmoid()[None], estimates.sigmoid()[None]
            sides = [(p, q), (q, p)]
        else:  # both at once: a GPU takes as long to start a kernel for one side
            both = torch.stack([logits, estimates]).sigmoid_()
            sides = [(both, both.flip(0))]
        guarded, rest, scratch = (torch.empty_like(sides[0][0]) for _ in range(3))  # few tensors, used again
        target = target.expand(len(guarded), -1, 1)
        values, gradients = [], []
        for estimate, other in sides:
            torch.add(estimate, _GUARD, out=guarded)
            torch.sub(1 + _GUARD, estimate, out=rest)
            of_true = guarded.gather(2, target)
            slope = guarded.log()
            fit = torch.log(rest, out=scratch).lerp_(slope, other).scatter_add_(2, target, of_true.log())
            half = global_sum_of(total(estimate)) * share - 0.5 * k / c
            values.append(half.square() * (2 * size_weight) - global_sum_of(total(fit)) * share)
            torch.sub(1, other, out=slope).div_(rest)
            of_fit = torch.div(other, guarded, out=scratch).scatter_add_(2, target, of_true.reciprocal_())
            slope.sub_(of_fit)
            torch.addcmul(half * (4 * size_weight * share), slope, share, out=slope)
            slope.mul_(torch.sub(1, estimate, out=scratch).mul_(estimate))
            slope = slope if num_processes() == 1 else slope.mul_(num_processes())
            gradients += (slope if all_count else slope.masked_fill_(ignored, 0)).unbind()
        value = sum(values[1:], values[0]).sum()
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("role_loss")
        (upstream,) = gradients
        of_logits, of_estimates = ctx.saved_tensors
        return upstream * of_logits, upstream * of_estimates, None, None, None, None, None


class RoleLoss(nn.Module):
    """Module of :func:`role_loss` with its table of label estimates. It needs the sample ids of the rows."""

    needs = frozenset({"sample_ids"})
    takes_weight = False

    def __init__(
        self,
        *,
        estimates: LabelEstimates,
        k: float = 5.0,
        size_weight: float = 1.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.check_options({"k": k, "size_weight": size_weight})
        self.k = float(k)
        self.estimates, self.size_weight, self.ignore_index = estimates, size_weight, ignore_index

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Refuse bad values of options, by name."""
        _check_options(options["k"], options["size_weight"])

    @property
    def options(self) -> dict[str, Any]:
        """The options, by name."""
        return {"k": self.k, "size_weight": self.size_weight}

    def forward(self, logits: Tensor, target: Tensor, sample_ids: Tensor) -> Tensor:
        """Compute the loss; ``sample_ids`` (n,) are rows of the table of label estimates."""
        estimates = self.estimates(sample_ids)
        return role_loss(logits, estimates, target, ignore_index=self.ignore_index, **self.options)

    @staticmethod
    def score_meaning(options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe a sigmoid for each class, each on its own level, since there are no negative labels."""
        return ScoreMeaning(sigmoid=True, free_levels=True)
