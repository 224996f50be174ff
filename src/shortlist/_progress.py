"""Progress of long work: one kind of function that is told of it, and one that shows it on a terminal.

Work that is given no such function tells what is shown now, by :func:`each` or :func:`tell`.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

Progress = Callable[..., None]
"""Called with the name of a task, how much of it is done and in all; while a network trains also with the
metrics so far."""

T = TypeVar("T")

_CURRENT: ContextVar[Progress | None] = ContextVar("progress", default=None)
_PATIENCE = 1.0  # seconds that work takes before it is worth telling
_FIRST_ESTIMATE = 5.0  # seconds after which the time left is told


def tell(label: str, done: int, total: int) -> None:
    """Tell the progress that is shown now, if one is, after the first second; ``done`` is 0 at the start."""
    report = _CURRENT.get()
    if report is not None:
        report(label, done, total, patience=_PATIENCE)


def each(label: str, items: Iterable[T], total: int | None = None) -> Iterator[T]:
    """Give items one after the other, and tell how many are done; without ``total`` of a collection."""
    number = len(items) if total is None and isinstance(items, Collection) else total or 0
    tell(label, 0, number)
    for done, item in enumerate(items, start=1):
        yield item
        tell(label, min(done, number), number)


@contextmanager
def progress_report(*, only_bars: bool = False) -> Iterator[Progress]:
    """Show a bar for each task under way, or one line that is rewritten if stderr is not a terminal.

    What it gives is called with the task, how much is done and in all, and perhaps metrics. With
    ``only_bars`` there is no such line: stderr stays empty for scripts.
    """
    report = _Report(only_bars)
    token = _CURRENT.set(report)
    try:
        yield report
    finally:
        _CURRENT.reset(token)
        report.bars.stop()
        end_line()


class _Report:
    """What shows progress: bars on a terminal, else one line."""

    def __init__(self, only_bars: bool) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.percentage:>3.0f}%"),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("[dim]{task.fields[metrics]}"),
        )
        self.bars = progress.Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True
        )
        self._is_terminal, self._only_bars = console.is_terminal, only_bars
        self._tasks: dict[str, progress.TaskID] = {}
        self._starts: dict[str, tuple[float, int]] = {}
        self._line = _ProgressLine()

    def __call__(
        self,
        label: str,
        done: int,
        total: int,
        metrics: Mapping[str, float] | None = None,
        *,
        patience: float = 0.0,
    ) -> None:
        now = time.monotonic()
        if done == 0:  # work of this name may have been done before
            self._starts.pop(label, None)
            self._line.forget(label)
        begun, first = self._starts.setdefault(label, (now, done))
        if now - begun < patience:
            return
        pace, text = _Pace(now - begun, done - first, total - done), _words_for_metrics(metrics or {})
        if self._is_terminal:
            self._show_bar(label, done, total, pace, text)
        elif not self._only_bars:
            self._line.tell(label, done, total, pace, text)

    def _show_bar(self, label: str, done: int, total: int, pace: "_Pace", text: str) -> None:
        self.bars.start()  # at the first call: its thread starts after the workers' processes
        if self._tasks.get(label) not in self.bars.task_ids:
            for task in [task for task in self.bars.tasks if task.finished]:
                self.bars.remove_task(task.id)
            self._tasks[label] = self.bars.add_task(label, total=total, metrics="", rate="")
        self.bars.update(self._tasks[label], completed=done, total=total, metrics=text, rate=pace.rate)


class _Pace(NamedTuple):
    """How fast a task goes: seconds since its first report, what was done since then, and what is left."""

    seconds: float
    done: int
    left: int

    @property
    def rate(self) -> str:
        """Steps a second; empty before the second report."""
        return f"{self.done / self.seconds:.3g}/s" if self.done > 0 and self.seconds > 0 else ""


class _ProgressLine:
    """The line for a pipe: it is rewritten at each tenth, and as soon as the time left is known."""

    _open = False  # whether a line is begun on stderr, which others must end before they write
    _width = 0

    def __init__(self) -> None:
        self._tenths: dict[str, int] = {}
        self._estimated: set[str] = set()

    def forget(self, label: str) -> None:
        """Begin anew with a task."""
        self._tenths.pop(label, None)
        self._estimated.discard(label)

    def tell(self, label: str, done: int, total: int, pace: _Pace, text: str) -> None:
        if not total:
            return
        tenth = (10 * done) // total
        soon = label not in self._estimated and pace.done > 0 and pace.seconds >= _FIRST_ESTIMATE
        if not soon and tenth <= self._tenths.get(label, -1):
            return
        self._tenths[label] = tenth
        if pace.done > 0:
            self._estimated.add(label)
        rest = _time_left(*pace)
        words = "; ".join(
            part for part in (f"{label}: {100 * done // total} %", pace.rate, rest, text) if part
        )
        print(f"\r{words:<{_ProgressLine._width}}", end="", file=sys.stderr, flush=True)
        _ProgressLine._open, _ProgressLine._width = True, len(words)


def end_line() -> None:
    """End the line of progress that is begun on stderr, if there is one, before something else is written."""
    if _ProgressLine._open:
        print(file=sys.stderr, flush=True)
        _ProgressLine._open, _ProgressLine._width = False, 0


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
    """Say how long the rest will take, from the time so far; empty before the first step and after the last.

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
