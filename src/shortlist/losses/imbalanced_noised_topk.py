"""Noised top-k loss with larger margins for rarer classes (Garcin et al., ICML 2022)."""

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_class_vector, check_k, check_number
from shortlist.losses._contract import ClassLoss, Reduction, ScoreMeaning
from shortlist.losses._margins import warn_unless_cosine
from shortlist.losses.noised_topk import noised_topk_loss
from shortlist.priors import ZeroCounts, margins_from_counts

__all__ = ["ImbalancedNoisedTopKLoss", "imbalanced_noised_topk_loss"]


def imbalanced_noised_topk_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    margins: Float[Tensor, " c"],
    k: int = 5,
    noise_std: float = 0.01,
    num_samples: int | None = 5,
    scale: float = 40.0,
    noise: Float[Tensor, "m n c"] | None = None,
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Noised top-k loss of cosine scores, with one margin per class and a scale.

    .. math::
        \ell(s, y) =
        \gamma \max\bigl(0,\; m_y + \mathbb{E}\,\mathrm{top}_{k+1}(s + \varepsilon Z) - s_y\bigr),
        \qquad m_c = C n_c^{-1/4}

    The scores are those of a cosine head (unit features, unit class weights): they lie in [-1, 1], and
    ``scale`` makes up for it. With equal margins of 1 and ``scale=1`` it is ``noised_topk_loss``.

    Defaults and what to sweep: the largest margin from 0.1 to 0.5, ``scale`` from 30 to 60, ``noise_std``
    from 0.01 to 0.1 (Pl@ntNet-300K: 0.2, 60, 0.01; ImageNet-LT: 0.4, noise 0.1).

    Args:
        logits: Cosine scores (n, c).
        target: Class indices (n,), or class probabilities (n, c), of which the mean loss is taken.
        margins: Margin of each class (c,), for example from :func:`shortlist.priors.margins_from_counts`.
        k: Number of guesses, ``1 <= k < c``.
        noise_std: Standard deviation of the noise (epsilon in the paper), >= 0.
        num_samples: Draws of the noise (M in the paper), or ``None`` for the exact expectation.
        scale: Factor of the loss (gamma in the formula).
        noise: Standard normal noise (m, n, c) to use in place of fresh draws.
        generator: Source of the draws.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target count for nothing.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[0.8, 0.6, 0.1]])
        >>> margins = margins_from_counts(torch.tensor([16, 1, 16]), max_margin=0.4)
        >>> target = torch.tensor([1])
        >>> imbalanced_noised_topk_loss(scores, target, margins=margins, k=1, noise_std=0.0)  # 40 * 0.4
        tensor(16.)

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "Stochastic smoothing of the top-K calibrated hinge loss
        for deep imbalanced classification", ICML 2022, equation 12.
    """
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


class ImbalancedNoisedTopKLoss(ClassLoss):
    """Module of :func:`imbalanced_noised_topk_loss`; margins are given, or made from ``class_counts``."""

    needs = frozenset({"class_counts", "cosine_scores"})
    margins: Tensor

    def __init__(
        self,
        *,
        class_counts: Tensor | None = None,
        max_margin: float = 0.2,
        zero_counts: ZeroCounts = "error",
        margins: Tensor | None = None,
        k: int = 5,
        noise_std: float = 0.01,
        num_samples: int | None = 5,
        scale: float = 40.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        check_k(k)
        check_number("noise_std", noise_std, low=0.0)
        check_number("scale", scale, above=0.0)
        if num_samples is not None:
            check_k(num_samples, name="num_samples")
        if (class_counts is None) == (margins is None):
            given = "none" if margins is None else "both"
            raise ValueError(f"exactly one of class_counts and margins must be given, got {given}")
        if class_counts is not None:
            margins = margins_from_counts(class_counts, max_margin=max_margin, zero_counts=zero_counts)
        elif margins is not None:
            check_class_vector("margins", margins)
        self.register_buffer("margins", None if margins is None else margins.clone())
        self.k, self.noise_std, self.num_samples, self.scale = k, noise_std, num_samples, scale

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """See :func:`imbalanced_noised_topk_loss`."""
        return imbalanced_noised_topk_loss(
            logits,
            target,
            margins=self.margins,
            k=self.k,
            noise_std=self.noise_std,
            num_samples=self.num_samples,
            scale=self.scale,
            **self.common,
        )

    def score_meaning(self) -> ScoreMeaning:
        """Cosines, which the loss multiplies by its scale; no log-posteriors."""
        return ScoreMeaning(scale=self.scale)
