"""``shortlist predict``: make short lists of images, embeddings or saved scores."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shortlist._progress import progress_report
from shortlist.cli._console import replacing_words, warnings_as_lines
from shortlist.cli._options import AllowCode, OwnNetwork, argument, option

if TYPE_CHECKING:
    from shortlist.model import Choice, Counts, Form, Item, Model, ShortList


_NO_NUMBERS = "its scores are not numbers"
_ON_CPU, _USUAL = 32, 256  # items scored at a time: of images on a CPU few, whose features fit the caches


def predict(
    model: Annotated[Path, argument("Folder of a saved model, or a run folder.")],
    inputs: Annotated[
        list[Path],
        argument(
            "Images, folders of images, lists of images (.csv or .parquet with a column 'path'), "
            "embeddings (.npy, or .npz, .safetensors or .pt with an array 'embeddings'), or saved scores "
            "(an array 'scores')."
        ),
    ],
    out: Annotated[
        Path | None,
        option(
            "File to write (.csv, .jsonl or .parquet), or - to write CSV to a pipe. An existing "
            "file is replaced. Without this option, the lists are printed in a form for people.",
            "--out",
            "-o",
        ),
    ] = None,
    predictor: Annotated[
        str | None,
        option(
            "Name of one of the model's predictors. The default is the first one that promises "
            "something about the true class, such as conformal, or else the first one."
        ),
    ] = None,
    coverage: Annotated[float | None, option("Share of lists that shall hold the true class.")] = None,
    average: Annotated[float | None, option("Number of classes in a list on average.")] = None,
    place: Annotated[
        Path | None,
        option(
            "Classes that occur where the photos were taken: a CSV (id or name, and a weight), a Darwin "
            "Core table or a species list of GBIF. The promise is then about this place."
        ),
    ] = None,
    group: Annotated[
        str | None,
        option(
            "What the photos show, if the calibration rows have it, such as organ=leaf.",
            metavar="COLUMN=VALUE",
        ),
    ] = None,
    at_most: Annotated[int | None, option("Largest number of classes in a set.")] = None,
    macro: Annotated[bool, option("Let rare classes count as much.", "--macro")] = False,
    top: Annotated[
        int | None,
        option(
            "List at least this many classes for each item, even if they are not in the set. The "
            "default is 5 in files, and 1 on the screen."
        ),
    ] = None,
    lang: Annotated[
        str | None,
        option("Also write the common name of each class in this language, such as fr, if the model has it."),
    ] = None,
    batch_size: Annotated[
        int | None,
        option("Number of items scored at a time. The default is 32 images on a CPU, otherwise 256."),
    ] = None,
    path_column: Annotated[str, option("Column of a list that has the paths.")] = "path",
    network: OwnNetwork = None,
    allow_code: AllowCode = False,
    as_json: Annotated[
        bool, option("Write JSON lines to a pipe, one for each item, for scripts.", "--json")
    ] = False,
    verbose: Annotated[
        bool,
        option(
            "Say all about the promise of the lists, and which other predictors there are.", "--verbose", "-v"
        ),
    ] = False,
) -> None:
    """Make the short list of each item: classes with names, probabilities, and whether they are in the set.

    The columns of a file are item, rank (from 1), class (index), id, name, probability and in_set,
    common_name with --lang, and novel if the model has a detector of strangers. An item that cannot be read,
    or whose scores are not numbers, has one line with empty columns (in JSON lines: its item and an error),
    is named on stderr with the reason, and makes the exit code 1.

    Loading a model never runs code that the model names. If the network is your own code, name the function
    that makes it with --network.
    """
    from shortlist._memory import keep_memory
    from shortlist.model import Choice, Model
    from shortlist.place import Place

    piped = out == Path("-")
    if as_json and out is not None and not piped:
        raise ValueError(f"--json writes to a pipe: leave --out out, got {out}")
    to_file = None if piped else out
    where = "" if to_file is None else f": {to_file}{replacing_words(to_file)}"
    keep_memory()
    # lists that are printed as they come are progress enough
    with nullcontext(None) if to_file is None else progress_report() as report, warnings_as_lines():
        loaded = Model.load(model, network=network)
        there = None if place is None else Place.from_file(place)
        sizes = {"coverage": coverage, "average": average, "at_most": at_most}
        choice = Choice(predictor, macro=macro, place=there, group=_group(group), **sizes)
        counts = predict_files(
            loaded,
            inputs,
            to_file,
            form="jsonl" if as_json else "csv" if piped else "text",
            choice=choice,
            top=top,
            lang=lang,
            batch_size=batch_size,
            path_column=path_column,
            progress=None if report is None else partial(report, "predicting"),
        )
    for_people = not piped and not as_json
    if to_file is None and for_people:
        typer.echo("")
    unreadable = f"; {counts.unreadable} could not be read" if counts.unreadable else ""
    items = f"{counts.items} item{'' if counts.items == 1 else 's'}"
    strangers = "" if loaded.novelty is None else f"; {counts.novel} flagged as strangers"
    words = f"{items}, {counts.average_size:.2f} classes in a set on average{strangers}{unreadable}{where}"
    for line in [words, *_words_of_place(choice, loaded), *_words_of_sets(loaded, choice, verbose)]:
        typer.echo(line, err=not for_people)
    if counts.unreadable:
        _name_unreadable(counts)
        raise typer.Exit(1)


def _group(given: str | None) -> tuple[str, str] | None:
    """Return the column and the value of COLUMN=VALUE."""
    if given is None:
        return None
    column, equals, value = given.partition("=")
    if not (column and equals and value):
        raise ValueError(f"--group must be COLUMN=VALUE, such as organ=leaf, got {given!r}")
    return column, value


def _words_of_place(choice: "Choice", model: "Model") -> list[str]:
    """Say which names of a place are no class of the model."""
    if choice.place is None or not (unknown := choice.place.match(model.classes).unknown):
        return []
    from shortlist._messages import counted, examples

    return [f"{counted(len(unknown), 'name')} of the place without a class of the model: {examples(unknown)}"]


def _words_of_sets(model: "Model", asked: "Choice", verbose: bool) -> list[str]:
    """Say in a sentence what the lists promise; or all of it, and why their predictor was chosen."""
    from shortlist.sentences import not_about_words, novelty_words, promise_in_short, promise_words

    choice, promise = model.resolve(asked)
    name = choice.predictor or ", ".join(choice.makers)
    words = (promise_words if verbose else promise_in_short)(promise)
    lines = [f"{name}: {' '.join([words, *not_about_words(promise)])}{'' if verbose else ' (-v says more)'}"]
    if not verbose:
        return lines
    others = [other for other in model.predictors if other != name]
    if not asked.makers and others:
        why = (
            "it is the first one, and no predictor has a useful promise about the true class"
            if promise.level is None or promise.has_too_few_rows
            else "it is the first one that promises something about the true class"
        )
        lines.append(f"{name} was used: {why}. The others (--predictor NAME): {', '.join(others)}.")
    return lines if model.novelty is None else [*lines, f"strangers: {novelty_words(model.novelty)}"]


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
    choice: "Choice | str | None" = None,
    top: int | None = None,
    lang: str | None = None,
    batch_size: int | None = None,
    path_column: str = "path",
    progress: Callable[[int, int], None] | None = None,
) -> "Counts":
    """Find the inputs, have the model list their classes, and write the lists; see :func:`predict`.

    Without ``out`` they are written to stdout, in the given form.
    """
    from shortlist._checks import check_count
    from shortlist.model import COLUMNS, COMMON_NAME, NODE_COLUMNS, NOVEL, check_suffix, open_lists
    from shortlist.sentences import promise_numbers

    if top is not None:
        check_count("top", top)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if out is not None:
        check_suffix(out)
        if out.resolve() in [path.resolve() for path in inputs]:
            raise ValueError(f"--out must not be one of the inputs, got {out}")
    if not model.predictors:
        raise ValueError("the model has no calibrated predictors: see shortlist calibrate")
    at_least = (1 if out is None and form == "text" else 5) if top is None else top
    chosen, promise = model.resolve(choice)
    lists = _listed(model, inputs, chosen, at_least, batch_size, path_column)
    columns = COLUMNS + COMMON_NAME * (lang is not None) + NOVEL * (model.novelty is not None)
    columns += NODE_COLUMNS * (
        chosen.predictor in model.predictors and model.predictors[chosen.predictor].takes_taxonomy
    )
    numbers = {"predictor": chosen.predictor, **promise_numbers(promise)}
    done = 0
    common = None if lang is None else _common_names(model, lang)
    with open_lists(sys.stdout if out is None else out, form, columns=columns, promise=numbers) as writer:
        for items, total in lists:
            writer.add(items if common is None else [_with_names(item, common) for item in items])
            done += len(items)
            if progress is not None:
                progress(done, total)
        return writer.counts()


def _listed(
    model: "Model",
    inputs: Sequence[Path],
    choice: "Choice",
    top: int,
    batch_size: int | None,
    path_column: str,
) -> "Iterator[tuple[Sequence[Item], int]]":
    """Yield items with their lists, or why they have none, and the number of all, batch by batch."""
    import torch

    from shortlist.datasets import are_arrays, saved_rows
    from shortlist.inputs import image_files
    from shortlist.model import loaded_blocks

    model.to("cuda" if torch.cuda.is_available() else "cpu")
    if are_arrays(inputs):
        shape = None if model.spec is None else model.spec.input_shape
        batches = saved_rows(inputs, head=model.head, input_shape=shape, batch_size=batch_size or _USUAL)
        for names, rows, are_scores, total in batches:
            finite = rows.isfinite().flatten(1).all(1).tolist()
            reasons = [_NO_NUMBERS if is_finite else "it holds NaN or infinity" for is_finite in finite]
            scored = (model.score_map(rows.to(model.device)), None) if are_scores else model.scored(rows)
            lists = model.lists(scored[0], choice, features=scored[1], at_least=top)
            pairs = zip(names, lists, reasons, strict=True)
            yield [_item(name, listed, reason) for name, listed, reason in pairs], total
        return
    files = image_files(inputs, path_column)
    if model.preprocessing is None:
        raise ValueError("the model was not trained on images: give embeddings (.npy, .npz) or saved scores")
    rule, size = model.preprocessing, batch_size or (_ON_CPU if model.device.type == "cpu" else _USUAL)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoders let other threads run
        for block in loaded_blocks(
            lambda row: rule.bytes_of_file(files[row]), len(files), pool, size, rule.normalized
        ):
            made: dict[int, ShortList | None] = {}
            if block.inputs is not None:
                scores, features = model.scored(block.inputs)
                lists = model.lists(scores, choice, features=features, at_least=top)
                made = dict(zip(block.rows, lists, strict=True))
            rows = sorted({*block.rows, *block.errors})
            yield [_item(files[row], made.get(row), block.errors.get(row)) for row in rows], len(files)


def _common_names(model: "Model", lang: str) -> Sequence[Sequence[str]]:
    """Return the common names of each class in a language that the model must have."""
    from shortlist._languages import best_language

    classes = model.classes
    if best_language(lang, classes.common_names) is None:
        languages = ", ".join(classes.common_names) or "none"
        raise ValueError(f"--lang must be a language of the model's common names ({languages}), got {lang!r}")
    return classes.common_names_in(lang)


def _with_names(item: "Item", common: Sequence[Sequence[str]]) -> "Item":
    if isinstance(item.candidates, str):
        return item
    return replace(item, common_names=[common[candidate.index] for candidate in item.candidates])


def _item(name: str, listed: "ShortList | None", reason: str | None) -> "Item":
    from shortlist.model import Item

    if listed is None:
        return Item(name, reason or _NO_NUMBERS)
    return Item(name, listed.candidates, None if listed.novelty is None else listed.novelty.novel)
