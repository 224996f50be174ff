"""``shortlist papers``: the publications' tables, suites and figures."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist._progress import progress_report
from shortlist.cli._console import print_table
from shortlist.cli._options import (
    AllowCode,
    AsCsv,
    AsHtml,
    AsLatex,
    AsMarkdown,
    argument,
    chosen_form,
    option,
)

papers_app = typer.Typer(help="List the publications' tables, suites and figures, and measure the figures.")


@papers_app.callback(invoke_without_command=True)
def papers(context: typer.Context) -> None:
    """List the published tables, the suites and recipes that make their runs, and the figures."""
    if context.invoked_subcommand is not None:
        return
    from shortlist.papers import FIGURES, list_tables, recipes

    typer.echo("Tables: shortlist papers table NAME [RUNS...]")
    document = ""
    for layout in list_tables():
        if layout.document != document:
            document = layout.document
            typer.echo(f"  {layout.source}")
        suites = [f"papers:{name}" for name in layout.suites]
        made = f" (shortlist suite run {', '.join(suites)})" if suites else ""
        typer.echo(f"    {layout.name}: {layout.caption}{made}")
    typer.echo("Recipes: shortlist train papers:NAME [--variant VARIANT]")
    typer.echo("".join(f"  {name}\n" for name in recipes()), nl=False)
    typer.echo("Figures: shortlist papers figure NAME")
    typer.echo("".join(f"  {name}: {about}\n" for name, about in FIGURES.items()), nl=False)


@papers_app.command()
def table(
    name: Annotated[str, argument("Name of the table in 'shortlist papers', such as garcin2022:5.")],
    runs: Annotated[
        list[Path] | None,
        argument(
            "Run folders, suite folders, or any folders with runs: put into the cells that they fit, and "
            "in rows of their own where the publication does not have the method."
        ),
    ] = None,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
    as_csv: AsCsv = False,
    html: AsHtml = False,
    allow_code: AllowCode = False,
) -> None:
    """Print a table of a publication in its own layout: published, and with RUNS ours and the difference.

    For example: shortlist papers table garcin2022:4; shortlist papers table garcin2022:4
    runs/garcin2022_label_noise --latex.
    """
    from shortlist._sheets import to_rich, write_sheets
    from shortlist.papers import fill_layout, load_layout, table_sheet
    from shortlist.runs import group_runs, read_runs

    form = chosen_form(markdown=markdown, latex=latex, csv=as_csv, html=html)
    layout = load_layout(name)
    filled = None
    if runs:
        read, left_out = read_runs(runs)
        if not read:
            raise ValueError(f"RUNS must hold at least one finished run, got {'; '.join(left_out.values())}")
        groups, others = group_runs(read)
        filled = fill_layout(layout, groups, left_out | others)
    sheet = table_sheet(layout, filled)
    if form is None:
        print_table(to_rich(sheet), sheet.notes)
    else:
        typer.echo(write_sheets([sheet], form))


@papers_app.command()
def ask(
    run: Annotated[Path, argument("Run folder, about whose test photos and classes a person is asked.")],
    of: Annotated[
        list[str], option("Group of classes, such as a genus. All its classes are asked. May be repeated.")
    ],
    out: Annotated[Path, option("Page to write (.html).", "--out", "-o")] = Path("ask.html"),
    level: Annotated[str, option("Level of the groups.")] = "genus",
    per_class: Annotated[int, option("Largest number of photos of a class.")] = 5,
    seed: Annotated[int, option("Seed of the choice and of the order.")] = 0,
    data: Annotated[Path | None, option("Where the data of the run lie now, if they were moved.")] = None,
    lang: Annotated[str, option("Language of the page: en, fr, de, es, pt or it.")] = "en",
) -> None:
    """Draw a small set of test photos, and write a page that collects which classes a person names for each.

    The page is one file, which works without a server. It saves answers.csv for 'shortlist compare RUNS...
    --person answers.csv'. For example: shortlist papers ask runs/birds --of Parus --of Poecile.
    """
    from shortlist.compare import write_ask_page
    from shortlist.sentences import LANGUAGES

    if out.suffix != ".html":
        raise ValueError(f"--out must end in .html, got {out}")
    if lang not in LANGUAGES:
        raise ValueError(f"--lang must be one of {', '.join(LANGUAGES)}, got {lang!r}")
    options = {"level": level, "per_class": per_class, "seed": seed, "data": data, "language": lang}
    number = write_ask_page(run, of, out, **options)
    typer.echo(f"{out}, {number} photos; then: shortlist compare {run} --person answers.csv")


@papers_app.command()
def page() -> None:
    """Print every published number as a page in Markdown, with the command that makes ours."""
    from shortlist.papers import published_page

    typer.echo(published_page(), nl=False)


@papers_app.command()
def figure(
    name: Annotated[
        str | None, argument("Name of the figure. Without a name, all figures are listed with their options.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        argument("For figures made from runs: run folders, suite folders, or any folders with runs."),
    ] = None,
    out: Annotated[
        Path | None, option("Drawing to write (.svg, .pdf or .png); NAME.svg by default.", "--out", "-o")
    ] = None,
    option: Annotated[
        list[str] | None,
        option("Change an option of the figure, as in k=2. May be repeated.", "--set", metavar="KEY=VALUE"),
    ] = None,
    numbers: Annotated[
        Path | None, option("Draw the numbers in this .json file of an earlier call, and measure nothing.")
    ] = None,
    as_json: Annotated[bool, option("Print the numbers as JSON, for scripts.", "--json")] = False,
) -> None:
    """Measure and draw a figure of the papers, and write its numbers beside it as .json.

    For example: shortlist papers figure level_sets -o level_sets.svg; shortlist papers figure class_size
    runs/long_tail.
    """
    from shortlist._store.files import check_place
    from shortlist._store.json import read_json, strict_json
    from shortlist.papers import load_figure
    from shortlist.recipes import read_setting

    if name is None:
        _list_figures()
        return
    chosen = load_figure(name)
    out = out or Path(f"{name}.svg")
    if out.suffix not in (".svg", ".pdf", ".png"):
        raise ValueError(f"--out must end in .svg, .pdf or .png, got {out}")
    if runs and not chosen.takes_runs:
        raise ValueError(f"{name} is not made from runs, got {runs[0]}")
    if chosen.takes_runs and not runs and numbers is None:
        raise ValueError(f"{name} is made from runs: name at least one run folder")
    options = dict(read_setting(setting, example="k=2") for setting in option or [])
    chosen.check_options(options)
    if numbers is not None:
        if runs or options:
            raise ValueError("--numbers draws what was measured: no runs and no --set")
        measured = read_json(numbers)
    else:
        check_place(out)
        measured = _measure(chosen, runs, options)
    beside = _write(chosen, name, measured, out, numbers)
    typer.echo(strict_json(measured) if as_json else f"{out}, numbers in {beside}")


def _write(figure: Any, name: str, measured: dict[str, Any], out: Path, numbers: Path | None) -> Path:
    """Write a drawing and its numbers, and name the runs that are not in them."""
    from shortlist.papers import write_figure

    try:
        beside = write_figure(figure, measured, out)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        if numbers is None:
            raise
        raise ValueError(f"--numbers must be those of {name}, got {numbers}: {error!r}") from error
    for path, reason in measured.get("left_out", {}).items():
        typer.echo(f"shortlist: left out {reason if path in reason else f'{path}: {reason}'}", err=True)
    return beside


def _list_figures() -> None:
    from shortlist.papers import FIGURES, load_figure

    for name, about in FIGURES.items():
        figure = load_figure(name)
        words = ["RUNS..."] if figure.takes_runs else []
        words += [f"{key}={_shown(value)}" for key, value in figure.options().items()]
        typer.echo(f"{name}: {about}\n    {' '.join(words)}")


def _shown(value: Any) -> str:
    return "null" if value is None else json.dumps(list(value) if isinstance(value, tuple) else value)


def _measure(figure: Any, runs: list[Path] | None, options: dict[str, Any]) -> dict[str, Any]:
    import torch

    from shortlist.runs import find_runs

    torch.set_num_threads(1)  # the tensors are small: threads would mostly wait for each other
    if runs:
        options = options | {"runs": [folder for run in runs for folder in find_runs(run)]}
    with progress_report() as progress:
        return figure.measure(**options, progress=progress)
