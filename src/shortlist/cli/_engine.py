"""Which engine runs a pass: the options of the verbs, and the function that they choose."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from shortlist._progress import Progress, progress_report
from shortlist.cli._console import print_json, print_next, warnings_as_lines
from shortlist.cli._options import option

if TYPE_CHECKING:
    from shortlist.passes import Engine


T = TypeVar("T")

EngineName = Annotated[str, option("What runs the work: local for this machine, or ray for Ray.", "--engine")]
Address = Annotated[
    str | None,
    option("With --engine ray: address of a running cluster; without it, Ray is started on this machine."),
]
Workers = Annotated[int | None, option("Number of workers, by default one for each core.", min=1)]

Device = Annotated[str, option("Device of the network, such as cpu or cuda.")]


def run_pass(function: Callable[[Progress], T]) -> T:
    """Call a function with one that shows its progress."""
    from shortlist._memory import keep_memory

    keep_memory()
    with progress_report() as report, warnings_as_lines():
        return function(report)


def print_counts(
    name: str,
    out: Path,
    counts: Mapping[str, Any],
    words: Sequence[str],
    as_json: bool,
    *,
    then: Sequence[object],
) -> None:
    """Print what a pass gave: its counts in JSON, or some words about them and the next command."""
    if as_json:
        print_json({name: str(out), **counts})
    else:
        typer.echo(f"{out}: {', '.join(words)}")
        print_next(*then)


def engine_of(name: str, address: str | None, device: str) -> "Engine":
    """Return the engine of this name; the actors of Ray have an accelerator each, if the device is one."""
    from shortlist._bounds import check_choice
    from shortlist.passes import run_local

    check_choice("--engine", name, ("local", "ray"))
    if name == "local":
        if address is not None:
            raise ValueError("--address is for --engine ray")
        return run_local
    from shortlist.passes import run_on_ray

    return partial(run_on_ray, address=address, gpus=0 if device == "cpu" else 1)
