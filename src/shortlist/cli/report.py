"""``shortlist report``: one page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist._files import check_place

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders of suites, or folders with runs below.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write (.html).")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    pictures: Annotated[
        bool, typer.Option(help="Open the data sets for pictures of confused classes and short lists.")
    ] = True,
) -> None:
    """Write one self-contained page about runs: metrics, tables, confused classes, short lists, recipes.

    Runs of the same data are compared, and runs that differ only by their seed are taken together. Runs that
    are unfinished, damaged or from another version are named and left out. The page needs no network.
    """
    from rich.console import Console

    from shortlist.cli._console import use_one_thread
    from shortlist.report.page import write_page

    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html, got {out}")
    check_place(out)
    use_one_thread()
    console = Console(stderr=True)
    with console.status("reading runs") as status:
        found = write_page(
            runs,
            out,
            title=title,
            pictures=pictures,
            progress=lambda what, done, total: status.update(f"{done} of {total} methods: {what}"),
        )
    for reason in found.left_out.values():
        typer.echo(f"shortlist: left out {reason}", err=True)
    for remark in found.remarks:
        typer.echo(f"shortlist: {remark}", err=True)
    typer.echo(f"{out}: {found.runs} run{'' if found.runs == 1 else 's'}, {out.stat().st_size:,} bytes")
