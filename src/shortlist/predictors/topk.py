"""The k most likely classes."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._checks import check_k, promote
from shortlist.ops import largest
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import UncalibratedPredictor
from shortlist.predictors.at_place import check_size_at_place
from shortlist.predictors.kept import KeptRule
from shortlist.promise import Promise


class TopK(UncalibratedPredictor):
    r"""A predictor of the k classes with the largest scores; needs no calibration.

    Of all rules with sets of exactly k classes it has the smallest error, if the probabilities are right.
    With ``priors`` the k largest :math:`p_j / \pi_j^\tau` are taken instead. ``tau=1`` gives the smallest
    *macro* error, in which each class counts the same; ``tau=0`` is the plain rule.

    Args:
        k: Size of each set, 1 <= k <= c.
        priors: Class frequencies (c,) of the training data, each > 0.
        scores_priors: The priors (c,) that the scores contain, if they differ from ``priors``, such as
            uniform priors for a logit-adjusted loss. The scores are converted before the rule is applied.
        tau: Exponent of the priors; 1 for macro coverage, 0 for none.
        activation: How scores become probabilities, which matters only with priors: ``"softmax"``,
            ``"sigmoid"``, or ``"none"`` if they are probabilities already.

    Example:
        >>> TopK(2)(torch.tensor([[0.1, 0.9, 0.5]]))
        tensor([[False,  True,  True]])

    Ties at the k-th place are broken in an order that is not specified: a set never has more than k classes.
    """

    takes_priors: ClassVar[bool] = True
    takes_place: ClassVar[bool] = True

    def __init__(
        self,
        k: int,
        *,
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        tau: float = 1.0,
        activation: Activation = "softmax",
    ) -> None:
        super().__init__(activation=activation, priors=priors, scores_priors=scores_priors, tau=tau)
        check_k(k, None if priors is None else len(priors), up_to=True)
        self.k = k

    @property
    def promise(self) -> Promise:
        """No promise about the true class; the size of every set."""
        return Promise("nothing", size=self.k, place=self.place_name, classes=self.place_classes)

    def kept_rule(self) -> KeptRule | None:
        """Return the first k of the kept classes; with priors ``None``, which asks for all scores."""
        if not self._looks_at_probabilities:
            return None
        return KeptRule(takes=lambda p, rank: rank <= self.k, enough=lambda c: self.k)

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c) of exactly k classes."""
        scores = self.checked(scores)
        check_k(self.k, scores.shape[1], up_to=True)
        if self.weights is None or self.activation == "softmax":
            # only the order of classes counts: scores have the order of probabilities, and do not underflow
            ranked, log_weights = promote(scores), None if self.weights is None else self.weights.log()
            changes = [change for change in (log_weights, self.shift) if change is not None]
            ranked = ranked + sum(changes).to(ranked.dtype) if changes else ranked  # type: ignore[union-attr]
        else:
            ranked = self.values(scores)
        indices = largest(ranked, self.k)[1]
        return self._only_there(torch.zeros_like(scores, dtype=torch.bool).scatter(1, indices, True))

    def _adapt_to_place(self) -> None:
        check_size_at_place(self.k, self.place_classes)
