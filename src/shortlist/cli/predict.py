"""``shortlist predict``: make short lists of images, embeddings or saved scores."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shortlist.model import Model
    from shortlist.runs.list_writers import Batch, Counts, Form

__all__ = ["predict", "predict_files"]

_NO_NUMBERS = "its scores are not numbers"


def predict(
    model: Annotated[
        Path, typer.Argument(help="Folder of a saved model, or a run folder.", show_default=False)
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Images, folders of images, lists of images (.csv or .parquet with a column 'path'), "
            "embeddings (.npy, or .npz, .safetensors or .pt with an array 'embeddings'), or saved scores "
            "(an array 'scores').",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write (.csv, .jsonl or .parquet), or - to write CSV to a pipe. An existing "
            "file is replaced. Without this option, the lists are printed in a form for people.",
            show_default=False,
        ),
    ] = None,
    predictor: Annotated[
        str | None,
        typer.Option(
            help="Name of one of the model's predictors. The default is the first one that promises "
            "something about the true class, such as conformal90, or else the first one.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="List at least this many classes for each item, even if they are not in the set. The "
            "default is 5 in files, and 0 on the screen.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Number of items that are scored at a time.")] = 256,
    path_column: Annotated[str, typer.Option(help="Column of a list that has the paths.")] = "path",
    network: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that makes the network. Needed if the network of the model is your own code.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines to a pipe, one for each item, for scripts.")
    ] = False,
) -> None:
    """Make the short list of each item: classes with names, probabilities, and whether they are in the set.

    The columns of a file are item, rank (from 1), class (index), id, name, probability and in_set. An item
    that cannot be read, or whose scores are not numbers, has one line with empty columns (in JSON lines: its
    item and an error), is named on stderr with the reason, and makes the exit code 1.

    Loading a model never runs code that the model names. If the network is your own code, name the function
    that makes it with --network.
    """
    from shortlist.cli._console import own_network, progress_report, replacing_words, warnings_as_lines
    from shortlist.model import Model

    piped = out == Path("-")
    if as_json and out is not None and not piped:
        raise ValueError(f"--json writes to a pipe: leave --out out, got {out}")
    to_file = None if piped else out
    where = "" if to_file is None else f": {to_file}{replacing_words(to_file)}"
    # lists that are printed as they come are progress enough
    with nullcontext(None) if to_file is None else progress_report() as report, warnings_as_lines():
        loaded = Model.load(model, network=own_network(model, network))
        counts = predict_files(
            loaded,
            inputs,
            to_file,
            form="jsonl" if as_json else "csv" if piped else "text",
            predictor=predictor,
            top=top,
            batch_size=batch_size,
            path_column=path_column,
            progress=None if report is None else lambda done, total: report("predicting", done, total, {}),
        )
    for_people = not piped and not as_json
    if to_file is None and for_people:
        typer.echo("")
    unreadable = f"; {counts.unreadable} could not be read" if counts.unreadable else ""
    items = f"{counts.items} item{'' if counts.items == 1 else 's'}"
    words = f"{items}, {counts.average_size:.2f} classes in a set on average{unreadable}{where}"
    typer.echo(words, err=not for_people)
    for line in _words_of_sets(loaded, predictor):
        typer.echo(line, err=not for_people)
    if counts.unreadable:
        _name_unreadable(counts)
        raise typer.Exit(1)


def _words_of_sets(model: "Model", predictor: str | None) -> list[str]:
    """Say what the lists promise, and if nobody named their predictor, which it is and why."""
    from shortlist.predictors import default_predictor

    name = default_predictor(model.promises) if predictor is None else predictor
    lines = [f"{name}: {model.promises[name].words()}"]
    others = [other for other in model.predictors if other != name]
    if predictor is None and others:
        why = (
            "it is the first one, and no predictor has a useful promise about the true class"
            if model.promises[name].level is None or model.promises[name].has_too_few_rows
            else "it is the first one that promises something about the true class"
        )
        lines.append(f"{name} was used: {why}. The others (--predictor NAME): {', '.join(others)}.")
    return lines


def _name_unreadable(counts: "Counts") -> None:
    """Say on stderr which items could not be read and why: the first of them, and how many more."""
    from shortlist._messages import one_line

    for words in counts.first_unreadable:
        typer.echo(f"shortlist: not read: {one_line(words)}", err=True)
    more = counts.unreadable - len(counts.first_unreadable)
    if more:
        typer.echo(f"shortlist: not read: and {more} more", err=True)


def predict_files(
    model: "Model",
    inputs: Sequence[Path],
    out: Path | None,
    *,
    form: "Form" = "text",
    predictor: str | None = None,
    top: int | None = None,
    batch_size: int = 256,
    path_column: str = "path",
    progress: Callable[[int, int], None] | None = None,
) -> "Counts":
    """Find the inputs, have the model list their classes, and write the lists; see :func:`predict`.

    Without ``out`` they are written to stdout, in the given form.
    """
    from shortlist._checks import check_count
    from shortlist.predictors import default_predictor
    from shortlist.runs.list_writers import check_suffix, print_lists, write_lists

    if top is not None:
        check_count("top", top)
    check_count("batch_size", batch_size)
    if out is not None:
        check_suffix(out)
        if out.resolve() in [path.resolve() for path in inputs]:
            raise ValueError(f"--out must not be one of the inputs, got {out}")
    if not model.predictors:
        raise ValueError("the model has no calibrated predictors: see shortlist calibrate")
    if predictor is not None and predictor not in model.predictors:
        raise ValueError(f"--predictor must be one of {', '.join(model.predictors)}, got {predictor!r}")
    at_least = (0 if out is None and form == "text" else 5) if top is None else top
    lists = _listed(model, inputs, predictor, at_least, batch_size, path_column)
    chosen = default_predictor(model.promises) if predictor is None else predictor
    with_nodes = model.predictors[chosen].takes_taxonomy
    promise = {"predictor": chosen, **model.promises[chosen].numbers()}
    if out is None:
        return print_lists(sys.stdout, lists, form, with_nodes=with_nodes, promise=promise)
    return write_lists(out, lists, with_nodes=with_nodes, promise=promise, progress=progress)


def _listed(
    model: "Model", inputs: Sequence[Path], predictor: str | None, top: int, batch_size: int, path_column: str
) -> "Iterator[Batch]":
    """Yield names of items, the list of each or why it has none, and the number of all, batch by batch."""
    import torch

    from shortlist.datasets.inputs import are_arrays, image_files, saved_rows
    from shortlist.model.images import inputs_or_reasons

    model.to("cuda" if torch.cuda.is_available() else "cpu")
    if are_arrays(inputs):
        shape = None if model.spec is None else model.spec.input_shape
        found = saved_rows(inputs, head=model.head, input_shape=shape, batch_size=batch_size)
        for names, rows, are_scores, total in found:
            scores = model.score_map(rows.to(model.device)) if are_scores else model.scores(rows)
            lists = model.lists_of_scores(scores, predictor, at_least=top)
            good = rows.isfinite().flatten(1).all(1).tolist()
            reasons = [_NO_NUMBERS if ok else "it holds NaN or infinity" for ok in good]
            yield (
                names,
                [why if found is None else found for found, why in zip(lists, reasons, strict=True)],
                total,
            )
        return
    files = image_files(inputs, path_column)
    if model.preprocessing is None:
        raise ValueError("the model was not trained on images: give embeddings (.npy, .npz) or saved scores")
    for start in range(0, len(files), batch_size):
        names = files[start : start + batch_size]
        prepared, reasons = inputs_or_reasons(names, model.preprocessing)
        lists = (
            model.lists_of_scores(model.scores(prepared), predictor, at_least=top) if len(prepared) else []
        )
        known = iter(_NO_NUMBERS if found is None else found for found in lists)
        yield names, [next(known) if why is None else why for why in reasons], len(files)
