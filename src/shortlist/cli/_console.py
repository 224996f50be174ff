"""Printing for the verbs: notes to stderr, tables to stdout."""

import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shortlist._messages import one_line
from shortlist._progress import Progress, end_line, progress_report
from shortlist._store.json import strict_json


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print each different warning once, as one line on stderr."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in seen:
            seen.add(text)
            end_line()
            print(f"shortlist: note: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)  # for programmers
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def working(*, as_json: bool = False) -> Iterator[Progress]:
    """Show the progress of what takes over a second, and print each warning as one line.

    With ``as_json`` and no terminal there is no progress: scripts read the rest.
    """
    with progress_report(only_bars=as_json) as report, warnings_as_lines():
        yield report


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


def print_next(*words: object, program: str = "shortlist") -> None:
    """Say on stderr which command to try next, as a shell takes it."""
    end_line()
    print(printable(f"Next: {shlex.join([program, *map(str, words)])}"), file=sys.stderr)


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
