"""Euclidean projection onto the top-k simplex: sparse class weights in [0, 1] that add up to k."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import can_read_values, check_k, check_scores, promote
from shortlist.ops.selection import largest, pack_above

_MAX_STEPS = 60


def sparse_top(scores: Float[Tensor, "n c"], *, k: int | Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
    r"""Return the point of the top-k simplex that is nearest to the scores.

    .. math::
        \arg\min_q \{ \|s - q\|^2 : 0 \le q \le 1, \textstyle\sum_j q_j = k \}
        = \mathrm{clip}(s - \lambda, 0, 1)

    The threshold :math:`\lambda` is exact: Newton's method, kept inside a shrinking bracket, ends on the
    linear piece that holds the root. With m marking the entries strictly between 0 and 1, the Jacobian is
    :math:`\mathrm{diag}(m) - m m^\top / |m|`. ``k=1`` is sparsemax.

    Args:
        scores: Scores (n, c); ``-inf`` leaves a class out. Where fewer than k are finite, each of them gets
            1.
        k: Sum of each row of the result, ``1 <= k <= c``; a tensor (n,) for one k per row.

    Returns:
        Weights (n, c) in [0, 1].

    Raises:
        ValueError: If k is out of [1, c] or the scores are not (n, c).

    Example:
        >>> sparse_top(torch.tensor([[2.0, 1.6, 0.2, -1.0]]), k=2)
        tensor([[1., 1., 0., 0.]])
        >>> sparse_top(torch.tensor([[0.5, 0.3, 0.1, -1.0]]), k=2)  # the threshold is -0.3667
        tensor([[0.8667, 0.6667, 0.4667, 0.0000]])

    References:
        A. Martins, R. Astudillo, "From softmax to sparsemax", ICML 2016, for k = 1; M. Blondel, A. Martins,
        V. Niculae, "Learning with Fenchel-Young losses", JMLR 2020, for the loss that goes with it.
    """
    check_scores(scores, name="scores")
    n, c = scores.shape
    if isinstance(k, Tensor):
        if k.shape != (n,) or k.dtype != torch.int64:
            raise ValueError(f"k must be an integer or int64 of shape ({n},), got {k.dtype} {tuple(k.shape)}")
        if can_read_values(k) and n and not (1 <= int(k.min()) and int(k.max()) <= c):
            raise ValueError(f"k must be in [1, {c}], got {int(k.min())} to {int(k.max())}")
    else:
        check_k(k, c, up_to=True)
        k = torch.full((n,), k, device=scores.device)
    scores = promote(scores)
    return _Project.apply(scores, *_threshold(scores.detach(), k))


def sparse_top_and_offset(scores: Float[Tensor, "n c"], *, k: Int[Tensor, " n"]) -> tuple[Tensor, Tensor]:
    """Return the weights and the scores minus the threshold (n, c), for scores that need no gradient."""
    kth, point = _threshold(scores, k)
    offset = (scores - kth[:, None]) - point[:, None]
    return offset.clamp(0, 1), offset


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores: Tensor, kth: Tensor, point: Tensor) -> Tensor:
        # one after the other: their sum would lose the point where scores are large
        weights = (scores - kth[:, None]).sub_(point[:, None]).clamp_(0, 1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (upstream,) = gradients
        (weights,) = ctx.saved_tensors
        inner = (1 - weights).mul_(weights).sign_()  # 1 strictly between 0 and 1
        upstream = upstream * inner
        mean = upstream.sum(1, keepdim=True) / inner.sum(1, keepdim=True).clamp_min(1)
        return upstream.sub_(mean * inner), None, None


@torch.library.custom_op("shortlist::sparse_top_threshold", mutates_args=())
def _threshold(scores: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the root of sum clip(s - threshold, 0, 1) = k as s_[k] plus a point in [-1, 0), both (n,)."""
    most = int(k.max()) if can_read_values(k) and k.numel() else scores.shape[1]
    top = largest(scores, most)[0]
    kth = top.gather(1, k[:, None] - 1)
    # Where fewer than k scores are finite, a threshold below all of them; where one is NaN, NaN.
    kth = torch.where(top[:, :1].isnan(), top[:, :1], kth.clamp_min(torch.finfo(scores.dtype).min))
    near, _ = pack_above(scores, kth - 1, at_least=1)
    offset = near - kth  # from here on the root is in [-1, 0)
    low, high = -torch.ones_like(kth), torch.zeros_like(kth)
    goal, point = k[:, None].to(scores.dtype), low.clone()
    rounding = 8 * torch.finfo(scores.dtype).eps * goal  # what the sum below is good for
    for _ in range(_MAX_STEPS):
        moved = offset - point
        weights = moved.clamp(0, 1)
        excess = weights.sum(1, keepdim=True) - goal
        inner = (moved == weights).sum(1, keepdim=True)
        low, high = torch.where(excess >= 0, point, low), torch.where(excess <= 0, point, high)
        newton = point + excess / inner
        inside = (newton >= low) & (newton <= high)
        following = torch.where(excess == 0, point, torch.where(inside, newton, (low + high) / 2))
        settled = (following - point).abs() * inner <= rounding  # false for NaN, which then takes all steps
        point = following
        if can_read_values(scores) and bool(settled.all()):
            break
    return kth.squeeze(1), point.squeeze(1)


@_threshold.register_fake
def _(scores: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape[0])
