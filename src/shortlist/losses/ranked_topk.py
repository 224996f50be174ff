"""Ranked top-k cross-entropy: relaxed ranking and a distribution over k (Petersen et al., ICML 2022)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_count, check_k, check_number
from shortlist.losses._contract import ClassLoss, Reduction, class_loss, options_of, worth_sweeping
from shortlist.losses._ranked_rows import Top1, ranked_rows, with_rank_weights
from shortlist.ops import NETWORKS, Comparator, Relaxation, Wiring, arrange, largest, put_back, wire_of

Per = Literal["batch", "class", "row"]

# of relaxations that trained better with another one than with 1 (docs/results/steepness.md)
_STEEPNESS = {"neuralsort": 0.3, "softsort": 0.3, "sinkhorn": 30.0}


def own_steepness(method: str) -> float:
    """Return the steepness that the ranked loss takes for a relaxation if none is given."""
    return _STEEPNESS.get(method, 1.0)


def ranked_topk_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    distribution: Sequence[float] | Tensor = (0.5, 0.0, 0.0, 0.0, 0.5),
    per: Per = "batch",
    candidates: int | None = None,
    top1: Top1 = "softmax",
    method: Relaxation = "splitter",
    steepness: float | None = None,
    comparator: Comparator = "cauchy",
    art_lambda: float = 0.25,
    wiring: Wiring = "index",
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute minus the log chance that the true class is among the first k, for k from a distribution.

    .. math:: \ell(s, y) = -\log \sum_k P_K(k) \sum_{r \le k} P_{r,y}(s)

    P is a relaxed permutation matrix, :func:`shortlist.ops.relaxed_topk`. As relaxed first ranks are noisy,
    the part of k = 1 is by default the softmax's: with ``distribution=[1]`` the loss is cross-entropy.

    - ``top1="softmax"``: ``-log(P_K(1) softmax_y + sum_{k>=2} P_K(k) sum_{r<=k} P[r, y])``
    - ``top1="softmax_ce"``: ``P_K(1) CE - (1 - P_K(1)) log(sum_{k>=2} P_K(k) sum_{r<=k} P[r, y])``, which
      the paper has for training from scratch
    - ``top1="sort"``: the formula above as it is

    As in the original, a chance x enters the logarithm as ``x (1 - 2e-7) + 1e-7``, which bounds all but the
    cross-entropies by 16.1. There is no second derivative with a network, nor a gradient of the distribution.

    Defaults and what to sweep: the steepness, by factors of 2 from 0.1 to 2 (10 collapsed in our own runs);
    ``candidates`` 16 for 1,000 classes and 50 above 10,000; the distribution ``[.5, 0, 0, 0, .5]`` or
    ``[.2] * 5``.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged (not with
            ``candidates``).
        distribution: Chances of k = 1, 2, ..., that add up to 1: (K,), or one row per class or per row of the
            batch.
        per: Whether ``distribution`` is one for the batch (K,), one per true class (c, K) or one per row (n,
            K).
        candidates: Rank only the true class and the largest others, this many in all; softmax is over them
            too.
        top1: How k = 1 is treated, see above.
        method: Name of the relaxation, see :func:`shortlist.ops.relaxed_topk`.
        steepness: Inverse temperature of the relaxation; ``None`` takes 1 for networks, 0.3 for NeuralSort
            and SoftSort, 30 for SinkhornSort, which squeezes the scores into [0, 1].
        comparator: Comparator of the relaxation, for sorting networks.
        art_lambda: Parameter of the comparator ``logistic_phi``.
        wiring: For sorting networks over all classes, ``"sorted"`` or ``"random"`` make the loss independent
            of the numbers of the classes, see :func:`shortlist.ops.relaxed_topk`. Candidates are always in
            the order of their scores, behind the true class.
        generator: Random generator of ``wiring="random"``.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]])
        >>> ranked_topk_loss(scores, torch.tensor([0]), distribution=[1.0])  # cross-entropy
        tensor(0.4076)

    References:
        F. Petersen, H. Kuehne, C. Borgelt, O. Deussen, "Differentiable Top-k Classification Learning", ICML
        2022, equations 2 and 4, section 3.
    """
    _check_options(candidates, top1, method, steepness, comparator, art_lambda, wiring)
    chances = _check_distribution(distribution, per, logits)
    _check_lengths(chances.shape[-1], candidates, logits.shape[-1])
    steepness = own_steepness(method) if steepness is None else steepness
    ranks = {"method": method, "steepness": steepness, "comparator": comparator, "art_lambda": art_lambda}

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        rows = chances.to(target.device)[target] if per == "class" else chances
        if candidates is not None:
            logits, target = _keep_candidates(logits, target, candidates)
        elif method in NETWORKS:
            logits, order = arrange(logits, wiring, generator)
            target = wire_of(target, order)
        return ranked_rows(logits, target, *with_rank_weights(rows, top1, logits), top1, ranks)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        wires, order = arrange(logits, wiring if method in NETWORKS else "index", generator)
        losses = ranked_rows(wires, None, *with_rank_weights(chances, top1, wires), top1, ranks)
        return put_back(losses, order)

    table = class_losses if candidates is None and per != "class" else None
    return class_loss(logits, target, row_loss, table, weight, ignore_index, reduction)


def _check_options(
    candidates: int | None,
    top1: str,
    method: str,
    steepness: float | None,
    comparator: str,
    art_lambda: float,
    wiring: str,
) -> None:
    check_choice("wiring", wiring, get_args(Wiring))
    check_choice("top1", top1, get_args(Top1))
    check_choice("method", method, get_args(Relaxation))
    check_choice("comparator", comparator, get_args(Comparator))
    if steepness is not None:
        check_number("steepness", steepness, above=0.0)
    check_number("art_lambda", art_lambda, low=0.0, below=1.0)
    if candidates is not None:
        check_count("candidates", candidates)


def _check_lengths(length: int, candidates: int | None, num_classes: int) -> None:
    if candidates is None:
        check_k(length, num_classes, name="length of distribution")
    else:
        check_k(candidates, num_classes, name="candidates", up_to=True)
        check_k(length, candidates, name="length of distribution", up_to=True)


def _check_distribution(
    distribution: Sequence[float] | Tensor, per: Per, logits: Tensor | None = None
) -> Tensor:
    """Return the distribution as a tensor; its number of rows is checked if the logits are given."""
    check_choice("per", per, get_args(Per))
    given = (
        distribution.detach()
        if isinstance(distribution, Tensor)
        else torch.tensor(distribution, dtype=torch.float64)
    )
    shape, axis = {"batch": ("(K,)", None), "class": ("(c, K)", 1), "row": ("(n, K)", 0)}[per]
    wrong_length = (
        axis is not None and logits is not None and given.shape[:1] != logits.shape[axis : axis + 1]
    )
    if given.ndim != (1 if axis is None else 2) or given.shape[-1] < 1 or wrong_length:
        raise ValueError(f"distribution must have shape {shape} for per={per!r}, got {tuple(given.shape)}")
    if can_read_values(given):
        if given.ndim == 1:
            least, worst = min(given.tolist()), sum(given.tolist())
        else:
            least, sums = float(given.min()), given.sum(-1)
            worst = float(sums[(sums - 1).abs().argmax()])
        if not (least >= 0 and abs(worst - 1) < 1e-4):
            raise ValueError(
                f"distribution must be >= 0 and add up to 1, got least entry {least} and sum {worst}"
            )
    return given


def _keep_candidates(logits: Tensor, target: Tensor, candidates: int) -> tuple[Tensor, Tensor]:
    """Keep the true class, then the largest others, ``candidates`` classes in all; the target becomes 0."""
    index = target[:, None]
    others = logits.detach().scatter(1, index, -torch.inf)
    others = largest(others, candidates - 1)[1] if candidates > 1 else index[:, :0]
    kept = logits.gather(1, torch.cat([index, others], dim=1))
    # where fewer others are left than candidates, the true class may come again: it counts once
    again = others == index
    if not (can_read_values(again) and not again.any()):
        kept = kept.masked_fill(torch.cat([torch.zeros_like(index, dtype=torch.bool), again], 1), -torch.inf)
    return kept, torch.zeros_like(target)


def _distribution_of(options: Mapping[str, Any]) -> Tensor:
    """Return the distribution of a module. With ``per="row"`` it stands in until a call gives one."""
    per = options["per"]
    return _check_distribution(options["distribution"], "batch" if per == "row" else per)


class RankedTopKLoss(ClassLoss):
    """Module of :func:`ranked_topk_loss`. With ``per="row"``, the call takes the distribution."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(steepness=(0.25, 0.5, 1.0, 2.0))

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse bad options, a bad distribution too unless the call will give it."""
        super().check_options(options)
        _distribution_of(options)

    @options_of(ranked_topk_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def prepared(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Make the distribution a tensor."""
        return options | {"distribution": _distribution_of(options)}

    def forward(self, logits: Tensor, target: Tensor, distribution: Tensor | None = None) -> Tensor:
        """Compute the loss; ``distribution`` (n, K) must be given with ``per="row"`` and only then."""
        if (distribution is None) == (self.per == "row"):
            raise ValueError(f"distribution must be given to the call iff per='row', got per={self.per!r}")
        given: dict[str, Any] = {} if distribution is None else {"distribution": distribution}
        return ranked_topk_loss(logits, target, **self.options | given)
