"""Make the loss of a recipe, with what it declares that it needs."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from shortlist import losses
from shortlist._named_code import find_class, is_allowed
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
# what a loss of somebody's own can need; class counts are given to an argument of that name, declared or not
_OWN_NEEDS = frozenset({"class_counts", "cosine_scores", "label_sets", "sample_ids", "two_heads"})


def _cross_entropy(
    *, label_smoothing: Annotated[float, Field(ge=0, le=1)] = 0.0, weight: Tensor | None = None
) -> nn.Module:
    return nn.CrossEntropyLoss(label_smoothing=label_smoothing, weight=weight)


TRAINABLE_LOSSES: dict[str, Callable[..., nn.Module]] = {
    "cross_entropy": _cross_entropy,
    **LOSSES,
    **LABEL_SET_LOSSES,
}


def is_own(name: str) -> bool:
    """Return whether a name is that of somebody's own code, ``package.module:Name``."""
    return ":" in name


def is_unseen(name: str) -> bool:
    """Return whether a name is that of code that this process may not run: nothing is known of it then."""
    return is_own(name) and not is_allowed(name)


def find_loss(name: str) -> Any:
    """Return what makes the loss of this name.

    Raises:
        ValueError: If it is somebody's own code that this process may not run, or that is no loss.
    """
    if not is_own(name):
        return TRAINABLE_LOSSES[name]
    kind = find_class("loss.name", name, nn.Module)
    needs = getattr(kind, "needs", ())
    unknown = [needs] if isinstance(needs, str) else sorted(set(needs) - _OWN_NEEDS)
    if unknown:
        known = ", ".join(sorted(_OWN_NEEDS))
        raise ValueError(f"loss.name: needs of {name} must be a set of {known}, got {unknown[0]!r}")
    given = (None,) * (4 if "sample_ids" in needs else 3)
    try:
        inspect.signature(kind.forward).bind(*given)
    except TypeError as error:
        raise ValueError(f"loss.name must name a loss of scores and target, got {name!r}: {error}") from None
    return kind


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature whose annotations are types; one that cannot be resolved is left out."""
    if getattr(function, "__init__", None) is nn.Module.__init__:
        return inspect.Signature()
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # of somebody's own code, where a name is for type checkers alone
        plain = inspect.signature(function)
        kept = [
            each.replace(annotation=each.empty) if isinstance(each.annotation, str) else each
            for each in plain.parameters.values()
        ]
        return plain.replace(parameters=kept)


def needs_of(name: str) -> frozenset[str]:
    """Return what the loss of this name needs besides scores and target."""
    return frozenset(getattr(find_loss(name), "needs", ()))


def takes_class_weights(name: str) -> bool:
    """Return whether the loss of this name can weigh the classes."""
    kind = find_loss(name)
    return "weight" in signature_of(kind).parameters if is_own(name) else getattr(kind, "takes_weight", True)


def needed_head(name: str) -> str | None:
    """Return the head that the loss of this name needs; ``None`` if any head with one output is fine."""
    needs = needs_of(name)
    heads = {"two_heads": "two_head", "cosine_scores": "cosine", "label_sets": "label_set"}
    return next((head for need, head in heads.items() if need in needs), None)


def check_loss_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse values of a loss's options that are out of their range."""
    kind = find_loss(name)
    if hasattr(kind, "check_options"):
        parameters = inspect.signature(kind).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        given = dict(options) if is_own(name) else _with_distribution(options, None)
        kind.check_options(defaults | given)


def score_meaning(name: str, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
    """Return what the loss of this name declares about the scores of a head, with these options."""
    if not is_own(name):
        kind: Any = nn.CrossEntropyLoss if name == "cross_entropy" else TRAINABLE_LOSSES[name]
        return declared_meaning(kind, options, head)
    kind = find_loss(name)
    declare: Any = getattr(kind, "score_meaning", None)
    meaning = getattr(kind, "meaning", ScoreMeaning()) if declare is None else declare(options, head)
    if not isinstance(meaning, ScoreMeaning):
        raise ValueError(f"loss.name: the meaning of {name} must be a ScoreMeaning, got {meaning!r}")
    return meaning


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
    given = dict(options) if is_own(name) else _with_distribution(options, class_table)
    if "sample_ids" in needs_of(name):
        targets = torch.zeros(1, dtype=torch.int64) if train_targets is None else train_targets
        generator = torch.Generator().manual_seed(seed)
        given["estimates"] = LabelEstimates(targets, num_classes=len(class_counts), generator=generator)
    if is_own(name):
        return _make_own(name, given, {"class_counts": class_counts, "weight": weight})
    if name not in LOSSES:
        return TRAINABLE_LOSSES[name](**given, **({"weight": weight} if takes_class_weights(name) else {}))
    return losses.create(name, class_counts=class_counts, weight=weight, **given)


def _make_own(name: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> nn.Module:
    """Make a loss of somebody's own, with what its constructor takes of what is known of the classes."""
    kind = find_loss(name)
    taken = signature_of(kind).parameters
    given = {key: value for key, value in known.items() if key in taken}
    try:
        return kind(**options, **given)
    except Exception as error:  # somebody's own code fails in its own way
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"loss: {name} with {dict(options) or 'no options'} cannot be made ({reason})"
        ) from error


def _with_distribution(options: Mapping[str, Any], class_table: ClassTable | None) -> dict[str, Any]:
    """Turn distributions over k by names of classes into one for each class, or into the default one."""
    by_name = options.get("distribution")
    if not isinstance(by_name, Mapping):
        return dict(options)
    if class_table is None:
        return {**options, "per": "batch", "distribution": by_name["default"]}
    return {**options, "per": "class", "distribution": distribution_by_class(class_table, **by_name)}
