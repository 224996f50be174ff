"""``python -m papers``: the papers' own figures, from numbers measured here."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist._files import check_place
from shortlist._json import read_json, strict_json
from shortlist.cli import run_command

__all__ = ["app", "figures"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def figures(
    name: Annotated[
        str | None, typer.Argument(help="Name of the figure. Without a name, all figures are listed.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="For figures made from runs: run folders, suite folders, or any folders with runs."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Drawing to write (.svg, .pdf or .png); NAME.svg by default."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change an option of the figure, as in k=2. May be repeated."
        ),
    ] = None,
    numbers: Annotated[
        Path | None,
        typer.Option(help="Draw the numbers in this .json file of an earlier call, and measure nothing."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON, for scripts.")] = False,
) -> None:
    """Measure and draw a figure of the papers, and write its numbers beside it as .json.

    For example: python -m papers level_sets -o level_sets.svg; python -m papers class_size runs/long_tail.
    """
    from papers.figures import load_figure
    from shortlist.recipes.recipe import read_setting

    if name is None:
        _list_figures()
        return
    figure = load_figure(name)
    out = out or Path(f"{name}.svg")
    if out.suffix not in (".svg", ".pdf", ".png"):
        raise ValueError(f"--out must end in .svg, .pdf or .png, got {out}")
    if runs and not figure.takes_runs:
        raise ValueError(f"{name} is not made from runs, got {runs[0]}")
    if figure.takes_runs and not runs and numbers is None:
        raise ValueError(f"{name} is made from runs: name at least one run folder")
    options = dict(read_setting(setting, example="k=2") for setting in option or [])
    figure.check_options(options)
    if numbers is not None:
        if runs or options:
            raise ValueError("--numbers draws what was measured: no runs and no --set")
        found = read_json(numbers)
    else:
        check_place(out)
        found = _measure(figure, runs, options)
    beside = _write(figure, name, found, out, numbers)
    typer.echo(strict_json(found) if as_json else f"{out}, numbers in {beside}")


def _write(figure: Any, name: str, found: dict[str, Any], out: Path, numbers: Path | None) -> Path:
    """Write a drawing and its numbers, and name the runs that are not in them."""
    from papers.figures import write_figure

    try:
        beside = write_figure(figure, found, out)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        if numbers is None:
            raise
        raise ValueError(f"--numbers must be those of {name}, got {numbers}: {error!r}") from error
    for path, reason in found.get("left_out", {}).items():
        typer.echo(f"shortlist: left out {reason if path in reason else f'{path}: {reason}'}", err=True)
    return beside


def _list_figures() -> None:
    from papers.figures import FIGURES, load_figure

    for name, about in FIGURES.items():
        figure = load_figure(name)
        words = ["RUNS..."] if figure.takes_runs else []
        words += [f"{key}={_shown(value)}" for key, value in figure.options().items()]
        typer.echo(f"{name}: {about}\n    {' '.join(words)}")


def _shown(value: Any) -> str:
    return "null" if value is None else json.dumps(list(value) if isinstance(value, tuple) else value)


def _measure(figure: Any, runs: list[Path] | None, options: dict[str, Any]) -> dict[str, Any]:
    import torch

    from shortlist.cli._console import progress_report
    from shortlist.runs.groups import find_runs

    torch.set_num_threads(1)  # the tensors are small: threads would mostly wait for each other
    if runs:
        options = options | {"runs": [folder for run in runs for folder in find_runs(run)]}
    with progress_report() as progress:
        return figure.measure(**options, progress=lambda what, done, total: progress(what, done, total, {}))


if __name__ == "__main__":
    run_command(app)
