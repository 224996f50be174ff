"""``shortlist suite``: run many recipes, choose settings on validation rows, test once."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from shortlist._messages import counted, one_line
from shortlist._store.json import strict_json
from shortlist.cli._console import print_next, print_table
from shortlist.cli._engine import Address, EngineName
from shortlist.cli._options import (
    AllowCode,
    AsCsv,
    AsHtml,
    AsJson,
    AsLatex,
    AsMarkdown,
    argument,
    chosen_form,
    look_here_for_code,
    option,
    published_file,
)

suite_app = typer.Typer(
    help="Run many recipes (losses, grids, seeds), choose settings on validation rows, test once.",
    no_args_is_help=True,
)

File = Annotated[
    Path,
    argument("Suite file (YAML), or papers:NAME for one of 'shortlist papers'.", callback=published_file),
]
Out = Annotated[
    Path, option("Folder for the runs. They go to OUT/NAME, where NAME is the name of the suite.")
]
Set = Annotated[
    list[str] | None, option("Change a key of every run: --set data.root=DIR. Can be repeated.", "--set")
]


@suite_app.command()
def init(
    recipe: Annotated[
        Path, argument("Recipe file (YAML), or papers:NAME; its loss is left out.", callback=published_file)
    ],
    losses: Annotated[
        str, option("Losses to compare: all that fit the recipe, or names with commas.")
    ] = "all",
    mine: Annotated[
        list[str] | None,
        option(
            "A loss of your own, also from the current folder. It is imported now. Can be repeated.",
            "--mine",
            metavar="MODULE:CLASS",
            callback=look_here_for_code,
        ),
    ] = None,
    k: Annotated[
        int | None, option("Length of the lists.", "--k", show_default="of selection.metric, or 5")
    ] = None,
    out: Annotated[Path, option("Suite to write. It must not exist yet.", "--out", "-o")] = Path(
        "suite.yaml"
    ),
) -> None:
    """Write the suite that compares losses on the data and the network of a recipe.

    Each loss has the grid that it declares as worth a search; a class of your own may have an attribute grid.
    Grid points are chosen on validation rows, with two seeds, and each chosen point has five seeds.
    """
    import yaml

    from shortlist._store.files import write_text
    from shortlist._store.yaml import read_mapping
    from shortlist.suites import starter_suite

    if out.exists():
        raise ValueError(f"--out must not exist yet, got {out}")
    named = None if losses == "all" else [name.strip() for name in losses.split(",") if name.strip()]
    name = re.sub(r"[^\w\-]+", "_", out.stem).strip("_") or "suite"
    starter = starter_suite(read_mapping(recipe), name=name, losses=named, mine=mine or (), k=k)
    code = " --allow-code" if starter.names_code else ""
    command = f"shortlist suite run {quote(str(out))} --jobs 2{code}"
    text = yaml.safe_dump(starter.content, sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(out, f"# {command}\n{text}")
    for loss, reason in starter.left_out.items():
        typer.echo(one_line(f"left out: {loss}: {reason}"), err=True)
    methods = counted(len(starter.content["methods"]), "method")
    typer.echo(f"{out}: {methods}, {counted(starter.trainings, 'training')}. Next: {command}")


@suite_app.command()
def run(
    file: File,
    override: Set = None,
    out: Out = Path("runs"),
    jobs: Annotated[
        int, option("Number of runs at the same time, each with its GPU and its share of the cores.")
    ] = 1,
    part: Annotated[
        str | None,
        option("Make only part i of n, as in 1/4. Parts need nothing of each other.", metavar="I/N"),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    gpus: Annotated[float, option("With --engine ray: GPUs of each run.", min=0)] = 0,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Run all unfinished runs of a suite and print its table.

    Finished runs are never repeated, and started runs continue from their last epoch. So after any
    interruption, run the same command again. It may also be given several times at once, on several machines
    that share the folder: each makes runs that nobody else has. The folder OUT/NAME gets results.csv and
    results.parquet (one line for each run that counts) and tuning.csv (every grid point with its validation
    metric). The exit code is 1 if a run failed, or if no grid point of a method has the metric to choose by.
    """
    from shortlist.suites import load_suite, run_suite

    suite = load_suite(file, override or [])
    with _watching(suite.name) as watch:
        state = run_suite(
            suite,
            out,
            jobs=jobs,
            watch=watch,
            allow_code=allow_code,
            part=None if part is None else _part(part),
            engine=engine,
            address=address,
            gpus=gpus,
        )
    _print_suite(state, as_json)
    if not as_json:
        print_next("report", state.folder)
    raise typer.Exit(1 if state.failed or state.undecided else 0)


def _part(text: str) -> tuple[int, int]:
    """Read a part such as 1/4."""
    number, slash, parts = text.partition("/")
    if not (slash and number.isdecimal() and parts.isdecimal()):
        raise ValueError(f"--part must be I/N, as in 1/4, got {text!r}")
    return int(number), int(parts)


@suite_app.command()
def status(
    file: File,
    override: Set = None,
    out: Out = Path("runs"),
    allow_code: AllowCode = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
    as_csv: AsCsv = False,
    html: AsHtml = False,
    as_json: AsJson = False,
) -> None:
    """Show what is finished, what runs where, what it costs, which grid points are chosen, and the table."""
    from shortlist.suites import SuiteState, last_seen_from, load_suite

    suite = load_suite(file, override or [])
    form = chosen_form(markdown=markdown, latex=latex, csv=as_csv, html=html, json=as_json)
    folder = out.absolute() / suite.name
    state = SuiteState(suite, folder, seen_from=last_seen_from(folder) or ".")
    state.note_failures()
    _print_suite(state, as_json, form, now=True)


@contextmanager
def _watching(name: str) -> Iterator[Any]:
    """Print a line for each run that ends, and show a progress bar if stderr is a terminal."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task(name, total=1.0, left="")
    seen: set[str] = set()

    def watch(progress: Any) -> None:
        seconds = None if progress.done == progress.total else progress.seconds_left
        left = "" if seconds is None else f", about {_duration(seconds)} left"
        count = f"{progress.done}/{progress.total} runs"
        bar.start()  # at the first call: its thread starts after the workers' processes
        bar.update(task, completed=progress.share, left=f"{count}{left}")
        event = progress.event
        if event is None:
            return
        ending = f"FAILED: {event.failure}" if event.failure else _duration(event.seconds)
        console.print(f"{count}{left}: {event.name}: {ending}", markup=False)
        for warning in [line for line in event.warnings if line not in seen]:
            seen.add(warning)
            console.print(f"warning: {event.name}: {warning}", markup=False)

    try:
        yield watch
    finally:
        bar.stop()


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _cost_lines(current: Any, cost: Any) -> list[str]:
    """Say what runs where, what the suite has cost and when it will end."""
    lines = []
    for run in current:
        where = f"{run.host} (process {run.process}{f', GPU {run.gpu}' if run.gpu else ''})"
        what = "stopped" if run.stopped else f"{100 * run.share:.0f} % after {_duration(run.seconds)}"
        lines.append(f"now: {run.run} on {where}: {what}")
    if cost is not None and cost.spent:
        left = "" if cost.left is None else f", about {_duration(cost.left)} of work left"
        end = datetime.now() + timedelta(seconds=cost.until_end or 0)
        until = "" if cost.until_end is None else f", until {end:%Y-%m-%d %H:%M}"
        lines.append(f"time of all runs: {_duration(cost.spent)}{left}{until}")
    return lines


def _details(state: Any, comparisons: Any) -> dict[str, Any]:
    """Return what JSON says beside the counts: what is wrong, what was chosen, the tables."""
    from shortlist.compare import tables as compare_tables
    from shortlist.suites import tuning_rows

    tables = [
        {"axes": dict(zip(state.suite.vary, place, strict=True)), **compare_tables.to_json(comparison)}
        for place, comparison in comparisons.items()
    ]
    wrong = {"failed": sorted(state.failed), "unreadable": state.unreadable, "undecided": state.undecided}
    return wrong | {"tuning": tuning_rows(state), "tables": tables}


def _print_suite(state: Any, as_json: bool, form: str | None = None, *, now: bool = False) -> None:
    from shortlist.compare import tables as compare_tables
    from shortlist.suites import compare_suite, cost_of, current_runs, tuning_rows

    counts = state.count()
    total, done = (sum(of_kind.values()) for of_kind in counts)
    current = current_runs(state) if now else []
    cost = cost_of(state, current) if now else None
    comparisons = compare_suite(state)
    axes = list(state.suite.vary)
    if as_json:
        content = {"suite": state.suite.name, "folder": str(state.folder), "runs": total, "finished": done}
        content |= {"trainings": counts[0]["trained"], "trained": counts[1]["trained"]}
        if cost is not None:
            content |= {"current": [asdict(run) for run in current], "cost": asdict(cost)}
        typer.echo(strict_json(content | _details(state, comparisons), indent=2))
        return
    chosen = [row for row in tuning_rows(state) if row["chosen"]]
    lines = [f"{state.suite.name}: {done} of {total} runs finished, in {state.folder}"]
    others = "; other runs are made of these" if counts[0]["of others"] else ""
    lines.append(f"trainings: {counts[1]['trained']} of {counts[0]['trained']}{others}")
    lines += _cost_lines(current, cost)
    for row in chosen:
        place = " ".join(f"{axis}={row[axis]}" for axis in axes)
        lines.append(f"chosen: {place} {row['method']}: {row['grid_point']}".replace("  ", " "))
    titled = {
        ", ".join(f"{axis} {label}" for axis, label in zip(axes, place, strict=True)): comparison
        for place, comparison in comparisons.items()
    }
    if form in (None, "markdown"):  # in the other forms, a table alone
        typer.echo("\n".join(lines if form is None else [f"- {line}" for line in lines]) + "\n" * bool(form))
    if form is not None:
        typer.echo(compare_tables.comparisons_text(titled, form))
    else:
        for title, comparison in titled.items():
            table = compare_tables.rich_comparison(comparison, title=title)
            print_table(table, compare_tables.footnotes(comparison))
    for name in sorted(state.failed):
        typer.echo(f"failed: {name}", err=True)
    for reason in (*state.unreadable.values(), *state.undecided.values()):
        typer.echo(f"left out: {reason}", err=True)
