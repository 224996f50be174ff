"""The metrics as torchmetrics modules. Their states are sums by class, which processes can add up.

The only file that imports torchmetrics (extra ``metrics``). Each module computes a dictionary, which
``MetricCollection`` takes, ``log_dict`` too where it has scalars. All take its options too.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_k, check_scores, check_target
from shortlist.class_table import GROUPS
from shortlist.metrics.calibration import (
    ACTIVATIONS,
    Activation,
    brier_of_rows,
    calibration_sums,
    error_of_bins,
)
from shortlist.metrics.class_means import (
    COVERAGE_MEASURES,
    average_classes,
    check_coverage,
    check_groups,
    worst_classes,
)
from shortlist.metrics.ranks import TIES, Ties, check_ks, nan_rows, rank_histogram, topk_curve, topk_sums
from shortlist.metrics.sets import check_shares, set_sums, size_quantiles, violation_of_sizes


class _SumMetric(Metric):
    """The base of the modules: classes, groups, ignored rows, and states that add up."""

    full_state_update = False
    is_differentiable = False
    groups: Tensor | None
    hits: Tensor
    counts: Tensor
    sizes: Tensor
    histogram: Tensor
    size_hits: Tensor
    nan_rows: Tensor
    ties: Ties
    activation: Activation

    def __init__(
        self,
        *,
        ignore_index: int,
        num_classes: int = 1,
        groups: Tensor | None = None,
        counting: str = "",
        ties: Ties = "against",
        activation: Activation = "softmax",
        **options,
    ) -> None:
        super().__init__(**options)
        check_choice("ties", ties, TIES)
        check_choice("activation", activation, ACTIVATIONS)
        self.ties, self.activation = ties, activation
        check_count("num_classes", num_classes)
        if groups is not None:
            check_groups(groups, num_classes)
        self.num_classes, self.ignore_index = num_classes, ignore_index
        self.register_buffer("groups", groups, persistent=False)
        # MetricCollection lets metrics share one state if names and values are equal after the first batch.
        # Those that count something else might be so by chance: this empty state keeps them apart.
        what = f"counting {counting} {activation} ties {ties} without {ignore_index}"
        self.add_sum(what.replace(".", " "), 0)

    def add_sum(self, name: str, *shape: int, exact: bool = True) -> None:
        """Add a state of zeros: int64 for counts, float64 otherwise."""
        zeros = torch.zeros(shape, dtype=torch.int64 if exact else torch.float64)
        self.add_state(name, default=zeros, dist_reduce_fx="sum")

    def add(self, **sums: Tensor) -> None:
        """Add one batch's sums to the states."""
        for name, value in sums.items():
            state = getattr(self, name)
            state += value

    def check_classes(self, rows: Tensor) -> None:
        """Require scores or sets of ``num_classes`` classes."""
        if rows.ndim == 2 and rows.shape[1] != self.num_classes:
            raise ValueError(f"num_classes is {self.num_classes}, got rows of {rows.shape[1]} classes")

    def means(self, name: str, sums: Tensor, counts: Tensor, *, per_class: bool) -> dict[str, Tensor]:
        """Return the means over rows, over classes, by group and by class, under their names."""
        metrics = {
            name: average_classes(sums, counts),
            f"macro_{name}": average_classes(sums, counts, average="macro"),
        }
        if self.groups is not None:
            of_groups = average_classes(sums, counts, average="group", groups=self.groups)
            for number, value in enumerate(of_groups):
                metrics[f"{_group_name(number, len(of_groups))}_{name}"] = value
        if per_class:
            metrics[f"class_{name}"] = average_classes(sums, counts, average="none")
        return metrics


def _group_name(number: int, groups: int) -> str:
    return GROUPS[number] if groups == len(GROUPS) else f"group{number}"


class TopKAccuracy(_SumMetric):
    """A metric of top-K accuracies, for several K in one pass; see :func:`shortlist.metrics.topk_accuracy`.

    ``compute()`` has, for each K, ``top5`` (over rows), ``macro_top5`` (over classes with rows), with groups
    ``few_top5``, ``medium_top5``, ``many_top5``, with ``per_class`` ``class_top5`` (c,); ``balanced_error``
    if 1 is among the K; ``absent_classes`` and ``nan_rows``, which are counts.

    Args:
        num_classes: Number of classes c.
        k: One K or several.
        groups: Group of each class (c,), as from ``ClassTable.groups()``.
        per_class: Whether to return each class's own accuracy.
        ties: See :func:`shortlist.metrics.topk_accuracy`.
        ignore_index: Rows with this target are ignored.
    """

    higher_is_better = True

    def __init__(
        self,
        *,
        num_classes: int,
        k: int | Sequence[int] = (1, 5),
        groups: Tensor | None = None,
        per_class: bool = False,
        ties: Ties = "against",
        ignore_index: int = -100,
        **options,
    ) -> None:
        check_count("num_classes", num_classes)
        ks = check_ks(k, num_classes)
        options |= {"num_classes": num_classes, "groups": groups, "ties": ties}
        super().__init__(ignore_index=ignore_index, counting=f"top {ks}", **options)
        self.ks, self.per_class = ks, per_class
        self.add_sum("hits", num_classes, len(self.ks), exact=ties != "expected")
        self.add_sum("counts", num_classes)
        self.add_sum("nan_rows")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Add a batch of scores (n, c) with class indices (n,)."""
        self.check_classes(scores)
        sums = topk_sums(scores, target, k=self.ks, ties=self.ties, ignore_index=self.ignore_index)
        self.add(**sums._asdict())

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics by name."""
        metrics: dict[str, Tensor] = {}
        for k, hits in zip(self.ks, self.hits.T, strict=True):
            metrics |= self.means(f"top{k}", hits, self.counts, per_class=self.per_class)
        if "macro_top1" in metrics:
            metrics["balanced_error"] = 1 - metrics["macro_top1"]
        return metrics | {"absent_classes": (self.counts == 0).sum(), "nan_rows": self.nan_rows.clone()}


class TopKCurve(_SumMetric):
    """A metric of the top-K accuracy for all K and its area; see :func:`~shortlist.metrics.topk_curve_area`.

    ``compute()`` has ``topk_curve`` (k_max,), ``topk_area`` and ``curve_nan_rows``, the rows with a NaN.

    Args:
        num_classes: Number of classes c.
        k_max: Largest K; c if ``None``.
        ties: See :func:`shortlist.metrics.topk_accuracy`.
        ignore_index: Rows with this target are ignored.
    """

    higher_is_better = True

    def __init__(
        self,
        *,
        num_classes: int,
        k_max: int | None = None,
        ties: Ties = "against",
        ignore_index: int = -100,
        **options,
    ) -> None:
        options |= {"num_classes": num_classes, "ties": ties}
        super().__init__(ignore_index=ignore_index, counting="places", **options)
        if k_max is not None:
            check_k(k_max, num_classes, name="k_max", up_to=True)
        self.k_max = k_max
        self.add_sum("histogram", num_classes + 1, exact=ties != "expected")
        self.add_sum("nan_rows")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Add a batch of scores (n, c) with class indices (n,)."""
        self.check_classes(scores)
        histogram = rank_histogram(scores, target, ties=self.ties, ignore_index=self.ignore_index)
        self.add(histogram=histogram, nan_rows=nan_rows(scores, target != self.ignore_index))

    def compute(self) -> dict[str, Tensor]:
        """Compute the curve and its area."""
        curve = topk_curve(self.histogram, k_max=self.k_max)
        return {"topk_curve": curve, "topk_area": curve.mean(), "curve_nan_rows": self.nan_rows.clone()}


class SetCoverage(_SumMetric):
    """A metric of how often sets contain the true class; see :func:`shortlist.metrics.set_coverage`.

    ``compute()`` has ``coverage`` (over rows; average-K accuracy if the sets have K classes on average),
    ``macro_coverage``, with groups ``few_coverage``, ..., with ``per_class`` ``class_coverage`` (c,);
    ``worst_coverage``, the mean of the worst classes; ``singleton_hit_rate``; with a promised ``coverage``,
    ``under_covered``, the share of classes below it, ``coverage_shortfall``, ``class_coverage_gap`` and
    ``size_violation``; and ``absent_classes``.

    Args:
        num_classes: Number of classes c.
        coverage: Promised coverage of the sets, if there is one.
        num_worst: Number of classes over which ``worst_coverage`` is the mean (all, if fewer have rows).
        groups: Group of each class (c,), as from ``ClassTable.groups()``.
        per_class: Whether to return each class's own coverage.
        ignore_index: Rows with this target are ignored.
    """

    higher_is_better = True

    def __init__(
        self,
        *,
        num_classes: int,
        coverage: float | None = None,
        num_worst: int = 10,
        groups: Tensor | None = None,
        per_class: bool = False,
        ignore_index: int = -100,
        **options,
    ) -> None:
        super().__init__(num_classes=num_classes, groups=groups, ignore_index=ignore_index, **options)
        check_count("num_worst", num_worst)
        if coverage is not None:
            check_coverage(coverage)
        self.coverage, self.num_worst, self.per_class = coverage, num_worst, per_class
        for name, extra in {"hits": 0, "counts": 0, "size_hits": 1, "histogram": 1}.items():
            self.add_sum(name, num_classes + extra)

    def update(self, sets: Tensor, target: Tensor) -> None:
        """Add a batch of bool sets (n, c) with class indices (n,)."""
        self.check_classes(sets)
        sums = set_sums(sets, target, ignore_index=self.ignore_index)
        self.add(hits=sums.hits, counts=sums.counts, size_hits=sums.size_hits, histogram=sums.histogram)

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics by name."""
        metrics = self.means("coverage", self.hits, self.counts, per_class=self.per_class)
        metrics["worst_coverage"] = worst_classes(self.hits, self.counts, num_worst=self.num_worst)[1].mean()
        metrics["singleton_hit_rate"] = self.size_hits[1] / self.histogram.sum().double()
        if self.coverage is not None:
            for name, measure in COVERAGE_MEASURES.items():
                metrics[name] = measure(self.hits, self.counts, coverage=self.coverage)
            by_size = self.size_hits, self.histogram
            metrics["size_violation"] = violation_of_sizes(*by_size, coverage=self.coverage)
        return metrics | {"absent_classes": (self.counts == 0).sum()}


class SetSize(_SumMetric):
    """A metric of the size of sets; see :func:`shortlist.metrics.set_size`.

    ``compute()`` has ``size`` (mean over rows), ``macro_size`` (by true class, over classes with rows), with
    groups ``few_size``, ..., with ``per_class`` ``class_size`` (c,); ``size_quantiles`` in the order of
    ``q``, ``size_histogram`` (c + 1,) and ``empty_share``; with groups, quantiles and histogram of each.

    Args:
        num_classes: Number of classes c.
        q: Shares of rows for the quantiles.
        groups: Group of each class (c,), as from ``ClassTable.groups()``.
        per_class: Whether to return the mean size for each true class.
        ignore_index: Rows with this target are ignored.
    """

    higher_is_better = False

    def __init__(
        self,
        *,
        num_classes: int,
        q: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
        groups: Tensor | None = None,
        per_class: bool = False,
        ignore_index: int = -100,
        **options,
    ) -> None:
        super().__init__(num_classes=num_classes, groups=groups, ignore_index=ignore_index, **options)
        check_shares(q)
        self.q, self.per_class = tuple(q), per_class
        self.add_sum("sizes", num_classes)
        self.add_sum("counts", num_classes)
        by_group = () if groups is None else (check_groups(groups, num_classes),)
        self.add_sum("histogram", *by_group, num_classes + 1)

    def update(self, sets: Tensor, target: Tensor) -> None:
        """Add a batch of bool sets (n, c) with class indices (n,)."""
        self.check_classes(sets)
        groups = None if self.groups is None else len(self.histogram)
        options = {"num_groups": groups, "ignore_index": self.ignore_index}
        sums = set_sums(sets, target, groups=self.groups, **options)
        self.add(sizes=sums.sizes, counts=sums.counts, histogram=sums.histogram)

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics by name."""
        metrics = self.means("size", self.sizes, self.counts, per_class=self.per_class)
        histogram = self.histogram.clone() if self.groups is None else self.histogram.sum(0)
        metrics["size_quantiles"] = size_quantiles(histogram, self.q)
        metrics["size_histogram"] = histogram
        metrics["empty_share"] = histogram[0] / histogram.sum().double()
        if self.groups is not None:
            of_groups = zip(self.histogram, size_quantiles(self.histogram, self.q), strict=True)
            for number, (sizes, quantiles) in enumerate(of_groups):
                group = _group_name(number, len(self.histogram))
                metrics |= {f"{group}_size_quantiles": quantiles, f"{group}_size_histogram": sizes.clone()}
        return metrics


class CalibrationError(_SumMetric):
    """A metric of the expected calibration error; see :func:`shortlist.metrics.calibration_error`.

    ``compute()`` has ``calibration_error`` and ``nan_confidences``, the number of rows left out.

    Args:
        activation: ``"softmax"``, ``"sigmoid"``, or ``"none"`` if the scores are probabilities already.
        bins: Number of bins.
        ties: See :func:`shortlist.metrics.topk_accuracy`.
        ignore_index: Rows with this target are ignored.
    """

    higher_is_better = False
    correct: Tensor
    confidence: Tensor

    def __init__(
        self,
        *,
        activation: Activation = "softmax",
        bins: int = 15,
        ties: Ties = "against",
        ignore_index: int = -100,
        **options,
    ) -> None:
        super().__init__(ignore_index=ignore_index, ties=ties, activation=activation, **options)
        check_count("bins", bins)
        self.bins = bins
        self.add_sum("counts", bins)
        for name in ("correct", "confidence"):
            self.add_sum(name, bins, exact=False)
        self.add_sum("nan_rows")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Add a batch of scores (n, c) with class indices (n,)."""
        options: Any = {"activation": self.activation, "ties": self.ties, "ignore_index": self.ignore_index}
        sums = calibration_sums(scores, target, bins=self.bins, **options)
        self.add(**sums._asdict())

    def compute(self) -> dict[str, Tensor]:
        """Compute the error and the number of rows left out."""
        error = error_of_bins(self.counts, self.correct, self.confidence)
        return {"calibration_error": error, "nan_confidences": self.nan_rows.clone()}


class BrierScore(_SumMetric):
    """A metric of the Brier score; see :func:`shortlist.metrics.brier_score`.

    ``compute()`` has ``brier_score`` and ``brier_nan_rows``, the number of rows left out.

    Args:
        activation: ``"softmax"``, or ``"none"`` if the scores are probabilities already.
        ignore_index: Rows with this target are ignored.
    """

    higher_is_better = False
    total: Tensor
    rows: Tensor

    def __init__(self, *, activation: Activation = "softmax", ignore_index: int = -100, **options) -> None:
        check_choice("activation", activation, ("softmax", "none"))
        super().__init__(ignore_index=ignore_index, counting="brier", activation=activation, **options)
        self.add_sum("total", exact=False)
        self.add_sum("rows")
        self.add_sum("nan_rows")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Add a batch of scores (n, c) with class indices (n,)."""
        check_scores(scores, name="scores")
        check_target(target, scores, ignore_index=self.ignore_index)
        ignored = target == self.ignore_index
        brier = brier_of_rows(scores, target.masked_fill(ignored, 0), activation=self.activation)
        unknown, brier = (brier.isnan() & ~ignored).sum(), brier.masked_fill(ignored, torch.nan)
        self.add(total=brier.nansum(), rows=(~brier.isnan()).sum(), nan_rows=unknown)

    def compute(self) -> dict[str, Tensor]:
        """Compute the score and the number of rows left out."""
        return {"brier_score": self.total / self.rows, "brier_nan_rows": self.nan_rows.clone()}
