"""ROLE: classifier and label estimates learn from each other (Cole et al., CVPR 2021)."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from shortlist._checks import check_number, check_scores, check_target, promote
from shortlist.losses._global_batch import global_count, global_sum_of, num_processes

__all__ = ["LabelEstimates", "RoleLoss", "role_loss"]

_GUARD = 1e-5  # -log(x + 1e-5) for each -log(x), as in the original


def role_loss(
    logits: Float[Tensor, "n c"],
    estimates: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    k: float = 5.0,
) -> Tensor:
    r"""Mirror images: the classifier fits the estimated labels, the estimates fit the classifier.

    .. math::
        \ell = \tfrac12 \bigl[ \ell(P|Q) + \ell(Q|P) \bigr], \qquad
        \ell(P|Q) = \tfrac{1}{Nc} \sum_{ij} \bigl[ 1_{j = y_i} \nu(P_{ij}) + Q_{ij} \nu(P_{ij})
        + (1 - Q_{ij}) \nu(1 - P_{ij}) \bigr] + \Bigl( \frac{\hat K(P) - k}{c} \Bigr)^2

    with :math:`P = \sigma(\text{logits})`, :math:`Q = \sigma(\text{estimates})` and
    :math:`\nu(x) = -\log(x + 10^{-5})`. No gradient goes to the second argument of each side.
    :math:`\hat K` is the mean row sum of the batch, of all processes.

    Args:
        logits: Scores of the classifier (n, c).
        estimates: Scores of the label estimates of the same rows (n, c), for example of
            :class:`LabelEstimates`.
        target: The observed class of each row (n,).
        k: Expected number of positives of a row, a real number with ``1 <= k < c``.

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
    check_target(target, logits, ignore_index=-100)
    check_number("k", k, low=1.0)
    if k >= logits.shape[1]:
        raise ValueError(f"k must be < the number of classes ({logits.shape[1]}), got {k}")
    return _Mirror.apply(promote(logits), promote(estimates), target[:, None], k)


class _Mirror(torch.autograd.Function):
    """Value and both gradients in one pass: autograd would keep a dozen tensors of the scores' size."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, estimates: Tensor, target: Tensor, k: float) -> Tensor:
        c = logits.shape[1]
        count = global_count(torch.ones_like(target)).to(logits.dtype)
        p, q = torch.sigmoid(logits), torch.sigmoid(estimates)
        value, gradients = logits.new_zeros(()), []
        guarded, rest, scratch = (torch.empty_like(p) for _ in range(3))  # few tensors, used again
        for own, other in ((p, q), (q, p)):
            torch.add(own, _GUARD, out=guarded)
            torch.sub(1 + _GUARD, own, out=rest)
            slope = guarded.log()
            fit = torch.log(rest, out=scratch).lerp_(slope, other).sum() + slope.gather(1, target).sum()
            off = global_sum_of(own.sum()) / count - k
            value = value - 0.5 * global_sum_of(fit) / (count * c) + 0.5 * (off / c).square()
            torch.sub(1, other, out=slope).div_(rest).sub_(torch.div(other, guarded, out=scratch))
            slope.scatter_add_(1, target, -1 / guarded.gather(1, target))
            share = num_processes() / count
            slope.mul_(0.5 * share / c).add_(off * share / c**2)
            gradients.append(slope.mul_(torch.sub(1, own, out=scratch).mul_(own)))
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (upstream,) = gradients
        of_logits, of_estimates = ctx.saved_tensors
        return upstream * of_logits, upstream * of_estimates, None, None


class LabelEstimates(nn.Module):
    """Scores of the labels of each training row, a table (rows, classes) looked up by sample id.

    Observed classes start at chance 0.995, the others uniformly between 0.4 and 0.6. The table takes
    ``rows * classes * bytes`` of memory (:attr:`nbytes`): 240,000 x 1,081 takes 1,038 MB in float32 and 519
    MB in bfloat16. Its gradient is sparse, of the batch's rows only; give it an optimiser that takes sparse
    gradients (SGD without momentum, SparseAdam).

    Args:
        target: The observed class of each training row (rows,).
        num_classes: Number of classes.
        dtype: Type of the table; half precision halves the memory.
        generator: Source of the uniform start.
    """

    def __init__(
        self,
        target: Tensor,
        *,
        num_classes: int,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if target.dtype != torch.int64 or target.ndim != 1:
            raise ValueError(
                f"target must be int64 of shape (rows,), got {target.dtype} {tuple(target.shape)}"
            )
        if len(target) and not (0 <= int(target.min()) and int(target.max()) < num_classes):
            found = f"{int(target.min())} to {int(target.max())}"
            raise ValueError(f"target must be in [0, {num_classes}), got {found}")
        table = torch.empty(len(target), num_classes, dtype=dtype)
        for rows in torch.arange(len(target)).split(4096):  # in parts: no second table is ever held
            chance = torch.rand(len(rows), num_classes, generator=generator) * 0.2 + 0.4
            chance.scatter_(1, target[rows, None], 0.995)
            table[rows] = chance.logit().to(dtype)
        self.table = nn.Parameter(table)

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes."""
        return self.table.numel() * self.table.element_size()

    def forward(self, index: Tensor) -> Tensor:
        """Scores (n, c) of the rows with these sample ids (n,)."""
        return embedding(index, self.table, sparse=True)

    def parameter_group(self, *, lr: float, factor: float = 10.0) -> dict:
        """Parameter group for an optimiser, at ``factor`` times the model's learning rate, with no decay."""
        check_number("lr", lr, above=0.0)
        check_number("factor", factor, above=0.0)
        return {"params": [self.table], "lr": factor * lr, "weight_decay": 0.0}


class RoleLoss(nn.Module):
    """Module of :func:`role_loss`, with its table of label estimates; wants the rows' sample ids."""

    needs = frozenset({"sample_ids"})

    def __init__(self, *, estimates: LabelEstimates, k: float = 5.0) -> None:
        super().__init__()
        check_number("k", k, low=1.0)
        self.estimates, self.k = estimates, k

    def forward(self, logits: Tensor, target: Tensor, sample_ids: Tensor) -> Tensor:
        """See :func:`role_loss`."""
        return role_loss(logits, self.estimates(sample_ids), target, k=self.k)
