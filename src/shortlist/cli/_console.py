"""Printing for the verbs: progress to stderr, tables to stdout."""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from shortlist._messages import one_line
from shortlist._store.json import strict_json

_FIRST_ESTIMATE = 5.0  # seconds after which the time left is told


@contextmanager
def progress_report(*, only_bars: bool = False) -> Iterator[Callable[..., None]]:
    """Show one progress bar for each task, or a plain line now and then if stderr is not a terminal.

    What it gives is called with the task, how much is done and in all, and perhaps metrics. With
    ``only_bars`` there are no such lines: stderr stays empty for scripts.
    """
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

    def report(label: str, done: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        text = _words_for_metrics(metrics or {})
        if not console.is_terminal:
            if not only_bars:
                lines.tell(label, done, total, text)
            return
        bars.start()  # at the first call: its thread starts after the workers' processes
        if label not in tasks:
            tasks[label] = bars.add_task(label, total=total, metrics="")
        bars.update(tasks[label], completed=done, total=total, metrics=text)

    try:
        yield report
    finally:
        bars.stop()


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
    shown = ", ".join(f"{name.removeprefix('val_')} {100 * v:.1f}" for name, v in measured.items())
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


def print_line(line: str) -> None:
    """Print a line as it is: a window wraps it, and nothing in it is colored or taken for markup."""
    Console(highlight=False, soft_wrap=True, markup=False).print(line)


def print_table(table: Table, notes: Iterable[str]) -> None:
    """Print a table as wide as the terminal, or without limit if the output is a file, and notes below."""
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=240)).print(table)
    for note in notes:
        print(note)


def print_facts(content: Mapping[str, Any], *, title: str = "") -> None:
    """Print names and values below each other, whole numbers with commas."""
    width = max(map(len, content))
    values = [f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else v for v in content.values()]
    lines = [f"{name:{width}}  {value}" for name, value in zip(content, values, strict=True)]
    print(printable("\n".join([title, *lines] if title else lines)))


def printable(text: str) -> str:
    r"""Write bytes of file names that are not UTF-8 as ``\udcff``, which JSON can read back."""
    return text.encode("utf-8", "backslashreplace").decode()


def print_json(content: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Print JSON on stdout, for scripts."""
    print(printable(strict_json(content, indent=indent)))
