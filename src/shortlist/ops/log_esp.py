"""Logarithms of elementary symmetric polynomials, the normalizers of distributions over k-subsets."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from shortlist._checks import can_read_values, check_k, check_scores, promote, refuse_second_derivative
from shortlist.ops._counting import count_tree, slab_points
from shortlist.ops.row_operator import row_operator
from shortlist.ops.selection import kth_largest

_LEVEL_STEPS = 2


def log_esp(scores: Float[Tensor, "n c"], *, k: int) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Compute ``log e_{k-1}`` and ``log e_k`` of ``exp(scores)``, row by row.

    .. math:: e_k(x) = \sum_{|A| = k} \prod_{j \in A} x_j, \qquad x_j = \exp(s_j)

    With a level :math:`\theta` taken out, :math:`e_k` is, up to known factors, the chance that exactly k of c
    independent events of chance :math:`\sigma(s_j - \theta)` happen. The level is set so that about k of them
    are expected: the chances wanted are then neither huge nor tiny, whatever the range of the scores, and are
    computed in O(c k) by sums of positive terms. The gradient (the chance that j belongs to a subset drawn
    with weights :math:`\prod x`) is computed in the same pass: the backward pass holds two numbers per score.

    Args:
        scores: Logarithms of the terms, ``-inf`` for a term that is left out.
        k: Size of the subsets, ``1 <= k <= c``.

    Returns:
        Two tensors (n,); ``-inf`` where fewer finite scores than needed are left; NaN where a score is NaN.

    Raises:
        ValueError: If k is not in [1, c] or the scores are not (n, c).

    Example:
        >>> e1, e2 = log_esp(torch.tensor([[1.0, 2.0, 3.0]]).log(), k=2)
        >>> round(e1.exp().item(), 4), round(e2.exp().item(), 4)  # 1 + 2 + 3 and 1*2 + 1*3 + 2*3
        (6.0, 11.0)
    """
    check_scores(scores, name="scores")
    check_k(k, scores.shape[-1], up_to=True)
    scores = promote(scores)
    values, _ = _log_esp(scores, k, scores.requires_grad)
    return values[0], values[1]


def log_esp_ratio(scores: Float[Tensor, "n c"], *, k: int) -> Float[Tensor, " n"]:
    r"""Compute ``log(e_k / e_{k-1})`` of ``exp(scores)``, more exactly and cheaper than as a difference.

    Args:
        scores: As for :func:`log_esp`.
        k: As for :func:`log_esp`.

    Returns:
        A tensor (n,); ``-inf`` where fewer than k scores are finite.

    Example:
        >>> log_esp_ratio(torch.zeros(1, 4), k=1)  # log(4 / 1)
        tensor([1.3863])
    """
    check_scores(scores, name="scores")
    check_k(k, scores.shape[-1], up_to=True)
    return _ratio(promote(scores), k)


def _level(scores: Tensor, columns: Tensor, k: int) -> Tensor:
    """Return a level (n,) at which about ``k - 1/2`` of the events of chance sigmoid(score - level) happen.

    Args:
        scores: Scores (n, c).
        columns: The same, (c, n).
        k: Size of the subsets.
    """
    level, goal = kth_largest(scores, k), k - 0.5
    if not can_read_values(level) or level.isneginf().any():
        unmasked = columns > -torch.inf
        goal = unmasked.sum(0).clamp(1, k) - 0.5  # masked rows may have fewer than k
        least = torch.where(unmasked, columns, torch.inf).amin(0)
        level = torch.where(level.isneginf(), torch.where(least.isinf(), 0.0, least), level)
    chance = torch.empty_like(columns)
    for _ in range(_LEVEL_STEPS):
        # The expected count changes by at most a factor exp(step), so that this never steps over the goal.
        expected = torch.sub(columns, level, out=chance).sigmoid_().sum(0)
        level = level + torch.log(expected.clamp_min(1e-30) / goal)  # 0 where all is masked
    return level


def _solve(
    scores: Tensor, k: int, mixtures: list[tuple[float, float]], *, ratio_only: bool
) -> tuple[Tensor, Tensor]:
    """Return log e_{k-1}, log e_k, their difference (3, n); gradients (len, n, c) of mixtures of the two."""
    n, c = scores.shape
    values, gradients = scores.new_zeros(3, n), scores.new_empty(len(mixtures), n, c)
    step = min(n, slab_points(c))
    tree = count_tree(scores, c, k + 1, step)
    for start in range(0, n, max(step, 1)):
        rows = slice(start, min(start + step, n))
        columns = scores[rows].T.clone(memory_format=torch.contiguous_format)
        theta = _level(scores[rows], columns, k)
        shifted = columns.sub_(theta)
        tree.reset(c, shifted.shape[1])
        torch.sigmoid(shifted, out=tree.factors[1])
        torch.neg(shifted, out=tree.factors[0]).sigmoid_()
        chance = tree.multiply()[-2:]
        logs = chance.log()
        values[2, rows] = torch.where(chance[1] == 0, -torch.inf, logs[1] - logs[0] + theta)
        if not ratio_only:
            values[:2, rows] = logs - logsigmoid(-shifted).sum(0) + torch.stack([(k - 1) * theta, k * theta])
        inverse = torch.where(chance == 0, 0, chance.reciprocal())  # no subset, no gradient
        for gradient, mixture in zip(gradients, mixtures, strict=True):
            seed = scores.new_zeros(k + 1, shifted.shape[1])
            seed[-2], seed[-1] = inverse[0] * mixture[0], inverse[1] * mixture[1]
            gradient[rows] = tree.gradient(seed, part=1).mul_(tree.factors[1]).T
    return values, gradients


def ratio_and_gradient(scores: Tensor, k: int, needs_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return :func:`log_esp_ratio` of checked scores (n,) and its gradient (n, c), or (0, c) if not needed.

    Both are the caller's own, to change in place.
    """
    values, gradients = _solve(scores, k, [(-1.0, 1.0)] if needs_gradient else [], ratio_only=True)
    return values[2].clone(), gradients.flatten(0, 1)


_ratio = row_operator("log_esp_ratio", ratio_and_gradient, called="log_esp_ratio")


# Opaque to torch.compile, which would unroll the product trees: value and gradient come from one pass.


@torch.library.custom_op("shortlist::log_esp", mutates_args=())
def _log_esp(scores: Tensor, k: int, needs_gradient: bool) -> tuple[Tensor, Tensor]:
    mixtures = [(1.0, 0.0), (0.0, 1.0)] if needs_gradient else []
    values, gradients = _solve(scores, k, mixtures, ratio_only=False)
    return values[:2].clone(), gradients


@_log_esp.register_fake
def _(scores: Tensor, k: int, needs_gradient: bool) -> tuple[Tensor, Tensor]:
    n, c = scores.shape
    return scores.new_empty(2, n), scores.new_empty(2 if needs_gradient else 0, n, c)


def _save_gradient(ctx, inputs, output) -> None:
    ctx.save_for_backward(output[1])


def _backward(ctx, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
    refuse_second_derivative("log_esp")
    return (upstream[:, :, None] * ctx.saved_tensors[0]).sum(0), None, None


_log_esp.register_autograd(_backward, setup_context=_save_gradient)
