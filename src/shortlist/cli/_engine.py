"""Which engine runs a pass: the options of the verbs, and the function that they choose."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shortlist.engine.local import Engine

__all__ = ["Address", "EngineName", "Workers", "engine_of"]

EngineName = Annotated[
    str, typer.Option("--engine", help="What runs the work: local for this machine, or ray for Ray.")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: address of a running cluster; without it, Ray is started on this machine.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Number of workers, by default one for each core.", min=1, show_default=False),
]


def engine_of(name: str, address: str | None, device: str) -> "Engine":
    """Return the engine of this name; the actors of Ray have an accelerator each, if the device is one."""
    from shortlist._checks import check_choice
    from shortlist.engine.local import run_local

    check_choice("--engine", name, ("local", "ray"))
    if name == "local":
        if address is not None:
            raise ValueError("--address is for --engine ray")
        return run_local
    from shortlist.engine.on_ray import run_on_ray

    return partial(run_on_ray, address=address, gpus=0 if device == "cpu" else 1)
