"""Errors of runs in groups of classes, as bars (Menon et al., ICLR 2021, figures 4 and 8)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist._checks import check_count, check_k
from shortlist.class_table import GROUPS
from shortlist.metrics import topk_sums
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._frequency import frequency_groups
from shortlist.papers.figures._lines import add_legend, figure_with_legend, percent, style_of
from shortlist.papers.figures._runs import MethodRuns, mapped_scores, mean_columns, measure_runs
from shortlist.runs import Run


class GroupErrors(NamedTuple):
    """Of a run and each of its groups: the error (None without test rows), classes, and mean images."""

    errors: list[float | None]
    classes: list[int]
    images: list[float | None]


def measure(
    *,
    runs: Sequence[str | Path],
    groups: int = 0,
    k: int = 1,
    few_below: int = 21,
    many_above: int = 99,
    progress: Progress | None = None,
) -> Numbers:
    """Measure top-k errors on test rows in groups of classes; the classes of a group count the same.

    Scores are those that the run predicts from, through its score map.

    Args:
        runs: Run folders.
        groups: So many groups of equally many classes in the order of their training images, such as 10;
            0 for the three groups with many, a medium number of and few images.
        k: Number of guesses.
        few_below: Classes with fewer training images have few; 21 is the bound of the paper.
        many_above: Classes with more training images have many; 99 is the bound of the paper.
        progress: Called after each run.
    """
    check_count("groups", groups, low=0)
    check_k(k)
    bounds = {"few_below": few_below, "many_above": many_above}
    methods, left_out = measure_runs(runs, lambda run: _errors(run, groups, k, bounds), progress)
    lengths = {len(each_run.errors) for method in methods for each_run in method.by_run}
    if len(lengths) > 1:
        raise ValueError(f"groups must be at most the classes of each run ({min(lengths)}), got {groups}")
    names = [str(number) for number in range(1, lengths.pop() + 1)] if groups else list(reversed(GROUPS))
    return {
        "groups": names,
        "by": "order of training images" if groups else "training images",
        "k": k,
        **({} if groups else bounds),
        "methods": [_of_method(method) for method in methods],
        "left_out": left_out,
    }


def _errors(run: Run, groups: int, k: int, bounds: dict[str, Any]) -> GroupErrors:
    scores, target = mapped_scores(run, "test")
    sums = topk_sums(scores, target, k=k)
    counts = run.class_table.class_counts
    error = 1 - sums.hits[:, 0].double() / sums.counts  # NaN for classes without test rows
    if groups:
        members = frequency_groups(counts, groups)
    else:
        group_of = run.class_table.groups(**bounds)
        members = [(group_of == GROUPS.index(name)).nonzero().flatten() for name in reversed(GROUPS)]
    tested = [group[sums.counts[group] > 0] for group in members]
    return GroupErrors(
        [_mean(error[group]) for group in tested],
        [len(group) for group in tested],
        [_mean(counts[group]) for group in tested],
    )


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None


def _of_method(method: MethodRuns[GroupErrors]) -> Numbers:
    by_group = zip(*(run.errors for run in method.by_run), strict=True)
    first = {"classes": method.by_run[0].classes, "images": method.by_run[0].images}
    return method.about() | first | mean_columns(by_group, "error")


def draw(numbers: Numbers) -> Figure:
    """Draw a bar for each method in each group, with its interval over seeds."""
    methods, names = numbers["methods"], numbers["groups"]
    figure = figure_with_legend(max(6.0, 0.8 * len(names)), 4.0, [method["label"] for method in methods])
    axes = figure.subplots()
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        places = [i + (number - (len(methods) - 1) / 2) * width for i in range(len(names))]
        heights = percent(method["error"])
        ends = torch.tensor([percent(method["low"]), percent(method["high"])], dtype=torch.float64)
        lengths = (ends - torch.tensor(heights, dtype=torch.float64)).abs().nan_to_num(0.0)
        color = style_of(number, is_limit=method["is_limit"])["color"]
        axes.bar(places, heights, width, color=color, label=method["label"], yerr=lengths.numpy(),
                 error_kw={"elinewidth": 0.8})  # fmt: skip
    axes.set_xticks(range(len(names)), [_tick(name, i, methods[0]) for i, name in enumerate(names)])
    axes.set(ylabel=f"top-{numbers['k']} error, mean over classes (%)")
    axes.set(xlabel=f"classes by {numbers['by']}: group, classes, mean images")
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    add_legend(figure, axes.get_legend_handles_labels()[0])
    return figure


def _tick(name: str, i: int, method: Numbers) -> str:
    images = method["images"][i]
    return f"{name}\n{method['classes'][i]:,}\n{'-' if images is None else format(images, ',.0f')}"
