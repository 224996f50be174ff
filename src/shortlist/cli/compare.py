"""``shortlist compare``: a table of runs, with tests of their differences."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist.cli._console import print_json, print_table, use_one_thread
from shortlist.cli._options import AsJson, argument, option


def compare(
    runs: Annotated[list[Path], argument("Run folders, suite folders, or any folders that contain runs.")],
    metrics: Annotated[
        str | None,
        option(
            "Metrics to show, separated by commas, as in top5.macro,nll,sets.NAME.coverage.few. "
            "The size of the sets is shown beside each coverage.",
            show_default="top-1, top-5, and the coverage of every predictor",
        ),
    ] = None,
    baseline: Annotated[
        str | None, option("Name of a row. Also show and test the difference of every other row to it.")
    ] = None,
    over: Annotated[
        list[str] | None,
        option(
            "Key of the recipe over which runs are averaged, as over seeds: data.seed or data.root for "
            "several splits of a data set. May be repeated.",
            metavar="KEY",
        ),
    ] = None,
    person: Annotated[
        Path | None,
        option(
            "Compare with a person: a file with the column row (number of a test row, from 0) or path, "
            "and the column class. Sets of the runs are as large as the person's.",
            metavar="ANSWERS.CSV",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        option("With --person and paths: where the data of the runs lie now, if they were moved."),
    ] = None,
    markdown: Annotated[bool, option("Print the table in Markdown.", "--markdown")] = False,
    latex: Annotated[bool, option("Print the table as a LaTeX tabular.", "--latex")] = False,
    as_csv: Annotated[bool, option("Print CSV: each metric with the ends of its interval.", "--csv")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a table: the mean of each metric over seeds, with its 95 % interval.

    Runs that differ only by their seed share one row. The best value is bold only if a paired test finds it
    different from the second best (p < 0.05). If both rows have the same 3 or more seeds, this is Student's
    test over seeds; otherwise it is McNemar's test or a bootstrap over the test rows. Runs that cannot be
    read are named and left out.
    """
    from shortlist.compare import compare_runs, compare_with_person, person_tables, tables

    if markdown + latex + as_csv + as_json > 1:
        raise ValueError("only one of --markdown, --latex, --csv and --json can be given")
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise ValueError(f"--metrics must name at least one, got {metrics!r}")
    use_one_thread()
    if person is not None:
        if metrics is not None or baseline is not None or over or as_csv:
            others = "--metrics, --baseline, --over and --csv"
            raise ValueError(f"--person has a table of its own: leave out {others}")
        beside = compare_with_person(runs, person, data=data)
        if as_json:
            print_json(person_tables.person_to_json(beside), indent=2)
        elif markdown or latex:
            write = person_tables.person_to_markdown if markdown else person_tables.person_to_latex
            typer.echo(write(beside))
        else:
            print_table(person_tables.person_to_rich(beside), person_tables.person_footnotes(beside))
        return
    if data is not None:
        raise ValueError(f"--data goes with --person, got {data} without it")
    comparison = compare_runs(runs, names, baseline=baseline, over=over or ())
    if as_json:
        print_json(tables.to_json(comparison), indent=2)
    elif as_csv:
        typer.echo(tables.to_csv(comparison), nl=False)
    elif markdown or latex:
        typer.echo(tables.to_markdown(comparison) if markdown else tables.to_latex(comparison))
    else:
        print_table(tables.to_rich(comparison), tables.footnotes(comparison))
