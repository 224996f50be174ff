"""``shortlist compare``: a table of runs, with tests of their differences."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist.cli._console import print_json, print_next, print_table, use_one_thread, working
from shortlist.cli._options import (
    AllowCode,
    AsCsv,
    AsHtml,
    AsJson,
    AsLatex,
    AsMarkdown,
    argument,
    chosen_form,
    option,
)


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
    by: Annotated[
        list[str] | None,
        option(
            "Key of the recipe: a table for each of its values, and no ranking across them, as of "
            "data.label_noise. May be repeated.",
            metavar="KEY",
            show_default="the axes of a suite",
        ),
    ] = None,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
    as_csv: AsCsv = False,
    html: AsHtml = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a table: the mean of each metric over seeds, with its 95 % interval.

    Runs that differ only by their seed share one row. Runs of a suite with axes have a table for each value
    of an axis. The best value is bold only if a paired test finds it different from the second best
    (p < 0.05). If both rows have the same 3 or more seeds, this is Student's test over seeds; otherwise it is
    McNemar's test or a bootstrap over the test rows. Runs that cannot be read are named and left out.
    """
    from shortlist._sheets import to_rich, write_sheets
    from shortlist.compare import compare_each, compare_with_person, person_tables, tables

    form = chosen_form(markdown=markdown, latex=latex, csv=as_csv, html=html, json=as_json)
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise ValueError(f"--metrics must name at least one, got {metrics!r}")
    use_one_thread()
    if person is not None:
        if metrics is not None or baseline is not None or over or by:
            others = "--metrics, --baseline, --over and --by"
            raise ValueError(f"--person has a table of its own: leave out {others}")
        beside = compare_with_person(runs, person, data=data)
        sheet = person_tables.person_sheet(beside)
        if as_json:
            print_json(person_tables.person_to_json(beside), indent=2)
        elif form is not None:
            typer.echo(write_sheets([sheet], form))
        else:
            print_table(to_rich(sheet), sheet.notes)
        return
    if data is not None:
        raise ValueError(f"--data goes with --person, got {data} without it")
    with working(as_json=as_json or form is not None):
        comparisons = compare_each(runs, names, baseline=baseline, over=over or (), by=by)
    if as_json:
        print_json(tables.comparisons_to_json(comparisons), indent=2)
    elif form is not None:
        typer.echo(tables.comparisons_text(comparisons, form))
    else:
        for title, comparison in comparisons.items():
            print_table(tables.rich_comparison(comparison, title=title), tables.footnotes(comparison))
        print_next("report", *runs)
