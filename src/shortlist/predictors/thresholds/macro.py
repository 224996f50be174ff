"""Thresholds whose promise is about the average class, however rare it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist.class_table import ClassTable
from shortlist.predictors.thresholds.rules import ThresholdRule, Thresholds, some_classes
from shortlist.promise import About

WEIGHTS_SLACK = 1e-12
"""What rounding may take from a sum of weights that add up to 1."""


@dataclass(frozen=True)
class Macro(ThresholdRule):
    r"""Thresholds from weighted rows: the promised coverage holds for the average class.

    Each row weighs :math:`w_i = v_{y_i} / n_{y_i}`, where :math:`v` is the importance of the classes
    (:math:`1/L` for L classes) and :math:`n_c` the number of rows of class c. The threshold of class c is the
    smallest score at or below which rows weigh :math:`1 - a + v_c / n_c` together, where the coverage is
    :math:`1 - a`. Then

    .. math:: \sum_c v_c \, P(c \in \text{set} \mid Y = c) \ge 1 - a

    for any model, if the rows of each class are exchangeable with new rows of this class; how frequent the
    classes are does not matter. Without ties it is at most :math:`1 - a + 3 \max_i w_i`.

    Args:
        thresholds: ``"by_class"``, as above, or ``"single"``: one threshold at the largest of these levels,
            as published. Both make the same promise; by class, the sets are smaller.
        classes: Which classes the promise is about: those that are ``"present"`` in the calibration rows, or
            ``"all"``, where a class without rows counts as missed in the worst case. In both cases the
            threshold of a class without rows is the largest of the others.
        groups: Group of each class (c,), such as its genus, whose average then counts: first over the classes
            of a group, then over groups. :meth:`over` finds them in a class table.
        importance: Importance of each class (c,), >= 0, instead of groups; only ratios matter.
        level: Name of the groups, such as ``"genus"``. In a recipe it is enough: the groups are then those of
            the data set's class table.

    Example:
        >>> scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.25, 0.6, 0.8])
        >>> Macro()(scores, torch.tensor([0, 0, 0, 0, 1, 1, 2]), 3, 0.5).values
        tensor([0.6000, 0.6000, 0.8000])

    References:
        A. Bhattacharyya, T. Ding, R. F. Barber, 2026, arXiv 2606.28598, for the single threshold.
    """

    about: ClassVar[About] = "average class"
    thresholds: Literal["by_class", "single"] = "by_class"
    classes: Literal["present", "all"] = "present"
    groups: Sequence[int] | Tensor | None = None
    importance: Sequence[float] | Tensor | None = None
    level: str | None = None

    def __post_init__(self) -> None:
        check_choice("thresholds", self.thresholds, ("by_class", "single"))
        check_choice("classes", self.classes, ("present", "all"))
        if self.groups is not None and self.importance is not None:
            raise ValueError("importance must be None where groups are given, got both")
        for name, kind in (("groups", int), ("importance", float)):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _numbers(name, given, kind))
        if self.importance is not None and not sum(self.importance) > 0:
            raise ValueError("importance must be above 0 for some class, got 0 for all")
        if self.groups is not None or self.level is not None:
            # what this instance promises; the class attribute is of the rule as it is by default
            object.__setattr__(self, "about", "average group")
        elif self.importance is not None:
            object.__setattr__(self, "about", "weighted classes")

    @property
    def group_name(self) -> str:
        """What a group of classes is called."""
        return self.level or ""

    @property
    def excludes_fallback(self) -> bool:
        """Whether the promise does not extend to the classes without rows."""
        return self.classes == "present"

    @staticmethod
    def over(class_table: ClassTable, level: str, **options: Any) -> "Macro":
        """Return the rule for the average parent of the classes at a level of a class table.

        Args:
            class_table: Table with the parents of the classes.
            level: A level of the table, such as ``"genus"``.
            options: Other arguments of the rule.
        """
        return Macro(groups=class_table.parent_index(level)[0].tolist(), level=level, **options)

    def class_importance(self, counted: Tensor) -> Tensor:
        """Return the importance of each class (c,), float64; it adds up to 1 over the counted ones (c,)."""
        self._check_classes(len(counted))
        weight = counted.double()
        if self.importance is not None:
            weight = weight * torch.tensor(self.importance, dtype=torch.float64, device=counted.device)
        elif self.groups is not None:
            groups = torch.tensor(self.groups, device=counted.device)
            sizes = torch.zeros(int(groups.max()) + 1, dtype=torch.float64, device=counted.device)
            sizes.index_add_(0, groups, weight)
            weight = weight / sizes[groups].clamp_min(1)
        total = float(weight.sum())
        if not total > 0:
            raise ValueError("importance must be above 0 for some class with calibration rows, got 0 for all")
        return weight / total

    def __call__(
        self, scores: Tensor, target: Tensor, num_classes: int, coverage: float, supremum: float = math.inf
    ) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        counts = target.bincount(minlength=num_classes)
        present = counts > 0
        importance = self.class_importance(present if self.classes == "present" else torch.ones_like(present))
        values = weighted_thresholds(scores, target, importance, coverage, single=self.thresholds == "single")
        return self._with_words(values, counts, coverage)

    def _with_words(self, values: Tensor, counts: Tensor, coverage: float) -> Thresholds:
        """Return thresholds with what is to be said about them."""
        present = counts > 0
        counted = self.class_importance(torch.ones_like(present)) > 0
        absent = tuple((~present & counted).nonzero().squeeze(1).tolist())
        without_end = tuple((present & values.isinf()).nonzero().squeeze(1).tolist())
        said = []
        if absent:
            meaning = (
                "to which the promise does not extend"
                if self.classes == "present"
                else "which count as missed"
            )
            said.append(f"no rows: {some_classes(absent)}, {meaning}")
        if len(without_end) == int(present.sum()):
            said.append(f"too few rows for coverage={coverage:g}: every set will hold all classes")
        elif without_end:
            said.append(f"too few rows: {some_classes(without_end)}, always in the set to keep the promise")
        return Thresholds(values, tuple(sorted({*absent, *without_end})), "; ".join(said), counts)

    def _check_classes(self, number: int) -> None:
        if self.level is not None and self.groups is None:
            raise ValueError(
                f"groups must be given for the level {self.level!r}: Macro.over(class_table, {self.level!r}) "
                "finds them in a class table"
            )
        for name, given in (("groups", self.groups), ("importance", self.importance)):
            if given is not None and len(given) != number:
                raise ValueError(f"{name} must have one entry per class ({number}), got {len(given)}")


def weighted_thresholds(
    scores: Tensor, target: Tensor, importance: Tensor, coverage: float, *, single: bool = False
) -> Tensor:
    """Return the threshold of each class (c,), by which its promise is about classes by importance.

    Args:
        scores: Scores (n,) of the true classes of calibration rows.
        target: The true classes (n,).
        importance: Importance (c,) of the classes, float64; it adds up to 1 over those that have rows.
        coverage: Promised coverage.
        single: Whether to return one threshold for all, a scalar.

    Returns:
        Infinity where there are too few rows; for a class without rows, the largest of the others.
    """
    counts = target.bincount(minlength=len(importance))
    present = counts > 0
    weights = (importance / counts).where(present, 0.0)  # of one row of each class
    order = by_score_and_class(scores, target)
    reached = weights[target[order]].cumsum(0)
    level = coverage + (weights.max() if single else weights)
    values = torch.cat([scores[order], scores.new_tensor([math.inf])])[
        torch.searchsorted(reached, level - WEIGHTS_SLACK)
    ]
    return values if single else values.where(present, values[present].max())


def by_score_and_class(scores: Tensor, target: Tensor) -> Tensor:
    """Return the order of ascending scores; equal ones by class, so that the batches change no sum."""
    by_class = target.argsort(stable=True)
    return by_class[scores[by_class].argsort(stable=True)]


def _numbers(name: str, given: Any, kind: type) -> tuple[Any, ...]:
    """Return a vector of numbers >= 0 as a tuple of Python's."""
    values = given.tolist() if isinstance(given, Tensor) else list(given)
    bad = [value for value in values if not (math.isfinite(value) and value >= 0 and kind(value) == value)]
    if bad or not values:
        wanted = "whole numbers" if kind is int else "finite numbers"
        raise ValueError(f"{name} must be {wanted} >= 0, one per class, got {bad[0] if bad else 'none'}")
    return tuple(map(kind, values))
