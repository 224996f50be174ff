"""``shortlist demo``: train, calibrate and compare small models on the embedded images."""

import sys
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shortlist._progress import progress_report
from shortlist.cli._console import warnings_as_lines
from shortlist.cli._options import option


def demo(
    out: Annotated[
        Path, option("Folder for the runs. Runs that are already finished there are not repeated.")
    ] = Path("runs/demo"),
    seed: Annotated[int, option("Seed of the trainings.")] = 0,
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
    """Train four small models on the embedded glyphs in about two minutes, and compare their short lists.

    With --serve, try one of them on a page.
    """
    if serve:
        _serve(out, seed, port)
        return
    from shortlist.demo import METHODS, demo_words, draw_demo, run_demo

    console = Console()
    console.print("[bold]Glyphs[/bold]: letters and digits of many scripts, rendered from real fonts.")
    console.print("Many look alike, some are even the same to the pixel, and most are rare. A single")
    console.print("answer is often wrong. A short list contains the right class more often.\n")
    with progress_report() as report, warnings_as_lines():
        runs = run_demo(
            out, seed=seed, progress=lambda name: lambda what, *rest: report(f"{name}: {what}", *rest)
        )
        figure = out / "short_lists.svg"
        draw_demo(runs[METHODS[0][1]], figure)
    console.print(_table(runs))
    for sentence in demo_words(runs):
        console.print(f"- {sentence}", highlight=False)
    console.print(f"\nRuns and pictures: {out} (see {figure})", soft_wrap=True)
    first = out / METHODS[0][0]
    there = "" if out == Path("runs/demo") else f" --out {out}"
    console.print("Draw a character and see its short list, on a page:", style="bold")
    console.print(f"  {_program()} demo --serve{there}", soft_wrap=True, highlight=False)
    console.print("Try next:", style="bold")
    for line in (
        f"evaluate {first}",
        f"calibrate {first} --set 'predictors.average2={{name: average_k, k: 2}}'",
        f"compare {out}",
        f"report {out} -o report.html",
        "train --set loss=logit_adjusted --set epochs=8",
        "data describe glyphs --figure lorenz.svg",
    ):
        console.print(f"  {_program()} {line}", soft_wrap=True, highlight=False)


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
