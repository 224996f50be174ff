"""``shortlist join``: from a head on features to a model that takes photos."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist.cli.train import DataPlace, OwnNetwork

__all__ = ["join"]


def join(
    run: Annotated[
        Path, typer.Argument(help="Run on features that shortlist embed computed.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder of the model to make. It must not exist yet.", show_default=False
        ),
    ],
    data: DataPlace = None,
    network: OwnNetwork = None,
    allow_code: Annotated[
        bool,
        typer.Option(
            "--allow-code", help="Run the function that made the features, also from the current folder."
        ),
    ] = False,
) -> None:
    """Join a run on features with the network that computed them: a model that takes photos.

    The model has the classes, predictors and promises of the run. It is a folder for shortlist predict, index
    and serve. The run must have a linear model (model: {name: linear}).
    """
    from shortlist.cli._console import look_here_for_code, warnings_as_lines
    from shortlist.engine.join import join_head

    if out.exists():
        raise ValueError(f"--out must not exist yet, got {out}")
    if allow_code or network is not None:
        look_here_for_code()
    with warnings_as_lines():
        model = join_head(run, data=data, network=network, allow_code=allow_code)
        model.save(out)
    typer.echo(f"{out}: {model!r}")
    own = "" if model.spec is not None else " --network MODULE:FUNCTION"
    typer.echo(f"It takes photos. Next: shortlist predict {out} photo.jpg{own}")
