"""Sets of several models of cross-validation, each calibrated on the rows that it was not trained on."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from shortlist.coverage_law import conformal_rank
from shortlist.predictors._base import Classes, Scores
from shortlist.predictors._calibrated import registered_name
from shortlist.predictors.conformal import Conformal
from shortlist.predictors.conformity import class_scores
from shortlist.predictors.thresholds import THRESHOLD_RULES, Marginal
from shortlist.promise import Promise


class CrossConformal:
    r"""CV+ sets (Romano, Sesia, Candès 2020): all rows train, and all rows calibrate.

    Of K folds, the model of fold k is trained on the other folds. Each row is scored by the model that did
    not see it. A class is in the set of a new row, if fewer than :math:`\lceil (n + 1)(1 - a) \rceil` of the
    n rows have a score below the one that the class gets *from the same model*. With one fold this is the
    set of :class:`Conformal`.

    With folds of equal size, drawn at random, the set holds the class of a new row with this probability
    or more, where ``coverage`` is :math:`1 - a`. Stable models come near :math:`1 - a`.

    .. math:: 1 - 2a - \min\{2(1 - 1/K)/(n/K + 1),\, (1 - K/n)/(K + 1)\}

    Args:
        predictor: Coverage and conformity score; it is not calibrated itself. Its rule must be
            ``"marginal"``, without ``randomized`` and ``at_most``.
        folds: Scores (m, c) and true classes (m,) of the rows of each fold, by the model of this fold.

    Example:
        >>> scores, target = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([0, 1])
        >>> folds = [(scores, target), (scores + 0.1, target)]
        >>> cross = CrossConformal(Conformal(0.7, activation="none"), folds)
        >>> cross([torch.tensor([[0.65, 0.35]]), torch.tensor([[0.45, 0.55]])])
        tensor([[ True, False]])
    """

    def __init__(self, predictor: Conformal, folds: Sequence[tuple[Scores, Classes]]) -> None:
        check_crosses(predictor)
        if not folds:
            raise ValueError("folds must be at least 1, got 0")
        self.predictor = predictor
        measured = []
        for scores, target in folds:
            rows, classes = predictor._tensors(scores, target)
            parts = predictor._counted_chunks(rows, classes, {})
            measured.append([predictor.measure(*part)["scores"] for part, _ in parts])
        self._sorted = [torch.cat(parts).sort().values if parts else torch.empty(0) for parts in measured]

    @property
    def rows(self) -> int:
        """Number of calibration rows of all folds."""
        return sum(map(len, self._sorted))

    @property
    def promise(self) -> Promise:
        """What the theorem promises: less than was asked, if there are several folds."""
        asked, rows, count = self.predictor.coverage, self.rows, len(self._sorted)
        level = asked if count == 1 else cross_conformal_level(asked, rows=rows, folds=count)
        if level <= 0:
            return Promise("nothing", asked=asked, rows=rows)
        return Promise("rows", level=level, asked=asked, rows=rows, has_law=count == 1)

    def __call__(self, scores: Sequence[Scores]) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), from the scores (n, c) by the model of each fold."""
        if len(scores) != len(self._sorted):
            raise ValueError(f"scores must be of {len(self._sorted)} models, got those of {len(scores)}")
        values = [self.predictor.values(self.predictor._tensors(each, None)[0]) for each in scores]
        below = torch.zeros(values[0].shape, dtype=torch.int64, device=values[0].device)
        for fold, each in zip(self._sorted, values, strict=True):
            of_classes = class_scores(self.predictor.score, each)
            below += torch.searchsorted(fold, of_classes.to(fold.dtype).contiguous())
        sets = below < conformal_rank(self.rows, self.predictor.coverage)
        return self.predictor.bounds.sets(sets, torch.stack(values).mean(0))


def check_crosses(predictor: Conformal) -> None:
    """Require a predictor of which CV+ sets can be made."""
    if not isinstance(predictor.rule, Marginal):
        rule = registered_name(predictor.rule, THRESHOLD_RULES)
        raise ValueError(f"rule must be 'marginal' for cross-conformal sets, got {rule!r}")
    if predictor.randomized or predictor.at_most is not None:
        name = "randomized" if predictor.randomized else "at_most"
        raise ValueError(f"{name} must not be used for cross-conformal sets, got {getattr(predictor, name)}")


def cross_conformal_level(coverage: float, *, rows: int, folds: int) -> float:
    """Return the coverage that CV+ sets promise (Romano, Sesia, Candès 2020, theorem 3).

    Example:
        >>> round(cross_conformal_level(0.9, rows=500, folds=5), 3)
        0.784
    """
    loss = min(2 * (1 - 1 / folds) / (rows / folds + 1), (1 - folds / rows) / (folds + 1))
    return 1 - 2 * (1 - coverage) - max(0.0, loss)
