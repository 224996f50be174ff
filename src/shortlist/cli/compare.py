"""``shortlist compare``: runs beside each other."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist._json import strict_json

__all__ = ["compare"]


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders of suites, or folders with runs below.")
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Names, by commas: top5.macro, nll, sets.NAME.coverage.few, ...; with a coverage comes the "
            "size of its sets.",
            show_default="top-1, top-5, and every predictor's coverage",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Also show and test every other row's difference to the row of this name."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX tabular.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Compare runs: mean and 95 % interval over seeds of each metric, runs of one recipe as one row.

    The best is bold only if a paired test finds it different from the second best (p < 0.05): Student's over
    seeds if both have the same 3 or more, McNemar's or a bootstrap over the test rows otherwise. Runs that
    cannot be read are named and left out.
    """
    from shortlist.cli._console import use_one_thread
    from shortlist.compare import tables as compare_tables
    from shortlist.compare.comparison import compare_runs

    if markdown + latex + as_json > 1:
        raise ValueError("only one of --markdown, --latex and --json can be given")
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise ValueError(f"--metrics must name at least one, got {metrics!r}")
    use_one_thread()
    found = compare_runs(runs, names, baseline=baseline)
    if as_json:
        typer.echo(strict_json(compare_tables.to_json(found), indent=2))
    elif markdown or latex:
        typer.echo(compare_tables.to_markdown(found) if markdown else compare_tables.to_latex(found))
    else:
        compare_tables.wide_console().print(compare_tables.to_rich(found))
        for note in compare_tables.footnotes(found):
            typer.echo(note)
