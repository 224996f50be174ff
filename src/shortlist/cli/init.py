"""``shortlist init``: look at one's own data, and write a first recipe."""

import os
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from shortlist.cli._options import argument, option

if TYPE_CHECKING:
    from shortlist.recipes import Features, Found

_NETWORK = "timm:tf_efficientnet_lite0"  # small enough for a laptop; our results on photographs are with it


def init(
    data: Annotated[
        Path,
        argument(
            "Folder with one folder of images per class (with or without train, val and test), a list "
            "of images (.csv, .parquet or .txt), or a folder of embeddings (train.safetensors, .npz or .pt)."
        ),
    ],
    out: Annotated[
        Path | None, option("Recipe to write; NAME.yaml in this folder by default.", "--out", "-o")
    ] = None,
    features: Annotated[
        str | None,
        option(
            "Pretrained network whose features are trained on, as shortlist embed takes it; none for a "
            f"small network from nothing. By default {_NETWORK} where timm is installed."
        ),
    ] = None,
) -> None:
    """Look at your own data, say what is found, and write the recipe that we would start with, and why.

    The recipe has comments. Read it, change what you like, and follow the commands that are printed.
    """
    from shortlist._store.files import write_text
    from shortlist.recipes import Features, explain, look_at, starter_recipe

    stem = (
        Path(os.path.abspath(data)) if out is None else out
    ).stem  # the name that was typed, of a link too
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in stem)
    name = name.strip("-.") or "data"
    path = Path(f"{name}.yaml") if out is None else out
    if path.exists():
        raise ValueError(f"--out must not exist yet, got {path}")
    summary = look_at(data)
    if features is not None and not summary.are_images:
        raise ValueError(f"--features must be left out: {data} has features already, got {features}")
    network = features or (_NETWORK if find_spec("timm") is not None else "none")
    wanted = None
    if summary.are_images and network != "none":
        wanted = Features(network, Path(os.path.abspath(path.with_name(f"{name}-features"))))
    _print_found(data, summary)
    for reason in explain(summary, wanted):
        typer.echo(f"advice: {reason}")
    write_text(path, starter_recipe(summary, name, wanted))
    typer.echo(f"Wrote {path}. Next:")
    for command in _commands(data, path, name, wanted):
        typer.echo(f"  {command}")


def _print_found(data: Path, seen: "Found") -> None:
    counts = sorted(seen.class_table.counts)
    kind = {"image_list": "a list of images", "embeddings": "embeddings"}
    shape = " x ".join(map(str, seen.input_shape))
    typer.echo(
        f"{data}: {kind.get(seen.data['name'], 'a folder of images')}, {len(counts)} classes, "
        f"{seen.rows['train']} training, {seen.rows['val']} validation and {seen.rows['test']} test rows"
    )
    typer.echo(f"training rows of a class: {counts[0]} to {counts[-1]}, median {counts[len(counts) // 2]}")
    typer.echo(f"{'images of a median size of ' if seen.are_images else 'inputs of length '}{shape}")
    for note in seen.notes:
        typer.echo(f"note: {note}")


def _commands(data: Path, recipe: Path, name: str, features: "Features | None") -> list[str]:
    """Return what to type next."""
    train = f"shortlist train {quote(str(recipe))}"
    if features is None:
        return [train]
    folder = os.path.relpath(features.folder)
    code = "" if features.network.startswith("timm:") else " --allow-code"
    size = f"{code} --size 224" if code else ""
    run = f"runs/{name}"
    return [
        f"shortlist embed {quote(features.network)} {quote(str(data))} -o {quote(folder)}{size}",
        f"{train} --out {run}",
        f"shortlist join {run} -o {quote(f'{name}-model')}{code}",
    ]
