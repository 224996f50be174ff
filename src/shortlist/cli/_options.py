"""Options that several verbs share. Where a user names or allows code, the current folder is searched too."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def _look_here_for_code(value: Any) -> Any:
    """Have the user's own modules looked for in the current folder first: only where they asked for code."""
    if value:
        sys.path.insert(0, str(Path.cwd()))
    return value


def published_file(path: Path | None) -> Path | None:
    """Return the file of a recipe or suite: papers:NAME is one of the publications."""
    name = "" if path is None else str(path)
    if not name.startswith("papers:"):
        return path
    from shortlist.papers import recipe_path

    return recipe_path(name.removeprefix("papers:"))


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Run code that the recipe or the features name (package.module:function), also from the current "
        "folder.",
        callback=_look_here_for_code,
    ),
]
OwnNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="MODULE:FUNCTION",
        help="Function that makes the network, also from the current folder. Needed if the network of the "
        "model is your own code.",
        callback=_look_here_for_code,
        show_default=False,
    ),
]
ModelPlace = Annotated[
    Path, typer.Argument(help="A run folder, or the folder of a saved model.", show_default=False)
]
DataPlace = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Where the data lie now, if they were moved: a folder, or a list of images.",
        show_default=False,
    ),
]
