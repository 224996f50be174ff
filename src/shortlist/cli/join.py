"""``shortlist join``: from a head on features to a model that takes photos."""

from pathlib import Path
from typing import Annotated

import typer

from shortlist.cli._console import print_line, print_next, working
from shortlist.cli._options import AllowCode, DataPlace, OwnNetwork, argument, option


def join(
    run: Annotated[Path, argument("Run on features that shortlist embed computed.")],
    out: Annotated[Path, option("Folder of the model to make. It must not exist yet.", "--out", "-o")],
    data: DataPlace = None,
    network: OwnNetwork = None,
    allow_code: AllowCode = False,
) -> None:
    """Join a run on features with the network that computed them: a model that takes photos.

    The model has the classes, predictors and promises of the run. It is a folder for shortlist predict, index
    and serve. The run must have a linear model (model: {name: linear}).
    """
    from shortlist.passes import join_head
    from shortlist.runs import Run

    if out.exists():
        raise ValueError(f"--out must not exist yet, got {out}")
    with working():
        opened = Run.open(run)
        results = opened.results if opened.has_results() else None
        model = join_head(run, data=data, network=network, allow_code=allow_code)
        model.save(out, results=results)
    typer.echo(f"{out}: {model!r}")
    flag = ("--network", model.spec.name) if model.spec is not None and model.spec.runs_code else ()
    print_line("It takes photos.")
    print_next("predict", out, "photo.jpg", *flag)
