"""``shortlist predict``: write short lists of images."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shortlist.model import Model
    from shortlist.runs.list_writers import Batch, Counts

__all__ = ["predict", "predict_files"]


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

    own = None
    if network is not None:
        look_here_for_code()
        own = network_by_name(model, network)
    with progress_report() as report, warnings_as_lines():
        loaded = Model.load(model, network=own)
        counts = predict_files(
            loaded,
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
    name = predictor or next(iter(loaded.predictors))
    typer.echo(f"{name}: {loaded.promises[name].words()}")


def predict_files(
    model: "Model",
    inputs: Sequence[Path],
    out: Path,
    *,
    predictor: str | None = None,
    top: int = 5,
    batch_size: int = 256,
    path_column: str = "path",
    progress: Callable[[int, int], None] | None = None,
) -> "Counts":
    """Find the inputs, have the model list their classes, and write the lists; see :func:`predict`."""
    from shortlist._checks import check_count
    from shortlist.runs.list_writers import check_suffix, write_lists

    check_count("top", top)
    check_count("batch_size", batch_size)
    check_suffix(out)
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"--out must not be one of the inputs, got {out}")
    if not model.predictors:
        raise ValueError("the model has no calibrated predictors: see shortlist calibrate")
    if predictor is not None and predictor not in model.predictors:
        raise ValueError(f"--predictor must be one of {', '.join(model.predictors)}, got {predictor!r}")
    lists = _listed(model, inputs, predictor, top, batch_size, path_column)
    chosen = next(iter(model.predictors)) if predictor is None else predictor
    with_nodes = model.predictors[chosen].takes_taxonomy
    promise = {"predictor": chosen, **model.promises[chosen].numbers()}
    return write_lists(out, lists, with_nodes=with_nodes, promise=promise, progress=progress)


def _listed(
    model: "Model", inputs: Sequence[Path], predictor: str | None, top: int, batch_size: int, path_column: str
) -> "Iterator[Batch]":
    """Yield names of items, the list of each, and the number of all items, batch by batch."""
    import torch

    from shortlist.datasets.inputs import are_saved_scores, image_files, saved_scores

    if are_saved_scores(inputs):
        for names, scores, total in saved_scores(inputs, head=model.head, batch_size=batch_size):
            yield names, model.lists_of_scores(model.score_map(scores), predictor, at_least=top), total
        return
    files = image_files(inputs, path_column)
    if model.preprocessing is None:
        raise ValueError("the model was not trained on images: give saved scores")
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    for start in range(0, len(files), batch_size):
        names = files[start : start + batch_size]
        yield names, model.readable_lists(names, predictor, at_least=top), len(files)
