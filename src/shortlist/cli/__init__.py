"""The command ``shortlist``. The verbs only read their options; the library does the work."""

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from shortlist import __version__
from shortlist._messages import MAX_MESSAGE, one_line, shortened
from shortlist._named_code import code_of_command
from shortlist.cli import votes
from shortlist.cli._extras import words_for_missing, words_for_unfit
from shortlist.cli._options import option
from shortlist.cli.compare import compare
from shortlist.cli.demo import demo
from shortlist.cli.doctor import doctor
from shortlist.cli.embed import embed
from shortlist.cli.export import export
from shortlist.cli.feedback import feedback_app
from shortlist.cli.index import index
from shortlist.cli.init import init
from shortlist.cli.join import join
from shortlist.cli.papers import papers_app
from shortlist.cli.people import people_app
from shortlist.cli.predict import predict
from shortlist.cli.release import release, releases
from shortlist.cli.report import report
from shortlist.cli.score import score
from shortlist.cli.serve import serve
from shortlist.cli.suite import suite_app
from shortlist.cli.train import calibrate, evaluate, train

__all__ = ["app", "main", "run_command"]

app = typer.Typer(
    name="shortlist",
    help="Train classifiers that answer with a short list of classes, and measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (
    demo,
    init,
    train,
    calibrate,
    evaluate,
    predict,
    embed,
    join,
    score,
    index,
    serve,
    export,
    compare,
    report,
    doctor,
):
    app.command()(verb)
for verb in (release, releases):
    app.command()(verb)
app.add_typer(suite_app, name="suite")
app.add_typer(votes.app, name="data")  # its verbs are in two files
app.add_typer(feedback_app, name="feedback")
app.add_typer(people_app, name="people")
app.add_typer(papers_app, name="papers")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shortlist {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, option("Print the version and exit.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train classifiers that answer with a short list of classes, and measure them."""


def main() -> None:
    """Run the command ``shortlist``."""
    run_command(app)


def run_command(command: Callable[[], object]) -> None:
    """Run a command, and print whatever goes wrong as one line of bounded length, with exit code 2.

    With ``SHORTLIST_DEBUG=1`` in the environment, the traceback is shown instead.
    """
    try:
        with code_of_command():
            command()
    except Exception as error:
        if os.environ.get("SHORTLIST_DEBUG") == "1":
            raise
        print(f"shortlist: {_words_for(error)}", file=sys.stderr)
        sys.exit(2)


def _words_for(error: Exception) -> str:
    """Say what the user can mend as it is; anything else with its kind, the verb, and how to see more."""
    message = one_line(error)
    if isinstance(error, ImportError) and (words := words_for_missing(error, _verb())):
        return words
    if words := words_for_unfit(error, _verb()):
        return words
    if isinstance(error, ValueError | OSError):
        return message
    kind = type(error).__name__
    named = kind if message == kind else f"{kind}: {message}"
    return f"{_verb()} failed: {shortened(named, MAX_MESSAGE - 100)}; SHORTLIST_DEBUG=1 shows where"


def _verb() -> str:
    """The verb that was called, with the one below it, as in ``suite run``."""
    words, command = [], typer.main.get_command(app)
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words) or "the command"
