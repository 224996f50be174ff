"""Printing for the verbs: progress to stderr, tables to stdout."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from shortlist._json import strict_json
from shortlist._messages import one_line
from shortlist.metrics import Averages, Estimate, Results
from shortlist.metrics.names import format_metric, format_percent
from shortlist.predictors import Promise
from shortlist.sentences import promise_brief, promise_words

__all__ = [
    "metrics_table",
    "node_lines",
    "print_json",
    "progress_report",
    "promise_lines",
    "replacing_words",
    "use_one_thread",
    "warnings_as_lines",
]

_FIRST_ESTIMATE = 5.0  # seconds after which the time left is told


@contextmanager
def progress_report(title: str = "") -> Iterator[Callable[[str, int, int, dict[str, float]], None]]:
    """Show one progress bar for each task, or a plain line now and then if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[metrics]}"),
    )
    bars = Progress(*columns, console=console, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}
    lines = _ProgressLines()

    def report(what: str, done: int, total: int, metrics: dict[str, float]) -> None:
        label = f"{title} {what}".strip()
        text = _words_for_metrics(metrics)
        if not console.is_terminal:
            lines.tell(label, done, total, text)
            return
        if label not in tasks:
            tasks[label] = bars.add_task(label, total=total, metrics="")
        bars.update(tasks[label], completed=done, total=total, metrics=text)

    with bars:
        yield report


class _ProgressLines:
    """The lines about each task for a pipe: one for each tenth, and one as soon as the time left is known."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, int]] = {}
        self._tenths: dict[str, int] = {}
        self._estimated: set[str] = set()

    def tell(self, label: str, done: int, total: int, text: str) -> None:
        if not total:
            return
        now = time.monotonic()
        begun, first = self._starts.setdefault(label, (now, done))
        tenth = (10 * done) // total
        soon = label not in self._estimated and done > first and now - begun >= _FIRST_ESTIMATE
        if not soon and tenth <= self._tenths.get(label, -1):
            return
        self._tenths[label] = tenth
        if done > first:
            self._estimated.add(label)
        rest = _time_left(now - begun, done - first, total - done)
        said = (f"{label}: {100 * done // total} %", rest, text)
        print("; ".join(part for part in said if part), file=sys.stderr, flush=True)


def _words_for_metrics(metrics: Mapping[str, float]) -> str:
    """Say the epoch, the loss, what was measured on the validation rows in percent, and after which epoch.

    Example:
        >>> found = {"epochs": 9, "train_loss": 1.5, "loss_epoch": 2, "val_top1": 0.5, "measured_epoch": 2}
        >>> _words_for_metrics({"epoch": 2, **found})
        'epoch 2 of 9, loss 1.5; on validation rows: top1 50.0'
        >>> _words_for_metrics({"epoch": 3, **found})  # in the middle of the third
        'epoch 3 of 9, loss 1.5 in epoch 2; on validation rows after epoch 2: top1 50.0'
    """

    def if_earlier(word: str, key: str) -> str:
        epoch = metrics.get(key, metrics.get("epoch"))
        return "" if epoch == metrics.get("epoch") else f" {word} epoch {epoch:.0f}"

    words = []
    if "epoch" in metrics:
        words.append(f"epoch {metrics['epoch']:.0f} of {metrics['epochs']:.0f}")
    if "train_loss" in metrics:
        words.append(f"loss {metrics['train_loss']:.4g}{if_earlier('in', 'loss_epoch')}")
    measured = {name: value for name, value in metrics.items() if name.startswith("val_")}
    shown = ", ".join(f"{name.removeprefix('val_')} {format_percent(v)}" for name, v in measured.items())
    parts = (
        ", ".join(words),
        f"on validation rows{if_earlier('after', 'measured_epoch')}: {shown}" if shown else "",
    )
    return "; ".join(part for part in parts if part)


def _time_left(seconds: float, done: int, left: int) -> str:
    """Say how long the rest will take, from how long a part took; nothing where there is none of either.

    Example:
        >>> _time_left(10.0, 5, 40), _time_left(3.0, 1, 30), _time_left(9.0, 1, 1000), _time_left(1.0, 5, 0)
        ('1 min 20 s left', '1 min 30 s left', '2 h 30 min left', '')
    """
    if done <= 0 or left <= 0:
        return ""
    rest = round(seconds / done * left)
    if rest < 60:
        return f"{rest} s left"
    if rest < 3600:
        return f"{rest // 60} min {rest % 60} s left"
    return f"{rest // 3600} h {rest % 3600 // 60} min left"


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print each different warning once, as one line on stderr."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in seen:
            seen.add(text)
            print(f"shortlist: note: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)  # for programmers
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def replacing_words(path: Path | None) -> str:
    """Say that a file will take the place of another, if it will; to be asked before it is written."""
    return " (in place of the file that was there)" if path is not None and path.exists() else ""


def use_one_thread() -> None:
    """Look at scores on one thread: of blocks of rows, which are small, threads mostly wait for each other.

    On a machine that trains at the same time two threads take ten times the processor's time of one.
    """
    import torch

    torch.set_num_threads(1)


def _values(averages: Averages) -> list[str]:
    """Format the averages: micro and macro with intervals, groups without them so that the table fits."""
    groups = [Estimate(metric.value) for metric in averages.groups.values()]
    known = (averages.micro, averages.macro, *groups)
    return [format_metric("coverage", metric, plus_minus=" ±") for metric in known]


def metrics_table(
    results: Results, title: str, *, group_words: str = "few: below 20, many: above 100"
) -> Table:
    """Return a table of accuracies and coverages: over rows, over classes and by group of classes.

    Args:
        results: The results.
        title: Title of the table.
        group_words: What the groups of classes are by training rows.
    """
    groups = list(results.groups)
    caption = _caption(results, group_words)
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("accuracy, coverage", overflow="fold")  # in a narrow window names wrap, numbers never
    for name in ("micro", "macro", *groups, "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for k, averages in results.scores.topk.items():
        table.add_row(f"top-{k}", *_values(averages), f"{k}")
    table.add_section()
    for name, sets in results.sets.items():
        brief = (
            "" if sets.promise is None or sets.promise.asked is None else f", {promise_brief(sets.promise)}"
        )
        table.add_row(name + brief, *_values(sets.coverage), f"{sets.size.micro.value:.2f}")
    return table


def promise_lines(results: Results) -> list[str]:
    """Say what each predictor with a coverage promises, from how many rows, and what was measured."""
    lines = []
    for name, sets in results.sets.items():
        if sets.promise is not None and sets.promise.asked is not None:
            lines += [f"{name}: {promise_words(sets.promise)}", *_low_promise(name, sets.promise, results)]
    return lines


def _low_promise(name: str, promise: Promise, results: Results) -> list[str]:
    """Say so if less is promised than the first guess alone gives, and what to do."""
    topk = results.scores.topk.get(1)
    kinds = {} if topk is None else {"rows": topk.micro.value, "average class": topk.macro.value}
    first = kinds.get(promise.about)
    if first is None or promise.level is None or promise.level >= first:
        return []
    better = next((share for share in (0.95, 0.97, 0.98, 0.99, 0.995) if share >= (1 + first) / 2), 0.999)
    return [
        f"{name}: It promises {format_percent(promise.level)} %, but the first guess alone is right for "
        f"{format_percent(first)} %: some lists are empty. Ask for more in the recipe, such as coverage: "
        f"{better}. (shortlist calibrate --set does it without a new training.)"
    ]


def node_lines(results: Results) -> list[str]:
    """Say on which levels of a taxonomy the answers are, for each predictor of nodes."""
    return [
        f"{name}: nodes in an answer: "
        + ", ".join(f"{mean:.2f} {level}" for level, mean in sets.nodes.items())
        + "."
        for name, sets in results.sets.items()
        if sets.nodes is not None
    ]


def _caption(results: Results, group_words: str) -> str:
    parts = [f"Percent of {results.rows} rows, ± half the {100 * results.level:g} % interval over rows"]
    parts.append("micro: over rows (exact interval), macro: over classes (interval by resampling)")
    parts += [f"{name}: {group.present} classes, {group.rows} rows" for name, group in results.groups.items()]
    if results.groups:
        parts.append(f"groups by training rows ({group_words})")
    if results.absent_classes:
        parts.append(f"{results.absent_classes} classes have no rows and no part in macro metrics")
    return "; ".join(parts) + "."


def print_json(content: Mapping[str, Any]) -> None:
    """Print JSON on stdout, for scripts."""
    print(strict_json(content))
