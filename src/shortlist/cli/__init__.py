"""The command ``shortlist``. The verbs only read their options; the library does the work."""

import os
import sys
from collections.abc import Callable

import typer

from shortlist.cli import data
from shortlist.cli.compare import compare
from shortlist.cli.demo import demo
from shortlist.cli.doctor import doctor
from shortlist.cli.predict import predict
from shortlist.cli.report import report
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
for verb in (demo, train, calibrate, evaluate, predict, compare, report, doctor):
    app.command()(verb)
app.add_typer(suite_app, name="suite")
app.add_typer(data.app, name="data")


@app.callback()
def _root() -> None:
    """Train classifiers that answer with a short list of classes, and measure them."""


def main() -> None:
    """Run the command ``shortlist``."""
    run_command(app)


def run_command(command: Callable[[], object]) -> None:
    """Run a command, and print an error that the user can correct as one line, with exit code 2.

    With ``SHORTLIST_DEBUG=1`` in the environment, the traceback is shown instead.
    """
    try:
        command()
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("SHORTLIST_DEBUG") == "1":
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ImportError):
            message += "; install the extra that brings it, e.g. shortlist[data]"
        print(f"shortlist: {message}", file=sys.stderr)
        sys.exit(2)
