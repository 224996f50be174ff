"""Options that several verbs share. Where a user names or allows code, the current folder is searched too."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist._named_code import allow_code


def option(words: str, *names: str, **settings: Any) -> Any:
    """Return an option of a verb with these words as its help; its names, if not that of the argument."""
    return typer.Option(*names, help=words, **settings)


def argument(words: str, **settings: Any) -> Any:
    """Return an argument of a verb with these words as its help."""
    return typer.Argument(help=words, **settings)


def look_here_for_code(value: Any) -> Any:
    """Have the user's own modules looked for in the current folder first: only where they asked for code."""
    if value:
        sys.path.insert(0, str(Path.cwd()))
    return value


def _let_run(value: bool) -> bool:
    """Let this command and its processes run the code that files name."""
    if value:
        allow_code()
    return look_here_for_code(value)


def published_file(path: Path | None) -> Path | None:
    """Return the file of a recipe or suite: papers:NAME is one of the publications."""
    name = "" if path is None else str(path)
    if not name.startswith("papers:"):
        return path
    from shortlist.papers import recipe_path

    return recipe_path(name.removeprefix("papers:"))


def chosen_form(**asked: bool) -> str | None:
    """Return the form of a table that was asked for, None for the terminal's."""
    forms = [form for form, is_asked in asked.items() if is_asked]
    if len(forms) > 1:
        names = [f"--{form}" for form in asked]
        raise ValueError(f"only one of {', '.join(names[:-1])} and {names[-1]} can be given")
    return forms[0] if forms else None


AsMarkdown = Annotated[bool, option("Print in Markdown.", "--markdown")]
AsLatex = Annotated[bool, option("Print in LaTeX, with rules of the package booktabs.", "--latex")]
AsCsv = Annotated[bool, option("Print CSV.", "--csv")]
AsHtml = Annotated[bool, option("Print in HTML.", "--html")]
AsJson = Annotated[bool, option("Print JSON, for scripts.", "--json")]
AllowCode = Annotated[
    bool,
    option(
        "Run code that a recipe, a model or features name (package.module:function), also from the current "
        "folder.",
        "--allow-code",
        callback=_let_run,
    ),
]
OwnNetwork = Annotated[
    str | None,
    option(
        "Function that makes the network, also from the current folder. Needed if the network of the "
        "model is your own code.",
        "--network",
        metavar="MODULE:FUNCTION",
        callback=look_here_for_code,
    ),
]
ModelPlace = Annotated[Path, argument("A run folder, or the folder of a saved model.")]
DataPlace = Annotated[
    Path | None,
    option("Where the data lie now, if they were moved: a folder, or a list of images.", "--data"),
]
