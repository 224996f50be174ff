"""``shortlist demo``: train, calibrate and compare small models on the embedded images."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shortlist._progress import progress_report
from shortlist.cli._console import print_line, warnings_as_lines
from shortlist.cli._options import option

if TYPE_CHECKING:
    from shortlist.demo import Example
    from shortlist.runs import Run


def demo(
    out: Annotated[
        Path, option("Folder for the runs. Runs that are already finished there are not repeated.")
    ] = Path("runs/demo"),
    seed: Annotated[int, option("Seed of the trainings.")] = 0,
    losses: Annotated[
        bool,
        option("Also train with three other losses and labels, and compare their lists.", "--losses"),
    ] = False,
    serve: Annotated[
        bool,
        option(
            "Train the first model only, if it is not there yet, and open a page on this machine where "
            "you draw a character and get its short list.",
            "--serve",
        ),
    ] = False,
    port: Annotated[int, option("Port of the page.", min=0, max=65535)] = 8000,
) -> None:
    """Train a small model on the embedded glyphs in half a minute, and show its short lists.

    With --serve, try it on a page.
    """
    if serve:
        _serve(out, seed, port)
        return
    from shortlist.demo import METHODS, draw_demo, run_demo

    with progress_report() as report, warnings_as_lines():
        runs = run_demo(
            out,
            seed=seed,
            progress=lambda name: lambda what, *rest: report(f"{name}: {what}", *rest),
            methods=METHODS if losses else METHODS[:1],
        )
        figure = out / "short_lists.svg"
        draw_demo(runs[METHODS[0][1]], figure)
    if losses:
        _print_losses(runs)
    else:
        _print_answers(runs[METHODS[0][1]])
    there = "" if out == Path("runs/demo") else f" --out {out}"
    print_line(f"Picture: {figure}")
    print_line(f"Draw one yourself: {_program()} demo --serve{there}")


def _print_answers(run: "Run") -> None:
    """Show three test images with their lists, four kinds of answers, and what changes them."""
    from shortlist.demo import examples, four_answers, sentences

    print_line(f"{len(run.class_table)} letters and digits of many scripts: many look alike, most are rare.")
    _print_examples(examples(run))
    rows = [("the answer", "right, of 100", "names in it"), *four_answers(run)]
    width = max(len(row[0]) for row in rows)
    for words, share, size in rows:
        print_line(f"{words:<{width}}  {share:>13}  {size:>11}")
    print_line("")
    for sentence in sentences(run):
        print_line(sentence)


def _print_examples(shown: Sequence["Example"]) -> None:
    """Print images side by side with their lists below, or lists alone if the output is no terminal."""
    lists = [" ".join(f"{sign} {100 * chance:.0f} %" for sign, chance in example.listed) for example in shown]
    if not Console().is_terminal:
        for example, listed in zip(shown, lists, strict=True):
            print_line(f"An image of {example.right}: {listed}")
        print_line("")
        return
    widths = [
        max(len(example.picture[0]), len(listed)) + 2 for example, listed in zip(shown, lists, strict=True)
    ]
    for parts in [*zip(*(example.picture for example in shown), strict=True), lists]:
        print_line("".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True)))
    print_line("")


def _print_losses(runs: dict[str, Any]) -> None:
    """Print the table of four trainings, and what differs by more than chance."""
    from shortlist.demo import loss_words

    Console().print(_table(runs))
    for sentence in loss_words(runs):
        print_line(f"- {sentence}")


def _serve(out: Path, seed: int, port: int) -> None:
    """Train the first model if needed, keep its training images in an index, and serve the page."""
    from shortlist.cli.index import index
    from shortlist.cli.serve import serve
    from shortlist.demo import METHODS, run_demo

    with progress_report() as report, warnings_as_lines():
        run_demo(out, seed=seed, progress=lambda _: report, methods=METHODS[:1])
    first = out / METHODS[0][0]
    if not (first / "index").exists():
        index(first)
    serve(first, port=port, feedback=str(out / "feedback"), quiet=True)


def _table(runs: dict[str, Any]) -> Table:
    """Return the shares of test images whose set holds the right class, as a table."""
    from shortlist.demo import table_rows

    table = Table(
        box=SIMPLE_HEAD,
        title="Percent of test images whose set holds the right class",
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("\ntrained with", no_wrap=True)
    for name in runs:
        header = name.replace("-entropy", "-\nentropy").replace(" top", "\ntop").replace(" loss", "\nloss")
        table.add_column(header, justify="right", no_wrap=True)
    for row in table_rows(runs):
        table.add_row(*row)
    return table


def _program() -> str:
    """Return the command as the user can type it in this folder."""
    called = Path(sys.argv[0])
    if called.is_absolute() and called.is_relative_to(Path.cwd()):
        called = called.relative_to(Path.cwd())
    return str(called) if called.name == "shortlist" else "shortlist"
