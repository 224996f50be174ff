"""``shortlist predict``: write short lists of images."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["predict"]


def predict(
    model: Annotated[
        Path, typer.Argument(help="Folder of a saved model, or a run folder.", show_default=False)
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Images, folders of images, lists of images (.csv or .parquet with a column 'path'), or "
            "saved scores (.safetensors, .npz or .pt).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="File to write (.csv, .jsonl or .parquet).", show_default=False),
    ],
    predictor: Annotated[
        str | None, typer.Option(help="Name of one of the model's predictors; the first one by default.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(help="Write at least this many classes for each item, even if they are not in the set."),
    ] = 5,
    batch_size: Annotated[int, typer.Option(help="Number of items that are scored at a time.")] = 256,
    path_column: Annotated[str, typer.Option(help="Column of a list that has the paths.")] = "path",
    network: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that makes the network. Needed if the network of the model is your own code.",
        ),
    ] = None,
) -> None:
    """Write the short list of each image: classes with names, probabilities, and whether they are in the set.

    Loading a model never runs code that the model names. If the network is your own code, name the function
    that makes it with --network.
    """
    from shortlist.cli._console import look_here_for_code, progress_report, warnings_as_lines
    from shortlist.model import Model, network_by_name
    from shortlist.runs.predict import predict_files

    own = None
    if network is not None:
        look_here_for_code()
        own = network_by_name(model, network)
    with progress_report() as report, warnings_as_lines():
        counts = predict_files(
            Model.load(model, network=own),
            inputs,
            out,
            predictor=predictor,
            top=top,
            batch_size=batch_size,
            path_column=path_column,
            progress=lambda done, total: report("predicting", done, total, {}),
        )
    unreadable = f"; {counts.unreadable} could not be read" if counts.unreadable else ""
    typer.echo(
        f"{counts.items} items, {counts.average_size:.2f} classes in a set on average{unreadable}: {out}"
    )
