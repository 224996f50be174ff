"""``shortlist predict``."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["predict"]


def predict(
    model: Annotated[
        Path, typer.Argument(help="A folder with a saved model, or a run folder.", show_default=False)
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Images, folders of images, lists (.csv, .parquet with a column 'path') or saved scores "
            "(.safetensors, .npz, .pt).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to: .csv, .jsonl or .parquet.", show_default=False)
    ],
    predictor: Annotated[
        str | None, typer.Option(help="Which of the model's predictors; the first one by default.")
    ] = None,
    top: Annotated[
        int, typer.Option(help="Show at least so many classes of each item, in the set or not.")
    ] = 5,
    batch_size: Annotated[int, typer.Option(help="Items at a time.")] = 256,
    path_column: Annotated[str, typer.Option(help="Column of a list that holds the paths.")] = "path",
    network: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that makes the network, for a model whose network is your own code.",
        ),
    ] = None,
) -> None:
    """Write the short list of each image: classes, names, probabilities, and whether each is in the set.

    Opening a model never runs code that it names: a network of your own must be named with --network.
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
