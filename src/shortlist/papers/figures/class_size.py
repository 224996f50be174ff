"""Accuracy of runs by the number of training images of a class: ``shortlist papers figure class_size``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist._checks import check_count, check_k
from shortlist.metrics import topk_sums
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._lines import add_legend, figure_with_legend, percent, style_of
from shortlist.papers.figures._runs import MethodRuns, mapped_scores, mean_columns, measure_runs, seed_mean
from shortlist.runs import Run


class ClassHits(NamedTuple):
    """Training images (m,) and accuracy (m,) of the classes of a run that have test rows."""

    images: Tensor
    accuracy: Tensor
    rows: int


def measure(
    *, runs: Sequence[str | Path], k: int = 5, bins: int = 8, progress: Progress | None = None
) -> Numbers:
    """Measure top-k accuracy on test rows of classes of about the same number of training images.

    The classes of a bin count the same, however many test rows they have. Scores are those that the run
    predicts from, through its score map. The interval is over seeds where a method has several, and over
    the classes of the bin where it has one run.

    Args:
        runs: Run folders.
        k: Number of guesses.
        bins: Bins from the rarest to the most frequent class, of even width in the logarithm; those that
            hold no whole number are joined to their neighbors, and classes without images are apart.
        progress: Called after each run.
    """
    check_k(k)
    check_count("bins", bins)
    methods, left_out = measure_runs(runs, lambda run: _class_hits(run, k), progress)
    hits = [run_hits for method in methods for run_hits in method.by_run]
    ranges = _ranges(torch.cat([run_hits.images for run_hits in hits]), bins)
    inside = [[_inside(run_hits, place) for run_hits in hits] for place in ranges]
    classes = [sum(map(len, of_runs)) / len(hits) for of_runs in inside]
    return {
        "k": k,
        "bins": [
            {"low": low, "high": high, "x": (low * high) ** 0.5, "classes": number}
            for (low, high), number in zip(ranges, classes, strict=True)
        ],
        "methods": [_of_method(method, ranges) for method in methods],
        "left_out": left_out,
    }


def _class_hits(run: Run, k: int) -> ClassHits:
    scores, target = mapped_scores(run, "test")
    sums = topk_sums(scores, target, k=k)
    present = sums.counts > 0
    accuracy = sums.hits[present, 0].double() / sums.counts[present]
    return ClassHits(run.class_table.class_counts[present], accuracy, len(target))


def _ranges(images: Tensor, bins: int) -> list[tuple[int, int]]:
    """Find the smallest and largest number of images in each bin, both included."""
    ranges = [(0, 0)] if (images == 0).any() else []
    present = images[images > 0].double()
    if not len(present):
        return ranges
    low, high = float(present.min().log()), float((present.max() + 1).log())
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64).exp().round().long().unique()
    return ranges + [(a, b - 1) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]


def _inside(hits: ClassHits, place: tuple[int, int]) -> list[float]:
    """List the accuracies of the classes of a bin."""
    return hits.accuracy[(hits.images >= place[0]) & (hits.images <= place[1])].tolist()


def _of_method(method: MethodRuns[ClassHits], ranges: Sequence[tuple[int, int]]) -> Numbers:
    several = len(method.by_run) > 1
    columns = []
    for place in ranges:
        of_seeds = [_inside(hits, place) for hits in method.by_run]
        columns.append([seed_mean(values).value for values in of_seeds] if several else of_seeds[0])
    rows = {"test_rows": [hits.rows for hits in method.by_run]}
    interval = {"interval": "over seeds" if several else "over classes"}
    return method.about() | rows | interval | mean_columns(columns, "accuracy")


def draw(numbers: Numbers) -> Figure:
    """Draw a line for each method, and below how many classes there are of each size."""
    bins, methods = numbers["bins"], numbers["methods"]
    figure = figure_with_legend(7.5, 5.0, [method["label"] for method in methods])
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    xs = _places(bins)
    for number, method in enumerate(methods):
        # lines side by side, so that intervals can be told apart
        shift = 1 + 0.02 * (number - (len(methods) - 1) / 2) * min(1.0, 8 / len(methods))
        values, low, high = (percent(method[key]) for key in ("accuracy", "low", "high"))
        lengths = [[v - a for v, a in zip(values, low, strict=True)],
                   [b - v for v, b in zip(values, high, strict=True)]]  # fmt: skip
        style = style_of(number, is_limit=method["is_limit"])
        places = [x * shift for x in xs]
        upper.errorbar(places, values, lengths, markersize=5, linewidth=1.6, elinewidth=0.8, **style,
                       label=method["label"])  # fmt: skip
    shown = [v for method in methods for v in percent(method["accuracy"]) if v == v]
    upper.set(ylabel=f"top-{numbers['k']} accuracy, mean over classes (%)")
    upper.set_ylim(max(-2.0, min(shown) - 12), min(102.0, max(shown) + 12))
    upper.grid(alpha=0.3)
    lower.bar(xs, [group["classes"] for group in bins], width=[0.3 * x for x in xs], color="0.6")
    lower.set(ylabel="classes", xlabel="training images of the class", xscale="log")
    lower.set_xticks(xs, [_name(group) for group in bins], fontsize="small")
    lower.minorticks_off()
    interval = ", ".join(dict.fromkeys(method["interval"] for method in methods))
    add_legend(figure, upper.get_legend_handles_labels()[0], title=f"95 % intervals {interval}")
    return figure


def _places(bins: Sequence[Any]) -> list[float]:
    """Place the bins: classes without images left of the others, as a logarithm has no 0."""
    others = [group["x"] for group in bins if group["high"] > 0] or [1.0]
    return [group["x"] if group["high"] > 0 else others[0] / 2 for group in bins]


def _name(group: Any) -> str:
    return f"{group['low']}" if group["low"] == group["high"] else f"{group['low']}–{group['high']}"
