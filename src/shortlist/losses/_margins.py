"""Cross-entropy with additive margins on the scores, the common core of the pairwise margin family."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_scores, is_transformed, refuse_second_derivative
from shortlist.losses._contract import (
    ClassLoss,
    Reduction,
    RowFunction,
    ScoreMeaning,
    class_loss,
    log_weights,
)
from shortlist.priors import Counts, ZeroCounts, as_counts, usable_counts

# with class weights: margins that keep the loss consistent (Menon et al., theorem 1), or none
Weighting = Literal["consistent", "plain"]

_FAR_OUTSIDE = 2.0
_LOOK_AGAIN = 100  # calls
_calls: dict[str, int] = {}
_warned: set[str] = set()


class CountedLoss(ClassLoss):
    """A margin loss made from the training counts of the classes, which are checked when it is made.

    ``half()`` and its like leave the counts as they are: 70,000 is no number of float16.
    """

    needs = frozenset({"class_counts"})

    class_counts: Tensor

    @classmethod
    def prepared(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Make the counts a tensor, and check them."""
        counts = as_counts(options["class_counts"])
        check_weighting(options["weighting"])
        usable_counts(counts, zero_counts=options["zero_counts"], anywhere=True)
        return options | {"class_counts": counts}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "CountedLoss":
        counts = self.class_counts
        super()._apply(fn, recurse)
        self.class_counts = counts.to(self.class_counts.device)
        return self


def without_priors(tau: float, options: Mapping[str, Any]) -> ScoreMeaning:
    """Describe log-posteriors without tau times the log priors; only plain class weights count as priors."""
    return ScoreMeaning(without_priors=tau, with_weights=options["weighting"] == "plain")


def check_weighting(weighting: str) -> None:
    """Require consistent or plain."""
    check_choice("weighting", weighting, ("consistent", "plain"))


def counts_of(logits: Tensor, class_counts: Counts, zero_counts: ZeroCounts) -> Tensor:
    """Check the counts (c,); return them in float64, each at least 1."""
    check_scores(logits)
    class_counts = as_counts(class_counts, device=logits.device)
    return usable_counts(class_counts, zero_counts=zero_counts, num_classes=logits.shape[1])


class Margins(NamedTuple):
    """The margins that a loss adds to the scores, and the factors of the scores and of the loss.

    Args:
        on_all: Margin added to the score of every class (c,); 0 if not given.
        on_true: Margin (c,) that the score of the true class gets in place of ``on_all``, if given. Both are
            added before the scores are multiplied by ``scale``.
        factors: Factor (c,) of the loss of each true class.
        scale: Factor of the scores.
    """

    on_all: Tensor | None = None
    on_true: Tensor | None = None
    factors: Tensor | None = None
    scale: float = 1.0


def margin_loss(
    logits: Tensor,
    target: Tensor,
    margins: Margins,
    weighting: Weighting,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
) -> Tensor:
    """Compute cross-entropy of ``scale (s_j + on_all_j)`` with the true score ``scale (s_y + on_true_y)``.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c).
        margins: Margins that are added to the scores.
        weighting: With class weights w, ``"consistent"`` adds the margins ``log(w_j / w_y)``, with which the
            weights do not change what the scores converge to; ``"plain"`` does not.
        weight: As in ``cross_entropy``.
        ignore_index: As in ``cross_entropy``.
        reduction: As in ``cross_entropy``.
    """
    check_weighting(weighting)
    on_all, on_true, factors, scale = margins
    # weights of a wrong shape are refused below
    if weight is not None and weighting == "consistent" and weight.shape == logits.shape[1:]:
        of_weights = log_weights(weight) / scale
        on_all = of_weights if on_all is None else on_all + of_weights
        on_true = None if on_true is None else on_true + of_weights

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        rows = margin_rows(logits, target, on_all=_like(on_all, logits), on_true=on_true, scale=scale)
        return rows if factors is None else rows * factors[target].to(logits)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        true = _like(on_true, logits)
        table = margin_table(logits, share, on_all=_like(on_all, logits), on_true=true, scale=scale)
        return table if factors is None else table * factors.to(logits)

    return class_loss(logits, target, row_loss, class_losses, weight, ignore_index, reduction)


def _like(vector: Tensor | None, logits: Tensor) -> Tensor | None:
    return None if vector is None else vector.to(logits)


def margin_rows(
    logits: Tensor,
    target: Tensor,
    *,
    on_all: Tensor | None = None,
    on_true: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Compute the rows (n,) of :func:`margin_loss`."""
    moved, change = logits if on_all is None else logits + on_all, None
    if on_true is not None:
        change = on_true[target] if on_all is None else on_true[target] - on_all[target]
        change = change.to(logits)[:, None]
    if scale != 1 and not is_transformed(logits):
        return _ScaledCrossEntropy.apply(moved, target[:, None], change, scale)
    if change is not None:
        # in place where the tensor is our own: one less of the scores' size to fill
        add = moved.scatter_add if moved is logits else moved.scatter_add_
        moved = add(1, target[:, None], change)
    return cross_entropy(moved if scale == 1 else scale * moved, target, reduction="none")


class _ScaledCrossEntropy(torch.autograd.Function):
    """Cross-entropy (n,) of scores times a scale, after the true score is changed.

    What is kept is the softmax, with which the gradient is one product: exponentials are taken once. The loss
    is the logarithm of the true class's share; where that is too small for a number, the sum of the
    exponentials comes back from the largest, whose share of it is at least 1 / c.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, change: Tensor | None, scale: float) -> Tensor:
        moved = scale * scores
        if change is not None:
            moved.scatter_add_(1, target, scale * change)
        share = moved.softmax(1)
        ctx.save_for_backward(share, target)
        ctx.scale = scale
        true = share.gather(1, target).squeeze(1)
        if can_read_values(true) and bool((true > torch.finfo(true.dtype).tiny).all()):
            return -true.log()
        return moved.amax(1) - share.amax(1).log() - moved.gather(1, target).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a margin loss with a scale")
        share, target = ctx.saved_tensors
        upstream = ctx.scale * gradients[0][:, None]
        return (share * upstream).scatter_add_(1, target, -upstream), None, None, None


def margin_table(
    logits: Tensor,
    share: Tensor,
    *,
    on_all: Tensor | None = None,
    on_true: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Compute :func:`margin_rows` (n, c) with each class as the true one; 0 where its share is 0."""
    moved = scale * (logits if on_all is None else logits + on_all)
    if on_true is None:
        return torch.where(share > 0, -moved.log_softmax(-1), 0)
    true = scale * (logits + on_true)
    # The sum over the others is the whole less one term. That would cancel for the largest term only, whose
    # others are added up by themselves.
    largest = moved.argmax(-1, keepdim=True)
    whole = moved.logsumexp(-1, keepdim=True)
    rest = moved.scatter(-1, largest, -torch.inf)
    others = whole + torch.log1p(-(rest - whole).exp())
    alone = rest.amax(-1, keepdim=True).isneginf()  # all others are masked: their sum has no derivative
    second = torch.where(alone, 0, rest).logsumexp(-1, keepdim=True).masked_fill(alone, -torch.inf)
    others = others.scatter(-1, largest, second)
    return softplus(torch.where(share > 0, others - true, -torch.inf))


def table_of_nonzero(row_loss: RowFunction, logits: Tensor, share: Tensor) -> Tensor:
    """Compute the row loss (n, c) of each class that has a share, one evaluation for each; else 0."""
    row, column = (share > 0).nonzero(as_tuple=True)
    return torch.zeros_like(logits).index_put((row, column), row_loss(logits[row], column))


def warn_unless_cosine(
    logits: Tensor, *, scale: float, name: str, target: Tensor | None = None, ignore_index: int = -100
) -> None:
    """Warn once per loss if scores that ought to be cosines, times a scale, are far outside [-1, 1].

    The first call looks at all rows that count, on any device; later ones now and then, where that costs no
    waiting.
    """
    if scale <= 1 or name in _warned or torch.compiler.is_compiling() or logits.is_meta:
        return
    if is_transformed(logits):
        return
    calls = _calls[name] = _calls.get(name, 0) + 1
    if calls > 1 and (calls % _LOOK_AGAIN or not can_read_values(logits)):
        return
    scores = logits.detach()
    if target is not None and not target.is_floating_point():
        scores = scores[target != ignore_index]
    if not scores.numel():
        return
    low, high = (float(bound) for bound in scores.aminmax())
    size = max(-low if low > -torch.inf else 0.0, high)
    if size > _FAR_OUTSIDE:
        _warned.add(name)
        warnings.warn(
            f"{name} expects cosine scores in [-1, 1], which it multiplies by scale={scale:g}, "
            f"got scores up to {size:.3g}: use a cosine head, or scale=1",
            stacklevel=3,
        )
