"""Noised top-k loss with larger margins for rarer classes (Garcin et al., ICML 2022)."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_class_vector, check_number
from shortlist.losses._contract import Reduction, ScoreMeaning, options_of, worth_sweeping
from shortlist.losses._list_loss import ListLoss
from shortlist.losses._margins import warn_unless_cosine
from shortlist.losses.noised_topk import check_options, noised_topk_loss
from shortlist.priors import Counts, ZeroCounts, as_counts, margins_from_counts


def imbalanced_noised_topk_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts | None = None,
    max_margin: float = 0.2,
    zero_counts: ZeroCounts = "error",
    margins: Float[Tensor, " c"] | None = None,
    k: int = 5,
    noise_std: float = 0.01,
    num_samples: int | None = 5,
    scale: float = 50.0,
    noise: Float[Tensor, "m n c"] | None = None,
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute the noised top-k loss of cosine scores, with one margin per class and a scale.

    .. math::
        \ell(s, y) =
        \gamma \max\bigl(0,\; m_y + \mathbb{E}\,\mathrm{top}_{k+1}(s + \varepsilon Z) - s_y\bigr),
        \qquad m_c = C n_c^{-1/4}

    The scores are those of a cosine head (unit features, unit class weights): they lie in [-1, 1], and
    ``scale`` makes up for it. With equal margins of 1 and ``scale=1`` it is ``noised_topk_loss``.

    Defaults and what to sweep: the largest margin from 0.1 to 0.5, ``scale`` from 30 to 60, ``noise_std``
    from 0.01 to 0.1 (Pl@ntNet-300K: 0.2, 60, 0.01; ImageNet-LT: 0.4, noise 0.1). The paper calls a scale
    of 50 a good default.

    Args:
        logits: Cosine scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,), from which the margins are made: a
            tensor, an array or a list.
        max_margin: Margin of the rarest class, with ``class_counts``.
        zero_counts: ``"error"`` or ``"floor"``, see :func:`shortlist.priors.class_priors`.
        margins: Margin of each class (c,) in place of ``class_counts``.
        k: Size of the short list, ``1 <= k < c``.
        noise_std: Standard deviation of the noise (epsilon in the paper), >= 0.
        num_samples: Draws of the noise (B in the paper, M in the thesis), or ``None`` for the exact
            expectation.
        scale: Factor of the loss (gamma in the formula).
        noise: Standard normal noise (m, n, c) to use instead of fresh draws; a module uses it for each batch.
        generator: Random generator of the draws.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[0.8, 0.6, 0.1]])
        >>> target, counts = torch.tensor([1]), torch.tensor([16, 1, 16])
        >>> options = {"class_counts": counts, "max_margin": 0.4, "k": 1, "noise_std": 0.0}
        >>> imbalanced_noised_topk_loss(scores, target, **options)  # 50 * 0.4
        tensor(20.)

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "Stochastic smoothing of the top-K calibrated hinge loss
        for deep imbalanced classification", ICML 2022, equation 13.
    """
    if class_counts is not None and isinstance(logits, Tensor):
        class_counts = as_counts(class_counts, device=logits.device)
    margins = _check_margins(class_counts, max_margin, zero_counts, margins)
    name = "imbalanced_noised_topk_loss"
    warn_unless_cosine(logits, scale=scale, name=name, target=target, ignore_index=ignore_index)
    return noised_topk_loss(
        logits,
        target,
        k=k,
        noise_std=noise_std,
        num_samples=num_samples,
        margin=margins,
        scale=scale,
        noise=noise,
        generator=generator,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def _check_margins(
    class_counts: Counts | None, max_margin: float, zero_counts: ZeroCounts, margins: Tensor | None
) -> Tensor:
    """Return the margins that are given, or make them from the counts."""
    check_number("max_margin", max_margin, above=0.0)
    if class_counts is not None:
        made = margins_from_counts(class_counts, max_margin=max_margin, zero_counts=zero_counts)
        if margins is None:
            return made
    elif margins is not None:
        check_class_vector("margins", margins)
        return margins
    given = "none" if margins is None else "both"
    raise ValueError(f"exactly one of class_counts and margins must be given, got {given}")


def _check_options(
    k: int,
    noise_std: float,
    num_samples: int | None,
    scale: float,
    margins: Tensor | None = None,
    max_margin: float = 1.0,
) -> None:
    check_number("max_margin", max_margin, above=0.0)
    margin = 0.0 if margins is None else margins
    check_options(k=k, noise_std=noise_std, num_samples=num_samples, margin=margin, scale=scale)


class ImbalancedNoisedTopKLoss(ListLoss):
    """Module of :func:`imbalanced_noised_topk_loss`; it stores margins, also if class counts are given."""

    check = staticmethod(_check_options)
    grid = worth_sweeping(max_margin=(0.1, 0.2, 0.4), scale=(30.0, 50.0))
    needs = frozenset({"class_counts", "cosine_scores"})

    @options_of(imbalanced_noised_topk_loss)
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def prepared(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Make margins from the counts, if these are given."""
        for_margins = ("class_counts", "max_margin", "zero_counts", "margins")
        margins = _check_margins(**{name: options.pop(name) for name in for_margins})
        return options | {"margins": margins}

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Describe cosines, which the loss multiplies by its scale; they are not log-posteriors."""
        return ScoreMeaning(scale=options["scale"])
