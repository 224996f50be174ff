"""Make the score map of a loss from what the loss declares about its scores."""

from typing import Any

import torch
from torch import Tensor, nn

from shortlist.losses import ScoreMeaning, declared_meaning, log_weights
from shortlist.scores.prior_record import PriorRecord
from shortlist.scores.score_map import ScoreMap

HEADS = ("set", "proposal")
"""Names of the heads of a two-head model."""


def map_of_loss(
    loss: nn.Module, *, class_counts: Tensor, class_shares: Tensor | None = None, head: str | None = None
) -> ScoreMap:
    """Make the score map of a network that was trained with a loss, before anything is fitted.

    Args:
        loss: The loss, with the class weights that it ended with. A loss that is neither of this library nor
            ``nn.CrossEntropyLoss`` and declares no ``score_meaning`` has scores of unknown priors.
        class_counts: Number of training examples of each class (c,).
        class_shares: Share of each class (c,) in the rows that the loss saw, if these were not drawn as the
            training rows are: a class-balanced sampler has equal shares.
        head: For a loss with two heads, the head to predict from: ``"set"`` or ``"proposal"``.

    Returns:
        The map. It contains unknown priors if the loss's scores are no log-probabilities: fit it with
        :func:`fit_temperature_and_prior` then.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> from shortlist.losses import LogitAdjustedLoss
        >>> counts = torch.tensor([6, 3, 1])
        >>> map_of_loss(LogitAdjustedLoss(class_counts=counts), class_counts=counts).words()
        'The scores are log-posteriors under balanced priors.'
    """
    kind: Any = type(loss)
    if head is not None and "two_heads" not in getattr(kind, "needs", ()):
        raise ValueError(f"head must be left out: {kind.__name__} has one head, got {head!r}")
    options = vars(loss) if isinstance(loss, nn.CrossEntropyLoss) else getattr(loss, "options", {})
    meaning = declared_meaning(kind, options, head or "set")
    weight, removed = getattr(loss, "weight", None), getattr(loss, "class_counts", None)
    return map_of_meaning(meaning, class_counts, class_shares=class_shares, weight=weight, removed=removed)


def map_of_meaning(
    meaning: ScoreMeaning,
    class_counts: Tensor,
    *,
    class_shares: Tensor | None = None,
    weight: Tensor | None = None,
    removed: Tensor | None = None,
) -> ScoreMap:
    """Make the score map of scores with a declared meaning, before anything is fitted.

    Args:
        meaning: What the loss declares.
        class_counts: Number of training examples of each class (c,).
        class_shares: Share of each class (c,) in the rows that the loss saw; see :func:`map_of_loss`.
        weight: Class weights (c,) that the loss ended with.
        removed: Class counts (c,) whose priors the loss removes; left out, those of the training.
    """
    training = PriorRecord.training(class_counts)
    if meaning.without_priors is None:
        return ScoreMap(len(training), scale=meaning.scale, contains=None)
    added = torch.zeros(len(training), dtype=torch.float64)
    if meaning.without_priors:
        counts = class_counts if removed is None else removed
        added = -meaning.without_priors * PriorRecord.training(counts).log_priors
    if meaning.with_weights and weight is not None:
        added = log_weights(weight).cpu() + (added if meaning.without_priors else 0.0)
    seen = training if class_shares is None else PriorRecord.given(class_shares)
    parts = {"class_shares": seen.log_priors, "the loss": added}
    for name, log_priors in parts.items():
        if len(log_priors) != len(training):
            wanted = f"as many classes as {name} ({len(log_priors)})"
            raise ValueError(f"class_counts must have {wanted}, got {len(training)}")
    return ScoreMap(len(training), scale=meaning.scale, contains=_named(training, seen.log_priors + added))


def _named(training: PriorRecord, log_priors: Tensor) -> PriorRecord:
    """Return the record of some log priors, under the simplest name that is correct."""
    given = PriorRecord("given", log_priors)
    for named in (training, PriorRecord.balanced(len(training))):
        if named.same_as(given):
            return named
    # a power of the training priors: read it off the two classes that differ most
    low, high = int(training.log_priors.argmin()), int(training.log_priors.argmax())
    gap = float(training.log_priors[high] - training.log_priors[low])
    if gap > 0:
        power = float(log_priors[high] - log_priors[low]) / gap
        to_power = training.to_power(round(power, 9))
        if to_power.same_as(given):
            return to_power
    return given
