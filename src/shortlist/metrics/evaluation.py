"""Compute all metrics of scores and of every predictor's sets in one call, with intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import (
    check_count,
    check_scores,
    check_target,
    classes_of,
    refuse_logits,
    rows_are_probabilities,
    tensor_of,
    warn_of_probabilities,
)
from shortlist.class_table import ClassTable, group_names
from shortlist.coverage_law import clopper_pearson
from shortlist.metrics.bootstrap import interval
from shortlist.metrics.calibration import Activation, error_of_bins, sums_of_bins
from shortlist.metrics.class_means import COVERAGE_MEASURES, worst_classes
from shortlist.metrics.confusions import confused_within
from shortlist.metrics.nodes import mean_level, node_shares
from shortlist.metrics.promises import ClassCounts, measure_promise, promise_of, promised_importance
from shortlist.metrics.ranks import Ties, check_ks, curve_area_of_rows, histogram_of, topk_curve, topk_hits
from shortlist.metrics.results import (
    BELOW_PROMISE,
    Estimate,
    ReliabilityBins,
    Results,
    ScoreResults,
    SetResults,
)
from shortlist.metrics.rows import Predictor, RowMetric, RowNumbers, ScoreRows, Shown, measure_rows
from shortlist.metrics.sets import size_quantiles, violation_of_sizes
from shortlist.metrics.tabulation import LEVEL, Classes, Table, estimate, group_rows, tabulate
from shortlist.predictors import SetPredictor
from shortlist.promise import Promise

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@torch.no_grad()
def evaluate(
    scores: ScoreRows | RowNumbers | np.ndarray,
    target: Tensor | np.ndarray | Sequence[int] | None,
    predictors: Mapping[str, Predictor],
    class_table: ClassTable | None = None,
    *,
    ks: Sequence[int] = (1, 3, 5, 10),
    activation: Activation = "softmax",
    ties: Ties = "against",
    few_below: int = 20,
    many_above: int = 100,
    count_bins: Sequence[int] = (),
    bins: int = 15,
    curve_max: int = 100,
    num_worst: int = 10,
    num_resamples: int = 1000,
    generator: torch.Generator | None = None,
    ignore_index: int = -100,
    shown: Shown | None = None,
    metrics: Mapping[str, RowMetric] | None = None,
) -> Results:
    """Compute the metrics of scores and of predicted sets, with 95 % intervals.

    The scores are looked at in blocks of rows, so that little memory is needed beside them: a predictor is
    called on some rows at a time. The interval of a share of rows (accuracy, coverage, empty sets) is the
    exact one of Clopper and Pearson. All other intervals are percentiles over resamples of the rows, which
    are the same for all metrics; a class that a resample lacks has no part in its macro means. A mean over
    classes that no resample changes has the exact interval of as many rows as tell as much about it.

    Args:
        scores: Scores (n, c): what the predictors take. Or several tensors (rows, c) that together are these,
            made one after the other, where all would be too many to hold. A NumPy array is converted. Or
            what was measured of the rows before (:func:`~shortlist.metrics.rows.measure_rows`), with these
            options: then no predictor is called.
        target: Class indices (n,), counted from 0; ``None`` with rows that were measured.
        predictors: By name, functions from scores (rows, c) to bool sets (rows, c). If one has an attribute
            ``promise`` (:class:`~shortlist.predictors.Promise`), or ``coverage``, which then is its promise
            about all rows, the results have its measured coverage, and the share of under-covered classes.
            If it has an attribute ``taxonomy``, its answers are also counted by level.
        class_table: Table of the classes; if ``None``, they are called "0", "1", ... With counts,
            there are metrics by group; with parents, coverage and mistakes by genus or any other level.
        ks: Values of K for the top-K accuracies; those above c are left out.
        activation: How scores become probabilities, for calibration error and likelihood only:
            ``"softmax"``, ``"sigmoid"`` (no likelihood), or ``"none"`` if they are probabilities already. If
            all of the first few hundred rows look like probabilities, and softmax is asked for here or by a
            predictor, a ``UserWarning`` says so.
        ties: See :func:`topk_accuracy`.
        few_below: Classes with fewer training examples are in the group "few".
        many_above: Classes with more training examples are in the group "many".
        count_bins: In place of these groups, the largest number of training examples of each group but the
            last: ``[10, 50]`` gives "up_to_10", "up_to_50" and "over_50".
        bins: Number of bins of the calibration error.
        curve_max: Largest K of the top-K curve that is listed; its area is always over K = 1, ..., c.
        num_worst: Number of classes with the lowest coverage to list.
        num_resamples: Number of resamples for the intervals; 0 for no intervals.
        generator: Random generator of the resamples; by default one with seed 0, so that a second call gives
            the same result.
        ignore_index: Rows with this target are ignored.
        shown: Function that converts scores (rows, c) to those of the probabilities that people see, for
            calibration error and likelihood; it returns ``None`` if there are no probabilities.
        metrics: Functions of your own, from scores (rows, c) and classes (rows,) to one number for each row,
            whose means are metrics too. Their names begin with ``metric.`` where more is better, and with
            ``cost.`` where less is.

    Returns:
        Plain numbers; ``None`` for what is not defined, such as the accuracy of a group without rows.

    Example:
        >>> table = ClassTable(names=("oak", "beech", "birch"), counts=(150, 20, 3))
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
        >>> above_0 = {"above_0": lambda scores: scores > 0}
        >>> results = evaluate(scores, torch.tensor([0, 1, 1]), above_0, table, num_resamples=0)
        >>> results.scores.topk[1].macro.value, results.sets["above_0"].coverage.micro.value
        (0.75, 1.0)
    """
    counts = {"bins": bins, "curve_max": curve_max, "num_worst": num_worst}
    _check_options(predictors, num_resamples, counts)
    ks = check_ks(ks, None)
    if not isinstance(scores, RowNumbers):
        how = {"activation": activation, "ties": ties, "ignore_index": ignore_index, "shown": shown}
        how["metrics"] = metrics
        scores, class_table = _measure(scores, classes_of(target), predictors, class_table, how)
    if class_table is None:
        raise ValueError("class_table must be given with rows that were measured, got None")
    rows, c = scores, len(class_table)
    if not len(rows.target):
        raise ValueError("target must have at least one row that is not ignored, got 0")
    ks = tuple(k for k in dict.fromkeys(ks) if k <= c)
    names, groups = group_names(count_bins), None
    if class_table.counts:
        groups = class_table.groups(few_below=few_below, many_above=many_above, count_bins=count_bins)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    parents = {level: class_table.parent_index(level)[0] for level in class_table.parents}
    columns, grouped = _columns(rows, ks, ties, c), Classes(c, groups, parents, names)
    table = tabulate(columns, rows.target, grouped, num_resamples=num_resamples, generator=generator)
    return Results(
        rows=len(rows.target),
        ignored_rows=rows.ignored,
        nan_rows=int(rows.has_nan.sum()),
        classes=c,
        absent_classes=int((table.counts == 0).sum()),
        ties=ties,
        activation=activation,
        level=LEVEL,
        num_resamples=num_resamples,
        groups=group_rows(grouped, table.counts),
        class_rows=tuple(table.counts.tolist()),
        scores=_score_results(rows, table, parents, ks, ties, bins, min(curve_max, c)),
        sets={
            name: _set_results(rows, table, name, grouped, predictor, num_worst)
            for name, predictor in predictors.items()
        },
        own={name: table.averages[f"own {name}"] for name in rows.own},
    )


def _measure(
    scores: Any,
    target: Tensor,
    predictors: Mapping[str, Predictor],
    class_table: ClassTable | None,
    how: dict[str, Any],
) -> tuple[RowNumbers, ClassTable]:
    """Check scores, whole or in blocks, and targets (n,); measure the rows. Classes may be numbers."""
    scores = tensor_of(scores, name="scores")
    if isinstance(scores, Tensor):
        check_scores(scores, name="scores")
        class_table = class_table or ClassTable([str(number) for number in range(scores.shape[1])])
    if class_table is None:
        raise ValueError("class_table must be given with scores in blocks of rows, got None")
    shape = (len(target), len(class_table))  # of blocks that are yet to come
    shaped = scores if isinstance(scores, Tensor) else torch.empty(*shape, device="meta")
    check_target(target, shaped, ignore_index=how["ignore_index"])
    c = shaped.shape[1]
    if len(class_table) != c:
        raise ValueError(f"class_table must have one entry per class ({c}), got {len(class_table)}")
    if isinstance(scores, Tensor):
        _check_activations(scores, predictors, how["activation"])
    return measure_rows(scores, target, predictors, num_classes=c, **how), class_table


def _check_options(predictors: Any, num_resamples: int, counts: Mapping[str, int]) -> None:
    if not isinstance(predictors, Mapping):
        got = type(predictors).__name__
        raise ValueError(f"predictors must be a dict by name, such as {{'top5': TopK(5)}}, got {got}")
    check_count("num_resamples", num_resamples, low=0)
    for name, number in counts.items():
        check_count(name, number)


def _check_activations(scores: Tensor, predictors: Mapping[str, Predictor], activation: str) -> None:
    """Look at the first few hundred rows: are they what the results and the predictors take?"""
    asked = {
        f"predictors[{name!r}]": predictor.activation
        for name, predictor in predictors.items()
        if isinstance(predictor, SetPredictor)
        and (predictor.needs_calibration or predictor.adds_probabilities)
    }
    for whose, kind in asked.items():
        if kind == "none":
            refuse_logits(scores, whose=whose)
    by_softmax = [whose for whose, kind in {"evaluate": activation, **asked}.items() if kind == "softmax"]
    if by_softmax and rows_are_probabilities(scores):
        warn_of_probabilities(", ".join(by_softmax))


def _columns(rows: RowNumbers, ks: Sequence[int], ties: Ties, c: int) -> dict[str, Tensor]:
    """Return every metric that is a mean over rows, by name, as one number for each row (n,)."""
    every = sorted({1, *ks})
    hits = topk_hits(rows.ranks, every, ties=ties)
    columns = {f"top {k}": hits[:, i] for i, k in enumerate(every)}
    columns["area"] = curve_area_of_rows(rows.ranks, c)
    has_loss = ~rows.nll.isnan()
    columns |= {"known": has_loss}
    columns |= {name: torch.where(has_loss, getattr(rows, name), 0.0) for name in ("nll", "brier")}
    for name, sizes in rows.sizes.items():
        columns |= {f"hit {name}": rows.hits[name], f"size {name}": sizes, f"empty {name}": sizes == 0}
        columns[f"single {name}"] = rows.hits[name] & (sizes == 1)
    return columns | {f"own {name}": values for name, values in rows.own.items()}


def _score_results(
    rows: RowNumbers,
    table: Table,
    parents: Mapping[str, Tensor],
    ks: Sequence[int],
    ties: Ties,
    bins: int,
    curve_max: int,
) -> ScoreResults:
    top1 = table.averages["top 1"].macro
    error = Estimate(*(None if end is None else 1 - end for end in (top1.value, top1.high, top1.low)))
    level = LEVEL if table.draws else None
    histogram = histogram_of(rows.ranks, len(table.counts), ties=ties)
    calibration_error, reliability = _calibration(rows, bins)
    return ScoreResults(
        topk={k: table.averages[f"top {k}"] for k in ks},
        balanced_error=error,
        topk_area=table.averages["area"].micro,
        calibration_error=calibration_error,
        nll=_mean_where_known(table, "nll"),
        brier=_mean_where_known(table, "brier"),
        topk_curve=tuple(topk_curve(histogram, k_max=curve_max).tolist()),
        reliability=reliability,
        class_hits={k: _numbers(table.sums[f"top {k}"], whole=ties != "expected") for k in ks},
        confused_within=confused_within(rows.guess, rows.target, parents, level=level),
    )


def _calibration(rows: RowNumbers, bins: int) -> tuple[Estimate, ReliabilityBins]:
    """Compute the calibration error; it has no interval, since resamples are biased to larger errors."""
    has_confidence = ~rows.confidence.isnan()
    sums = sums_of_bins(rows.confidence, rows.right, has_confidence, bins)
    counts = sums.counts.double()
    shares = [
        tuple(estimate(share).value for share in part / counts) for part in (sums.correct, sums.confidence)
    ]
    error = error_of_bins(sums.counts, sums.correct, sums.confidence)
    return estimate(error), ReliabilityBins(tuple(sums.counts.tolist()), *shares)


def _mean_where_known(table: Table, name: str) -> Estimate:
    """Return the mean over the rows that have probabilities."""
    value = table.sums[name].sum() / table.sums["known"].sum()
    if not table.draws:
        return estimate(value)
    return estimate(value, *interval(table.draws[name] / table.draws["known"], LEVEL))


def _set_results(
    rows: RowNumbers,
    table: Table,
    name: str,
    classes: Classes,
    predictor: Predictor,
    num_worst: int,
) -> SetResults:
    hits, counts, sizes = table.sums[f"hit {name}"], table.counts, rows.sizes[name]
    coverage, size = table.averages[f"hit {name}"], table.averages[f"size {name}"]
    promise = _measured_promise(table, name, predictor)
    asked = None if promise is None else promise.asked
    by_group = {}
    if classes.groups is not None:
        row_groups = classes.groups[rows.target]
        by_group = {group: sizes[row_groups == number] for number, group in enumerate(classes.group_names)}
    worst, of_worst = worst_classes(hits, counts, num_worst=num_worst)
    return SetResults(
        coverage=coverage,
        coverage_by=table.by_parent[f"hit {name}"],
        size=size,
        empty_share=table.averages[f"empty {name}"].micro,
        singleton_hits=table.averages[f"single {name}"].micro,
        size_quantiles=_size_quantiles(sizes),
        group_size_quantiles={g: _size_quantiles(some) for g, some in by_group.items() if len(some)},
        size_histogram=tuple(torch.bincount(sizes).tolist()),
        promise=promise,
        worst_classes=tuple(worst.tolist()),
        worst_coverage=tuple(
            Estimate(share, *clopper_pearson(float(hits[index]), float(counts[index]), level=LEVEL))
            for index, share in zip(worst.tolist(), of_worst.tolist(), strict=True)
        ),
        worst_rows=tuple(counts[worst].tolist()),
        class_hits=_numbers(hits),
        class_sizes=_numbers(table.sums[f"size {name}"]),
        **_below_promise(rows, table, name, asked),
        **_by_level(rows, name, predictor),
    )


def _below_promise(rows: RowNumbers, table: Table, name: str, asked: float | None) -> dict[str, float | None]:
    """Return how far the sets are from the coverage that was asked for, by name."""
    if asked is None:
        return dict.fromkeys(BELOW_PROMISE)
    by_class, sizes = (table.sums[f"hit {name}"], table.counts), rows.sizes[name]
    by_size = torch.bincount(sizes[rows.hits[name]], minlength=int(sizes.max()) + 1), torch.bincount(sizes)
    numbers = [measure(*by_class, coverage=asked) for measure in COVERAGE_MEASURES.values()]
    numbers.append(violation_of_sizes(*by_size, coverage=asked))
    return dict(zip(BELOW_PROMISE, map(float, numbers), strict=True))


def _measured_promise(table: Table, name: str, predictor: Predictor) -> Promise | None:
    """Return the promise of a predictor with its measured coverage; ``None`` if it promises nothing."""
    promise = promise_of(name, predictor)
    if promise is None:
        return None
    hits, counts = table.sums[f"hit {name}"], table.counts
    calibration = getattr(getattr(predictor, "report", None), "class_rows", ())
    importance = promised_importance(predictor, counts)
    rows, hit_rows, sizes = map(_numbers, (counts, hits, table.sums[f"size {name}"]))
    by_class = ClassCounts(rows, hit_rows, sizes, calibration, importance)
    return measure_promise(promise, by_class, macro=table.averages[f"hit {name}"].macro)


def _by_level(rows: RowNumbers, name: str, predictor: Any) -> dict[str, Any]:
    """Return the results about the levels of a taxonomy, if the predictor has one."""
    if name not in rows.nodes:
        return {}
    sums = rows.nodes[name]
    shares = dict(zip(predictor.taxonomy.level_names, node_shares(sums).tolist(), strict=True))
    return {"nodes": shares, "mean_level": estimate(mean_level(sums)).value}


def _size_quantiles(sizes: Tensor) -> dict[str, int]:
    quantiles = size_quantiles(torch.bincount(sizes), _QUANTILES).tolist()
    return dict(zip(map(str, _QUANTILES), quantiles, strict=True))


def _numbers(sums: Tensor, *, whole: bool = True) -> tuple:
    return tuple((sums.long() if whole else sums).tolist())
