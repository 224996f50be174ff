"""Make the score map of a loss from what the loss declares about its scores."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.losses import ScoreMeaning, log_weights
from shortlist.scores.prior_record import PriorRecord
from shortlist.scores.score_map import ScoreMap

__all__ = ["HEADS", "declared_meaning", "map_of_loss", "maps_of_loss", "meaning_of_loss"]

HEADS = ("set", "proposal")
"""Names of the heads of a two-head model."""


def map_of_loss(
    loss: nn.Module, *, class_counts: Tensor, class_shares: Tensor | None = None, head: str | None = None
) -> ScoreMap:
    """Make the score map of a network that was trained with a loss, before anything is fitted.

    Args:
        loss: A loss of this library, or ``nn.CrossEntropyLoss``, with the class weights that it ended with.
        class_counts: Number of training examples of each class (c,).
        class_shares: Share of each class (c,) in the rows that the loss saw, if these were not drawn as the
            training rows are: a class-balanced sampler has equal shares.
        head: For a loss with two heads, the head to predict from: ``"set"`` or ``"proposal"``.

    Returns:
        The map. It contains unknown priors if the loss's scores are no log-probabilities: fit it with
        :func:`fit_temperature_and_prior` then.

    Raises:
        ValueError: If an argument is out of its range, or the loss does not say what its scores mean.

    Example:
        >>> from shortlist.losses import LogitAdjustedLoss
        >>> counts = torch.tensor([6, 3, 1])
        >>> map_of_loss(LogitAdjustedLoss(class_counts=counts), class_counts=counts).words()
        'The scores are log-posteriors under balanced priors.'
    """
    training = PriorRecord.training(class_counts)
    meaning = meaning_of_loss(loss, head)
    if meaning.without_priors is None:
        return ScoreMap(len(training), scale=meaning.scale, contains=None)
    seen = training if class_shares is None else PriorRecord.given(class_shares)
    parts = {"class_shares": seen.log_priors, "the loss": _declared_log_priors(loss, meaning, len(training))}
    for name, log_priors in parts.items():
        if len(log_priors) != len(training):
            wanted = f"as many classes as {name} ({len(log_priors)})"
            raise ValueError(f"class_counts must have {wanted}, got {len(training)}")
    contains = _named(training, parts["class_shares"] + parts["the loss"])
    return ScoreMap(len(training), scale=meaning.scale, contains=contains)


def _declared_log_priors(loss: Any, meaning: ScoreMeaning, num_classes: int) -> Tensor:
    """Return what the loss adds to the log priors (c,) of the rows that it saw."""
    added = torch.zeros(num_classes, dtype=torch.float64)
    if meaning.without_priors:
        added = -meaning.without_priors * PriorRecord.training(loss.class_counts).log_priors
    weight = getattr(loss, "weight", None)
    if meaning.with_weights and weight is not None:
        added = log_weights(weight).cpu() + (added if meaning.without_priors else 0.0)
    return added


def maps_of_loss(
    loss: nn.Module, class_counts: Tensor, *, balanced_rows: bool, free_scores: bool = True
) -> dict[str, ScoreMap]:
    """Return the score map of each head, as the loss declares it, before anything is fitted.

    Args:
        loss: Loss, with the class weights that it had at the epoch that is kept.
        class_counts: Number of training rows of each class (c,).
        balanced_rows: Whether the classifier was trained on class-balanced batches.
        free_scores: Whether the classifier could become what the loss asks for; one that only learned a scale
            for each class could not, and nobody knows what its scores contain.
    """
    shares = torch.full((len(class_counts),), 1 / len(class_counts)) if balanced_rows else None
    heads = HEADS if "two_heads" in getattr(loss, "needs", frozenset()) else (None,)
    maps = {
        head or "set": map_of_loss(loss, class_counts=class_counts, class_shares=shares, head=head)
        for head in heads
    }
    if free_scores:
        return maps
    return {
        head: ScoreMap(len(class_counts), scale=declared.scale, contains=None)
        for head, declared in maps.items()
    }


def meaning_of_loss(loss: nn.Module, head: str | None) -> ScoreMeaning:
    """Return what a loss declares about the scores that a network learns with it; see :func:`map_of_loss`."""
    kind: Any = type(loss)
    if head is not None and "two_heads" not in getattr(kind, "needs", ()):
        raise ValueError(f"head must be left out: {kind.__name__} has one head, got {head!r}")
    options = vars(loss) if isinstance(loss, nn.CrossEntropyLoss) else getattr(loss, "options", {})
    return declared_meaning(kind, options, head or "set")


def declared_meaning(kind: type[nn.Module], options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
    """Return what a class of losses declares about the scores of a head, with these options.

    Raises:
        ValueError: If the class does not say what its scores mean.
    """
    if issubclass(kind, nn.CrossEntropyLoss):
        # label smoothing teaches probabilities that are mixed with equal ones: no posterior
        return ScoreMeaning() if options["label_smoothing"] else ScoreMeaning(without_priors=0.0)
    score_meaning: Any = getattr(kind, "score_meaning", None)
    if score_meaning is None:
        raise ValueError(
            f"loss must say what its scores mean by score_meaning, got a {kind.__name__} without it"
        )
    return score_meaning(options, head)


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
