"""``shortlist report``: one HTML page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist._progress import progress_report
from shortlist._store.files import check_place
from shortlist.cli._console import print_next, replacing_words, use_one_thread
from shortlist.cli._options import AllowCode, DataPlace, argument, look_here_for_code, option


def report(
    runs: Annotated[
        list[Path],
        argument("Run folders, suite folders, any folders that contain runs, or models of shortlist join."),
    ],
    out: Annotated[
        Path, option("Page to write (.html). An existing page is replaced.", "--out", "-o")
    ] = Path("report.html"),
    title: Annotated[str | None, option("Heading of the page.")] = None,
    pictures: Annotated[
        bool, option("Open the data sets to show images of confused classes and of short lists.")
    ] = True,
    section: Annotated[
        list[str] | None,
        option(
            "A section of your own: a function that makes a table, also from the current folder. Its code is "
            "run. Can be repeated.",
            "--section",
            metavar="MODULE:FUNCTION",
            callback=look_here_for_code,
        ),
    ] = None,
    allow_code: AllowCode = False,
    data: DataPlace = None,
) -> None:
    """Write one HTML page about runs: metrics, tables, confused classes, short lists and recipes.

    Runs on the same data are compared. Runs that differ only by their seed are shown as one method. Runs that
    are unfinished, damaged or from another version are named and left out. The page is one file and needs no
    internet connection.
    """
    from shortlist.report import write_page

    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html, got {out}")
    check_place(out)
    place = f"{out}{replacing_words(out)}"
    use_one_thread()
    with progress_report(only_bars=True) as progress:
        how = {"title": title, "pictures": pictures, "data": data, "sections": section or ()}
        page = write_page(runs, out, **how, progress=progress)
    for reason in page.left_out.values():
        typer.echo(f"shortlist: left out {reason}", err=True)
    for remark in page.remarks:
        typer.echo(f"shortlist: {remark}", err=True)
    typer.echo(f"{place}: {page.runs} run{'' if page.runs == 1 else 's'}, {out.stat().st_size:,} bytes")
    print_next("compare", *runs)
