"""The figures of a page: each is put together from numbers that other functions found."""

from collections.abc import Mapping, Sequence

from shortlist.class_table import GROUPS
from shortlist.report.drawings import Series, bar_chart, bar_sign, describe, line_chart, line_sign
from shortlist.report.html import Markup, figure, joined, legend, table
from shortlist.report.numbers import (
    bin_histogram,
    bin_labels,
    coverage_by_frequency,
    frequency_edges,
    pool_reliability,
    share_of,
    size_bins,
)
from shortlist.report.rows import MethodRows
from shortlist.report.runs import Experiment
from shortlist.report.words import percent
from shortlist.runs.groups import Group

__all__ = [
    "accuracy_figure",
    "frequency_figure",
    "learning_figure",
    "mean_curve",
    "reliability_figure",
    "size_figure",
]

_TABLE_KS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)


def _method_legend(methods: Sequence[Group]) -> Markup:
    return legend([(line_sign(i), method.label) for i, method in enumerate(methods)])


def mean_curve(method: Group) -> list[float]:
    """Top-K accuracy for K = 1, 2, ..., the mean over the runs."""
    curves = [run.results.scores.topk_curve for run in method.runs]
    return [sum(values) / len(values) for values in zip(*curves, strict=True)]


def accuracy_figure(name: str, experiment: Experiment) -> Markup:
    """Accuracy against the length of the list."""
    curves = [mean_curve(method) for method in experiment.methods]
    lines = [
        Series(method.label, range(1, len(curve) + 1), curve, style)
        for style, (method, curve) in enumerate(zip(experiment.methods, curves, strict=True))
    ]
    title = "Accuracy against K"
    longest = max(map(len, curves))
    far = line_chart(
        lines,
        title="Right class among the first K",
        x_label="K (logarithmic)",
        y_label="percent of rows",
        description=describe(title, lines),
        x_log=True,
    )
    near_lines = [
        Series(line.label, line.xs[:10], line.ys[:10], line.style, [2.5] * len(line.ys[:10]))
        for line in lines
    ]
    near = line_chart(
        near_lines,
        title="The same for K up to 10",
        x_label="K",
        y_label="percent of rows",
        description=describe(f"{title} up to 10", near_lines),
    )
    ks = [k for k in _TABLE_KS if k <= longest]
    rows = [[line.label, *(percent(line.ys[k - 1]) for k in ks)] for line in lines]
    numbers = table("Top-K accuracy in percent", ["method", *(f"K = {k}" for k in ks)], rows)
    note = "Share of test rows whose K best scores hold the true class; the mean over a method's runs."
    panels = [far, near] if longest > 10 else [near]
    return figure(name, title, note, panels, signs=_method_legend(experiment.methods), numbers=numbers)


def learning_figure(name: str, experiment: Experiment) -> Markup | None:
    """Figures by epoch of every run."""
    curves = [(style, run) for style, m in enumerate(experiment.methods) for run in m.runs if run.epochs]
    columns = dict.fromkeys(key for _, run in curves for line in run.epochs for key in line)
    shown = [key for key in columns if key not in ("epoch", "lr")]
    if not shown:
        return None
    shown.sort(key=lambda key: key != "train_loss")
    panels = []
    for key in shown:
        share = key.startswith("val_") and "loss" not in key
        lines = []
        for style, run in curves:
            ys = [line.get(key) for line in run.epochs]
            lines.append(Series(run.name, range(1, len(ys) + 1), ys, style, [2.0] if len(ys) == 1 else None))
        panels.append(
            line_chart(
                lines,
                title=key.replace("_", " "),
                x_label="epoch",
                y_label="percent" if share else "loss",
                description=describe(key, lines, percent=share),
                percent=share,
            )
        )
    note = "One line for each run, in the colour of its method. Losses of different methods do not compare."
    if any(run.recipe.second_stage is not None for _, run in curves):
        note += " The epochs of a second stage follow those of the first."
    tables = joined(_epoch_table(run.name, run.epochs, columns) for _, run in curves)
    signs = _method_legend(experiment.methods)
    return figure(name, "Learning curves", note, panels, signs=signs, numbers=tables)


def _epoch_table(name: str, epochs: Sequence[Mapping[str, float]], columns: Mapping[str, None]) -> Markup:
    every = -(-len(epochs) // 25)
    chosen = [i for i in range(len(epochs)) if i % every == 0 or i == len(epochs) - 1]
    keys = [key for key in columns if key != "epoch"]
    rows = [[i + 1, *(f"{epochs[i][key]:.4g}" if key in epochs[i] else "–" for key in keys)] for i in chosen]
    caption = name if every == 1 else f"{name}, every {every} epochs"
    return table(caption, ["epoch", *(key.replace("_", " ") for key in keys)], rows)


def size_figure(name: str, method: Group, rows: MethodRows) -> Markup | None:
    """Sizes of the sets, by group of the true class."""
    panels, tables, fixed = [], [], []
    groups = list(dict.fromkeys(group for by_group in rows.histograms.values() for group in by_group))
    for key, by_group in rows.histograms.items():
        totals = [sum(column) for column in zip(*by_group.values(), strict=True)]
        if sum(number > 0 for number in totals) < 2:
            fixed.append(f"{key} ({len(totals) - 1})")
            continue
        bins = size_bins(len(totals) - 1)
        labels = bin_labels(bins)
        binned = {group: bin_histogram(histogram, bins) for group, histogram in by_group.items()}
        bars = [Series(group, [], share_of(binned[group]), _style(group)) for group in binned]
        largest = "; ".join(f"{bar.label}: most often {labels[_place_of_largest(bar.ys)]}" for bar in bars)
        panels.append(
            bar_chart(
                labels,
                bars,
                title=key,
                x_label="classes in the set",
                y_label="percent of group's rows",
                description=f"Set sizes of {key} by group. {largest}",
            )
        )
        body = [[label, *(binned[group][i] for group in binned)] for i, label in enumerate(labels)]
        tables.append(table(f"{key}: number of sets", ["size", *binned], body))
    if not panels:
        return None
    note = "By training rows of the true class. " if groups != ["all"] else ""
    note += f"Always the same size, not drawn: {', '.join(fixed)}." if fixed else ""
    signs = legend([(bar_sign(_style(group)), group) for group in groups])
    return figure(name, "Set sizes", note, panels, signs=signs, numbers=joined(tables))


def _style(group: str) -> int:
    return GROUPS.index(group) if group in GROUPS else 0


def _place_of_largest(values: Sequence[float | None]) -> int:
    return max(range(len(values)), key=lambda i: values[i] or 0.0)


def frequency_figure(name: str, method: Group) -> Markup | None:
    """Coverage of classes against how many training rows they have."""
    table_of_classes = method.runs[0].class_table
    counts = table_of_classes.counts
    keys = list(method.runs[0].results.sets)
    if not counts or not keys:
        return None
    edges = frequency_edges(counts)
    labels = bin_labels(edges)
    rows = [sum(numbers) for numbers in zip(*(run.results.class_rows for run in method.runs), strict=True)]
    lines, columns, found = [], [], []
    for style, key in enumerate(keys):
        hits = [sum(n) for n in zip(*(run.results.sets[key].class_hits for run in method.runs), strict=True)]
        found = coverage_by_frequency(hits, rows, counts, edges)
        shares = [each.coverage for each in found]
        lines.append(Series(key, range(len(edges)), shares, style, [3.0] * len(edges)))
        columns.append([percent(share) for share in shares])
    promises = {run.results.sets[key].promised for run in method.runs for key in keys} - {None}
    level = promises.pop() if len(promises) == 1 else None
    every = 2 if len(labels) > 5 else 1
    ticks = [(i, label) for i, label in enumerate(labels) if i % every == 0]
    panel = line_chart(
        lines,
        title="",
        x_label="training rows of the class",
        y_label="percent of rows",
        description=describe("Coverage by class frequency", lines),
        x_ticks=[(float(x), label) for x, label in ticks],
        y_range=(0.0, 1.0),
        level=level,
    )
    body = [
        [label, bin_.classes, bin_.rows, *(column[i] for column in columns)]
        for i, (label, bin_) in enumerate(zip(labels, found, strict=True))
    ]
    numbers = table("Coverage in percent", ["training rows", "classes", "test rows", *keys], body)
    note = "Mean over the classes of each bin of the share of their rows whose set holds them."
    note += " Dashed: the coverage promised over all rows." if level is not None else ""
    signs = legend([(line_sign(i), key) for i, key in enumerate(keys)])
    return figure(name, "Coverage by class frequency", note, [panel], signs=signs, numbers=numbers)


def reliability_figure(name: str, method: Group) -> Markup:
    """How often the first guess is right, against how sure it is."""
    pooled = pool_reliability([run.results.scores.reliability for run in method.runs])
    bins, total = len(pooled.rows), sum(pooled.rows) or 1
    middles = [(i + 0.5) / bins for i in range(bins)]
    xs = [c if c is not None else m for c, m in zip(pooled.confidence, middles, strict=True)]
    radii = [1.5 + 9 * (number / total) ** 0.5 for number in pooled.rows]
    line = Series("first guess", xs, pooled.accuracy, 0, radii)
    panel = line_chart(
        [line],
        title="",
        x_label="mean confidence, percent",
        y_label="percent right",
        description=describe("Accuracy of the first guess by confidence", [line]),
        y_range=(0.0, 1.0),
        diagonal=True,
    )
    body = [
        [f"{percent(i / bins, 0)}–{percent((i + 1) / bins, 0)}", number, percent(pooled.confidence[i]),
         percent(pooled.accuracy[i])]
        for i, number in enumerate(pooled.rows)
        if number
    ]  # fmt: skip
    numbers = table("By confidence", ["confidence, %", "rows", "mean confidence, %", "right, %"], body)
    error = method.figures["calibration_error"].value
    note = f"Expected calibration error {percent(error)} %. Dashed: as often right as it is sure. "
    note += "Larger marks stand for more rows."
    return figure(name, "Reliability", note, [panel], numbers=numbers)
