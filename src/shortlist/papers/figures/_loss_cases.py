"""Losses by name, made for a k and class counts: what the figures of all losses have in common."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from shortlist import losses
from shortlist.losses import LOSSES, LabelEstimates


def takes_k(name: str) -> bool:
    """Tell whether a loss of :data:`LOSSES` depends on k: directly, or by a distribution or label sets.

    Example:
        >>> [name for name in ("topk_hinge", "ranked_topk", "sparse_top", "ldam") if takes_k(name)]
        ['topk_hinge', 'ranked_topk', 'sparse_top']
    """
    return name in ("ranked_topk", "sparse_top") or "k" in _wants(name)


def _wants(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(LOSSES[name]).parameters if name in LOSSES else {}


def options_for(name: str, *, k: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Join the plain options of a loss: k in the form that it wants, and the settings."""
    return ({"k": k} if "k" in _wants(name) else {}) | dict(settings)


def make_loss(
    name: str,
    options: Mapping[str, Any],
    *,
    class_counts: Tensor,
    target: Tensor | None = None,
    **others: Any,
) -> nn.Module:
    """Make a loss of :data:`LOSSES`, or cross-entropy, with what it wants beyond plain options.

    Args:
        name: Which one.
        options: Its options; a matrix of margins may be nested lists.
        class_counts: Training counts (c,), for losses that want them.
        target: Observed classes (rows,) of all rows, for the table of label estimates.
        others: Further arguments of the loss, such as ``reduction``.
    """
    made = dict(options) | others
    if name == "cross_entropy":
        return nn.CrossEntropyLoss(**made)
    if "margins" in made:
        made["margins"] = torch.as_tensor(made["margins"], dtype=torch.get_default_dtype())
    if "estimates" in _wants(name):
        assert target is not None  # the caller knows that this loss looks rows up
        generator = torch.Generator().manual_seed(0)
        made["estimates"] = LabelEstimates(target, num_classes=len(class_counts), generator=generator)
    return losses.create(name, class_counts=class_counts, **made)
