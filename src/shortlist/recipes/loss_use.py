"""Make the loss of a recipe, with what it declares that it needs."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from shortlist import losses
from shortlist.class_table import ClassTable
from shortlist.losses import (
    LABEL_SET_LOSSES,
    LOSSES,
    LabelEstimates,
    ScoreMeaning,
    declared_meaning,
    distribution_by_class,
)

# what a recipe cannot give: it is refused when it is read
NOT_FROM_A_RECIPE = {
    "margin_table": "it takes a table of margins for all pairs of classes",
}


def _cross_entropy(
    *, label_smoothing: Annotated[float, Field(ge=0, le=1)] = 0.0, weight: Tensor | None = None
) -> nn.Module:
    return nn.CrossEntropyLoss(label_smoothing=label_smoothing, weight=weight)


TRAINABLE_LOSSES: dict[str, Callable[..., nn.Module]] = {
    "cross_entropy": _cross_entropy,
    **LOSSES,
    **LABEL_SET_LOSSES,
}


def needs_of(name: str) -> frozenset[str]:
    """Return what the loss of this name needs besides scores and target."""
    return getattr(TRAINABLE_LOSSES[name], "needs", frozenset())


def takes_class_weights(name: str) -> bool:
    """Return whether the loss of this name can weigh the classes."""
    return getattr(TRAINABLE_LOSSES[name], "takes_weight", True)


def needed_head(name: str) -> str | None:
    """Return the head that the loss of this name needs; ``None`` if any head with one output is fine."""
    needs = needs_of(name)
    heads = {"two_heads": "two_head", "cosine_scores": "cosine", "label_sets": "label_set"}
    return next((head for need, head in heads.items() if need in needs), None)


def check_loss_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse values of a loss's options that are out of their range."""
    if name in LOSSES:
        kind: Any = LOSSES[name]
        parameters = inspect.signature(kind).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        kind.check_options(defaults | _with_distribution(options, None))


def score_meaning(name: str, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
    """Return what the loss of this name declares about the scores of a head, with these options."""
    kind: Any = nn.CrossEntropyLoss if name == "cross_entropy" else TRAINABLE_LOSSES[name]
    return declared_meaning(kind, options, head)


def make_loss(
    name: str,
    options: Mapping[str, Any],
    *,
    class_counts: Tensor,
    weight: Tensor | None = None,
    train_targets: Tensor | None = None,
    class_table: ClassTable | None = None,
    seed: int = 0,
) -> nn.Module:
    """Make the loss of this name, with the class counts, weights and tables that it needs.

    Without a class table, a loss with a distribution over k for each class gets the default one.
    """
    given = _with_distribution(options, class_table)
    if "sample_ids" in needs_of(name):
        targets = torch.zeros(1, dtype=torch.int64) if train_targets is None else train_targets
        generator = torch.Generator().manual_seed(seed)
        given["estimates"] = LabelEstimates(targets, num_classes=len(class_counts), generator=generator)
    if name not in LOSSES:
        return TRAINABLE_LOSSES[name](**given, **({"weight": weight} if takes_class_weights(name) else {}))
    return losses.create(name, class_counts=class_counts, weight=weight, **given)


def _with_distribution(options: Mapping[str, Any], class_table: ClassTable | None) -> dict[str, Any]:
    """Turn distributions over k by names of classes into one for each class, or into the default one."""
    by_name = options.get("distribution")
    if not isinstance(by_name, Mapping):
        return dict(options)
    if class_table is None:
        return {**options, "per": "batch", "distribution": by_name["default"]}
    return {**options, "per": "class", "distribution": distribution_by_class(class_table, **by_name)}
