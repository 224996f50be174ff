"""``shortlist init``: look at one's own data, and write a first recipe."""

import os
from pathlib import Path
from typing import Annotated

import typer

from shortlist.cli._options import argument, option


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
) -> None:
    """Look at your own data, say what is found, and write a recipe that trains on them.

    The recipe has comments. Read it, change what you like, and give it to shortlist train.
    """
    from shortlist._store.files import write_text
    from shortlist.recipes import look_at, starter_recipe

    stem = (
        Path(os.path.abspath(data)) if out is None else out
    ).stem  # the name that was typed, of a link too
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in stem)
    name = name.strip("-.") or "data"
    path = Path(f"{name}.yaml") if out is None else out
    if path.exists():
        raise ValueError(f"--out must not exist yet, got {path}")
    found = look_at(data)
    counts = sorted(found.class_table.counts)
    kind = {"image_folder": "a folder of images", "image_list": "a list of images"}
    shape = " x ".join(map(str, found.input_shape))
    typer.echo(
        f"{data}: {kind.get(found.data['name'], 'embeddings')}, {len(counts)} classes, "
        f"{found.rows['train']} training, {found.rows['val']} validation and {found.rows['test']} test rows"
    )
    typer.echo(f"training rows of a class: {counts[0]} to {counts[-1]}, median {counts[len(counts) // 2]}")
    typer.echo(f"{'images of a median size of ' if found.are_images else 'inputs of length '}{shape}")
    for note in found.notes:
        typer.echo(f"note: {note}")
    write_text(path, starter_recipe(found, name))
    typer.echo(f"Wrote {path}. Next: shortlist train {path}")
